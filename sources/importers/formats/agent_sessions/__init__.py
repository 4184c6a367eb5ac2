"""Session files of coding agents, shared by the Claude Code and Codex importers."""
