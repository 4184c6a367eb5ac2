"""A request to the upstream and its answer, relayed byte by byte and kept as a turn of the conversation.

The turn is stored once: when the answer is at its end, or with what has come when the client leaves, the upstream
breaks off, access is withdrawn or the server stops. None of these can interrupt the storing.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Any, ClassVar

from msgspec import Struct
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from auth.principal import Principal
from config.errors import FlorilegiumError, Unavailable
from server.compat.agentkit.chat.completion_stream import Completion, EventReader, read_completion
from server.compat.agentkit.chat.errors import problem_event
from server.compat.agentkit.chat.reply import Reply, UpstreamFailed
from server.compat.agentkit.chat.turns import TurnLimits
from server.compat.agentkit.chat.upstream import Upstream
from server.protocol.failures import log_failure
from server.transports.open_streams import OpenStreams

# Pieces of an answer that wait for a slow client; then the upstream waits too.
_PIECES_MAX = 64
# A longer line goes out as it comes.
_HELD_MAX_BYTES = 64 * 1024
_RELAYED_HEADERS = ("content-type", "retry-after")
_RELAYED_PREFIXES = ("x-ratelimit-", "openai-")
# A client would take these for a judgement about its own credential, or about an address of ours.
_OPERATORS_MATTER = frozenset((401, 403, 407))

# Stores a completion, with who cut it if it is not whole; the id of its conversation, or nothing if that failed.
Keep = Callable[[Completion, str | None], Awaitable[str | None]]


class RelayLimits(Struct, frozen=True):
    turn_s: float
    answer_max_bytes: int
    turns: TurnLimits


class Relay:
    """One request. It runs in a task of its own, so that a client that leaves does not take the turn along."""

    _running: ClassVar[set["asyncio.Task[None]"]] = set()

    def __init__(self, upstream: Upstream, open_streams: OpenStreams, limits: RelayLimits, keep: Keep) -> None:
        self._upstream = upstream
        self._open_streams = open_streams
        self._limits = limits
        self._keep = keep
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(_PIECES_MAX)
        self._is_unwanted = asyncio.Event()
        self._head: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._events = EventReader(limits.turns, limits.answer_max_bytes)
        self._whole: bytes | None = None
        self._failure: FlorilegiumError | None = None
        self._conversation_id: str | None = None
        self._is_kept = self._is_complete = False

    async def answer(self, principal: Principal, body: bytes, headers: Mapping[str, str]) -> Response:
        """The upstream's answer. A stream is begun when its head is there; anything else comes whole."""
        task = asyncio.create_task(self._run(principal, body, headers))
        self._running.add(task)
        task.add_done_callback(self._forget)
        try:
            await asyncio.wait((task, self._head), return_when=asyncio.FIRST_COMPLETED)
            if not self._head.done():
                task.result()
            reply = self._head.result()
            if _is_good_stream(reply):
                return RelayedStream(self._stream(), reply.status, _relayed(reply), self._is_unwanted.set)
            await asyncio.wait((task,))
        except BaseException:
            self._is_unwanted.set()
            raise
        task.result()
        if self._whole is None:
            raise self._failure or UpstreamFailed("the upstream broke off its answer")
        told = {} if self._conversation_id is None else {"X-Conversation-Id": self._conversation_id}
        return Response(self._whole, reply.status, {**_relayed(reply), **told})

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log_failure("chat relay", error)

    async def _stream(self) -> AsyncIterator[bytes]:
        held = b""
        while (piece := await self._pieces.get()) is not None:
            lines, held = _whole_lines(held + piece)
            if lines:
                yield lines
        if not self._is_complete:
            yield problem_event(self._failure or UpstreamFailed("the upstream broke off its answer"))
        elif held:
            yield held

    async def _run(self, principal: Principal, body: bytes, headers: Mapping[str, str]) -> None:
        try:
            with self._open_streams.enter(principal):
                cut_by = await self._relay_while_wanted(principal, body, headers)
                await self._keep_answer(cut_by)
                self._is_complete = self._failure is None
        except FlorilegiumError as error:
            self._fail(error)
        finally:
            await self._end()

    async def _relay_while_wanted(self, principal: Principal, body: bytes, headers: Mapping[str, str]) -> str:
        """Until the answer ends or nobody may have it any more; who it was that ended it."""
        relaying = asyncio.create_task(self._relay(body, headers))
        ending = asyncio.create_task(self._open_streams.wait_while_open(principal))
        leaving = asyncio.create_task(self._is_unwanted.wait())
        await _first_of((relaying, ending, leaving), self._limits.turn_s)
        if relaying.cancelled():
            self._fail(Unavailable("the turn was ended before its answer was there"))
            return "client" if self._is_unwanted.is_set() else "server"
        try:
            relaying.result()
        except FlorilegiumError as error:
            self._fail(error)
        return "upstream"

    async def _relay(self, body: bytes, headers: Mapping[str, str]) -> None:
        async with self._upstream.ask("POST", "/chat/completions", body, headers) as reply:
            _require_relayable(reply)
            self._head.set_result(reply)
            if not _is_good_stream(reply):
                self._whole = await reply.read(self._limits.answer_max_bytes)
                return
            async for piece in reply.body:
                self._events.feed(piece)
                if self._events.is_done:
                    # Clients stop reading here, and what they ask for next should find the turn.
                    await self._keep_answer("upstream")
                await self._pieces.put(piece)
            # Where the connection's end is the body's, HTTP does not tell a part from the whole.
            if not self._events.completion().is_whole:
                raise UpstreamFailed("the upstream broke off its answer")

    async def _keep_answer(self, cut_by: str) -> None:
        """Once. A turn of which the upstream said nothing, or an error, is none."""
        if self._is_kept or not self._head.done() or self._head.exception() or self._head.result().status != 200:
            return
        is_stream = self._head.result().is_stream
        completion = self._events.completion() if is_stream else read_completion(self._whole or b"", self._limits.turns)
        if completion is not None:
            self._conversation_id = await self._keep(completion, None if completion.is_whole else cut_by)
        self._is_kept = True

    def _fail(self, error: FlorilegiumError) -> None:
        self._failure = error
        if not self._head.done():
            self._head.set_exception(error)
            self._head.exception()  # there may be nobody left to be told

    async def _end(self) -> None:
        """Tells whoever still reads; a client that left reads no more."""
        telling, leaving = self._pieces.put(None), self._is_unwanted.wait()
        await _first_of((asyncio.create_task(telling), asyncio.create_task(leaving)))


async def _first_of(tasks: Collection["asyncio.Task[Any]"], timeout_s: float | None = None) -> None:
    """Until one of them is done; the others are cancelled then, and all are over afterwards."""
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class RelayedStream(StreamingResponse):
    """Says when it is over, however it ended, and also if it never began."""

    def __init__(
        self, pieces: AsyncIterator[bytes], status: int, headers: Mapping[str, str], when_over: Callable[[], None]
    ) -> None:
        super().__init__(pieces, status, headers)
        self._when_over = when_over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._when_over()


def _whole_lines(data: bytes) -> tuple[bytes, bytes]:
    """What may go out, and what waits for the end of its line: a part of an event is nothing a client can read, and
    would spoil the error that follows it where the upstream broke off."""
    end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    return (data, b"") if len(data) - end > _HELD_MAX_BYTES else (data[:end], data[end:])


def _is_good_stream(reply: Reply) -> bool:
    return reply.status == 200 and reply.is_stream


def _require_relayable(reply: Reply) -> None:
    if reply.status in _OPERATORS_MATTER:
        raise UpstreamFailed("the upstream refused this server's credential; its operator has to set chat_upstream_key")
    if not 200 <= reply.status < 300 and reply.status < 400:
        raise UpstreamFailed(f"the upstream answered {reply.status}, and redirects are not followed")


def _relayed(reply: Reply) -> dict[str, str]:
    return {
        name: value
        for name, value in reply.headers.items()
        if name in _RELAYED_HEADERS or name.startswith(_RELAYED_PREFIXES)
    }


async def relayed_reply(reply: Reply, max_bytes: int) -> Response:
    """An answer of the upstream as ours, whole, where nothing of it is kept."""
    _require_relayable(reply)
    return Response(await reply.read(max_bytes), reply.status, _relayed(reply))
