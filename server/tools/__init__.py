"""Sources and operations as MCP tools, resources and prompts. Each call opens the caller's library from its request
context."""

# `source_tools` registers what operations and sources declare, `knowledge` the tools over all sources, and `research`
# the two that deep research expects.
