"""conversation-memory: three layers of MCP tools over what earlier sessions learned. Read `tools` first."""
