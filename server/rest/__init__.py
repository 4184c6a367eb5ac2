"""The same knowledge without MCP: operations over plain HTTP and JSON, their OpenAPI document, and pages for people."""
