"""The load generator, a process of its own: some connections, one call in flight on each, every answer checked.

It takes jobs as JSON lines on standard input. To each it says `ready` once the connections are open and warm, waits
for a line, then calls for the given time and says how many calls were answered. A wrong answer ends it.
"""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import msgspec
from msgspec import Struct

from bench.wires import FIRST_ID, Framing, Line
from server.serving import run

READY = b"ready\n"
CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 30.0
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TEXT_FRAME = b"\x81\x7e"  # final, text, unmasked, a 16-bit length follows


# Told how many calls of this connection were answered, says whether another shall follow.
WantsMore = Callable[[int], bool]


class Job(Struct, frozen=True):
    """`expected` has to stand in the text of every answer's first content block."""

    host: str
    port: int
    framing: Framing
    lines: tuple[Line, ...]
    expected: str
    warmup_calls: int
    seconds: float


class Answered(Struct, frozen=True):
    calls: int
    seconds: float


class WrongAnswer(Exception):
    """The server said something else than it should; a figure made from such answers would mean nothing."""


class Client(asyncio.Protocol):
    """One connection. It calls again as soon as it is answered, for as long as `wants_more` says so."""

    def __init__(self, line: Line, framing: Framing, expected: str) -> None:
        self._line = line
        self._expected = expected
        self._take = take_http if framing == "http" else take_frame
        self._is_open = framing == "http"
        self._received = b""
        self._id = FIRST_ID
        self._around_id: tuple[bytes, bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._wants_more: WantsMore = lambda calls: False
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.calls = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its base class
        if self._line.opening:
            self._transport.write(self._line.opening)
        else:
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(WrongAnswer("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            self._read()
        except WrongAnswer as error:
            self.close()
            if not self._done.done():
                self._done.set_exception(error)

    async def opened(self) -> None:
        await asyncio.wait_for(self._done, CONNECT_TIMEOUT_S)

    def start(self, wants_more: WantsMore) -> Awaitable[None]:
        """Calls until it is enough, and is done when the last call is answered."""
        self._wants_more = wants_more
        self._done = asyncio.get_running_loop().create_future()
        self.calls = 0
        self._call()
        return self._done

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _call(self) -> None:
        assert self._transport is not None
        if self._transport.is_closing():
            raise WrongAnswer("the server closed the connection")
        self._id += 1
        self._transport.write(b"%b%d%b" % (self._line.before, self._id, self._line.after))

    def _read(self) -> None:
        if not self._is_open:
            if b"\r\n\r\n" not in self._received:
                return
            if not self._received.startswith(b"HTTP/1.1 101 "):
                raise WrongAnswer(f"no upgrade: {self._received[:200]!r}")
            self._received = self._received.partition(b"\r\n\r\n")[2]
            self._is_open = True
            self._done.set_result(None)
        while taken := self._take(self._received):
            body, self._received = taken
            self._hear(body)

    def _hear(self, body: bytes) -> None:
        if self._done.done():
            raise WrongAnswer(f"nobody asked for {body[:500]!r}")
        self._check(body)
        self.calls += 1
        if self._wants_more(self.calls):
            self._call()
        else:
            self._done.set_result(None)

    def _check(self, body: bytes) -> None:
        """The first answer is read, all others must repeat it byte by byte around their own id."""
        if self._around_id is None:
            self._around_id = split_answer(body, self._id, self._expected)
        elif body != b"%b%d%b" % (self._around_id[0], self._id, self._around_id[1]):
            raise WrongAnswer(f"call {self._id} was answered with {body[:500]!r}")


def split_answer(body: bytes, request_id: int, expected: str) -> tuple[bytes, bytes]:
    """The bytes before and after the id of a good answer."""
    try:
        answer: Any = msgspec.json.decode(body)
        is_good = (
            answer["id"] == request_id
            and not answer["result"].get("isError")
            and expected in answer["result"]["content"][0]["text"]
        )
    except (msgspec.DecodeError, LookupError, TypeError, AttributeError):
        is_good = False
    before, found, after = body.partition(str(request_id).encode())
    if not is_good or not found:
        raise WrongAnswer(f"call {request_id} was answered with {body[:500]!r}")
    return before, after


def take_http(received: bytes) -> tuple[bytes, bytes] | None:
    """The body of a whole 200 answer, and the bytes behind it; None while there is more to come."""
    head_end = received.find(b"\r\n\r\n")
    if head_end < 0:
        return None
    length = _CONTENT_LENGTH.search(received, 0, head_end)
    if not received.startswith(b"HTTP/1.1 200 ") or length is None:
        raise WrongAnswer(f"answered with {received[:500]!r}")
    end = head_end + 4 + int(length[1])
    return (received[head_end + 4 : end], received[end:]) if len(received) >= end else None


def take_frame(received: bytes) -> tuple[bytes, bytes] | None:
    """The text of a whole WebSocket frame (RFC 6455 section 5.2), and the bytes behind it.

    Every answer here has a 16-bit length, and no measurement lasts as long as the time between two pings.
    """
    if len(received) < 4:
        return None
    if not received.startswith(_TEXT_FRAME):
        raise WrongAnswer(f"got the frame {received[:500]!r}")
    end = 4 + int.from_bytes(received[2:4], "big")
    return (received[4:end], received[end:]) if len(received) >= end else None


async def perform(job: Job, wait_for_start: Callable[[], None]) -> Answered:
    loop = asyncio.get_running_loop()
    clients = [Client(line, job.framing, job.expected) for line in job.lines]
    try:
        for client in clients:
            await loop.create_connection(partial(_itself, client), job.host, job.port)
            await client.opened()
        await _answered(clients, lambda calls: calls < job.warmup_calls, 0.0)
        wait_for_start()
        began = loop.time()
        await _answered(clients, lambda calls: loop.time() < began + job.seconds, job.seconds)
        return Answered(sum(client.calls for client in clients), loop.time() - began)
    finally:
        for client in clients:
            client.close()


def _itself(client: Client) -> Client:
    return client


async def _answered(clients: list[Client], wants_more: WantsMore, seconds: float) -> None:
    calling = [client.start(wants_more) for client in clients]
    await asyncio.wait_for(asyncio.gather(*calling), seconds + ANSWER_TIMEOUT_S)


def say(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def wait_for_start() -> None:
    say(READY)
    sys.stdin.buffer.readline()


async def serve_job(job: Job) -> None:
    say(msgspec.json.encode(await perform(job, wait_for_start)) + b"\n")


if __name__ == "__main__":
    for text in sys.stdin.buffer:
        run(serve_job(msgspec.json.decode(text, type=Job)))
