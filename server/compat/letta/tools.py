"""The MCP tool `conversation_search`. By its contract, errors are returned as text that a model can act on, not as
failed calls."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime

import msgspec

from config.errors import FlorilegiumError
from config.settings import Settings
from server.compat.letta.arguments import parse_arguments
from server.compat.letta.errors import InvalidSearchArgument
from server.compat.letta.nearest import NearMessages, find_nearest
from server.compat.letta.responses import letta_response, render_text
from server.compat.letta.schemas import ConversationSearch, LettaResponse, conversation_search_schema
from server.compat.letta.service import search_history
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Tool, ToolResult
from sources.items import uri_of
from sources.storage.contract import Libraries

_INCOMPLETE = "older messages were not searched; narrow the search by dates or words, or try again"
_NEAREST_ONLY = "no message contains this text; these are the nearest by meaning"
# The default page of Letta's own tool. All messages are more or less near, so that more would be of little use.
_NEAREST_MAX = 5


def _utc_now() -> datetime:
    return datetime.now(UTC)


def add_letta_tools(catalog: Catalog, libraries: Libraries, settings: Settings) -> None:
    catalog.add_tool(LettaTools(libraries, settings, catalog.tools).tool())


class LettaTools:
    """The handler of `conversation_search`, and its declaration."""

    def __init__(
        self,
        libraries: Libraries,
        settings: Settings,
        own_tools: Collection[str],
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._libraries = libraries
        self._settings = settings
        self._own_tools = own_tools
        self._now = now

    async def conversation_search(self, call: Call, arguments: ConversationSearch) -> ToolResult:
        settings = self._settings
        try:
            search = parse_arguments(arguments, settings)
            async with self._libraries.library(call.context) as library:
                hits = await search_history(
                    library.chats, search, self._own_tools, settings.conversation_search_scan_max
                )
                near = NearMessages((), None)
                if arguments.format == "json":
                    near = await find_nearest(library.chats, search, self._own_tools, search.limit)
                elif not hits.hits:
                    nearest_max = min(search.limit, _NEAREST_MAX)
                    near = await find_nearest(library.chats, search, self._own_tools, nearest_max)
        except InvalidSearchArgument as error:
            return _text_result(error.message)
        except FlorilegiumError as error:
            return _text_result(f"Error: {error.message}")
        for hit in (*hits.hits, *near.hits):
            call.context.record_read(uri_of("chats", hit.message.conversation_id, hit.message.id))
        notes = [None if hits.is_complete else _INCOMPLETE, near.note]
        max_chars = settings.conversation_search_message_chars
        if arguments.format == "text":
            if near.hits:
                notes.insert(0, _NEAREST_ONLY)
            return _text_result(render_text(hits.hits or near.hits, max_chars, _join(notes)))
        # In a thread, because the whole text of every message is ranked.
        response = await asyncio.to_thread(
            letta_response,
            hits.hits,
            search.text,
            max_chars,
            _join(notes),
            self._now(),
            near=near.hits,
            limit=search.limit,
        )
        return _json_result(response)

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
            input=ConversationSearch,
            schema=conversation_search_schema(self._settings.conversation_hits_max),
            handler=self.conversation_search,
        )


def _join(notes: Sequence[str | None]) -> str | None:
    return "; ".join(filter(None, notes)) or None


def _json_result(response: LettaResponse) -> ToolResult:
    structured = msgspec.to_builtins(response)
    return ToolResult([{"type": "text", "text": msgspec.json.encode(structured).decode()}], structured)


def _text_result(text: str) -> ToolResult:
    return ToolResult([{"type": "text", "text": text}])
