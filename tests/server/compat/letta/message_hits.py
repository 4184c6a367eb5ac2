"""Message hits for tests."""

from typing import Any

from sources.records import Message, MessageHit


def message_hit(content: str, title: str = "Python help", **more: Any) -> MessageHit:
    defaults: dict[str, Any] = {
        "uuid": "41f0",
        "created_at": "2025-02-10T14:30:59.000Z",
        "last_modified": "2025-02-10T14:30:59.000Z",
        "version": 1,
        "client_id": "test",
        "content_hash": "",
        "conversation_id": "9b2e77aa-0000",
        "position": 0,
        "role": "user",
        "sender": "Ana",
    }
    return MessageHit(message=Message(**{**defaults, "content": content, **more}), title=title)
