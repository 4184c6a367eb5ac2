"""Streamable HTTP at `/mcp` and `/mcp/{profile}`, for both eras. Raw ASGI, because it is the hot path.

The credential is verified on every request; a session id never replaces it.
"""

# About this package: Start with `http`: nearly all clients use it. The others, `websocket`, `sse` and `stdio`,
# feed a lasting `Connection` (`server/protocol/connection`). The client side of the WebSocket is `bridge`, for clients
# that only know stdio. Before a request has a credential, only these see it: `bounded_http` and `bounded_websocket`
# limit what a stranger can make the server parse, `client_connections` how many connections and bytes there are,
# `headers` which sites may send requests.

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

import msgspec
from cachetools import LRUCache
from msgspec import Struct
from starlette.types import Message, Receive, Scope, Send

from auth.context import SessionId
from config.errors import (
    FlorilegiumError,
    InvalidRequest,
    MissingCapability,
    ProtocolError,
    TooLarge,
    UnsupportedVersion,
    retry_after_seconds,
)
from config.logging import current_request_id
from server.admission import AdmittedRequest, IncomingRequest
from server.error_responses import raw_error_headers
from server.protocol import messages
from server.protocol.call import (
    RETRY_AFTER_KEY,
    Call,
    NullPeer,
    Started,
    has_modern_meta,
    legacy_call,
    modern_call,
    read_request_meta,
    required_capability,
)
from server.protocol.catalog import LIST_KINDS
from server.protocol.dispatcher import CallObserver
from server.protocol.legacy_sessions import SESSION_METHODS, InFlightRequests, RunningCall
from server.protocol.schema import MirroredParameter
from server.runtime import Runtime
from server.transports.client_connections import decode_body
from server.transports.headers import (
    API_KEY,
    AUTHORIZATION,
    COOKIE,
    MCP_PATH,
    SESSION,
    VERSION,
    Headers,
    check_headers,
    profile_in,
)
from sessions.store import Session

# Calls that end sooner never pay for watching whether the client is still connected.
WATCH_AFTER_S = 0.05
_CANCELLED = "call cancelled"
_ANSWERED = "request answered"

# -- messages ----------------------------------------------------------------------------------------------------------
# HTTP requests and responses as ASGI messages, for the transports that do without Starlette's classes.

RawHeaders = Sequence[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
STREAM_HEADERS: RawHeaders = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    # Reverse proxies buffer by default, which would delay events until the stream ends.
    (b"x-accel-buffering", b"no"),
)
KEEP_ALIVE = b": keep-alive\n\n"


class HttpStatusError(InvalidRequest):
    """An invalid request that HTTP has its own status for: 406 or 415."""

    def __init__(self, message: str, http_status: int) -> None:
        super().__init__(message)
        self.http_status = http_status


def error_and_status(what: str, error: Exception) -> tuple[FlorilegiumError, int]:
    """Returns the error to send. An unexpected exception is logged; the client learns only the id of the request."""
    match error:
        case HttpStatusError():
            return error, error.http_status
        case FlorilegiumError():
            return error, error.status
    messages.log_failure(what, error)
    return FlorilegiumError(f"internal error (request {current_request_id()})"), 500


def message_event(message: Any) -> bytes:
    return b"event: message\ndata: " + messages.encode(message) + b"\n\n"


async def send_json(send: Send, status: int, message: Any, headers: RawHeaders = ()) -> None:
    body = messages.encode(message)
    all_headers = [JSON, (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})


async def send_empty(send: Send, status: int, headers: RawHeaders = ()) -> None:
    # RFC 9110 section 8.6: a 204 has no Content-Length.
    length = () if status == 204 else ((b"content-length", b"0"),)
    await send({"type": "http.response.start", "status": status, "headers": [*length, *headers]})
    await send({"type": "http.response.body", "body": b""})


async def send_method_not_allowed(send: Send) -> None:
    await send_empty(send, 405, [(b"allow", b"POST, GET, DELETE")])


async def wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(receive: Receive, headers: Headers, limit_bytes: int) -> bytes:
    """Reads the whole body. Raises TooLarge as soon as the limit is known to be exceeded."""
    content_length = headers.get(b"content-length") or ""
    if content_length.isdecimal() and int(content_length) > limit_bytes:
        raise TooLarge("the body", limit_bytes)
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        parts, size = [body], len(body)
        while message.get("more_body"):
            if size > limit_bytes:
                raise TooLarge("the body", limit_bytes)
            message = await receive()
            if message["type"] == "http.disconnect":
                raise InvalidRequest("the body is incomplete")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
        body = b"".join(parts)
    if len(body) > limit_bytes:
        raise TooLarge("the body", limit_bytes)
    return body


# -- post response -----------------------------------------------------------------------------------------------------
# The HTTP response to one POST: a single JSON object, or an event stream once the call sends a message.


class PostResponse:
    """The client's end of a POST. It becomes an event stream with the first notification or request to the client."""

    # None until the request's id has been read (JSON-RPC 2.0 section 5).
    request_id: messages.RequestId | None = None
    # Those of the request, once it was admitted.
    headers: Headers | None = None
    # Exists from the first event on: then the status has been sent, and only events can follow.
    _keep_alive_task: asyncio.Task[None] | None = None

    def __init__(self, send: Send, in_flight: InFlightRequests, keep_alive_s: float) -> None:
        self._send = send
        self._in_flight = in_flight
        self._keep_alive_s = keep_alive_s

    async def notify(self, message: Mapping[str, Any]) -> None:
        """Sends a notification. It is dropped if the client accepts no event stream, because it is optional."""
        if self.headers is not None and self.headers.accepts("text/event-stream"):
            await self._send_event(message)

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Sends a request to the client. Without an event stream it cannot arrive, whatever the client declared."""
        if self.headers is None or not self.headers.accepts("text/event-stream"):
            raise MissingCapability(required_capability(method))
        return await self._in_flight.request(self.headers.get(SESSION), self._send_event, method, params)

    def answer(self, result: Mapping[str, Any]) -> Awaitable[None]:
        """Sends the result of the call. Repeats in a header when a tool may be called again: load balancers and HTTP
        clients do not read results."""
        headers: RawHeaders = ()
        if result.get("isError") and (retry_after_s := result.get("_meta", {}).get(RETRY_AFTER_KEY)) is not None:
            headers = ((b"retry-after", b"%d" % retry_after_seconds(retry_after_s)),)
        message = {"jsonrpc": "2.0", "id": self.request_id, "result": result}
        if self._keep_alive_task is None:
            return send_json(self._send, 200, message, headers)
        return self.finish(200, message)

    async def finish(self, status: int, message: Any, headers: RawHeaders = ()) -> None:
        """Sends the response itself. The status is ignored if a stream has begun."""
        if self._keep_alive_task is None:
            await send_json(self._send, status, message, headers)
            return
        await self._stop_keep_alive()
        await self._send({"type": "http.response.body", "body": message_event(message)})

    async def accept(self) -> None:
        """Sends 202 without a body, for a notification or a cancelled call."""
        if self._keep_alive_task is not None:
            await self._stop_keep_alive()
            await self._send({"type": "http.response.body", "body": b""})
            return
        await send_empty(self._send, 202)

    async def abandon(self) -> None:
        """Ends the response without sending anything, because the client has disconnected."""
        if self._keep_alive_task is not None:
            await self._stop_keep_alive()

    async def _send_event(self, message: Mapping[str, Any]) -> None:
        if self._keep_alive_task is None:
            self._keep_alive_task = asyncio.create_task(self._keep_alive())
            await self._send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        await self._send({"type": "http.response.body", "body": message_event(message), "more_body": True})

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._keep_alive_s)
            await self._send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})

    async def _stop_keep_alive(self) -> None:
        assert self._keep_alive_task is not None
        self._keep_alive_task.cancel()
        with suppress(asyncio.CancelledError):
            await self._keep_alive_task


# -- transport ---------------------------------------------------------------------------------------------------------


class HttpTransport:
    """The ASGI application at `/mcp` and below."""

    def __init__(self, runtime: Runtime, observer: CallObserver | None = None) -> None:
        self._settings = runtime.settings
        self._admission = runtime.admission
        self._dispatcher = runtime.dispatcher
        self._sessions = runtime.sessions
        self._open_streams = runtime.open_streams
        self._in_flight = InFlightRequests(runtime.dispatcher.options.elicitation_timeout_s)
        self._refusals = RepeatedRefusals(observer)
        # The request of a session that a message refers to may run in another process.
        self._peers = runtime.stores.peers
        self._peers.handle(_CANCELLED, lambda content: self._in_flight.cancel(SessionId(content[0]), content[1]))
        self._peers.handle(
            _ANSWERED, lambda content: self._in_flight.resolve(SessionId(content[0]), messages.Response(*content[1:]))
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request. Unexpected exceptions are logged and become a 500 with the request id."""
        if not self._refusals.is_empty:
            unanswered = await self._refusals.answer(scope, receive, send)
            if unanswered is None:
                return
            receive = unanswered
        response = PostResponse(send, self._in_flight, self._settings.sse_keepalive_s)
        profile = None if scope["path"] == MCP_PATH else profile_in(scope["path"])
        try:
            request = await self._admission.admit(IncomingRequest.from_scope(scope), profile)
            headers = request.headers
            match scope["method"]:
                case "POST":
                    await self._post(request, receive, response)
                # The modern era has neither sessions nor their stream; it has `subscriptions/listen`.
                case "GET" | "DELETE" if (
                    headers.get(VERSION) in messages.MODERN_VERSIONS or headers.get(SESSION) is None
                ):
                    await send_method_not_allowed(send)
                case "GET":
                    await self._get(request, receive, send)
                case "DELETE":
                    await self._sessions.end(await self._session(request))
                    await send_empty(send, 204)
                case _:
                    await send_method_not_allowed(send)
        except Exception as error:
            await self._send_error(response, *error_and_status(f"{scope['method']} {scope['path']}", error), profile)

    async def _send_error(
        self, response: PostResponse, error: FlorilegiumError, status: int, profile: str | None
    ) -> None:
        headers = raw_error_headers(self._settings, error, profile)
        await response.finish(status, messages.error_message(response.request_id, error), headers)

    # -- POST ---------------------------------------------------------------------------------------------------

    async def _post(self, request: AdmittedRequest, receive: Receive, response: PostResponse) -> None:
        headers = request.headers
        if not headers.has_json_body():
            # Also stops "simple" cross-site posts, which a browser sends without a preflight request.
            raise HttpStatusError("the body must be application/json", 415)
        if not headers.accepts("application/json"):
            raise HttpStatusError("the Accept header must allow application/json", 406)
        body = await read_body(receive, headers, self._settings.body_max_bytes)
        value = decode_body(body, request.connection)
        response.headers = headers
        if isinstance(value, list):
            await self._batch(request, value, response)
            return
        try:
            message = messages.read_message(value)
        except messages.MalformedMessage as error:
            response.request_id = error.request_id
            raise
        if isinstance(message, messages.Request):
            response.request_id = message.id
        # The era of a request: modern by its version header or its `_meta`, otherwise legacy.
        is_modern = headers.get(VERSION) in messages.MODERN_VERSIONS or (
            not isinstance(message, messages.Response)
            and (has_modern_meta(message.params) or message.method == "server/discover")
        )
        if is_modern:
            await self._modern(request, message, receive, response)
        else:
            await self._legacy(request, message, response)

    async def _batch(self, request: AdmittedRequest, values: list[Any], response: PostResponse) -> None:
        """Serves a batch, which exists in one revision only. Its calls run one after the other and cannot stream."""
        session, batch_max = await self._session(request), self._settings.fixed.connection_in_flight_max
        if session.version != messages.BATCH_VERSION:
            raise InvalidRequest(f"protocol version {session.version} has no batches")
        if not 0 < len(values) <= batch_max:
            raise InvalidRequest(f"batch: expected 1 to {batch_max} messages, got {len(values)}")
        await self._admission.charge(request.principal, len(values) - 1)  # admission charged for one
        results: list[Mapping[str, Any]] = []
        for value in values:
            request_id: messages.RequestId | None = None
            try:
                message = messages.read_message(value)
                if not isinstance(message, messages.Request):
                    self._deliver(session.id, message)
                    continue
                request_id = message.id
                if message.method == "initialize":
                    raise InvalidRequest("initialize cannot be part of a batch")
                call = legacy_call(session, message, self._admission.context(request, session.id), NullPeer())
                results.append(messages.result_message(message.id, await self._dispatcher.dispatch(call, message)))
            except FlorilegiumError as error:
                if isinstance(error, messages.MalformedMessage):
                    request_id = error.request_id
                results.append(messages.error_message(request_id, error))
        if results:
            await response.finish(200, results)
        else:
            await response.accept()

    async def _modern(
        self,
        request: AdmittedRequest,
        message: messages.Message,
        receive: Receive,
        response: PostResponse,
    ) -> None:
        if isinstance(message, messages.Response):
            raise InvalidRequest("in the modern era, clients do not send responses")
        if isinstance(message, messages.Notification):
            _check_version_header(request.headers.get(VERSION), messages.MODERN_VERSIONS)
            await response.accept()
            return
        if message.method == "subscriptions/listen" and not request.headers.accepts("text/event-stream"):
            raise HttpStatusError("the Accept header must allow text/event-stream", 406)
        meta = read_request_meta(message.params)
        profile = self._dispatcher.profiles.choose(request.principal, request.profile)
        mirrored: Sequence[MirroredParameter] = ()
        if (all_mirrored := self._dispatcher.catalog.mirrored_parameters) and message.method == "tools/call":
            tool = self._dispatcher.find_tool(profile, message.params.get("name"))
            mirrored = all_mirrored.get(tool.name, ()) if tool is not None else ()
        check_headers(request.headers, message, meta.version, mirrored)
        call = modern_call(meta, message, self._admission.context(request), response, profile)
        started = Started(self._dispatcher.dispatch(call, message))
        # Most calls end without waiting for anything. Nobody has to watch whether their client disconnects.
        if not started.is_done:
            # A client that disconnects while it receives the result has nothing left to cancel.
            with DisconnectWatch(receive) as watch:
                started.result = await started
            if watch.has_disconnected:
                # A modern client cancels a call by closing the connection; this task then ends normally.
                await response.abandon()
                return
        if call.refused_for_s:
            self._remember_refusal(request, call, message, started.result)
        await response.answer(started.result)

    def _remember_refusal(
        self, request: AdmittedRequest, call: Call, message: messages.Request, result: Mapping[str, Any]
    ) -> None:
        # The operator has no credential by which the call could be told from those of others.
        if request.principal.kind != "operator":
            self._refusals.remember(request.headers, message.params["name"], result, call.refused_for_s)

    async def _legacy(self, request: AdmittedRequest, message: messages.Message, response: PostResponse) -> None:
        if isinstance(message, messages.Request) and message.method == "initialize":
            opened = await self._sessions.open(request.principal, message.params, request.profile)
            result = self._dispatcher.initialize_result(opened)
            await response.finish(200, messages.result_message(message.id, result), [(SESSION, opened.id.encode())])
            return
        session = await self._session(request)
        if not isinstance(message, messages.Request):
            self._deliver(session.id, message)
            await response.accept()
            return
        context = self._admission.context(request, session.id)
        running: RunningCall | None = None
        try:
            call = legacy_call(session, message, context, response)
            started = Started(self._dispatcher.dispatch(call, message))
            if started.is_done:
                result = started.result
            else:
                # A lost connection does not cancel a legacy call; `notifications/cancelled` does.
                with self._in_flight.running(session.id, message.id) as running:
                    result = await started
            if call.refused_for_s:
                self._remember_refusal(request, call, message, result)
            if message.method in SESSION_METHODS:
                await self._sessions.save(session)
        except FlorilegiumError as error:
            # The legacy era reports protocol errors with status 200, and all others with their HTTP status.
            status = 200 if isinstance(error, ProtocolError) else error.status
            await self._send_error(response, error, status, request.profile)
        except asyncio.CancelledError:
            if running is None or not running.is_cancelled:
                raise
            running.uncancel()
            await response.accept()
        else:
            await response.answer(result)

    def _deliver(self, session_id: SessionId, message: messages.Notification | messages.Response) -> None:
        """Passes a response or a cancellation on to the request that it refers to."""
        if isinstance(message, messages.Response):
            if not self._in_flight.resolve(session_id, message):
                self._peers.publish(_ANSWERED, (session_id, message.id, message.result, message.error))
        elif message.method == "notifications/cancelled":
            request_id = message.params.get("requestId")
            if not self._in_flight.cancel(session_id, request_id):
                self._peers.publish(_CANCELLED, (session_id, request_id))

    async def _session(self, request: AdmittedRequest) -> Session:
        _check_version_header(request.headers.get(VERSION), messages.LEGACY_VERSIONS)
        session_id = request.headers.get(SESSION)
        if session_id is None:
            raise InvalidRequest("the Mcp-Session-Id header is missing; send initialize first")
        return await self._sessions.find(session_id, request.principal, request.profile)

    # -- GET ----------------------------------------------------------------------------------------------------

    async def _get(self, request: AdmittedRequest, receive: Receive, send: Send) -> None:
        """Serves the legacy stream of changes."""
        if not request.headers.accepts("text/event-stream"):
            raise HttpStatusError("the Accept header must allow text/event-stream", 406)
        session = await self._session(request)
        changes = self._dispatcher.catalog.changes
        with (
            self._open_streams.enter(request.principal),
            changes.listen(request.principal, LIST_KINDS, session.subscriptions) as listener,
            DisconnectWatch(receive),
        ):
            # Sends changes until the client disconnects, the session ends, or access is revoked.
            idle_s = 0.0
            await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
            await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
            while await self._sessions.holds(session) and await self._open_streams.is_open(request.principal):
                change = await listener.next(self._settings.fixed.access_recheck_s)
                idle_s = 0.0 if change else idle_s + self._settings.fixed.access_recheck_s
                if change is not None:
                    body = message_event(messages.notification_message(*change.as_notification()))
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                elif idle_s >= self._settings.sse_keepalive_s:
                    idle_s = 0.0
                    await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


class DisconnectWatch:
    """In the block, cancels the current task when the client disconnects, if it is still running after WATCH_AFTER_S.
    The block then ends early, without an exception."""

    def __init__(self, receive: Receive) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[Any] = task
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._start)
        self.has_disconnected = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._timer.cancel()
        # Not kept: the task refers to this object, and such a cycle is left to the garbage collector.
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
        # If the task was also cancelled by someone else, CancelledError propagates to them.
        return self.has_disconnected and self._task.uncancel() == 0 and kind is asyncio.CancelledError

    def _start(self) -> None:
        self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        await wait_for_disconnect(self._receive)
        self.has_disconnected = True
        self._task.cancel()


def _check_version_header(version: str | None, supported: tuple[str, ...]) -> None:
    if version is not None and version not in supported:
        raise UnsupportedVersion(version, messages.ALL_VERSIONS)


# -- repeated refusals -------------------------------------------------------------------------------------------------
# Answers calls that are repeated before the time that `Retry-After` named, at a fraction of the cost of other calls.
#
# Under overload, clients that call again at once would otherwise take the time that the admitted calls need. A
# repeated call has the same credential and the same tool, and gets the same result.

# In the ASGI scope of a repeated call, which is not logged: the log line would cost more than the answer.
IS_REPEATED = "florilegium.is_repeated"
_ENTRIES_MAX = 10_000
# Every header that can decide who is calling, so that no caller gets the answer to another.
_CREDENTIALS = (AUTHORIZATION, API_KEY, COOKIE)
_Credential = tuple[bytes, ...]
# After this time a call is admitted as usual, because the queue may be empty.
_VALID_MAX_S = 0.5
_BODY_MAX_BYTES = 64 * 1024
# Answering repeated calls takes a small part of the server's time at most: beyond this rate, answers wait.
_ANSWERS_PER_S = 500.0
# So many are answered at once, in a few milliseconds: callers that were refused together return together.
_ANSWERS_AT_ONCE = 100
_ANSWER_WAIT_MAX_S = 1.0


class _ToolName(Struct, frozen=True):
    name: str = ""


class _ToolCall(Struct, frozen=True):
    """The parts of a call that its answer depends on."""

    method: str
    id: messages.RequestId
    params: _ToolName


class _Refusal(Struct, frozen=True):
    until: float
    results: Mapping[str, Mapping[str, Any]]


_decode = msgspec.json.Decoder(_ToolCall).decode


class RepeatedRefusals:
    """The refusals that are still valid, by credential and tool."""

    def __init__(self, observer: CallObserver | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._observer = observer
        self._clock = clock
        self._refusals: LRUCache[_Credential, _Refusal] = LRUCache(_ENTRIES_MAX)
        self.is_empty = True
        self._next_answer_at = 0.0

    def remember(self, headers: Headers, tool: str, result: Mapping[str, Any], retry_after_s: float) -> None:
        """Keeps the result of a refused call until it may be repeated."""
        self.is_empty = False
        credential, now = tuple(headers.get_raw(name) for name in _CREDENTIALS), self._clock()
        before = self._refusals.get(credential)
        results = before.results if before is not None and before.until > now else {}
        self._refusals[credential] = _Refusal(now + min(retry_after_s, _VALID_MAX_S), {**results, tool: result})

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> Receive | None:
        """Answers the call if it was refused before; otherwise returns how to receive its body."""
        values = {name: value.strip(b" \t") for name, value in scope["headers"] if name in _CREDENTIALS}
        refusal = self._refusals.get(tuple(values.get(name, b"") for name in _CREDENTIALS))
        if refusal is None or refusal.until <= self._clock() or scope["method"] != "POST":
            return receive
        first = await receive()
        call = _read_call(first)
        if call is None or (result := refusal.results.get(call.params.name)) is None:
            # A function that receives the message that was already received, and then the rest.
            pending = [first]

            async def replay() -> Message:
                return pending.pop() if pending else await receive()

            return replay
        scope[IS_REPEATED], started_at = True, self._clock()
        self._next_answer_at = max(self._next_answer_at, started_at) + 1 / _ANSWERS_PER_S
        if (wait_s := self._next_answer_at - started_at - _ANSWERS_AT_ONCE / _ANSWERS_PER_S) > 0:
            await asyncio.sleep(min(wait_s, _ANSWER_WAIT_MAX_S))
        retry_after = b"%d" % retry_after_seconds(result["_meta"][RETRY_AFTER_KEY])
        await send_json(send, 200, messages.result_message(call.id, result), [(b"retry-after", retry_after)])
        if self._observer is not None:
            self._observer.record_call("tools/call", call.params.name, "refused", self._clock() - started_at)
        return None


def _read_call(message: Message) -> _ToolCall | None:
    """Returns the tool call in a small body that arrived as a whole."""
    body = message.get("body", b"")
    if message.get("more_body") or len(body) > _BODY_MAX_BYTES:
        return None
    try:
        call = _decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return call if call.method == "tools/call" else None
