"""tldw's addresses for MCP: clients of tldw connect without changes. `endpoints.py` has all of them, and `sessions.py`
the sessions that tldw's clients name themselves. `modules_file.py` is for operators who move: it translates tldw's
configuration of modules into settings."""
