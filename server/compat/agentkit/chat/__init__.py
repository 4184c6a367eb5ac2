"""Chat for AgentKit and OpenAI clients: `POST /chat`, `POST /v1/chat/completions` and `GET /v1/models`. Read `service`
first."""
