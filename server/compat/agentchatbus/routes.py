"""The REST operations of the bus, its error responses, and the health check by which agents recognize a bus.

AgentChatBus writes a table of events. Here the stream `GET /events` compares the threads with those that it has seen
before, whenever the library has changed, so that writing is not slower and a restart loses nothing.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from auth.context import WRITE, RequestContext
from config.errors import FlorilegiumError, InvalidParams, NotFound, RateLimited, SourceTimeout, Unavailable
from config.numbers import clamp
from config.times import extend_to_microseconds, format_time, parse_time
from server.compat.agentchatbus import schemas, threads
from server.compat.agentchatbus.service import RESPONSE_MAX_BYTES, get_thread, require_writable
from server.error_responses import ErrorFormat, FieldError, field_errors, retry_after
from server.operations.operation import CONFLICT, EVENT_STREAM, NOT_FOUND, NoArguments, ResponseWithHeaders, operation
from server.profiles import BUS_WRITE
from server.rest.errors import Unprocessable
from server.rest.requests import KEEP_ALIVE, RETRY, ChangeWatch, stream
from server.runtime import Runtime
from server.version import VERSION
from sources.drafts import ConversationDraft
from sources.items import uri_of
from sources.storage.collections.chats import Chats
from sources.storage.contract import CreationPosition

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
            retry_after_s = retry_after(error)
            body = BusErrorBody(detail=error.message, error=_RATE_LIMITED, retry_after=retry_after_s or UNSET)
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


# An operation is permitted to a key with a profile if the profile has one of these tools.
SEARCHING_TOOLS = ("msg_search", "chats_search", "knowledge_search")
READING_TOOLS = ("msg_list", "chats_get", "knowledge_get")
JOINING_TOOLS = ("bus_connect", BUS_WRITE)
POSTING_TOOLS = ("msg_post", BUS_WRITE)
_AGENT_TOKEN = {"agent_token": "X-Agent-Token"}
# Between the time and the id in a cursor.
_CURSOR_SEPARATOR = "|"
_operation = partial(
    operation, source="chats", error_format=ErrorFormat(BusErrorBody, _error_body), input_error=Unprocessable
)
_state_operation = partial(_operation, tools=POSTING_TOOLS, scope=WRITE, error_statuses=NOT_FOUND | CONFLICT)


async def health(_request: Request) -> Response:
    """Identifies the bus. It needs no credential, because it reveals nothing about any user."""
    return JSONResponse({"status": "ok", "service": "AgentChatBus", "server": "florilegium", "version": VERSION})


class _SeenThread(Struct):
    """A thread as the stream last saw it."""

    thread: schemas.BusThread
    last_seq: int | None = None  # not known before the thread changes for the first time


@_operation("GET /api/search", "Search the bus", tools=SEARCHING_TOOLS)
async def search_bus(
    context: RequestContext, services: Runtime, request: schemas.BusSearchRequest
) -> schemas.BusSearchResults:
    """Messages of all conversations, or of one, that match a full-text expression, best first. An invalid
    expression is searched as plain words, and read_as says so."""
    query = request.q if request.q is not None else request.query
    if query is None:
        raise Unprocessable("q: required argument is missing", {"loc": ["query", "q"]})
    if not query.strip():
        raise InvalidParams("Query parameter 'q' must not be empty")
    query = query.strip()
    try:
        async with services.bus.library(context) as library:
            hits, remarks = await threads.match_messages(
                library.chats, query, request.thread_id, request.limit, services.settings
            )
    except SourceTimeout as error:
        raise Unavailable("Database operation timeout") from error
    rows = tuple(
        schemas.FullMessageMatch(
            **threads.match_fields(hit),
            content=hit.message.content,
            metadata=threads.author_metadata(hit.message),
        )
        for hit in hits
    )
    return schemas.BusSearchResults(results=rows, total=len(rows), query=query, **remarks)


@_operation("POST /api/agents/register", "Register an agent", tools=JOINING_TOOLS, scope=WRITE)
async def register_agent(
    context: RequestContext, services: Runtime, request: schemas.RegisterRequest
) -> schemas.Registration:
    """Gives an agent a name and a token. An agent that was idle for long has to register again."""
    async with services.bus.library(context) as library:
        agent, token = await services.bus.add_agent(library.agents, request)
    return schemas.Registration(
        agent_id=agent.id,
        name=agent.name,
        display_name=agent.name,
        alias_source="user" if request.display_name else "auto",
        token=token,
        capabilities=request.capabilities or (),
        skills=request.skills or (),
    )


@_operation("GET /api/threads", "List threads", tools=READING_TOOLS)
async def list_threads(
    context: RequestContext, services: Runtime, request: schemas.ListThreadsRequest
) -> schemas.ThreadList:
    """The threads of the bus, newest first. next_cursor is the value of before for the next page. Archived threads
    are left out unless you ask for them."""
    max_threads = services.settings.message_page_max
    limit = clamp(request.limit, 1, max_threads) if request.limit else max_threads
    is_archived = None if request.status is None and request.include_archived else request.status == "archived"
    after = None
    if request.before:
        # Any ISO 8601 time, and the id of a thread if several were created then. A `+` that was not percent-encoded
        # arrives as a space.
        time, _, thread_id = request.before.strip().partition(_CURSOR_SEPARATOR)
        try:
            moment = parse_time(time.replace(" ", "+") if "T" in time else time)
            after = CreationPosition(format_time(moment), thread_id)
        except (ValueError, OverflowError) as error:
            raise InvalidParams("Invalid 'before' cursor: must be an ISO datetime string") from error
    # An archived thread keeps the status that it had before, see `Conversation.is_archived`.
    status = request.status if request.status != "archived" else None
    async with services.bus.library(context) as library:
        page = await library.chats.list_created(
            limit + 1,
            namespace=threads.NAMESPACE,
            after=after,
            metadata=threads.bus_field_filter("status", status, threads.DISCUSS) if status else None,
            is_archived=is_archived,
        )
    has_more, next_cursor = len(page.rows) > limit, None
    if has_more:
        # As in AgentChatBus, the time of the last thread. The id is appended only if the next thread was created at the
        # same time, which would otherwise be skipped.
        last = page.rows[limit - 1]
        next_cursor = extend_to_microseconds(last.created_at)
        if page.rows[limit].created_at >= last.created_at:
            next_cursor += _CURSOR_SEPARATOR + last.id
    return schemas.ThreadList(
        threads=tuple(threads.bus_thread(conversation) for conversation in page.rows[:limit]),
        total=page.total,
        has_more=has_more,
        next_cursor=next_cursor,
    )


@_operation(
    "POST /api/threads",
    "Create a thread",
    tools=JOINING_TOOLS,
    scope=WRITE,
    status=201,
    headers=_AGENT_TOKEN,
    error_statuses=CONFLICT,
)
async def open_thread(
    context: RequestContext, services: Runtime, request: schemas.CreateThreadRequest
) -> schemas.CreatedThread:
    """Creates a conversation that all agents of the user share. If a thread has this topic already, it is returned
    unchanged."""
    async with services.bus.library(context) as library:
        creator = await services.bus.registry.require(
            library.agents, request.creator_agent_id, request.agent_token, "create thread"
        )
        conversation, _ = await services.bus.get_or_create_thread(library.chats, request, creator)
        current_seq = await library.chats.last_message_number(conversation.id)
    tokens = services.bus.reply_tokens
    sync_context = await tokens.sync_context(context.user_id, conversation.id, current_seq, creator.id)
    return schemas.CreatedThread(**structs.asdict(threads.bus_thread(conversation)), **structs.asdict(sync_context))


@_state_operation("POST /api/threads/{thread_id}/state", "Set the status of a thread")
async def state_thread(
    context: RequestContext, services: Runtime, request: schemas.ThreadStateRequest
) -> schemas.ThreadChanged:
    """Sets the status, by which threads can be listed. It does not restrict what can be posted."""
    return await _set_status(context, services, request.thread_id, request.state)


@_state_operation("POST /api/threads/{thread_id}/archive", "Archive a thread")
async def archive_thread(
    context: RequestContext, services: Runtime, request: schemas.ThreadRequest
) -> schemas.ThreadChanged:
    """Sets the status archived. The list of threads leaves archived threads out unless asked for them."""
    return await _set_status(context, services, request.thread_id, "archived")


@_state_operation("POST /api/threads/{thread_id}/unarchive", "Restore an archived thread")
async def unarchive_thread(
    context: RequestContext, services: Runtime, request: schemas.ThreadRequest
) -> schemas.ThreadChanged:
    """Sets the status discuss."""
    return await _set_status(context, services, request.thread_id, "discuss")


async def _set_status(
    context: RequestContext, services: Runtime, thread_id: str, status: schemas.ThreadStatus
) -> schemas.ThreadChanged:
    async with services.bus.library(context) as library:
        conversation = await get_thread(library.chats, thread_id)
        is_archived = status == "archived"
        bus_fields = conversation.metadata.get(threads.BUS_KEY)
        kept = bus_fields if isinstance(bus_fields, Mapping) else {}
        metadata = {**conversation.metadata, threads.BUS_KEY: {**kept, "status": status}}
        draft = ConversationDraft(metadata=UNSET if is_archived else metadata, is_archived=is_archived)
        await library.chats.update(conversation.id, draft, conversation.version)
    return schemas.ThreadChanged(thread_id=conversation.id, status=status)


@_operation(
    "POST /api/threads/{thread_id}/sync-context",
    "Get the sync context of a thread",
    tools=JOINING_TOOLS,
    scope=WRITE,
    error_statuses=NOT_FOUND,
)
async def sync_thread(
    context: RequestContext, services: Runtime, request: schemas.ThreadRequest
) -> schemas.SyncContext:
    """The seq of the thread's last message, and a reply token for the next one."""
    async with services.bus.library(context) as library:
        await require_writable(context, library.chats, request.thread_id)
        current_seq = await library.chats.last_message_number(request.thread_id)
    return await services.bus.reply_tokens.sync_context(context.user_id, request.thread_id, current_seq)


@_state_operation("POST /api/threads/{thread_id}/messages", "Post a message", status=201, headers=_AGENT_TOKEN)
async def post_message(context: RequestContext, services: Runtime, request: schemas.PostRequest) -> schemas.BusMessage:
    """Adds a message to a thread. With expected_last_seq, it is rejected if others have posted meanwhile, and their
    messages are returned."""
    message, _ = await services.bus.post(context, request, needs_agent_token=True)
    return message


@_operation(
    "GET /api/threads/{thread_id}/messages",
    "Read a thread",
    tools=READING_TOOLS,
    response=tuple[schemas.BusMessage, ...],
    error_statuses=NOT_FOUND,
)
async def read_thread(
    context: RequestContext, services: Runtime, request: schemas.MessagesRequest
) -> ResponseWithHeaders:
    """Messages of a thread in order, after after_seq. The header X-Has-More says whether there are more, and Link
    (rel=next) where."""
    max_bytes = services.settings.fixed.conversation_response_max_bytes
    async with services.libraries.library(context) as library:
        messages, has_more = await services.bus.read_messages(library.chats, request, max_bytes)
    context.record_read(uri_of("chats", request.thread_id))
    # The response is an array, as AgentChatBus's clients expect.
    if not has_more:
        return ResponseWithHeaders(messages, {"X-Has-More": "false"})
    priority = {"priority": request.priority} if request.priority else {}
    query = urlencode({"after_seq": messages[-1].seq, "limit": request.limit, **priority})
    return ResponseWithHeaders(messages, {"X-Has-More": "true", "Link": f'<?{query}>; rel="next"'})


@_operation("GET /events", "Follow the bus", tools=READING_TOOLS, response=EVENT_STREAM)
async def follow_bus(context: RequestContext, services: Runtime, _request: NoArguments) -> Response:
    """Server-sent events, each a JSON object with type and payload: connected at once, then msg.new,
    thread.created, thread.state, thread.updated and thread.deleted of the caller's threads. Events from before are
    not repeated. The stream ends after five minutes; browsers reconnect."""
    return await stream(services.open_streams, context, _events(context, services), EVENT_STREAM)


async def _events(context: RequestContext, services: Runtime) -> AsyncIterator[bytes]:
    seen: dict[str, _SeenThread] | None = None
    watch = ChangeWatch(services.libraries, services.open_streams, services.settings)
    async for token in watch.tokens(context):
        if token is None:
            yield KEEP_ALIVE
        elif seen is None:
            async with services.libraries.library(context) as library:
                present = await _changed_threads(services, library.chats, {}, reads_all=True)
            seen = {thread.id: _SeenThread(thread) for thread in present}
            yield RETRY + _event("connected", {})
        else:
            async for event in _changes(context, services, seen):
                yield event


async def _changes(context: RequestContext, services: Runtime, seen: dict[str, _SeenThread]) -> AsyncIterator[bytes]:
    """Yields what has changed since `seen`, which it updates. No library is held while the client reads."""
    async with services.libraries.library(context) as library:
        # Deleting or archiving a thread does not move it to the front of the list, so these are noticed by their
        # numbers. Only then all threads are read.
        total = (await library.chats.list(1, 0, namespace=threads.NAMESPACE)).total
        archived = (await library.chats.list(1, 0, namespace=threads.NAMESPACE, is_archived=True)).total
        changed = await _changed_threads(services, library.chats, seen, reads_all=False)
        known = {thread_id: one.thread for thread_id, one in seen.items()} | {thread.id: thread for thread in changed}
        present = None
        if total < len(known) or archived != sum(thread.status == "archived" for thread in known.values()):
            present = await _changed_threads(services, library.chats, {}, reads_all=True)
    if present is not None:
        for thread_id in seen.keys() - {thread.id for thread in present}:
            del seen[thread_id]
            yield _event("thread.deleted", {"thread_id": thread_id})
        changed = [thread for thread in present if thread.id not in seen or seen[thread.id].thread != thread]
    for thread in reversed(changed):  # the oldest change first
        before = seen.get(thread.id)
        if before is None:
            yield _event("thread.created", thread)
            before = seen[thread.id] = _SeenThread(thread, 0)
        elif thread.status != before.thread.status:
            yield _event("thread.state", thread)
        elif (thread.topic, thread.system_prompt) != (before.thread.topic, before.thread.system_prompt):
            yield _event("thread.updated", thread)
        async for event in _new_messages(context, services, before):
            yield event
        before.thread = thread


async def _new_messages(context: RequestContext, services: Runtime, before: _SeenThread) -> AsyncIterator[bytes]:
    has_more = True
    while has_more:
        try:
            async with services.libraries.library(context) as library:
                if before.last_seq is None:
                    # The seq of the last message that the thread had when it was seen.
                    count, thread_id = before.thread.message_count, before.thread.id
                    rows = (await library.chats.messages(thread_id, 1, count - 1)).rows if count else ()
                    last_seq = rows[0].number if rows else await library.chats.last_message_number(thread_id)
                    before.last_seq = last_seq if count else 0
                messages, has_more = await threads.read_page(
                    library.chats,
                    before.thread.id,
                    before.last_seq,
                    services.settings.message_page_max,
                    RESPONSE_MAX_BYTES,
                )
        except NotFound:  # deleted meanwhile
            return
        for message in messages:
            before.last_seq = message.number
            yield _event("msg.new", threads.bus_message(message))


async def _changed_threads(
    services: Runtime, chats: Chats, seen: Mapping[str, _SeenThread], *, reads_all: bool
) -> Sequence[schemas.BusThread]:
    """Returns the threads that differ from those in `seen`, the latest change first. Unless it reads all, it ends
    at the first page without a change: the list is sorted by time of change."""
    changed: list[schemas.BusThread] = []
    offset = 0
    while True:
        page = await chats.list(services.settings.message_page_max, offset, namespace=threads.NAMESPACE)
        listed = [threads.bus_thread(conversation) for conversation in page.rows]
        differing = [one for one in listed if one.id not in seen or seen[one.id].thread != one]
        changed += differing
        offset += len(listed)
        if not listed or offset >= page.total or not (differing or reads_all):
            return changed


def _event(kind: str, payload: Any) -> bytes:
    """AgentChatBus's events have no name, so that `onmessage` of a browser receives all of them."""
    return b"data: " + msgspec.json.encode({"type": kind, "payload": payload}) + b"\n\n"
