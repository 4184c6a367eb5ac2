"""A small message bus for agents: they register, open threads, post and read messages, and search them.

Threads are conversations of the caller, so that all agents of one user share them and nobody else does. Whose they are
the caller's credential decides; an agent's token only tells the user's agents apart.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from auth.principal import WRITE
from server.compat.agentchatbus.errors import BUS_ENVELOPE
from server.compat.agentchatbus.requests import (
    InStep,
    MessagesRequest,
    OpenedThread,
    PostRequest,
    RegisterRequest,
    Registration,
    SearchRequest,
    StepRequest,
    ThreadRequest,
    Threads,
    ThreadsRequest,
)
from server.compat.agentchatbus.service import MessageBus
from server.compat.agentchatbus.threads import BusMessage, FoundMessageRows
from server.profiles import BUS_WRITE
from server.rest.errors import Unprocessable
from server.rest.operation import Operation
from server.version import VERSION

SEARCHING_TOOLS = ("msg_search", "chats_search", "knowledge_search")
READING_TOOLS = ("msg_search", "chats_get", "knowledge_get")
# No tool writes to the bus: of the keys that are bound to few tools, only those of its own profile may.
WRITING_TOOLS = (BUS_WRITE,)
_AGENT_TOKEN = {"agent_token": "X-Agent-Token"}


async def health(_request: Request) -> Response:
    """By which agents recognise a bus. It tells nothing of any user, so it needs no credential."""
    body = {"status": "ok", "service": "AgentChatBus", "server": "florilegium", "version": VERSION}
    return JSONResponse(body)


def bus_operations(bus: MessageBus) -> list[Operation]:
    declared = (_search, _register, _list, _open, _sync, _read, _post)
    return [declare(bus) for declare in declared]


def _search(bus: MessageBus) -> Operation:
    return _operation(
        id="search_bus",
        method="GET",
        path="/api/search",
        summary="Search the bus",
        description=(
            "Messages of all conversations, or of one, that match a full-text expression, best first. What is no "
            "expression is read as words, and read_as says so."
        ),
        input=SearchRequest,
        response=FoundMessageRows,
        handler=bus.search,
        tools=SEARCHING_TOOLS,
    )


def _register(bus: MessageBus) -> Operation:
    return _operation(
        id="register_agent",
        method="POST",
        path="/api/agents/register",
        summary="Register an agent",
        description="A name and a token for an agent. It registers again when the server was restarted.",
        input=RegisterRequest,
        response=Registration,
        handler=bus.register,
        tools=WRITING_TOOLS,
        scope=WRITE,
    )


def _list(bus: MessageBus) -> Operation:
    return _operation(
        id="list_threads",
        method="GET",
        path="/api/threads",
        summary="List threads",
        description="The threads that were opened on the bus, those last written to first.",
        input=ThreadsRequest,
        response=Threads,
        handler=bus.threads,
        tools=READING_TOOLS,
    )


def _open(bus: MessageBus) -> Operation:
    return _operation(
        id="open_thread",
        method="POST",
        path="/api/threads",
        summary="Open a thread",
        description="A new conversation that all agents of the user share.",
        input=ThreadRequest,
        response=OpenedThread,
        handler=bus.open_thread,
        tools=WRITING_TOOLS,
        scope=WRITE,
        status=201,
        headers=_AGENT_TOKEN,
        error_statuses=frozenset((409,)),
    )


def _sync(bus: MessageBus) -> Operation:
    return _operation(
        id="sync_thread",
        method="POST",
        path="/api/threads/{thread_id}/sync-context",
        summary="Get in step with a thread",
        description="The seq of its last message, and a reply token for the next one.",
        input=StepRequest,
        response=InStep,
        handler=bus.sync,
        tools=WRITING_TOOLS,
        scope=WRITE,
        error_statuses=frozenset((404,)),
    )


def _read(bus: MessageBus) -> Operation:
    return _operation(
        id="read_thread",
        method="GET",
        path="/api/threads/{thread_id}/messages",
        summary="Read a thread",
        description="Messages of a thread in their order, from after_seq on.",
        input=MessagesRequest,
        response=tuple[BusMessage, ...],
        handler=bus.messages,
        tools=READING_TOOLS,
        error_statuses=frozenset((404,)),
    )


def _post(bus: MessageBus) -> Operation:
    return _operation(
        id="post_message",
        method="POST",
        path="/api/threads/{thread_id}/messages",
        summary="Post a message",
        description=(
            "Add a message to a thread. With expected_last_seq it is refused where others have written meanwhile, "
            "and what they wrote is told."
        ),
        input=PostRequest,
        response=BusMessage,
        handler=bus.post,
        tools=WRITING_TOOLS,
        scope=WRITE,
        status=201,
        headers=_AGENT_TOKEN,
        error_statuses=frozenset((404, 409)),
    )


def _operation(**given: Any) -> Operation:
    return Operation(error_format=BUS_ENVELOPE, input_error=Unprocessable, **given)
