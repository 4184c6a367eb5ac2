"""Chat for AgentKit and OpenAI clients: `POST /chat`, `POST /v1/chat/completions` and `GET /v1/models`.

Requests go to the upstream model that the operator configured. Without one, answers are passages of the caller's own
library. Either way each turn is stored as part of a conversation.
"""
