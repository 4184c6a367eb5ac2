"""Sources as MCP tools, resources and prompts. Each call opens the caller's library from its request context."""

# `source_tools` registers what each source declares, `knowledge` the tools over all sources, `research` the two that
# deep research expects, and `writing` those that write. REST and commands call the functions of `items`, too.

from server.tools.source_tools import add_sources

__all__ = ["add_sources"]
