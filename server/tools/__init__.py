"""Sources as MCP tools, resources and prompts. Each call opens the caller's library from its request context."""

from server.tools.source_tools import add_sources

__all__ = ["add_sources"]
