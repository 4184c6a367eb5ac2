"""What only HTTP has of the bus: error responses, the health check by which agents recognize a bus, threads as arrays,
and the event stream `GET /events`.

AgentChatBus writes a table of events. Here a stream compares the threads with those that it has seen before, whenever
the library has changed, so that writing is not slower and a restart loses nothing.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from auth.context import RequestContext
from config.errors import FlorilegiumError, NotFound, RateLimited, retry_after_seconds
from config.settings import Settings
from server.compat.agentchatbus import schemas
from server.compat.agentchatbus.service import READING_TOOLS, RESPONSE_MAX_BYTES, MessageBus
from server.compat.agentchatbus.threads import NAMESPACE, bus_message, bus_thread, read_page
from server.compat.operations import operation, operations_of
from server.middleware import ErrorFormat, FieldError, field_errors
from server.operations.operation import EVENT_STREAM, NoArguments, Operation, ResponseWithHeaders
from server.rest.errors import Unprocessable
from server.rest.requests import KEEP_ALIVE, RETRY, ChangeWatch, stream
from server.transports.client_connections import OpenStreams
from server.version import VERSION
from sources.items import uri_of
from sources.storage.contract import Chats, Libraries

# -- error format ------------------------------------------------------------------------------------------------------
# Error responses of the bus's REST API: FastAPI's `detail`, with the sentences that AgentChatBus clients match on.

# AgentChatBus's clients compare these sentences.
_NOT_FOUND = {"conversation": schemas.THREAD_NOT_FOUND}
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
        case schemas.DetailedBusError():
            body = BusErrorBody(detail=error.data or {})
        case NotFound():
            body = BusErrorBody(detail=_NOT_FOUND.get(error.kind, error.message))
        case _:
            body = BusErrorBody(detail=error.message)
    builtins: dict[str, Any] = msgspec.to_builtins(body)
    return builtins


BUS_ERROR_FORMAT = ErrorFormat(BusErrorBody, _error_body)


async def health(_request: Request) -> Response:
    """Identifies the bus. It needs no credential, because it reveals nothing about any user."""
    return JSONResponse({"status": "ok", "service": "AgentChatBus", "server": "florilegium", "version": VERSION})


def bus_operations(
    bus: MessageBus, libraries: Libraries, open_streams: OpenStreams, settings: Settings
) -> list[Operation]:
    services = (bus, BusReader(bus, libraries, open_streams, settings))
    return [one for service in services for one in operations_of(service, BUS_ERROR_FORMAT, settings)]


class _SeenThread(Struct):
    """A thread as the stream last saw it."""

    thread: schemas.BusThread
    last_seq: int | None = None  # not known before the thread changes for the first time


class BusReader:
    def __init__(self, bus: MessageBus, libraries: Libraries, open_streams: OpenStreams, settings: Settings) -> None:
        self._bus = bus
        self._settings = settings
        self._libraries = libraries
        self._open_streams = open_streams
        self._watch = ChangeWatch(libraries, open_streams, settings)

    @operation(
        "GET /api/threads/{thread_id}/messages",
        "Read a thread",
        READING_TOOLS,
        response=tuple[schemas.BusMessage, ...],
        errors=(404,),
    )
    async def read_thread(self, context: RequestContext, request: schemas.MessagesRequest) -> ResponseWithHeaders:
        """Messages of a thread in order, after after_seq. The header X-Has-More says whether there are more, and Link
        (rel=next) where."""
        max_bytes = self._settings.conversation_response_max_bytes
        async with self._libraries.library(context) as library:
            messages, has_more = await self._bus.read_messages(library.chats, request, max_bytes)
        context.record_read(uri_of("chats", request.thread_id))
        # The response is an array, as AgentChatBus's clients expect.
        if not has_more:
            return ResponseWithHeaders(messages, {"X-Has-More": "false"})
        priority = {"priority": request.priority} if request.priority else {}
        query = urlencode({"after_seq": messages[-1].seq, "limit": request.limit, **priority})
        return ResponseWithHeaders(messages, {"X-Has-More": "true", "Link": f'<?{query}>; rel="next"'})

    @operation("GET /events", "Follow the bus", READING_TOOLS, response=EVENT_STREAM)
    async def follow_bus(self, context: RequestContext, _request: NoArguments) -> Response:
        """Server-sent events, each a JSON object with type and payload: connected at once, then msg.new,
        thread.created, thread.state, thread.updated and thread.deleted of the caller's threads. Events from before are
        not repeated. The stream ends after five minutes; browsers reconnect."""
        return await stream(self._open_streams, context, self._events(context), EVENT_STREAM)

    async def _events(self, context: RequestContext) -> AsyncIterator[bytes]:
        seen: dict[str, _SeenThread] | None = None
        async for token in self._watch.tokens(context):
            if token is None:
                yield KEEP_ALIVE
            elif seen is None:
                async with self._libraries.library(context) as library:
                    threads = await self._changed_threads(library.chats, {}, reads_all=True)
                seen = {thread.id: _SeenThread(thread) for thread in threads}
                yield RETRY + _event("connected", {})
            else:
                async for event in self._changes(context, seen):
                    yield event

    async def _changes(self, context: RequestContext, seen: dict[str, _SeenThread]) -> AsyncIterator[bytes]:
        """Yields what has changed since `seen`, which it updates. No library is held while the client reads."""
        async with self._libraries.library(context) as library:
            # Deleted threads are noticed by their number. Only then all of them are read.
            total = (await library.chats.list(1, 0, namespace=NAMESPACE)).total
            changed = await self._changed_threads(library.chats, seen, reads_all=False)
            is_deleted = total < len(seen) + sum(thread.id not in seen for thread in changed)
            present = await self._changed_threads(library.chats, {}, reads_all=True) if is_deleted else None
        if present is not None:
            for thread_id in seen.keys() - {thread.id for thread in present}:
                del seen[thread_id]
                yield _event("thread.deleted", {"thread_id": thread_id})
        for thread in reversed(changed):  # the oldest change first
            before = seen.get(thread.id)
            if before is None:
                yield _event("thread.created", thread)
                before = seen[thread.id] = _SeenThread(thread, 0)
            elif thread.status != before.thread.status:
                yield _event("thread.state", thread)
            elif (thread.topic, thread.system_prompt) != (before.thread.topic, before.thread.system_prompt):
                yield _event("thread.updated", thread)
            async for event in self._new_messages(context, before):
                yield event
            before.thread = thread

    async def _new_messages(self, context: RequestContext, before: _SeenThread) -> AsyncIterator[bytes]:
        has_more = True
        while has_more:
            try:
                async with self._libraries.library(context) as library:
                    if before.last_seq is None:
                        before.last_seq = await _last_seq(library.chats, before.thread)
                    messages, has_more = await read_page(
                        library.chats,
                        before.thread.id,
                        before.last_seq,
                        self._settings.message_page_max,
                        RESPONSE_MAX_BYTES,
                    )
            except NotFound:  # deleted meanwhile
                return
            for message in messages:
                before.last_seq = message.number
                yield _event("msg.new", bus_message(message))

    async def _changed_threads(
        self, chats: Chats, seen: Mapping[str, _SeenThread], *, reads_all: bool
    ) -> Sequence[schemas.BusThread]:
        """Returns the threads that differ from those in `seen`, the latest change first. Unless it reads all, it ends
        at the first page without a change: the list is sorted by time of change."""
        changed: list[schemas.BusThread] = []
        offset = 0
        while True:
            page = await chats.list(self._settings.message_page_max, offset, namespace=NAMESPACE)
            threads = [bus_thread(conversation) for conversation in page.rows]
            differing = [one for one in threads if one.id not in seen or seen[one.id].thread != one]
            changed += differing
            offset += len(threads)
            if not threads or offset >= page.total or not (differing or reads_all):
                return changed


async def _last_seq(chats: Chats, thread: schemas.BusThread) -> int:
    """Returns the seq of the last message that a thread had when it was seen."""
    if not thread.message_count:
        return 0
    rows = (await chats.messages(thread.id, 1, thread.message_count - 1)).rows
    return rows[0].number if rows else await chats.last_message_number(thread.id)


def _event(kind: str, payload: Any) -> bytes:
    """AgentChatBus's events have no name, so that `onmessage` of a browser receives all of them."""
    return b"data: " + msgspec.json.encode({"type": kind, "payload": payload}) + b"\n\n"
