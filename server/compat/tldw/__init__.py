"""tldw's addresses for MCP (`endpoints`): clients of tldw connect without changes. `modules_file` is for operators who
move: it translates tldw's configuration of modules into settings."""
