"""AgentKit's conversations API over REST: `/conversations`, `/namespaces`, `/chat`, and OpenAI's chat completions.

AgentKit had a single user. Here every operation works on the caller's own library only; another user's conversation is
reported as not found.
"""
