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
    catalog.add_tool(AgentChatBusTools(libraries, settings).tool())


class AgentChatBusTools:
    """The handler of `msg_search`, and its declaration."""

    def __init__(self, libraries: Libraries, settings: Settings) -> None:
        self._libraries = libraries
        self._settings = settings

    async def msg_search(self, call: Call, arguments: MsgSearch) -> MsgSearchResults | ToolResult:
        query = arguments.query.strip()
        if not query:
            return ToolResult([{"type": "text", "text": encode(_EMPTY_QUERY).decode()}], _EMPTY_QUERY)
        try:
            async with self._libraries.library(call.context) as library:
                return await search_matches(library.chats, query, arguments.thread_id, arguments.limit, self._settings)
        except SourceTimeout as error:
            return MsgSearchResults(results=(), total=0, query=query, note=f"the search timed out: {error.message}")

    def tool(self) -> Tool:
        return Tool(
            name="msg_search",
            title="Search messages",
            description=(
                "Search the messages of all threads, or of one, with a full-text expression; every word must match. "
                "Best match first, each with a snippet in which matches are marked. An invalid expression is searched "
                "as plain words, and read_as says so. "
                'Example: {"query": "\\"angular signals\\" OR consens*", "limit": 10}'
            ),
            input=MsgSearch,
            output=MsgSearchResults,
            handler=self.msg_search,
        )
