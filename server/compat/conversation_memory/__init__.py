"""conversation-memory: three layers of MCP tools over what earlier sessions learned.

`memory_search` returns short rows, `memory_get_observations` returns observations in full, and `memory_read` returns
the conversation they come from. `observations_record` stores new observations.

Read `tools.py` first, then `service.py` with the rule when conversations are searched instead of observations.
`observation_search.py` and `conversation_search.py` search, `transcript.py` reads, and `responses.py` renders.
"""
