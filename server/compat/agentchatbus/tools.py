"""The MCP tools of the bus: `bus_connect`, `msg_post`, `msg_list` and `msg_search`."""

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from msgspec import Struct

from auth.context import WRITE
from config.errors import InvalidParams, NotFound, SourceTimeout
from config.settings import Settings
from server.compat.agentchatbus import tool_schemas
from server.compat.agentchatbus.connection import connect
from server.compat.agentchatbus.errors import THREAD_NOT_FOUND, DetailedBusError, InvalidAgentToken, OutOfSync
from server.compat.agentchatbus.posting import RESPONSE_MAX_BYTES, message_blocks, text_block
from server.compat.agentchatbus.schemas import MessagesRequest, PostRequest
from server.compat.agentchatbus.service import MessageBus
from server.compat.agentchatbus.threads import search_matches, struct_fields
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Hints, Tool, ToolResult
from server.protocol.messages import encode
from sources.items import uri_of

ArgumentsT = TypeVar("ArgumentsT", bound=Struct)
ResultT = TypeVar("ResultT")
ToolMethod = Callable[["AgentChatBusTools", Call, ArgumentsT], Awaitable[ResultT]]

# AgentChatBus returns this as a normal result, not as a failed call.
_EMPTY_QUERY = {"error": "query must not be empty"}
# The names that AgentChatBus's tools give to the errors of its REST API.
_SYNC_ERRORS = {
    "MISSING_SYNC_FIELDS": "MissingSyncFieldsError",
    "SEQ_MISMATCH": "SeqMismatchError",
    "TOKEN_INVALID": "ReplyTokenInvalidError",
    "TOKEN_EXPIRED": "ReplyTokenExpiredError",
    "TOKEN_REPLAY": "ReplyTokenReplayError",
}
# The fields of a message in the JSON of `msg_list`, besides its id.
_LISTED_FIELDS = (
    *("author", "author_id", "author_name", "role", "content", "seq", "created_at", "metadata", "reply_to_msg_id"),
    "priority",
)
_WRITES = Hints(read_only_hint=False, idempotent_hint=False)


def add_agentchatbus_tools(catalog: Catalog, bus: MessageBus, settings: Settings) -> None:
    for tool in AgentChatBusTools(bus, settings).tools():
        catalog.add_tool(tool)


def _with_bus_errors(
    method: ToolMethod[ArgumentsT, ResultT],
) -> Callable[["AgentChatBusTools", Call, ArgumentsT], Awaitable[ResultT | ToolResult]]:
    """Returns errors as objects with `error`, as AgentChatBus's agents expect them."""

    @wraps(method)
    async def call_method(tools: "AgentChatBusTools", call: Call, arguments: ArgumentsT) -> ResultT | ToolResult:
        try:
            return await method(tools, call, arguments)
        except OutOfSync as error:
            # Says how to recover with the tools: a mismatch is resolved by reading, any other error by a new reply
            # token.
            data = dict(error.data or {})
            code = data["error"]
            action = "READ_NEW_MESSAGES_THEN_RETRY" if code == "SEQ_MISMATCH" else "CALL_BUS_CONNECT_THEN_RETRY"
            out_of_sync = {**data, "error": _SYNC_ERRORS[code], "detail": code, "action": action}
            return _error_result(out_of_sync)
        except DetailedBusError as error:
            return _error_result(error.data or {})
        except InvalidAgentToken as error:
            return _error_result({"error": error.message})
        except NotFound:
            return _error_result({"error": THREAD_NOT_FOUND})
        except InvalidParams as error:
            return _error_result({"error": "INVALID_ARGUMENT", "detail": error.message})

    return call_method


class AgentChatBusTools:
    """The handlers of the tools, and their declarations."""

    def __init__(self, bus: MessageBus, settings: Settings) -> None:
        self._bus = bus
        self._settings = settings

    @_with_bus_errors
    async def bus_connect(self, call: Call, arguments: tool_schemas.BusConnect) -> tool_schemas.BusConnection:
        return await connect(self._bus, call.context, arguments, RESPONSE_MAX_BYTES)

    @_with_bus_errors
    async def msg_post(self, call: Call, arguments: tool_schemas.MsgPost) -> tool_schemas.PostedMessage:
        message, sync_context = await self._bus.posting.post_in_sync(
            call.context, PostRequest(**struct_fields(arguments))
        )
        return tool_schemas.PostedMessage(
            msg_id=message.id,
            seq=message.seq,
            reply_to_msg_id=message.reply_to_msg_id,
            priority=message.priority,
            **(struct_fields(sync_context) if sync_context else {}),
        )

    @_with_bus_errors
    async def msg_list(self, call: Call, arguments: tool_schemas.MsgList) -> ToolResult:
        request = MessagesRequest(
            thread_id=arguments.thread_id,
            after_seq=arguments.after_seq,
            limit=arguments.limit,
            priority=arguments.priority,
            include_system_prompt=arguments.include_system_prompt,
        )
        async with self._bus.library(call.context) as library:
            messages, has_more = await self._bus.read_messages(library.chats, request, RESPONSE_MAX_BYTES)
        call.context.record_read(uri_of("chats", arguments.thread_id))
        note = (
            [text_block(f"(more messages follow: call msg_list with after_seq {messages[-1].seq})")] if has_more else []
        )
        if arguments.return_format == "blocks":
            return ToolResult([*message_blocks(messages, include_attachments=arguments.include_attachments), *note])
        rows = [
            {"msg_id": message.id} | {name: getattr(message, name) for name in _LISTED_FIELDS} for message in messages
        ]
        return ToolResult([text_block(encode(rows).decode()), *note], {"messages": rows, "has_more": has_more})

    async def msg_search(
        self, call: Call, arguments: tool_schemas.MsgSearch
    ) -> tool_schemas.MsgSearchResults | ToolResult:
        query = arguments.query.strip()
        if not query:
            return ToolResult([text_block(encode(_EMPTY_QUERY).decode())], _EMPTY_QUERY)
        try:
            async with self._bus.library(call.context) as library:
                return await search_matches(library.chats, query, arguments.thread_id, arguments.limit, self._settings)
        except SourceTimeout as error:
            return tool_schemas.MsgSearchResults(
                results=(), total=0, query=query, note=f"the search timed out: {error.message}"
            )

    def tools(self) -> tuple[Tool, ...]:
        return (
            Tool(
                name="bus_connect",
                source="chats",
                title="Join a thread",
                description=(
                    "Join a thread that the user's agents share, by its topic; a missing thread is created. Registers "
                    "you as an agent, or resumes you by agent_id and token: store both. Returns the messages, and "
                    "current_seq and reply_token for your next msg_post. "
                    'Example: {"thread_name": "Release plan", "ide": "Cursor", "model": "gpt"}'
                ),
                input=tool_schemas.BusConnect,
                output=tool_schemas.BusConnection,
                scope=WRITE,
                hints=_WRITES,
                handler=self.bus_connect,
            ),
            Tool(
                name="msg_post",
                source="chats",
                title="Post a message",
                description=(
                    "Post a message to a thread. A registered agent passes the current_seq and reply_token of its last "
                    "bus_connect or msg_post; if others have posted since, the message is rejected and theirs are "
                    "returned: read them, then post again with the new current_seq. Messages with secrets are "
                    "rejected. "
                    'Example: {"thread_id": "…", "author": "…", "content": "Done.", "expected_last_seq": 7, '
                    '"reply_token": "…"}'
                ),
                input=tool_schemas.MsgPost,
                output=tool_schemas.PostedMessage,
                scope=WRITE,
                hints=_WRITES,
                handler=self.msg_post,
            ),
            Tool(
                name="msg_list",
                source="chats",
                title="Read a thread",
                description=(
                    "Read the messages of a thread in order, after after_seq. A last block says if there are more. "
                    'Example: {"thread_id": "…", "after_seq": 7}'
                ),
                input=tool_schemas.MsgList,
                handler=self.msg_list,
            ),
            Tool(
                name="msg_search",
                source="chats",
                title="Search messages",
                description=(
                    "Search the messages of all threads, or of one, with a full-text expression; every word must "
                    "match. Best match first, each with a snippet in which matches are marked. An invalid expression "
                    "is searched as plain words, and read_as says so. "
                    'Example: {"query": "\\"angular signals\\" OR consens*", "limit": 10}'
                ),
                input=tool_schemas.MsgSearch,
                output=tool_schemas.MsgSearchResults,
                handler=self.msg_search,
            ),
        )


def _error_result(error: Mapping[str, Any]) -> ToolResult:
    return ToolResult([text_block(encode(error).decode())], error, is_error=True)
