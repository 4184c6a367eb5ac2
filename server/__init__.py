"""The doors (HTTP, WebSocket, stdio, command line) and the one dispatcher behind them."""
