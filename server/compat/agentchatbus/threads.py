"""Converts conversations and messages to threads and messages of the bus, and back to stored metadata."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import msgspec
from msgspec import UNSET

from config.errors import InvalidParams
from config.numbers import clamp
from config.settings import Settings
from config.times import extend_to_microseconds, format_time, parse_time
from server.compat.agentchatbus import schemas
from sources.records import Conversation, ExactHit, ExactHits, Message
from sources.search.arguments import QUERY_MAX_TERMS
from sources.storage.contract import Chats, CreationPosition, ExactSearch, MetadataFilter

# The namespace of conversations that were created as threads.
NAMESPACE = "bus"
CREATOR_KEY = "creator_agent_id"
# The metadata key of what the bus itself knows about a thread or message, separate from the metadata of its author.
_BUS_KEY = "_bus"
_SYSTEM_PROMPT_KEY = "system_prompt"
_NORMAL: schemas.Priority = "normal"
_DISCUSS: schemas.ThreadStatus = "discuss"
_STATUSES: tuple[schemas.ThreadStatus, ...] = get_args(schemas.ThreadStatus)
# Between the time and the id in a cursor.
_CURSOR_SEPARATOR = "|"


def bus_thread(conversation: Conversation) -> schemas.BusThread:
    return schemas.BusThread(
        id=conversation.id,
        topic=conversation.title,
        status=_thread_status(conversation),
        system_prompt=_string_field(conversation.metadata, _SYSTEM_PROMPT_KEY),
        created_at=extend_to_microseconds(conversation.created_at),
        updated_at=extend_to_microseconds(conversation.last_modified),
        message_count=conversation.message_count,
    )


def bus_message(message: Message) -> schemas.BusMessage:
    bus_fields = message.metadata.get(_BUS_KEY)
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
        priority=_string_field(bus_fields, "priority") or _NORMAL,
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
        priority=_NORMAL,
        reply_to_msg_id=None,
        metadata=None,
    )


# Metadata


def thread_metadata(metadata: Mapping[str, Any] | None, system_prompt: str | None, creator_id: str) -> dict[str, Any]:
    """Returns the metadata of a new thread as it is stored."""
    prompt = {_SYSTEM_PROMPT_KEY: system_prompt} if system_prompt else {}
    return {**_without_bus_fields(metadata or {}), **prompt, CREATOR_KEY: creator_id}


def with_status(conversation: Conversation, status: schemas.ThreadStatus) -> dict[str, Any]:
    """Returns the metadata of a thread with another status."""
    bus_fields = conversation.metadata.get(_BUS_KEY)
    kept = bus_fields if isinstance(bus_fields, Mapping) else {}
    return {**conversation.metadata, _BUS_KEY: {**kept, "status": status}}


def message_metadata(metadata: Mapping[str, Any], priority: str, author_id: str | None) -> dict[str, Any]:
    """Returns the metadata of a new message as it is stored: the author's own, and the bus's fields that differ from
    their defaults."""
    bus_fields: dict[str, Any] = {}
    if priority != _NORMAL:
        bus_fields["priority"] = priority
    if author_id is not None:
        bus_fields["author_id"] = author_id
    own = _without_bus_fields(metadata)
    return {**own, _BUS_KEY: bus_fields} if bus_fields else own


def author_metadata(message: Message) -> str | None:
    """Returns the author's metadata as JSON in a string."""
    own = _without_bus_fields(message.metadata)
    return msgspec.json.encode(own).decode() if own else None


def creator_id(conversation: Conversation) -> str | None:
    return _string_field(conversation.metadata, CREATOR_KEY)


def has_priority(priority: schemas.Priority | None) -> MetadataFilter | None:
    return _field_filter("priority", priority, _NORMAL) if priority else None


def has_status(status: schemas.ThreadStatus | None) -> MetadataFilter | None:
    """An archived thread keeps the status that it had before, see `Conversation.is_archived`."""
    return _field_filter("status", status, _DISCUSS) if status and status != "archived" else None


def _field_filter(name: str, value: str, default: str) -> MetadataFilter:
    # The default is not stored.
    return MetadataFilter(f"$.{_BUS_KEY}.{name}", (value, None) if value == default else (value,))


def _thread_status(conversation: Conversation) -> schemas.ThreadStatus:
    if conversation.is_archived:
        return "archived"
    status = _string_field(conversation.metadata.get(_BUS_KEY), "status")
    return status if status in _STATUSES else _DISCUSS


def _without_bus_fields(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metadata.items() if name != _BUS_KEY}


def _string_field(fields: Any, name: str) -> str | None:
    """Reads a field of metadata, which may have any shape in what other clients wrote."""
    value = fields.get(name) if isinstance(fields, Mapping) else None
    return value if isinstance(value, str) else None


# Cursors


def thread_cursor(last: Conversation, following: Conversation) -> str:
    """Returns the cursor of the page after `last`: its time, as in AgentChatBus. The id is appended only if the next
    thread was created at the same time, which would otherwise be skipped."""
    time = extend_to_microseconds(last.created_at)
    return time if following.created_at < last.created_at else f"{time}{_CURSOR_SEPARATOR}{last.id}"


def parse_thread_cursor(text: str) -> CreationPosition:
    """Accepts any ISO 8601 time. A `+` that was not percent-encoded arrives as a space."""
    time, _, thread_id = text.strip().partition(_CURSOR_SEPARATOR)
    time = time.replace(" ", "+") if "T" in time else time
    try:
        return CreationPosition(format_time(parse_time(time)), thread_id)
    except (ValueError, OverflowError) as error:
        raise InvalidParams("Invalid 'before' cursor: must be an ISO datetime string") from error


# -- message pages -----------------------------------------------------------------------------------------------------
# Reads the messages of a thread in pages of limited length and size.


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


async def search_matches(
    chats: Chats, query: str, thread_id: str | None, limit: int, settings: Settings
) -> schemas.MsgSearchResults:
    results = await chats.match_messages(_exact_search(query, thread_id, limit, settings))
    rows = tuple(schemas.MessageMatch(**_match_fields(hit)) for hit in results.hits)
    return schemas.MsgSearchResults(results=rows, total=len(rows), query=query, **_remarks(results, query, settings))


async def search_messages(
    chats: Chats, query: str, thread_id: str | None, limit: int, settings: Settings
) -> schemas.BusSearchResults:
    results = await chats.match_messages(_exact_search(query, thread_id, limit, settings))
    rows = tuple(
        schemas.FullMessageMatch(
            **_match_fields(hit), content=hit.message.content, metadata=author_metadata(hit.message)
        )
        for hit in results.hits
    )
    return schemas.BusSearchResults(results=rows, total=len(rows), query=query, **_remarks(results, query, settings))


def _exact_search(query: str, thread_id: str | None, limit: int, settings: Settings) -> ExactSearch:
    """Truncates an expression that is too long; a note reports it."""
    return ExactSearch(
        expression=query[: settings.fixed.query_max_chars],
        conversation_id=thread_id or None,
        phrases_max=QUERY_MAX_TERMS,
        limit=clamp(limit, 1, settings.message_page_max),
        deadline_ms=settings.search_deadline_ms,
    )


def _remarks(results: ExactHits, query: str, settings: Settings) -> dict[str, Any]:
    notes, max_chars = [], settings.fixed.query_max_chars
    if len(query) > max_chars:
        notes.append(f"the query was truncated to its first {max_chars} characters")
    if not results.is_ranked:
        notes.append("too many messages match to rank them; the newest come first")
    if not results.is_complete:
        notes.append("older messages are still being indexed; try again later")
    return {"read_as": results.read_as or UNSET, "note": "; ".join(notes) or UNSET}


def _match_fields(hit: ExactHit) -> dict[str, Any]:
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
