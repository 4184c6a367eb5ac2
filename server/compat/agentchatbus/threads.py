"""Converts conversations and messages to threads and messages of the bus, and back to stored metadata."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import msgspec
from msgspec import UNSET

from config.numbers import clamp
from config.settings import Settings
from config.times import extend_to_microseconds
from server.compat.agentchatbus import schemas
from sources.records import Conversation, ExactHit, Message
from sources.search.arguments import QUERY_MAX_TERMS
from sources.storage.collections.chats import Chats
from sources.storage.contract import ExactSearch, MetadataFilter

# The namespace of conversations that were created as threads.
NAMESPACE = "bus"
CREATOR_KEY = "creator_agent_id"
# The metadata key of what the bus itself knows about a thread or message, separate from the metadata of its author.
BUS_KEY = "_bus"
SYSTEM_PROMPT_KEY = "system_prompt"
NORMAL: schemas.Priority = "normal"
DISCUSS: schemas.ThreadStatus = "discuss"
_STATUSES: tuple[schemas.ThreadStatus, ...] = get_args(schemas.ThreadStatus)


def bus_thread(conversation: Conversation) -> schemas.BusThread:
    stored = _string_field(conversation.metadata.get(BUS_KEY), "status")
    status: schemas.ThreadStatus = stored if stored in _STATUSES else DISCUSS
    return schemas.BusThread(
        id=conversation.id,
        topic=conversation.title,
        status="archived" if conversation.is_archived else status,
        system_prompt=_string_field(conversation.metadata, SYSTEM_PROMPT_KEY),
        created_at=extend_to_microseconds(conversation.created_at),
        updated_at=extend_to_microseconds(conversation.last_modified),
        message_count=conversation.message_count,
    )


def bus_message(message: Message) -> schemas.BusMessage:
    bus_fields = message.metadata.get(BUS_KEY)
    return schemas.BusMessage(
        id=message.id,
        thread_id=message.conversation_id,
        seq=message.number,
        author=message.sender,
        author_id=_string_field(bus_fields, "author_id"),
        author_name=message.sender,
        role=message.role,
        content=message.content,
        created_at=extend_to_microseconds(message.created_at),
        priority=_string_field(bus_fields, "priority") or NORMAL,
        reply_to_msg_id=message.parent_id,
        metadata=author_metadata(message),
    )


def system_prompt_message(conversation: Conversation) -> schemas.BusMessage | None:
    """Returns the system prompt as a message before the first one, as agents expect it; None if there is none."""
    thread = bus_thread(conversation)
    if not thread.system_prompt:
        return None
    return schemas.BusMessage(
        id=f"sys-{thread.id}",
        thread_id=thread.id,
        seq=0,
        author="system",
        author_id=None,
        author_name="System",
        role="system",
        content=thread.system_prompt,
        created_at=thread.created_at,
        priority=NORMAL,
        reply_to_msg_id=None,
        metadata=None,
    )


# Metadata


def message_metadata(metadata: Mapping[str, Any], priority: str, author_id: str | None) -> dict[str, Any]:
    """Returns the metadata of a new message as it is stored: the author's own, and the bus's fields that differ from
    their defaults."""
    bus_fields: dict[str, Any] = {}
    if priority != NORMAL:
        bus_fields["priority"] = priority
    if author_id is not None:
        bus_fields["author_id"] = author_id
    own = without_bus_fields(metadata)
    return {**own, BUS_KEY: bus_fields} if bus_fields else own


def author_metadata(message: Message) -> str | None:
    """Returns the author's metadata as JSON in a string."""
    own = without_bus_fields(message.metadata)
    return msgspec.json.encode(own).decode() if own else None


def creator_id(conversation: Conversation) -> str | None:
    return _string_field(conversation.metadata, CREATOR_KEY)


def bus_field_filter(name: str, value: str, default: str) -> MetadataFilter:
    # The default is not stored.
    return MetadataFilter(f"$.{BUS_KEY}.{name}", (value, None) if value == default else (value,))


def without_bus_fields(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metadata.items() if name != BUS_KEY}


def _string_field(fields: Any, name: str) -> str | None:
    """Reads a field of metadata, which may have any shape in what other clients wrote."""
    value = fields.get(name) if isinstance(fields, Mapping) else None
    return value if isinstance(value, str) else None


async def read_page(
    chats: Chats,
    thread_id: str,
    after_seq: int,
    messages_max: int,
    remaining_bytes: int,
    *,
    metadata: MetadataFilter | None = None,
    batch_max: int | None = None,
) -> tuple[Sequence[Message], bool]:
    """Returns messages up to both limits, but at least one if there is any, and whether there are more. `batch_max` is
    how many are read from the storage at a time."""
    messages: list[Message] = []
    # One more tells whether there are more.
    batch_size = min(batch_max or messages_max, messages_max + 1)
    while True:
        batch = await chats.messages_after(thread_id, after_seq, batch_size, metadata)
        for message in batch:
            remaining_bytes -= len(message.content.encode())
            if len(messages) == messages_max or (remaining_bytes < 0 and messages):
                return messages, True
            messages.append(message)
        if len(batch) < batch_size:
            return messages, False
        after_seq = batch[-1].number


# -- search ------------------------------------------------------------------------------------------------------------
# Searches messages by full-text expressions: matches for the MCP tool, whole messages for REST.
#
# For agents, the storage layer redacts human-only messages.


async def match_messages(
    chats: Chats, query: str, thread_id: str | None, limit: int, settings: Settings
) -> tuple[Sequence[ExactHit], dict[str, Any]]:
    """Returns the hits, and the fields of a response that say how the query was read and what is missing."""
    notes, max_chars = [], settings.fixed.query_max_chars
    if len(query) > max_chars:
        notes.append(f"the query was truncated to its first {max_chars} characters")
    results = await chats.match_messages(
        ExactSearch(
            expression=query[:max_chars],
            conversation_id=thread_id or None,
            phrases_max=QUERY_MAX_TERMS,
            limit=clamp(limit, 1, settings.message_page_max),
            deadline_ms=settings.search_deadline_ms,
        )
    )
    if not results.is_ranked:
        notes.append("too many messages match to rank them; the newest come first")
    if not results.is_complete:
        notes.append("older messages are still being indexed; try again later")
    return results.hits, {"read_as": results.read_as or UNSET, "note": "; ".join(notes) or UNSET}


def match_fields(hit: ExactHit) -> dict[str, Any]:
    message = hit.message
    return {
        "message_id": message.id,
        "id": message.id,
        "thread_id": message.conversation_id,
        "thread_topic": hit.title,
        "author": message.sender,
        "seq": message.number,
        "created_at": extend_to_microseconds(message.created_at),
        "snippet": hit.snippet,
    }
