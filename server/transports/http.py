"""Streamable HTTP at `/mcp` and `/mcp/{profile}`: both eras, decided by each request. Raw ASGI, being the hot path.

The credential is verified on every request; a session id never stands for one.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from starlette.types import Receive, Scope, Send

from auth.challenge import challenge
from auth.context import RequestContext, SessionId, build_context
from auth.principal import READ, Principal
from config.errors import (
    FlorilegiumError,
    Forbidden,
    InvalidRequest,
    ProtocolError,
    RateLimited,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UnsupportedVersion,
    retry_after_seconds,
)
from config.logging import current_request_id
from server.protocol.call import NullPeer
from server.protocol.changes import ChangeListener
from server.protocol.failures import log_failure
from server.protocol.in_flight import InFlightRequests, RunningCall
from server.protocol.messages import (
    MalformedMessage,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    decode,
    error_message,
    notification_message,
    read_message,
    result_message,
)
from server.protocol.request_meta import (
    has_modern_meta,
    legacy_call,
    modern_call,
    read_request_meta,
)
from server.protocol.versions import ALL_VERSIONS, BATCH_VERSION, LEGACY_VERSIONS, MODERN_VERSIONS
from server.runtime import Runtime
from server.transports.headers import AUTHORIZATION, SESSION, VERSION, Headers, check_headers
from server.transports.post_response import KEEP_ALIVE, STREAM_HEADERS, PostResponse, event
from server.transports.request_options import config_of, profile_in
from sessions.session import Session

# A call that ends sooner never pays for watching whether its client is still there.
WATCH_AFTER_S = 0.05
_LIST_KINDS = frozenset(("tools", "resources", "prompts"))


class Caller(Struct, frozen=True):
    """One HTTP request that passed the door. `profile` is the one that its address names, if it names one."""

    headers: Headers
    principal: Principal
    request_id: str
    profile: str | None
    config: Mapping[str, Any]


class HttpTransport:
    """The ASGI application behind `/mcp` and what is below it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._settings = runtime.settings
        self._dispatcher = runtime.dispatcher
        self._sessions = runtime.sessions
        self._in_flight = InFlightRequests(runtime.dispatcher.options.elicitation_timeout_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Every refusal ends here. It is an outermost handler: what nobody foresaw becomes a 500 with an id."""
        reply = PostResponse(send, self._in_flight, self._settings.sse_keepalive_s)
        try:
            await self._enter(scope, receive, send, reply)
        except _NotAcceptable as error:
            await self._refuse(reply, error, error.transport_status)
        except FlorilegiumError as error:
            await self._refuse(reply, error, error.status)
        except Exception as error:
            log_failure(f"{scope['method']} {scope['path']}", error)
            failure = FlorilegiumError(f"internal error (request {current_request_id()})")
            await self._refuse(reply, failure, 500)

    async def _enter(self, scope: Scope, receive: Receive, send: Send, reply: PostResponse) -> None:
        headers = Headers(scope["headers"])
        self._runtime.origins.check(headers.get(b"host"), headers.get(b"origin"))
        # Before the credential: whoever mistyped an address is better told that than sent to sign in.
        named = profile_in(scope["path"])
        if named is not None:
            self._dispatcher.profiles.get(named)
        address = scope["client"][0] if scope.get("client") else ""
        principal = await self._runtime.authenticator.authenticate(headers.get(AUTHORIZATION), address=address)
        if not principal.scopes:
            raise Forbidden(READ)
        self._runtime.limits.user.take(principal.user_id)
        config = config_of(headers, scope["query_string"], self._settings.request_config_max_bytes)
        caller = Caller(headers, principal, current_request_id(), named, config)
        match scope["method"]:
            case "POST":
                await self._post(caller, receive, reply)
            case "GET":
                await self._get(caller, receive, send)
            case "DELETE":
                await self._delete(caller, send)
            case _:
                await _method_not_allowed(send)

    # -- POST ---------------------------------------------------------------------------------------------------

    async def _post(self, caller: Caller, receive: Receive, reply: PostResponse) -> None:
        headers = caller.headers
        if not headers.has_json_body():
            # Also keeps out the "simple" cross-site posts that a browser sends without asking first.
            raise _NotAcceptable("the body must be application/json", 415)
        if not headers.accepts("application/json"):
            raise _NotAcceptable("the Accept header must allow application/json", 406)
        body = await _read_body(receive, headers.get(b"content-length"), self._settings.body_max_bytes)
        value = decode(body)
        reply.prepare(headers.get(SESSION), headers.accepts("text/event-stream"))
        if isinstance(value, list):
            await self._batch(caller, value, reply)
            return
        try:
            message = read_message(value)
        except MalformedMessage as error:
            reply.request_id = error.request_id
            raise
        if isinstance(message, Request):
            reply.request_id = message.id
        if _is_modern(message, headers.get(VERSION)):
            await self._modern(caller, message, receive, reply)
        else:
            await self._legacy(caller, message, reply)

    async def _modern(self, caller: Caller, message: Message, receive: Receive, reply: PostResponse) -> None:
        if isinstance(message, Response):
            raise InvalidRequest("the modern era has no responses from clients")
        if isinstance(message, Notification):
            _check_named_version(caller.headers.get(VERSION), MODERN_VERSIONS)
            await reply.accept()
            return
        if message.method == "subscriptions/listen" and not caller.headers.accepts("text/event-stream"):
            raise _NotAcceptable("the Accept header must allow text/event-stream", 406)
        watch = _DisconnectWatch(receive)
        try:
            result = await self._serve_modern(caller, message, reply)
        except asyncio.CancelledError:
            if not watch.client_left:
                raise
            # The modern era's cancellation: the client closed the stream, and this task ends in peace.
            watch.forgive()
            await reply.abandon()
            return
        finally:
            watch.stop()
        # Not watched any more: a client that leaves while it is told the answer has nothing left to cancel.
        await reply.finish(200, result_message(message.id, result))

    async def _serve_modern(self, caller: Caller, request: Request, reply: PostResponse) -> Mapping[str, Any]:
        meta = read_request_meta(request.params)
        profile = self._dispatcher.profiles.choose(caller.principal, caller.profile)
        called = request.params.get("name") if request.method == "tools/call" else None
        tool = self._dispatcher.find_tool(profile, called)
        mirrored = self._dispatcher.catalog.mirrored_parameters(tool) if tool is not None else ()
        check_headers(caller.headers, request, meta.version, mirrored)
        call = modern_call(meta, request, self._context(caller), reply, profile)
        return await self._dispatcher.dispatch(call, request)

    async def _legacy(self, caller: Caller, message: Message, reply: PostResponse) -> None:
        if isinstance(message, Request) and message.method == "initialize":
            await self._initialize(caller, message, reply)
            return
        session = self._session(caller)
        match message:
            case Request():
                await self._serve_legacy(caller, session, message, reply)
            case Notification():
                if message.method == "notifications/cancelled":
                    self._in_flight.cancel(session.id, message.params.get("requestId"))
                await reply.accept()
            case Response():
                self._in_flight.resolve(session.id, message)
                await reply.accept()

    async def _initialize(self, caller: Caller, request: Request, reply: PostResponse) -> None:
        session = await self._sessions.open(caller.principal, request.params, caller.profile)
        result = self._dispatcher.initialize_result(session)
        await reply.finish(200, result_message(request.id, result), [(SESSION, session.id.encode())])

    def _session(self, caller: Caller) -> Session:
        _check_named_version(caller.headers.get(VERSION), LEGACY_VERSIONS)
        session_id = caller.headers.get(SESSION)
        if session_id is None:
            raise InvalidRequest("the Mcp-Session-Id header is missing; send initialize first")
        return self._sessions.find(session_id, caller.principal, caller.profile)

    def _context(self, caller: Caller, session: SessionId | None = None) -> RequestContext:
        return build_context(caller.principal, self._runtime.data_root, caller.request_id, session, caller.config)

    async def _serve_legacy(self, caller: Caller, session: Session, request: Request, reply: PostResponse) -> None:
        context = self._context(caller, session.id)
        running: RunningCall | None = None
        try:
            with self._in_flight.running(session.id, request.id) as running:
                result = await self._dispatcher.dispatch(legacy_call(session, request, context, reply), request)
        except FlorilegiumError as error:
            await self._refuse(reply, error, _legacy_status(error))
        except asyncio.CancelledError:
            if running is None or not running.is_cancelled:
                raise
            running.uncancel()
            await reply.accept()
        else:
            await reply.finish(200, result_message(request.id, result))

    async def _batch(self, caller: Caller, values: list[Any], reply: PostResponse) -> None:
        """Batches exist in one revision only. Their calls run one after the other, and cannot stream."""
        session = self._session(caller)
        if session.version != BATCH_VERSION:
            raise InvalidRequest("this protocol version has no batches")
        if not 0 < len(values) <= self._settings.connection_in_flight_max:
            raise InvalidRequest(f"a batch holds 1 to {self._settings.connection_in_flight_max} messages")
        self._runtime.limits.user.take(caller.principal.user_id, len(values) - 1)  # one was taken at the door
        answers = [answer for value in values if (answer := await self._batched(caller, session, value))]
        if answers:
            await reply.finish(200, answers)
        else:
            await reply.accept()

    async def _batched(self, caller: Caller, session: Session, value: Any) -> Mapping[str, Any] | None:
        request_id: RequestId | None = None
        try:
            message = read_message(value)
            if isinstance(message, Response):
                self._in_flight.resolve(session.id, message)
            if not isinstance(message, Request):
                return None
            request_id = message.id
            if message.method == "initialize":
                raise InvalidRequest("initialize cannot be part of a batch")
            call = legacy_call(session, message, self._context(caller, session.id), NullPeer())
            return result_message(message.id, await self._dispatcher.dispatch(call, message))
        except MalformedMessage as error:
            return error_message(error.request_id, error)
        except FlorilegiumError as error:
            return error_message(request_id, error)

    # -- GET and DELETE -----------------------------------------------------------------------------------------

    async def _get(self, caller: Caller, receive: Receive, send: Send) -> None:
        """The legacy stream for news of no particular call. The modern era has `subscriptions/listen` instead."""
        if caller.headers.get(VERSION) in MODERN_VERSIONS or caller.headers.get(SESSION) is None:
            await _method_not_allowed(send)
            return
        if not caller.headers.accepts("text/event-stream"):
            raise _NotAcceptable("the Accept header must allow text/event-stream", 406)
        session = self._session(caller)
        open_streams, changes = self._runtime.open_streams, self._dispatcher.catalog.changes
        user_id = caller.principal.user_id
        with (
            open_streams.enter(caller.principal),
            changes.listen(user_id, _LIST_KINDS, session.subscriptions) as news,
        ):
            gone = asyncio.create_task(_until_disconnect(receive))
            try:
                await self._tell_news(caller, session, news, gone, send)
            finally:
                gone.cancel()

    async def _tell_news(
        self, caller: Caller, session: Session, news: ChangeListener, gone: asyncio.Task[None], send: Send
    ) -> None:
        """Until the client has gone, the session has ended, or access has."""
        open_streams, silence_s = self._runtime.open_streams, 0.0
        await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
        while not gone.done() and self._sessions.holds(session) and await open_streams.is_open(caller.principal):
            change = await news.next(self._settings.access_recheck_s)
            silence_s = 0.0 if change else silence_s + self._settings.access_recheck_s
            if change is not None:
                body = event(notification_message(*change.as_notification()))
                await send({"type": "http.response.body", "body": body, "more_body": True})
            elif silence_s >= self._settings.sse_keepalive_s:
                silence_s = 0.0
                await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _delete(self, caller: Caller, send: Send) -> None:
        if caller.headers.get(VERSION) in MODERN_VERSIONS or caller.headers.get(SESSION) is None:
            await _method_not_allowed(send)
            return
        await self._sessions.end(self._session(caller))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    # -- refusals -----------------------------------------------------------------------------------------------

    async def _refuse(self, reply: PostResponse, error: FlorilegiumError, status: int) -> None:
        headers: list[tuple[bytes, bytes]] = []
        if isinstance(error, Unauthenticated | Forbidden):
            headers.append((b"www-authenticate", challenge(self._settings, error).encode("latin-1")))
        if isinstance(error, RateLimited | Unavailable):
            headers.append((b"retry-after", b"%d" % retry_after_seconds(error.retry_after_s)))
        await reply.finish(status, error_message(reply.request_id, error), headers)


class _NotAcceptable(InvalidRequest):
    """406 or 415: the protocol's error with the transport's status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.transport_status = status


class _DisconnectWatch:
    """Cancels the current task when its client goes away, if it is still running after a while."""

    def __init__(self, receive: Receive) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._target: asyncio.Task[Any] = task
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._begin)
        self.client_left = False

    def stop(self) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def forgive(self) -> None:
        """The cancellation was ours and is dealt with."""
        self._target.uncancel()

    def _begin(self) -> None:
        self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        await _until_disconnect(self._receive)
        self.client_left = True
        self._target.cancel()


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_body(receive: Receive, declared: str | None, limit_bytes: int) -> bytes:
    """The whole body, refused as soon as it is known to be too large."""
    if declared is not None and declared.isdigit() and int(declared) > limit_bytes:
        raise TooLarge("the body", limit_bytes)
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        _check_size(len(body), limit_bytes)
        return body
    parts, size = [body], len(body)
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidRequest("the body ended early")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        _check_size(size, limit_bytes)
    return b"".join(parts)


def _check_size(size: int, limit_bytes: int) -> None:
    if size > limit_bytes:
        raise TooLarge("the body", limit_bytes)


def _is_modern(message: Message, version: str | None) -> bool:
    """The era of a request: by its own `_meta` or its version header, else legacy."""
    if version in MODERN_VERSIONS:
        return True
    if isinstance(message, Response):
        return False
    return has_modern_meta(message.params) or message.method == "server/discover"


def _check_named_version(version: str | None, served: tuple[str, ...]) -> None:
    if version is not None and version not in served:
        raise UnsupportedVersion(version, ALL_VERSIONS)


def _legacy_status(error: FlorilegiumError) -> int:
    """The legacy era answers a served request with 200 and an error inside, save where HTTP itself has to speak."""
    return 200 if isinstance(error, ProtocolError) else error.status


async def _method_not_allowed(send: Send) -> None:
    headers = [(b"allow", b"POST, GET, DELETE"), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 405, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
