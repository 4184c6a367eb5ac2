"""AgentKit's conversations API over REST: `/conversations`, `/namespaces`, `/chat`, and OpenAI's chat completions. Read
`conversations` first."""
