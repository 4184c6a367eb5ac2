"""Chat for AgentKit and OpenAI clients: `POST /chat`, `POST /v1/chat/completions` and `GET /v1/models`.

Requests go to the upstream model that the operator configured. Without one, answers are passages of the caller's own
library. Either way each turn is stored as part of a conversation.

`service.py` is `POST /chat`, and `completions.py` OpenAI's API: `relay.py` passes a request to `upstream.py` and its
response back, `completion_parser.py` and `turns.py` read what is stored of both, and `recorder.py` stores it.
`passages.py` finds what the answers are made of.
"""
