"""The load generator, a separate process with several connections and one call in flight on each.

It reads jobs as JSON lines from standard input. For each job it prints `ready` once the connections are open and warmed
up, waits for a line, calls for the given time and prints how many calls were answered. Every response is checked, and
an unexpected one ends the process.
"""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import msgspec
from msgspec import Struct

from bench.request_templates import FIRST_ID, Framing, RequestTemplate
from server.serving import run

READY = b"ready\n"
CONNECT_TIMEOUT_S = 10.0
RESPONSE_TIMEOUT_S = 30.0
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TEXT_FRAME = b"\x81\x7e"  # final, text, unmasked, a 16-bit length follows
_PING_FRAME = b"\x89"


# Receives the number of completed calls of a connection and returns whether to make another one.
WantsMore = Callable[[int], bool]


class Job(Struct, frozen=True):
    """`expected` must be in the text of the first content block of every response."""

    host: str
    port: int
    framing: Framing
    requests: tuple[RequestTemplate, ...]
    expected: str
    warmup_calls: int
    seconds: float


class CallCount(Struct, frozen=True):
    calls: int
    seconds: float


class UnexpectedResponse(Exception):
    """The server sent an unexpected response, which would make the measurement meaningless."""


class Client(asyncio.Protocol):
    """One connection, which calls again after each response while `wants_more` returns true."""

    def __init__(self, request: RequestTemplate, framing: Framing, expected: str) -> None:
        self._request = request
        self._expected = expected
        self._parse = parse_http_response if framing == "http" else parse_frame
        self._is_open = framing == "http"
        self._received = b""
        self._id = FIRST_ID
        self._response_parts: tuple[bytes, bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._wants_more: WantsMore = lambda calls: False
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.calls = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport does not inherit from it
        if self._request.opening:
            self._transport.write(self._request.opening)
        else:
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(UnexpectedResponse("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            self._read()
        except UnexpectedResponse as error:
            self.close()
            if not self._done.done():
                self._done.set_exception(error)

    async def wait_until_open(self) -> None:
        await asyncio.wait_for(self._done, CONNECT_TIMEOUT_S)

    def start(self, wants_more: WantsMore) -> Awaitable[None]:
        """Starts calling. The result is done when the last call is answered."""
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
            raise UnexpectedResponse("the server closed the connection")
        self._id += 1
        self._transport.write(self._request.render(self._id))

    def _read(self) -> None:
        if not self._is_open:
            if b"\r\n\r\n" not in self._received:
                return
            if not self._received.startswith(b"HTTP/1.1 101 "):
                raise UnexpectedResponse(f"no upgrade: {self._received[:200]!r}")
            self._received = self._received.partition(b"\r\n\r\n")[2]
            self._is_open = True
            self._done.set_result(None)
        while parsed := self._parse(self._received):
            body, self._received = parsed
            self._handle(body)

    def _handle(self, body: bytes) -> None:
        if self._done.done():
            raise UnexpectedResponse(f"unsolicited response {body[:500]!r}")
        self._check(body)
        self.calls += 1
        if self._wants_more(self.calls):
            self._call()
        else:
            self._done.set_result(None)

    def _check(self, body: bytes) -> None:
        """Parses the first response. All others must be equal to it except for the id."""
        if self._response_parts is None:
            self._response_parts = split_response(body, self._id, self._expected)
        elif body != b"%b%d%b" % (self._response_parts[0], self._id, self._response_parts[1]):
            raise UnexpectedResponse(f"unexpected response to call {self._id}: {body[:500]!r}")


def split_response(body: bytes, request_id: int, expected: str) -> tuple[bytes, bytes]:
    """Returns the bytes before and after the id of a valid response."""
    try:
        response: Any = msgspec.json.decode(body)
        is_valid = (
            response["id"] == request_id
            and not response["result"].get("isError")
            and expected in response["result"]["content"][0]["text"]
        )
    except (msgspec.DecodeError, LookupError, TypeError, AttributeError):
        is_valid = False
    before, id_, after = body.partition(str(request_id).encode())
    if not is_valid or not id_:
        raise UnexpectedResponse(f"unexpected response to call {request_id}: {body[:500]!r}")
    return before, after


def parse_http_response(received: bytes) -> tuple[bytes, bytes] | None:
    """Returns the body of a complete 200 response and the remaining bytes, or None if it is incomplete."""
    head_end = received.find(b"\r\n\r\n")
    if head_end < 0:
        return None
    length = _CONTENT_LENGTH.search(received, 0, head_end)
    if not received.startswith(b"HTTP/1.1 200 ") or length is None:
        raise UnexpectedResponse(f"unexpected response {received[:500]!r}")
    end = head_end + 4 + int(length[1])
    return (received[head_end + 4 : end], received[end:]) if len(received) >= end else None


def parse_frame(received: bytes) -> tuple[bytes, bytes] | None:
    """Returns the text of a complete WebSocket frame (RFC 6455 section 5.2) and the remaining bytes.

    Every response has a 16-bit length. A ping may be sent on a slow machine, and is not answered: a measurement ends
    before the server gives up.
    """
    if received.startswith(_PING_FRAME) and len(received) > 1:
        received = received[2 + received[1] :]
    if len(received) < 4:
        return None
    if not received.startswith(_TEXT_FRAME):
        raise UnexpectedResponse(f"unexpected frame {received[:500]!r}")
    end = 4 + int.from_bytes(received[2:4], "big")
    return (received[4:end], received[end:]) if len(received) >= end else None


async def perform(job: Job, wait_for_start: Callable[[], None]) -> CallCount:
    loop = asyncio.get_running_loop()
    clients = [Client(request, job.framing, job.expected) for request in job.requests]
    try:
        for client in clients:
            await loop.create_connection(partial(_return, client), job.host, job.port)
            await client.wait_until_open()
        await _run(clients, lambda calls: calls < job.warmup_calls, 0.0)
        wait_for_start()
        started_at = loop.time()
        await _run(clients, lambda calls: loop.time() < started_at + job.seconds, job.seconds)
        return CallCount(sum(client.calls for client in clients), loop.time() - started_at)
    finally:
        for client in clients:
            client.close()


def _return(client: Client) -> Client:
    return client


async def _run(clients: list[Client], wants_more: WantsMore, seconds: float) -> None:
    pending = [client.start(wants_more) for client in clients]
    await asyncio.wait_for(asyncio.gather(*pending), seconds + RESPONSE_TIMEOUT_S)


def write_line(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def wait_for_start() -> None:
    write_line(READY)
    sys.stdin.buffer.readline()


async def serve_job(job: Job) -> None:
    write_line(msgspec.json.encode(await perform(job, wait_for_start)) + b"\n")


if __name__ == "__main__":
    for text in sys.stdin.buffer:
        run(serve_job(msgspec.json.decode(text, type=Job)))
