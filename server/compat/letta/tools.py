"""The tool `conversation_search`, in the contract that Letta's agents know. Mistakes in its arguments are answered as
text that a model can correct, not as errors: that is part of the contract."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from config.errors import FlorilegiumError
from config.settings import Settings
from server.compat.letta.recall import (
    DEFAULT_LIMIT,
    ROLES,
    Now,
    Unreadable,
    as_letta,
    as_text,
    is_answer,
    read_end,
    read_limit,
    read_roles,
    read_start,
    utc_now,
)
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Tool, ToolResult
from server.protocol.schema import input_schema
from sources.records import MessageHits
from sources.storage.contract import Chats, Libraries, MessageSearch

_UNSEEN = "older messages were not looked at; narrow the search by dates or words, or ask again"
# Each round looks this many times deeper for messages that are no output of ours.
_DEEPER = 4


class ConversationSearch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`limit` takes anything and `roles` a bare text, as clients send them; the listed schema says what they are."""

    query: Annotated[str | None, Meta(description="Text to match in messages and conversation titles.")] = None
    roles: tuple[str, ...] | str | None = None
    start_date: Annotated[str | None, Meta(description="From then on, inclusive; ISO 8601, UTC.")] = None
    end_date: Annotated[str | None, Meta(description="Until then, inclusive; a date is its whole day.")] = None
    limit: Any = DEFAULT_LIMIT
    format: Annotated[Literal["text", "json"], Meta(description="json: Letta's result shape.")] = "text"


def add_letta(catalog: Catalog, libraries: Libraries, settings: Settings, now: Now = utc_now) -> None:
    catalog.add_tool(_conversation_search(libraries, settings, catalog.tools, now))


def _conversation_search(libraries: Libraries, settings: Settings, own_tools: Collection[str], now: Now) -> Tool:
    async def run(call: Call, given: ConversationSearch) -> ToolResult:
        try:
            search = _search(given, settings)
            async with libraries.library(call.context) as library:
                found = await _find(library.chats, search, own_tools, settings.conversation_search_scan_max)
        except Unreadable as error:
            return _text(error.message)
        except FlorilegiumError as error:
            return _text(f"Error: {error.message}")
        return _answer(given, found, settings, now)

    return Tool(
        name="conversation_search",
        title="Search conversation history",
        description=(
            "Search prior conversation history (all conversations kept here). Hybrid-style: text match on content and "
            "titles. Optional filters: roles (user/assistant/tool), start_date and end_date (ISO 8601 inclusive). "
            "Returns matching messages with timestamps and content, newest first. "
            'Example: {"query": "asyncio", "roles": ["user", "assistant"], "start_date": "2025-01-01", "limit": 20}'
        ),
        input=ConversationSearch,
        schema=_schema(settings),
        handler=run,
    )


def _schema(settings: Settings) -> Mapping[str, Any]:
    schema = input_schema(ConversationSearch)
    schema["properties"]["roles"] = {
        "type": "array",
        "items": {"type": "string", "enum": list(ROLES)},
        "description": "Only messages of these roles.",
    }
    schema["properties"]["limit"] = {
        "type": "integer",
        "default": DEFAULT_LIMIT,
        "description": f"Messages, 1 to {settings.conversation_hits_max}.",
    }
    return schema


def _search(given: ConversationSearch, settings: Settings) -> MessageSearch:
    text = (given.query or "").strip()
    if len(text) > settings.query_max_chars:
        raise Unreadable(f"query: got {len(text)} characters, expected at most {settings.query_max_chars}")
    return MessageSearch(
        text=text or None,
        roles=read_roles(given.roles),
        date_from=read_start(given.start_date),
        date_to=read_end(given.end_date),
        limit=read_limit(given.limit, settings.conversation_hits_max),
        deadline_ms=settings.search_deadline_ms,
    )


async def _find(chats: Chats, search: MessageSearch, own_tools: Collection[str], examined_max: int) -> MessageHits:
    """The newest that are part of what was said. Where others stand before them, it is looked deeper."""
    depth = search.limit
    while True:
        found = await chats.find_messages(msgspec.structs.replace(search, limit=depth))
        hits = tuple([hit for hit in found.hits if is_answer(hit.message, own_tools)])
        is_exhausted = len(found.hits) < depth
        if len(hits) >= search.limit or is_exhausted or depth >= examined_max:
            is_complete = found.is_complete and (len(hits) >= search.limit or is_exhausted)
            return MessageHits(hits[: search.limit], is_complete)
        depth = min(depth * _DEEPER, max(examined_max, search.limit))


def _answer(given: ConversationSearch, found: MessageHits, settings: Settings, now: Now) -> ToolResult:
    note = None if found.is_complete else _UNSEEN
    if given.format == "text":
        return _text(as_text(found.hits, settings.conversation_search_message_chars, note))
    answer = msgspec.to_builtins(as_letta(found.hits, settings.conversation_search_message_chars, note, now()))
    return ToolResult([{"type": "text", "text": msgspec.json.encode(answer).decode()}], answer)


def _text(text: str) -> ToolResult:
    return ToolResult([{"type": "text", "text": text}])
