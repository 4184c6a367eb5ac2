"""Conversations as threads of a message bus, and the search of their messages by full-text expressions. What people
keep from agents is masked here, for callers that are agents."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from config.numbers import clamp
from config.settings import Settings
from sources.importers.formats.conversation_archive.shapes import zoned
from sources.records import Conversation, ExactHit, ExactHits, Message
from sources.storage.contract import Chats, ExactSearch

# The namespace of conversations that were begun on the bus.
NAMESPACE = "bus"
DEFAULT_LIMIT = 50
# Under this name a message's metadata keeps what the bus knows of it beside what its author said.
_OF_THE_BUS = "_bus"
_NORMAL = "normal"
_STATUS = "discuss"


class FoundRow(Struct, frozen=True, kw_only=True):
    """A message that matches. `id` is `message_id` once more: clients look for one or the other."""

    message_id: str
    id: str
    thread_id: str
    thread_topic: str
    author: str
    seq: int
    created_at: str
    snippet: Annotated[str, Meta(description="HTML of 20 words at most: text escaped, matches in <mark>.")]


class FoundMessageRow(FoundRow, frozen=True, kw_only=True):
    """The same with the whole message; `metadata` is JSON as text."""

    content: str
    metadata: str | None


class FoundRows(Struct, frozen=True, kw_only=True):
    """`total` counts the rows of this answer."""

    results: tuple[FoundRow, ...]
    total: int
    query: str
    read_as: Annotated[str, Meta(description="How the query was read, if not as it stands.")] | UnsetType = UNSET
    note: Annotated[str, Meta(description="Why the list may not be what it seems.")] | UnsetType = UNSET


class FoundMessageRows(Struct, frozen=True, kw_only=True):
    """`total` counts the rows of this answer."""

    results: tuple[FoundMessageRow, ...]
    total: int
    query: str
    read_as: str | UnsetType = UNSET
    note: str | UnsetType = UNSET


class BusMessage(Struct, frozen=True, kw_only=True):
    """`seq` rises with every message of the whole library; `metadata` is JSON as text."""

    id: str
    thread_id: str
    seq: int
    author: str
    author_id: str | None
    author_name: str
    role: str
    content: str
    created_at: str
    priority: str
    reply_to_msg_id: str | None
    metadata: str | None


class BusThread(Struct, frozen=True, kw_only=True):
    id: str
    topic: str
    status: str
    system_prompt: str | None
    created_at: str
    updated_at: str
    message_count: int


# Search


def exact_search(query: str, thread_id: str | None, limit: int, settings: Settings) -> ExactSearch:
    """What is too long for an expression is cut, and the answer says so."""
    return ExactSearch(
        expression=query[: settings.query_max_chars],
        conversation_id=thread_id or None,
        limit=clamp(limit, 1, settings.conversation_hits_max),
        deadline_ms=settings.search_deadline_ms,
    )


async def find_rows(chats: Chats, query: str, thread_id: str | None, limit: int, settings: Settings) -> FoundRows:
    """The passages that match."""
    found = await chats.match_messages(exact_search(query, thread_id, limit, settings))
    rows = tuple(_row(hit) for hit in found.hits)
    return FoundRows(results=rows, total=len(rows), query=query, **_remarks(found, query, settings))


async def find_message_rows(
    chats: Chats, query: str, thread_id: str | None, limit: int, settings: Settings
) -> FoundMessageRows:
    """With all that was said."""
    found = await chats.match_messages(exact_search(query, thread_id, limit, settings))
    rows = tuple(_message_row(hit) for hit in found.hits)
    return FoundMessageRows(results=rows, total=len(rows), query=query, **_remarks(found, query, settings))


def _remarks(found: ExactHits, query: str, settings: Settings) -> dict[str, Any]:
    notes = "; ".join(_notes(found, query, settings.query_max_chars))
    return {"read_as": found.read_as or UNSET, "note": notes or UNSET}


def _notes(found: ExactHits, query: str, query_max_chars: int) -> Iterator[str]:
    if len(query) > query_max_chars:
        yield f"only the first {query_max_chars} characters of the query were read"
    if not found.is_ranked:
        yield "so many messages match that the newest come first"
    if not found.is_complete:
        yield "older messages are still being indexed: ask again"


def _row(hit: ExactHit) -> FoundRow:
    return FoundRow(**_shared(hit))


def _message_row(hit: ExactHit) -> FoundMessageRow:
    return FoundMessageRow(**_shared(hit), content=hit.message.content, metadata=_metadata(hit.message))


def _shared(hit: ExactHit) -> dict[str, Any]:
    message = hit.message
    return {
        "message_id": message.id,
        "id": message.id,
        "thread_id": message.conversation_id,
        "thread_topic": hit.title,
        "author": message.sender,
        "seq": message.number,
        "created_at": zoned(message.created_at),
        "snippet": hit.snippet,
    }


# Threads and messages


def thread_shape(conversation: Conversation) -> BusThread:
    prompt = conversation.metadata.get("system_prompt")
    return BusThread(
        id=conversation.id,
        topic=conversation.title,
        status=_STATUS,
        system_prompt=prompt if isinstance(prompt, str) else None,
        created_at=zoned(conversation.created_at),
        updated_at=zoned(conversation.last_modified),
        message_count=conversation.message_count,
    )


def bus_metadata(given: Mapping[str, Any], priority: str, author_id: str | None) -> dict[str, Any]:
    """What is stored with a message: what its author said, and what the bus knows."""
    known = {"priority": priority, "author_id": author_id}
    usual = {"priority": _NORMAL, "author_id": None}
    kept = {name: value for name, value in known.items() if value != usual[name]}
    said = {name: value for name, value in given.items() if name != _OF_THE_BUS}
    return {**said, _OF_THE_BUS: kept} if kept else said


def bus_message_shape(message: Message) -> BusMessage:
    kept = message.metadata.get(_OF_THE_BUS)
    return BusMessage(
        id=message.id,
        thread_id=message.conversation_id,
        seq=message.number,
        author=message.sender,
        author_id=_text_in(kept, "author_id"),
        author_name=message.sender,
        role=message.role,
        content=message.content,
        created_at=zoned(message.created_at),
        priority=_text_in(kept, "priority") or _NORMAL,
        reply_to_msg_id=message.parent_id,
        metadata=_metadata(message),
    )


def _metadata(message: Message) -> str | None:
    said = {name: value for name, value in message.metadata.items() if name != _OF_THE_BUS}
    return msgspec.json.encode(said).decode() if said else None


def _text_in(kept: Any, name: str) -> str | None:
    """Metadata may come from anywhere, and this name with it."""
    value = kept.get(name) if isinstance(kept, Mapping) else None
    return value if isinstance(value, str) else None
