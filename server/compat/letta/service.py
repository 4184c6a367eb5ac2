"""Searches the conversation history, without alternate branches and without the output of this server's own tools."""

import re
from collections.abc import Collection

from msgspec.structs import replace

from sources.records import Message, MessageHits
from sources.storage.contract import Chats, MessageSearch

# If hits are filtered out, each round searches this many times deeper.
_DEPTH_FACTOR = 4
_NAME_SEPARATORS = re.compile(r"__|[.:/]")
# Other servers have tools with these names, so they count as ours only with our server's name in front.
_COMMON_TOOL_NAMES = frozenset(("search", "fetch", "read", "get_observations"))
_SERVER_NAME = "florilegium"


async def search_history(chats: Chats, search: MessageSearch, own_tools: Collection[str], scan_max: int) -> MessageHits:
    """Returns the newest matching messages that are part of the history, scanning at most about `scan_max`."""
    depth = search.limit
    while True:
        results = await chats.find_messages(replace(search, limit=depth))
        hits = tuple([hit for hit in results.hits if is_history(hit.message, own_tools)])
        is_exhausted = len(results.hits) < depth
        if len(hits) >= search.limit or is_exhausted or depth >= scan_max:
            is_complete = results.is_complete and (len(hits) >= search.limit or is_exhausted)
            return MessageHits(hits[: search.limit], is_complete)
        depth = min(depth * _DEPTH_FACTOR, max(scan_max, search.limit))


def is_history(message: Message, own_tools: Collection[str]) -> bool:
    """Whether a message belongs to the searched history. Alternate branches do not; neither does the output of our own
    tools, which repeats the words of every earlier search."""
    if message.role != "tool" or not message.tool:
        return message.is_canonical
    return message.is_canonical and not _is_own_tool(message.tool, own_tools)


def _is_own_tool(tool: str, own_tools: Collection[str]) -> bool:
    """Hosts prefix a tool's name with the server's: `mcp__florilegium__search`, `florilegium:search`."""
    underscored, last_part = tool.replace(".", "_"), _NAME_SEPARATORS.split(tool)[-1]
    if underscored in own_tools and underscored not in _COMMON_TOOL_NAMES:
        return True
    return _SERVER_NAME in tool.lower() if last_part in _COMMON_TOOL_NAMES else last_part in own_tools
