"""AgentChatBus: the message bus for agents, as MCP tools and REST routes."""
