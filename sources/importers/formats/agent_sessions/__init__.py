"""Session files of coding agents, shared by the Claude Code and Codex importers. `sessions.py` reads a growing file
exchange by exchange, `turns.py` has the common form of what agents write, and `observations.py` derives what the lines
prove. The formats themselves are `../claude_code.py` and `../codex.py`."""
