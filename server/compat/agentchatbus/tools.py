"""The tool `msg_search`: messages by full-text expressions, for agents that share a bus."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from config.errors import SourceTimeout
from config.settings import Settings
from server.compat.agentchatbus.threads import DEFAULT_LIMIT, FoundRows, find_rows
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Tool, ToolResult
from server.protocol.messages import encode
from sources.storage.contract import Libraries

_BLANK = {"error": "query must not be empty"}


class MessageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(description='FTS5 expression: words, "phrases", prefix*, AND OR NOT, NEAR().')]
    thread_id: Annotated[str | None, Meta(description="Only messages of this thread.")] = None
    limit: Annotated[int, Meta(description="Messages, 1 to 200.")] = DEFAULT_LIMIT


def add_bus(catalog: Catalog, libraries: Libraries, settings: Settings) -> None:
    catalog.add_tool(_msg_search(libraries, settings))


def _msg_search(libraries: Libraries, settings: Settings) -> Tool:
    async def run(call: Call, given: MessageQuery) -> FoundRows | ToolResult:
        query = given.query.strip()
        if not query:
            return _error(_BLANK)
        try:
            async with libraries.library(call.context) as library:
                return await find_rows(library.chats, query, given.thread_id, given.limit, settings)
        except SourceTimeout as error:
            return FoundRows(results=(), total=0, query=query, note=f"nothing was found in time: {error.message}")

    return Tool(
        name="msg_search",
        title="Search messages",
        description=(
            "Search the messages of all threads, or of one, by a full-text expression; all words must be there. Best "
            "first, each with a snippet in which matches are marked. What is no expression is read as words, and "
            'read_as says so. Example: {"query": "\\"angular signals\\" OR consens*", "limit": 10}'
        ),
        input=MessageQuery,
        output=FoundRows,
        handler=run,
    )


def _error(body: dict[str, Any]) -> ToolResult:
    """As the contract has it: an answer that is an error, not a failed call."""
    return ToolResult([{"type": "text", "text": encode(body).decode()}], body)
