"""Relays a request to the upstream and its response to the client, byte for byte, and stores the turn.

The turn is stored once: when the response is complete, or with what has arrived when the client disconnects, the
upstream breaks off, access is revoked or the server stops. None of these can interrupt the storing.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import msgspec
from loguru import logger
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from auth.context import Principal
from config.errors import FlorilegiumError, RateLimited, Unavailable
from config.public_http import IncomingResponse, OutgoingRequestError, OutgoingRequestTimeout, open_response
from config.settings import Settings
from server.compat.agentkit.chat.schemas import completion_error_event
from server.compat.agentkit.chat.turns import Completion, CompletionStreamParser, TurnLimits, parse_completion
from server.protocol.messages import log_failure
from server.transports.client_connections import OpenStreams
from server.version import VERSION

# -- upstream ----------------------------------------------------------------------------------------------------------
# The OpenAI-compatible API that answers chats. Each request opens its own connection.
#
# Only the operator sets its address: no caller can name another, and redirects are not followed. The caller's
# credential is never sent there, only the request body. Bodies are not logged.


class UpstreamError(FlorilegiumError, status=502):
    """The upstream cannot be reached, or its response cannot be used."""


class UpstreamTimeout(UpstreamError, status=504):
    """The upstream sent nothing for longer than `chat_upstream_timeout_s`."""


class UpstreamResponse(IncomingResponse, frozen=True):
    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")


class Upstream:
    def __init__(self, url: str, key: str, timeout_s: float) -> None:
        self._url = url
        self._key = key
        self._timeout_s = timeout_s

    @classmethod
    def from_settings(cls, settings: Settings) -> "Upstream | None":
        """Returns None if no upstream is configured."""
        if not settings.chat_upstream_url:
            return None
        return cls(settings.chat_upstream_url, settings.chat_upstream_key, settings.chat_upstream_timeout_s)

    @asynccontextmanager
    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[UpstreamResponse]:
        """Sends a request and yields its response; the connection is open as long as the block."""
        own_headers = {
            "User-Agent": f"florilegium/{VERSION}",
            **({"Content-Type": "application/json"} if body else {}),
            **({"Authorization": f"Bearer {self._key}"} if self._key else {}),
            **(headers or {}),
        }
        try:
            async with open_response(
                method, f"{self._url}{path}", headers=own_headers, body=body, timeout_s=self._timeout_s
            ) as response:
                yield UpstreamResponse(response.status, response.headers, response.body)
        except OutgoingRequestError as error:
            # The operator needs the reason; a caller must not learn about the network behind the server.
            logger.warning("The chat upstream {}", error)
            is_timeout = isinstance(error, OutgoingRequestTimeout)
            raise (UpstreamTimeout if is_timeout else UpstreamError)(f"the upstream {error.reason}") from error


# For an upstream that is over its limit and does not say for how long.
_RETRY_AFTER_S = 5.0


async def ask_upstream(
    upstream: Upstream, model: str, messages: Sequence[Mapping[str, str]], limits: TurnLimits, max_bytes: int
) -> Completion:
    body = msgspec.json.encode({"model": model, "messages": messages})
    async with upstream.request("POST", "/chat/completions", body, {"Accept": "application/json"}) as response:
        if response.status == 429:
            retry_after = response.headers.get("retry-after", "")
            raise RateLimited("the upstream", float(retry_after) if retry_after.isdigit() else _RETRY_AFTER_S)
        if response.status != 200:
            raise UpstreamError(f"the upstream responded with status {response.status}")
        completion = parse_completion(await response.read(max_bytes), limits)
    if completion is None:
        raise UpstreamError("the upstream's response contains no completion")
    return completion


# Chunks that are buffered for a slow client; when the buffer is full, the upstream is read no further.
_BUFFER_MAX_CHUNKS = 64
# A longer line is sent before its end arrives.
_PARTIAL_LINE_MAX_BYTES = 64 * 1024
# Headers that clients use. Others may concern the operator's account, such as `openai-organization`, or are cookies.
_RELAYED_HEADERS = frozenset(
    (
        "content-type",
        "openai-processing-ms",
        "retry-after",
        "retry-after-ms",
        "x-ratelimit-limit-requests",
        "x-ratelimit-limit-tokens",
        "x-ratelimit-remaining-requests",
        "x-ratelimit-remaining-tokens",
        "x-ratelimit-reset-requests",
        "x-ratelimit-reset-tokens",
        "x-should-retry",
    )
)
# These concern this server's credential at the upstream; a client would take them for its own.
_UPSTREAM_AUTH_STATUSES = frozenset((401, 403, 407))
_BROKEN_OFF = "the upstream broke off its response"

# Stores a completion, with who cut it if it is incomplete. Returns its conversation's id, or None if storing failed.
StoreCompletion = Callable[[Completion, str | None], Awaitable[str | None]]


class CompletionRelay:
    """One request. It runs in its own task, so that a client that disconnects does not cancel the storing."""

    _tasks: ClassVar[set["asyncio.Task[None]"]] = set()

    def __init__(
        self,
        upstream: Upstream,
        open_streams: OpenStreams,
        limits: TurnLimits,
        settings: Settings,
        store: StoreCompletion,
    ) -> None:
        self._upstream = upstream
        self._open_streams = open_streams
        self._limits = limits
        self._turn_max_s = settings.fixed.chat_turn_max_s
        self._answer_max_bytes = settings.fixed.chat_response_max_bytes
        self._store = store
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(_BUFFER_MAX_CHUNKS)
        self._client_gone = asyncio.Event()
        self._head: asyncio.Future[UpstreamResponse] = asyncio.get_running_loop().create_future()
        self._stream_parser = CompletionStreamParser(limits, self._answer_max_bytes)
        self._whole_body: bytes | None = None
        self._failure: FlorilegiumError | None = None
        self._conversation_id: str | None = None
        self._is_stored = self._is_complete = False

    async def respond(self, principal: Principal, body: bytes, headers: Mapping[str, str]) -> Response:
        """Returns the upstream's response: a stream as soon as its head arrives, anything else when it is complete."""
        task = asyncio.create_task(self._run(principal, body, headers))
        # The event loop keeps only weak references to tasks.
        self._tasks.add(task)
        task.add_done_callback(self._discard_task)
        try:
            await asyncio.wait((task, self._head), return_when=asyncio.FIRST_COMPLETED)
            if not self._head.done():
                task.result()  # raises why
            response = self._head.result()
            if _is_successful_stream(response):
                return RelayedStream(self._stream(), response.status, _relayed_headers(response), self._client_gone)
            await asyncio.wait((task,))
        except BaseException:
            self._client_gone.set()
            raise
        task.result()
        if self._whole_body is None:
            raise self._failure or UpstreamError(_BROKEN_OFF)
        own_headers = {} if self._conversation_id is None else {"X-Conversation-Id": self._conversation_id}
        return Response(self._whole_body, response.status, {**_relayed_headers(response), **own_headers})

    def _discard_task(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log_failure("chat relay", error)

    async def _stream(self) -> AsyncIterator[bytes]:
        partial_line = b""
        while (chunk := await self._chunks.get()) is not None:
            # Separates what can be sent from a partial last line. A client cannot use part of an event, and a partial
            # line would corrupt the error event that follows if the upstream breaks off.
            data = partial_line + chunk
            end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
            lines, partial_line = (data, b"") if len(data) - end > _PARTIAL_LINE_MAX_BYTES else (data[:end], data[end:])
            if lines:
                yield lines
        if not self._is_complete:
            yield completion_error_event(self._failure or UpstreamError(_BROKEN_OFF))
        elif partial_line:
            yield partial_line

    async def _run(self, principal: Principal, body: bytes, headers: Mapping[str, str]) -> None:
        try:
            with self._open_streams.enter(principal):
                # Relays until the response ends, the client disconnects, access is revoked or time is up. Access can be
                # revoked during a turn, which may last for minutes.
                relaying = asyncio.create_task(self._relay(body, headers))
                closing = asyncio.create_task(self._open_streams.wait_while_open(principal))
                disconnecting = asyncio.create_task(self._client_gone.wait())
                await _wait_for_first((relaying, closing, disconnecting), self._turn_max_s)
                cut_by = "upstream"
                if relaying.cancelled():
                    self._fail(Unavailable("the turn was ended before the response was complete"))
                    cut_by = "client" if self._client_gone.is_set() else "server"
                else:
                    try:
                        relaying.result()
                    except FlorilegiumError as error:
                        self._fail(error)
                await self._store_answer(cut_by)
                self._is_complete = self._failure is None
        except FlorilegiumError as error:
            self._fail(error)
        finally:
            # Signals the end to the reader; a client that disconnected reads no more.
            await _wait_for_first(
                (asyncio.create_task(self._chunks.put(None)), asyncio.create_task(self._client_gone.wait()))
            )

    async def _relay(self, body: bytes, headers: Mapping[str, str]) -> None:
        async with self._upstream.request("POST", "/chat/completions", body, headers) as response:
            require_relayable(response)
            self._head.set_result(response)
            if not _is_successful_stream(response):
                self._whole_body = await response.read(self._answer_max_bytes)
                return
            async for chunk in response.body:
                self._stream_parser.feed(chunk)
                if self._stream_parser.is_done:
                    # Clients stop reading here, and their next request should find the turn stored.
                    await self._store_answer("upstream")
                await self._chunks.put(chunk)
            # If the end of the connection ends the body, HTTP cannot tell a partial response from a whole one.
            if not self._stream_parser.completion().is_complete:
                raise UpstreamError(_BROKEN_OFF)

    async def _store_answer(self, cut_by: str) -> None:
        """Stores the turn once. If the upstream sent nothing or an error, there is no turn to store."""
        if self._is_stored or not self._head.done() or self._head.exception() or self._head.result().status != 200:
            return
        if self._head.result().is_stream:
            completion: Completion | None = self._stream_parser.completion()
        else:
            completion = parse_completion(self._whole_body or b"", self._limits)
        if completion is not None:
            self._conversation_id = await self._store(completion, None if completion.is_complete else cut_by)
        self._is_stored = True

    def _fail(self, error: FlorilegiumError) -> None:
        self._failure = error
        if not self._head.done():
            self._head.set_exception(error)
            self._head.exception()  # marks it as retrieved: the client may have disconnected


async def _wait_for_first(tasks: Collection["asyncio.Task[Any]"], timeout_s: float | None = None) -> None:
    """Waits until one task is done and cancels the others. All of them have ended when this returns."""
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class RelayedStream(StreamingResponse):
    """Sets `closed` when the response ends, whether it succeeded, failed or never began."""

    def __init__(
        self, chunks: AsyncIterator[bytes], status: int, headers: Mapping[str, str], closed: asyncio.Event
    ) -> None:
        super().__init__(chunks, status, headers)
        self._closed = closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._closed.set()


def _is_successful_stream(response: UpstreamResponse) -> bool:
    return response.status == 200 and response.is_stream


def require_relayable(response: UpstreamResponse) -> None:
    if response.status in _UPSTREAM_AUTH_STATUSES:
        raise UpstreamError("the upstream rejected this server's credential; the operator must check chat_upstream_key")
    if not 200 <= response.status < 300 and response.status < 400:
        raise UpstreamError(f"the upstream responded with status {response.status}; redirects are not followed")


def _relayed_headers(response: UpstreamResponse) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name in _RELAYED_HEADERS}


async def relay_whole_response(response: UpstreamResponse, max_bytes: int) -> Response:
    """Relays a response of which nothing is stored."""
    require_relayable(response)
    return Response(await response.read(max_bytes), response.status, _relayed_headers(response))
