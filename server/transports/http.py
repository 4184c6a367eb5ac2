"""Streamable HTTP at `/mcp` and `/mcp/{profile}`, for both eras. Raw ASGI, because it is the hot path.

The credential is verified on every request; a session id never replaces it.
"""

# About this package: Start with `http`: nearly all clients use it. The others, `websocket`, `sse` and `stdio`,
# feed a lasting `Connection` (`server/protocol/connection`). The client side of the WebSocket is `bridge`, for clients
# that only know stdio. Before a request has a credential, only these see it: `bounded_http` and `bounded_websocket`
# limit what a stranger can make the server parse, `client_connections` how many connections and bytes there are,
# `headers` which sites may send requests.

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.types import Receive, Scope, Send

from auth.context import SessionId
from config.errors import FlorilegiumError, InvalidRequest, ProtocolError, UnsupportedVersion, retry_after_seconds
from server.admission import AdmittedRequest, IncomingRequest
from server.middleware import raw_error_headers
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
)
from server.protocol.catalog import LIST_KINDS
from server.protocol.dispatcher import CallObserver
from server.protocol.legacy_sessions import SESSION_METHODS, InFlightRequests, RunningCall
from server.runtime import Runtime
from server.transports import http_messages
from server.transports.client_connections import decode_body
from server.transports.headers import SESSION, VERSION, check_headers, profile_in
from sessions.store import Session

# Calls that end sooner never pay for watching whether the client is still connected.
WATCH_AFTER_S = 0.05
_CANCELLED = "call cancelled"
_ANSWERED = "request answered"


class HttpTransport:
    """The ASGI application at `/mcp` and below."""

    def __init__(self, runtime: Runtime, observer: CallObserver | None = None) -> None:
        self._settings = runtime.settings
        self._admission = runtime.admission
        self._dispatcher = runtime.dispatcher
        self._sessions = runtime.sessions
        self._open_streams = runtime.open_streams
        self._in_flight = InFlightRequests(runtime.dispatcher.options.elicitation_timeout_s)
        self._refusals = http_messages.RepeatedRefusals(observer)
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
        response = http_messages.PostResponse(send, self._in_flight, self._settings.sse_keepalive_s)
        profile = profile_in(scope["path"])
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
                    await http_messages.send_method_not_allowed(send)
                case "GET":
                    await self._get(request, receive, send)
                case "DELETE":
                    await self._sessions.end(await self._session(request))
                    await http_messages.send_empty(send, 204)
                case _:
                    await http_messages.send_method_not_allowed(send)
        except Exception as error:
            await self._send_error(
                response, *http_messages.error_and_status(f"{scope['method']} {scope['path']}", error), profile
            )

    async def _send_error(
        self, response: http_messages.PostResponse, error: FlorilegiumError, status: int, profile: str | None
    ) -> None:
        headers = raw_error_headers(self._settings, error, profile)
        await response.finish(status, messages.error_message(response.request_id, error), headers)

    # -- POST ---------------------------------------------------------------------------------------------------

    async def _post(self, request: AdmittedRequest, receive: Receive, response: http_messages.PostResponse) -> None:
        headers = request.headers
        if not headers.has_json_body():
            # Also stops "simple" cross-site posts, which a browser sends without a preflight request.
            raise http_messages.HttpStatusError("the body must be application/json", 415)
        if not headers.accepts("application/json"):
            raise http_messages.HttpStatusError("the Accept header must allow application/json", 406)
        body = await http_messages.read_body(receive, headers.get(b"content-length"), self._settings.body_max_bytes)
        value = decode_body(body, request.connection)
        response.prepare(headers.get(SESSION), headers.accepts("text/event-stream"))
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

    async def _batch(self, request: AdmittedRequest, values: list[Any], response: http_messages.PostResponse) -> None:
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
                if isinstance(message, messages.Response):
                    self._answer(session.id, message)
                if not isinstance(message, messages.Request):
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
        response: http_messages.PostResponse,
    ) -> None:
        if isinstance(message, messages.Response):
            raise InvalidRequest("in the modern era, clients do not send responses")
        if isinstance(message, messages.Notification):
            _check_version_header(request.headers.get(VERSION), messages.MODERN_VERSIONS)
            await response.accept()
            return
        if message.method == "subscriptions/listen" and not request.headers.accepts("text/event-stream"):
            raise http_messages.HttpStatusError("the Accept header must allow text/event-stream", 406)
        meta = read_request_meta(message.params)
        profile = self._dispatcher.profiles.choose(request.principal, request.profile)
        tool_name = message.params.get("name") if message.method == "tools/call" else None
        tool = self._dispatcher.find_tool(profile, tool_name)
        mirrored = self._dispatcher.catalog.mirrored_parameters(tool) if tool is not None else ()
        check_headers(request.headers, message, meta.version, mirrored)
        call = modern_call(meta, message, self._admission.context(request), response, profile)
        started = Started(self._dispatch(request, call, message))
        # Most calls end without waiting for anything. Nobody has to watch whether their client disconnects.
        if started.is_done:
            await response.finish(
                200, messages.result_message(message.id, started.result), _retry_after(started.result)
            )
            return
        watch = _DisconnectWatch(receive)
        try:
            result = await started
        except asyncio.CancelledError:
            if not watch.has_disconnected:
                raise
            # A modern client cancels a call by closing the connection; this task then ends normally.
            watch.uncancel()
            await response.abandon()
            return
        finally:
            watch.stop()
        # No longer watched: a client that disconnects while it receives the result has nothing left to cancel.
        await response.finish(200, messages.result_message(message.id, result), _retry_after(result))

    async def _dispatch(self, request: AdmittedRequest, call: Call, message: messages.Request) -> Mapping[str, Any]:
        result = await self._dispatcher.dispatch(call, message)
        # The operator has no credential by which the call could be told from those of others.
        if call.refused_for_s and request.principal.kind != "operator":
            self._refusals.remember(request.headers, message.params["name"], result, call.refused_for_s)
        return result

    async def _legacy(
        self, request: AdmittedRequest, message: messages.Message, response: http_messages.PostResponse
    ) -> None:
        if isinstance(message, messages.Request) and message.method == "initialize":
            opened = await self._sessions.open(request.principal, message.params, request.profile)
            result = self._dispatcher.initialize_result(opened)
            await response.finish(200, messages.result_message(message.id, result), [(SESSION, opened.id.encode())])
            return
        session = await self._session(request)
        match message:
            case messages.Request():
                # A lost connection does not cancel a legacy call; `notifications/cancelled` does.
                context = self._admission.context(request, session.id)
                running: RunningCall | None = None
                try:
                    with self._in_flight.running(session.id, message.id) as running:
                        outcome = await self._dispatch(
                            request, legacy_call(session, message, context, response), message
                        )
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
                    await response.finish(200, messages.result_message(message.id, outcome), _retry_after(outcome))
            case messages.Notification():
                if message.method == "notifications/cancelled":
                    request_id = message.params.get("requestId")
                    if not self._in_flight.cancel(session.id, request_id):
                        self._peers.publish(_CANCELLED, (session.id, request_id))
                await response.accept()
            case messages.Response():
                self._answer(session.id, message)
                await response.accept()

    def _answer(self, session_id: SessionId, response: messages.Response) -> None:
        if not self._in_flight.resolve(session_id, response):
            self._peers.publish(_ANSWERED, (session_id, response.id, response.result, response.error))

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
            raise http_messages.HttpStatusError("the Accept header must allow text/event-stream", 406)
        session = await self._session(request)
        changes = self._dispatcher.catalog.changes
        with (
            self._open_streams.enter(request.principal),
            changes.listen(request.principal, LIST_KINDS, session.subscriptions) as listener,
        ):
            disconnected = asyncio.create_task(http_messages.wait_for_disconnect(receive))
            try:
                # Sends changes until the client disconnects, the session ends, or access is revoked.
                idle_s = 0.0
                await send({"type": "http.response.start", "status": 200, "headers": http_messages.STREAM_HEADERS})
                await send({"type": "http.response.body", "body": http_messages.KEEP_ALIVE, "more_body": True})
                while (
                    not disconnected.done()
                    and await self._sessions.holds(session)
                    and await self._open_streams.is_open(request.principal)
                ):
                    change = await listener.next(self._settings.fixed.access_recheck_s)
                    idle_s = 0.0 if change else idle_s + self._settings.fixed.access_recheck_s
                    if change is not None:
                        body = http_messages.message_event(messages.notification_message(*change.as_notification()))
                        await send({"type": "http.response.body", "body": body, "more_body": True})
                    elif idle_s >= self._settings.sse_keepalive_s:
                        idle_s = 0.0
                        await send({"type": "http.response.body", "body": http_messages.KEEP_ALIVE, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            finally:
                disconnected.cancel()


class _DisconnectWatch:
    """Cancels the current task when the client disconnects, if the task is still running after WATCH_AFTER_S."""

    def __init__(self, receive: Receive) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[Any] = task
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._start)
        self.has_disconnected = False

    def stop(self) -> None:
        self._timer.cancel()
        # Not kept: the task refers to this object, and such a cycle is left to the garbage collector.
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()

    def uncancel(self) -> None:
        """Lets the task continue after the cancellation was handled."""
        self._task.uncancel()

    def _start(self) -> None:
        self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        await http_messages.wait_for_disconnect(self._receive)
        self.has_disconnected = True
        self._task.cancel()


def _retry_after(result: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
    """Repeats in a header when a tool may be called again: load balancers and HTTP clients do not read results."""
    if not result.get("isError") or (retry_after_s := result.get("_meta", {}).get(RETRY_AFTER_KEY)) is None:
        return []
    return [(b"retry-after", b"%d" % retry_after_seconds(retry_after_s))]


def _check_version_header(version: str | None, supported: tuple[str, ...]) -> None:
    if version is not None and version not in supported:
        raise UnsupportedVersion(version, messages.ALL_VERSIONS)
