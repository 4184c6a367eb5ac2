"""MCP without I/O: messages, versions, the catalog of what we offer, and the dispatcher that serves it."""
