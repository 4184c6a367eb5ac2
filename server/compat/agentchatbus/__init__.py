"""AgentChatBus: the MCP tools and the REST API under `/api` for agents that share threads. Read `service` first."""
