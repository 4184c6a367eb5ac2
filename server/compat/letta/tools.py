"""The MCP tool `conversation_search`. By its contract, errors are returned as text that a model can act on, not as
failed calls.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, date, datetime, time
from typing import Any

import msgspec

from config.errors import FlorilegiumError
from config.numbers import clamp
from config.settings import Settings
from config.times import format_time, parse_time
from server.compat.letta import search
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Tool, ToolResult
from sources.items import uri_of
from sources.storage.contract import Libraries, MessageSearch

# Text of each message that conversation_search returns, which the model can then request as a whole.
_CONVERSATION_SEARCH_MESSAGE_CHARS = 2000

# -- arguments ---------------------------------------------------------------------------------------------------------
# Parses the arguments of `conversation_search` as leniently as Letta's clients write them.

# How much of an invalid value an error message quotes.
_QUOTED_CHARS = 60
_QUOTED_ROLES = 10
_END_OF_DAY = time(23, 59, 59, 999_000)


def parse_arguments(arguments: search.ConversationSearch, settings: Settings) -> MessageSearch:
    text = (arguments.query or "").strip()
    if len(text) > settings.fixed.query_max_chars:
        raise search.InvalidSearchArgument(
            f"query: expected at most {settings.fixed.query_max_chars} characters, got {len(text)}"
        )
    return MessageSearch(
        text=text or None,
        roles=parse_roles(arguments.roles),
        date_from=parse_start_date(arguments.start_date),
        date_to=parse_end_date(arguments.end_date),
        limit=parse_limit(arguments.limit, settings.message_page_max),
        deadline_ms=settings.search_deadline_ms,
    )


def parse_limit(value: Any, limit_max: int) -> int:
    """Non-numeric values fall back to the default; others are clamped."""
    try:
        limit = int(value)
    except (TypeError, ValueError, OverflowError):
        limit = search.DEFAULT_LIMIT
    return clamp(limit, 1, limit_max)


def parse_roles(value: Sequence[str] | str | None) -> tuple[str, ...]:
    """A string is a single role. No role, or an empty string, means no filter."""
    roles = [value] if isinstance(value, str) else list(value or ())
    roles = [] if roles == [""] else roles
    if invalid := sorted({role for role in roles if role not in search.ROLES}):
        quoted = [role[:_QUOTED_CHARS] for role in invalid[:_QUOTED_ROLES]]
        raise search.InvalidSearchArgument(f"Invalid role(s): {quoted}. Allowed: {', '.join(search.ROLES)}.")
    return tuple(dict.fromkeys(roles))


def parse_start_date(text: str | None) -> str | None:
    """A date without a time means its first moment."""
    return _parse_date("start_date", text, time.min)


def parse_end_date(text: str | None) -> str | None:
    """A date without a time means its last moment."""
    return _parse_date("end_date", text, _END_OF_DAY)


def _parse_date(field: str, text: str | None, time_of_day: time) -> str | None:
    """Returns the time in the stored format. Times without an offset are UTC."""
    value = (text or "").strip()
    if not value:
        return None
    try:
        try:
            moment = datetime.combine(date.fromisoformat(value), time_of_day, UTC)
        except ValueError:  # not a date alone
            moment = parse_time(value)
        return format_time(moment)
    except (ValueError, OverflowError) as error:
        raise search.InvalidSearchArgument(
            f"Invalid {field} format: {value[:_QUOTED_CHARS]}. Use ISO 8601 format (YYYY-MM-DD or YYYY-MM-DDTHH:MM)"
        ) from error


_INCOMPLETE = "older messages were not searched; narrow the search by dates or words, or try again"
_NEAREST_ONLY = "no message contains this text; these are the nearest by meaning"
# The default page of Letta's own tool. All messages are more or less near, so that more would be of little use.
_NEAREST_MAX = 5


def add_letta_tools(catalog: Catalog, libraries: Libraries, settings: Settings) -> None:
    catalog.add_tool(LettaTools(libraries, settings, catalog.tools).tool())


class LettaTools:
    """The handler of `conversation_search`, and its declaration."""

    def __init__(
        self,
        libraries: Libraries,
        settings: Settings,
        own_tools: Collection[str],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._libraries = libraries
        self._settings = settings
        self._own_tools = own_tools
        self._now = now

    async def conversation_search(self, call: Call, arguments: search.ConversationSearch) -> ToolResult:
        settings = self._settings
        try:
            request = parse_arguments(arguments, settings)
            async with self._libraries.library(call.context) as library:
                hits = await search.search_history(
                    library.chats, request, self._own_tools, settings.fixed.conversation_search_scan_max
                )
                near = search.NearMessages((), None)
                if arguments.format == "json":
                    near = await search.find_nearest(library.chats, request, self._own_tools, request.limit)
                elif not hits.hits:
                    nearest_max = min(request.limit, _NEAREST_MAX)
                    near = await search.find_nearest(library.chats, request, self._own_tools, nearest_max)
        except search.InvalidSearchArgument as error:
            return _text_result(error.message)
        except FlorilegiumError as error:
            return _text_result(f"Error: {error.message}")
        for hit in (*hits.hits, *near.hits):
            call.context.record_read(uri_of("chats", hit.message.conversation_id, hit.message.id))
        notes = [None if hits.is_complete else _INCOMPLETE, near.note]
        max_chars = _CONVERSATION_SEARCH_MESSAGE_CHARS
        if arguments.format == "text":
            if near.hits:
                notes.insert(0, _NEAREST_ONLY)
            return _text_result(search.render_text(hits.hits or near.hits, max_chars, _join(notes)))
        # In a thread, because the whole text of every message is ranked.
        response = await asyncio.to_thread(
            search.letta_response,
            hits.hits,
            request.text,
            max_chars,
            _join(notes),
            self._now(),
            near=near.hits,
            limit=request.limit,
        )
        structured = msgspec.to_builtins(response)
        return ToolResult([{"type": "text", "text": msgspec.json.encode(structured).decode()}], structured)

    def tool(self) -> Tool:
        return Tool(
            name="conversation_search",
            source="chats",
            title="Search conversation history",
            description=(
                "Search prior conversation history (all stored conversations). Hybrid-style: text match on content "
                "and titles. Optional filters: roles (user/assistant/tool), start_date and end_date (ISO 8601 "
                "inclusive). Returns matching messages with timestamps and content, newest first. "
                'Example: {"query": "asyncio", "roles": ["user", "assistant"], "start_date": "2025-01-01", "limit": 20}'
            ),
            input=search.ConversationSearch,
            schema=search.conversation_search_schema(self._settings.message_page_max),
            handler=self.conversation_search,
        )


def _join(notes: Sequence[str | None]) -> str | None:
    return "; ".join(filter(None, notes)) or None


def _text_result(text: str) -> ToolResult:
    return ToolResult([{"type": "text", "text": text}])
