"""HTTP requests and responses as ASGI messages, for the transports that do without Starlette's classes."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from cachetools import LRUCache
from msgspec import Struct
from starlette.types import Message, Receive, Scope, Send

from config.errors import FlorilegiumError, InvalidRequest, MissingCapability, TooLarge, retry_after_seconds
from config.logging import current_request_id
from server.protocol.call import RETRY_AFTER_KEY, required_capability
from server.protocol.dispatcher import CallObserver
from server.protocol.legacy_sessions import InFlightRequests
from server.protocol.messages import RequestId, encode, log_failure, result_message
from server.transports.headers import API_KEY, AUTHORIZATION, COOKIE, Headers

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
    log_failure(what, error)
    return FlorilegiumError(f"internal error (request {current_request_id()})"), 500


def message_event(message: Any) -> bytes:
    return b"event: message\ndata: " + encode(message) + b"\n\n"


async def send_json(send: Send, status: int, message: Any, headers: RawHeaders = ()) -> None:
    body = encode(message)
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


async def read_body(receive: Receive, content_length: str | None, limit_bytes: int) -> bytes:
    """Reads the whole body. Raises TooLarge as soon as the limit is known to be exceeded."""
    if content_length is not None and content_length.isdigit() and int(content_length) > limit_bytes:
        raise TooLarge("the body", limit_bytes)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if parts and message["type"] == "http.disconnect":
            raise InvalidRequest("the body is incomplete")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit_bytes:
            raise TooLarge("the body", limit_bytes)
        if not message.get("more_body"):
            return b"".join(parts)


# -- post response -----------------------------------------------------------------------------------------------------
# The HTTP response to one POST: a single JSON object, or an event stream once the call sends a message.


class PostResponse:
    """The client's end of a POST. It becomes an event stream with the first notification or request to the client."""

    def __init__(self, send: Send, in_flight: InFlightRequests, keep_alive_s: float) -> None:
        # None until the request's id has been read (JSON-RPC 2.0 section 5).
        self.request_id: RequestId | None = None
        self._send = send
        self._in_flight = in_flight
        self._keep_alive_s = keep_alive_s
        self._session_id: str | None = None
        self._can_stream = False
        # Exists from the first event on: then the status has been sent, and only events can follow.
        self._keep_alive_task: asyncio.Task[None] | None = None

    def prepare(self, session_id: str | None, can_stream: bool) -> None:
        """Sets what the request's headers determine about the response."""
        self._session_id = session_id
        self._can_stream = can_stream

    async def notify(self, message: Mapping[str, Any]) -> None:
        """Sends a notification. It is dropped if the client accepts no event stream, because it is optional."""
        if self._can_stream:
            await self._send_event(message)

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Sends a request to the client. Without an event stream it cannot arrive, whatever the client declared."""
        if not self._can_stream:
            raise MissingCapability(required_capability(method))
        return await self._in_flight.request(self._session_id, self._send_event, method, params)

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
    id: RequestId
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
        self._next_answer_at = 0.0

    def remember(self, headers: Headers, tool: str, result: Mapping[str, Any], retry_after_s: float) -> None:
        """Keeps the result of a refused call until it may be repeated."""
        credential, now = tuple(headers.get_raw(name) for name in _CREDENTIALS), self._clock()
        before = self._refusals.get(credential)
        results = before.results if before is not None and before.until > now else {}
        self._refusals[credential] = _Refusal(now + min(retry_after_s, _VALID_MAX_S), {**results, tool: result})

    @property
    def is_empty(self) -> bool:
        return not self._refusals

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
        await send_json(send, 200, result_message(call.id, result), [(b"retry-after", retry_after)])
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
