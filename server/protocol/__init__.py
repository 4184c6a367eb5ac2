"""MCP without I/O: messages, protocol versions, the catalog of tools, resources and prompts, and the dispatcher."""

# Start with `dispatcher`, which maps a method to a result, and `call`, what a handler gets. A transport builds the
# call from a message (`messages`) with `request_meta`: from `_meta` in the modern era, from a session in the legacy
# one (`legacy_sessions`). Tools, resources, prompts and profiles are registered in `catalog` and listed by `listing`.
# Transports with a lasting connection share `connection`; `in_flight` finds the call that a message refers to.
