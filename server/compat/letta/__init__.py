"""Letta's tool `conversation_search`: searches the caller's conversation history by substring, roles and dates.
`tools.py` has the tool and its lenient arguments, `search.py` the search, the ranking and the two response formats."""
