"""The REST operations of the bus, and the health check by which agents recognize one."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from auth.principal import WRITE
from server.compat.agentchatbus.errors import BUS_ERROR_FORMAT
from server.compat.agentchatbus.schemas import (
    BusMessage,
    BusSearchRequest,
    BusSearchResults,
    CreatedThread,
    CreateThreadRequest,
    ListThreadsRequest,
    MessagesRequest,
    PostRequest,
    RegisterRequest,
    Registration,
    SyncContext,
    SyncRequest,
    ThreadList,
)
from server.compat.agentchatbus.service import MessageBus
from server.profiles import BUS_WRITE
from server.rest.errors import Unprocessable
from server.rest.operation import Operation
from server.version import VERSION

SEARCHING_TOOLS = ("msg_search", "chats_search", "knowledge_search")
READING_TOOLS = ("msg_search", "chats_get", "knowledge_get")
# No MCP tool writes to the bus: of the keys restricted to a profile, only those of the profile `bus` may.
WRITING_TOOLS = (BUS_WRITE,)
_AGENT_TOKEN = {"agent_token": "X-Agent-Token"}


async def health(_request: Request) -> Response:
    """Identifies the bus. It needs no credential, because it reveals nothing about any user."""
    return JSONResponse({"status": "ok", "service": "AgentChatBus", "server": "florilegium", "version": VERSION})


def bus_operations(bus: MessageBus) -> list[Operation]:
    return [*_search_and_agent_operations(bus), *_thread_operations(bus), *_message_operations(bus)]


def _search_and_agent_operations(bus: MessageBus) -> list[Operation]:
    return [
        _operation(
            id="search_bus",
            method="GET",
            path="/api/search",
            summary="Search the bus",
            description=(
                "Messages of all conversations, or of one, that match a full-text expression, best first. An invalid "
                "expression is searched as plain words, and read_as says so."
            ),
            input=BusSearchRequest,
            response=BusSearchResults,
            handler=bus.search,
            tools=SEARCHING_TOOLS,
        ),
        _operation(
            id="register_agent",
            method="POST",
            path="/api/agents/register",
            summary="Register an agent",
            description="Gives an agent a name and a token. After a restart of the server, register again.",
            input=RegisterRequest,
            response=Registration,
            handler=bus.register,
            tools=WRITING_TOOLS,
            scope=WRITE,
        ),
    ]


def _thread_operations(bus: MessageBus) -> list[Operation]:
    return [
        _operation(
            id="list_threads",
            method="GET",
            path="/api/threads",
            summary="List threads",
            description="The threads of the bus, most recently written first.",
            input=ListThreadsRequest,
            response=ThreadList,
            handler=bus.list_threads,
            tools=READING_TOOLS,
        ),
        _operation(
            id="open_thread",
            method="POST",
            path="/api/threads",
            summary="Create a thread",
            description="Creates a conversation that all agents of the user share.",
            input=CreateThreadRequest,
            response=CreatedThread,
            handler=bus.create_thread,
            tools=WRITING_TOOLS,
            scope=WRITE,
            status=201,
            headers=_AGENT_TOKEN,
            error_statuses=frozenset((409,)),
        ),
        _operation(
            id="sync_thread",
            method="POST",
            path="/api/threads/{thread_id}/sync-context",
            summary="Get the sync context of a thread",
            description="The seq of the thread's last message, and a reply token for the next one.",
            input=SyncRequest,
            response=SyncContext,
            handler=bus.sync,
            tools=WRITING_TOOLS,
            scope=WRITE,
            error_statuses=frozenset((404,)),
        ),
    ]


def _message_operations(bus: MessageBus) -> list[Operation]:
    return [
        _operation(
            id="read_thread",
            method="GET",
            path="/api/threads/{thread_id}/messages",
            summary="Read a thread",
            description="Messages of a thread in order, after after_seq.",
            input=MessagesRequest,
            response=tuple[BusMessage, ...],
            handler=bus.read_messages,
            tools=READING_TOOLS,
            error_statuses=frozenset((404,)),
        ),
        _operation(
            id="post_message",
            method="POST",
            path="/api/threads/{thread_id}/messages",
            summary="Post a message",
            description=(
                "Adds a message to a thread. With expected_last_seq, it is rejected if others have posted meanwhile, "
                "and their messages are returned."
            ),
            input=PostRequest,
            response=BusMessage,
            handler=bus.post,
            tools=WRITING_TOOLS,
            scope=WRITE,
            status=201,
            headers=_AGENT_TOKEN,
            error_statuses=frozenset((404, 409)),
        ),
    ]


def _operation(**fields: Any) -> Operation:
    return Operation(error_format=BUS_ERROR_FORMAT, input_error=Unprocessable, **fields)
