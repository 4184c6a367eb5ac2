"""AgentKit's conversations API over REST: `/conversations`, `/namespaces`, `/chat`, and OpenAI's chat completions.

AgentKit had a single user. Here every operation works on the caller's own library only; another user's conversation is
reported as not found.

`routes.py` lists the operations, and `recording.build_agentkit` constructs the services behind them: `conversations.py`
(read, change, export, namespaces, changes), `recording.py` (write), `archives.py` (all at once) and the package `chat`.
"""
