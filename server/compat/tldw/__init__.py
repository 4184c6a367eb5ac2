"""tldw's addresses for MCP: clients of tldw connect without changes."""
