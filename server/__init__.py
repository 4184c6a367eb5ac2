"""The transports (HTTP, WebSocket, stdio, command line), the REST and compatibility APIs, and the dispatcher. Read
`lifespan` first."""
