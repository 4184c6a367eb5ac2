"""The REST operations of the bus, and the health check by which agents recognize one."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from auth.context import WRITE, RequestContext
from config.errors import FlorilegiumError, NotFound, RateLimited, retry_after_seconds
from config.settings import Settings
from server.compat.agentchatbus import schemas
from server.compat.agentchatbus.errors import THREAD_NOT_FOUND, DetailedBusError
from server.compat.agentchatbus.events import BusEvents
from server.compat.agentchatbus.service import MessageBus
from server.middleware import ErrorFormat, FieldError, field_errors
from server.operations.operation import EVENT_STREAM, Operation, ResponseWithHeaders, service_operation
from server.profiles import BUS_WRITE
from server.rest.errors import Unprocessable
from server.version import VERSION
from sources.items import uri_of

# -- error format ------------------------------------------------------------------------------------------------------
# Error responses of the bus's REST API: FastAPI's `detail`, with the sentences that AgentChatBus clients match on.

# AgentChatBus's clients compare these sentences.
_NOT_FOUND = {"conversation": THREAD_NOT_FOUND}
_RATE_LIMITED = "Rate limit exceeded"


class BusErrorBody(Struct, frozen=True, kw_only=True):
    """`detail` is a sentence; a list if the input is invalid (422); an object with `error` if an agent is out of sync
    with its thread or a text was rejected by the content filter."""

    detail: str | tuple[FieldError, ...] | Mapping[str, Any]
    error: str | UnsetType = UNSET
    retry_after: int | UnsetType = UNSET


def _error_body(error: FlorilegiumError, _path: str) -> Mapping[str, Any]:
    match error:
        case RateLimited():
            body = BusErrorBody(
                detail=error.message, error=_RATE_LIMITED, retry_after=retry_after_seconds(error.retry_after_s)
            )
        case Unprocessable():
            body = BusErrorBody(detail=field_errors(error))
        case DetailedBusError():
            body = BusErrorBody(detail=error.data or {})
        case NotFound():
            body = BusErrorBody(detail=_NOT_FOUND.get(error.kind, error.message))
        case _:
            body = BusErrorBody(detail=error.message)
    builtins: dict[str, Any] = msgspec.to_builtins(body)
    return builtins


BUS_ERROR_FORMAT = ErrorFormat(BusErrorBody, _error_body)


SEARCHING_TOOLS = ("msg_search", "chats_search", "knowledge_search")
READING_TOOLS = ("msg_list", "chats_get", "knowledge_get")
JOINING_TOOLS = ("bus_connect", BUS_WRITE)
POSTING_TOOLS = ("msg_post", BUS_WRITE)
_AGENT_TOKEN = {"agent_token": "X-Agent-Token"}


async def health(_request: Request) -> Response:
    """Identifies the bus. It needs no credential, because it reveals nothing about any user."""
    return JSONResponse({"status": "ok", "service": "AgentChatBus", "server": "florilegium", "version": VERSION})


def bus_operations(bus: MessageBus, settings: Settings) -> list[Operation]:
    # The response is an array, as AgentChatBus's clients expect. Headers say whether there are more messages.
    async def read_thread(context: RequestContext, request: schemas.MessagesRequest) -> ResponseWithHeaders:
        async with bus.library(context) as library:
            messages, has_more = await bus.read_messages(
                library.chats, request, settings.conversation_response_max_bytes
            )
        context.record_read(uri_of("chats", request.thread_id))
        if not has_more:
            return ResponseWithHeaders(messages, {"X-Has-More": "false"})
        priority = {"priority": request.priority} if request.priority else {}
        query = urlencode({"after_seq": messages[-1].seq, "limit": request.limit, **priority})
        return ResponseWithHeaders(messages, {"X-Has-More": "true", "Link": f'<?{query}>; rel="next"'})

    def status_operation(name: str, summary: str, description: str, **fields: Any) -> Operation:
        return _operation(
            id=f"{name}_thread",
            method="POST",
            path=f"/api/threads/{{thread_id}}/{name}",
            summary=summary,
            description=description,
            response=schemas.ThreadChanged,
            tools=POSTING_TOOLS,
            scope=WRITE,
            error_statuses=frozenset((404, 409)),
            **fields,
        )

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
            input=schemas.BusSearchRequest,
            response=schemas.BusSearchResults,
            handler=bus.search,
            tools=SEARCHING_TOOLS,
        ),
        _operation(
            id="register_agent",
            method="POST",
            path="/api/agents/register",
            summary="Register an agent",
            description="Gives an agent a name and a token. An agent that was idle for long has to register again.",
            input=schemas.RegisterRequest,
            response=schemas.Registration,
            handler=bus.register,
            tools=JOINING_TOOLS,
            scope=WRITE,
        ),
        _operation(
            id="list_threads",
            method="GET",
            path="/api/threads",
            summary="List threads",
            description=(
                "The threads of the bus, newest first. next_cursor is the value of before for the next page. Archived "
                "threads are left out unless you ask for them."
            ),
            input=schemas.ListThreadsRequest,
            response=schemas.ThreadList,
            handler=bus.list_threads,
            tools=READING_TOOLS,
        ),
        _operation(
            id="open_thread",
            method="POST",
            path="/api/threads",
            summary="Create a thread",
            description=(
                "Creates a conversation that all agents of the user share. If a thread has this topic already, it is "
                "returned unchanged."
            ),
            input=schemas.CreateThreadRequest,
            response=schemas.CreatedThread,
            handler=bus.create_thread,
            tools=JOINING_TOOLS,
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
            input=schemas.SyncRequest,
            response=schemas.SyncContext,
            handler=bus.sync,
            tools=JOINING_TOOLS,
            scope=WRITE,
            error_statuses=frozenset((404,)),
        ),
        status_operation(
            "state",
            "Set the status of a thread",
            "Sets the status, by which threads can be listed. It does not restrict what can be posted.",
            input=schemas.ThreadStateRequest,
            handler=bus.set_state,
        ),
        status_operation(
            "archive",
            "Archive a thread",
            "Sets the status archived. The list of threads leaves archived threads out unless asked for them.",
            input=schemas.ArchiveThreadRequest,
            handler=bus.archive,
        ),
        status_operation(
            "unarchive",
            "Restore an archived thread",
            "Sets the status discuss.",
            input=schemas.ArchiveThreadRequest,
            handler=bus.unarchive,
        ),
        _operation(
            id="read_thread",
            method="GET",
            path="/api/threads/{thread_id}/messages",
            summary="Read a thread",
            description=(
                "Messages of a thread in order, after after_seq. The header X-Has-More says whether there are more, "
                "and Link (rel=next) where."
            ),
            input=schemas.MessagesRequest,
            response=tuple[schemas.BusMessage, ...],
            handler=read_thread,
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
            input=schemas.PostRequest,
            response=schemas.BusMessage,
            handler=bus.posting.post,
            tools=POSTING_TOOLS,
            scope=WRITE,
            status=201,
            headers=_AGENT_TOKEN,
            error_statuses=frozenset((404, 409)),
        ),
    ]


def events_operation(events: BusEvents) -> Operation:
    return _operation(
        id="follow_bus",
        method="GET",
        path="/events",
        summary="Follow the bus",
        description=(
            "Server-sent events, each a JSON object with type and payload: connected at once, then msg.new, "
            "thread.created, thread.state, thread.updated and thread.deleted of the caller's threads. Events from "
            "before are not repeated. The stream ends after five minutes; browsers reconnect."
        ),
        input=schemas.FollowBusRequest,
        response=EVENT_STREAM,
        handler=events.follow,
        tools=READING_TOOLS,
    )


def _operation(**fields: Any) -> Operation:
    return service_operation(error_format=BUS_ERROR_FORMAT, input_error=Unprocessable, source="chats", **fields)
