"""Where bytes come in and go out: HTTP, WebSocket and stdio, each a thin shell around the dispatcher."""
