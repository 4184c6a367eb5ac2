"""MCP without I/O: messages, protocol versions, the catalog of tools, resources and prompts, and the dispatcher. Read
`dispatcher` first."""
