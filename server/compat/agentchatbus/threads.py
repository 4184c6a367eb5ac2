"""Converts conversations and messages to threads and messages of the bus, and back to stored metadata."""

from collections.abc import Mapping
from typing import Any

import msgspec

from config.times import extend_to_microseconds
from server.compat.agentchatbus.schemas import BusMessage, BusThread
from sources.records import Conversation, Message

# The namespace of conversations that were created as threads.
NAMESPACE = "bus"
# The metadata key of what the bus itself knows about a message, separate from its author's metadata.
_BUS_KEY = "_bus"
_NORMAL = "normal"
_STATUS = "discuss"


def bus_thread(conversation: Conversation) -> BusThread:
    system_prompt = conversation.metadata.get("system_prompt")
    return BusThread(
        id=conversation.id,
        topic=conversation.title,
        status=_STATUS,
        system_prompt=system_prompt if isinstance(system_prompt, str) else None,
        created_at=extend_to_microseconds(conversation.created_at),
        updated_at=extend_to_microseconds(conversation.last_modified),
        message_count=conversation.message_count,
    )


def bus_message(message: Message) -> BusMessage:
    bus_fields = message.metadata.get(_BUS_KEY)
    return BusMessage(
        id=message.id,
        thread_id=message.conversation_id,
        seq=message.number,
        author=message.sender,
        author_id=_string_field(bus_fields, "author_id"),
        author_name=message.sender,
        role=message.role,
        content=message.content,
        created_at=extend_to_microseconds(message.created_at),
        priority=_string_field(bus_fields, "priority") or _NORMAL,
        reply_to_msg_id=message.parent_id,
        metadata=author_metadata(message),
    )


def stored_metadata(metadata: Mapping[str, Any], priority: str, author_id: str | None) -> dict[str, Any]:
    """Returns a message's metadata as it is stored: the author's own, and the bus's fields that differ from their
    defaults."""
    own = {name: value for name, value in metadata.items() if name != _BUS_KEY}
    bus_fields: dict[str, Any] = {}
    if priority != _NORMAL:
        bus_fields["priority"] = priority
    if author_id is not None:
        bus_fields["author_id"] = author_id
    return {**own, _BUS_KEY: bus_fields} if bus_fields else own


def author_metadata(message: Message) -> str | None:
    """Returns the author's metadata as JSON in a string."""
    own = {name: value for name, value in message.metadata.items() if name != _BUS_KEY}
    return msgspec.json.encode(own).decode() if own else None


def _string_field(fields: Any, name: str) -> str | None:
    """Reads a field of `_bus`, which may have any shape in messages that other clients wrote."""
    value = fields.get(name) if isinstance(fields, Mapping) else None
    return value if isinstance(value, str) else None
