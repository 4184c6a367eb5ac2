"""The MCP tool `msg_search`."""

from config.errors import SourceTimeout
from config.settings import Settings
from server.compat.agentchatbus.schemas import MsgSearch, MsgSearchResults
from server.compat.agentchatbus.search import search_matches
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Tool, ToolResult
from server.protocol.messages import encode
from sources.storage.contract import Libraries

# AgentChatBus returns this as a normal result, not as a failed call.
_EMPTY_QUERY = {"error": "query must not be empty"}


def add_agentchatbus_tools(catalog: Catalog, libraries: Libraries, settings: Settings) -> None:
    catalog.add_tool(_msg_search(libraries, settings))


def _msg_search(libraries: Libraries, settings: Settings) -> Tool:
    async def search(call: Call, args: MsgSearch) -> MsgSearchResults | ToolResult:
        query = args.query.strip()
        if not query:
            return ToolResult([{"type": "text", "text": encode(_EMPTY_QUERY).decode()}], _EMPTY_QUERY)
        try:
            async with libraries.library(call.context) as library:
                return await search_matches(library.chats, query, args.thread_id, args.limit, settings)
        except SourceTimeout as error:
            return MsgSearchResults(results=(), total=0, query=query, note=f"the search timed out: {error.message}")

    return Tool(
        name="msg_search",
        title="Search messages",
        description=(
            "Search the messages of all threads, or of one, with a full-text expression; every word must match. Best "
            "match first, each with a snippet in which matches are marked. An invalid expression is searched as plain "
            'words, and read_as says so. Example: {"query": "\\"angular signals\\" OR consens*", "limit": 10}'
        ),
        input=MsgSearch,
        output=MsgSearchResults,
        handler=search,
    )
