"""Closed-loop callers of `knowledge_search`, in a separate process: each has one connection and one call in flight.

It reads loads as JSON lines from standard input. For each it prints `started` once all connections are open, `stopped`
when no more calls are sent, and, after the last response, what became of the calls.
"""

import asyncio
import random
import re
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from bench.load import CONNECT_TIMEOUT_S, RESPONSE_TIMEOUT_S, UnexpectedResponse, write_line
from bench.request_templates import FIRST_ID
from bench.search_clients import SearchRequest, render_request
from server.operations.items import SOURCE_NAMES
from server.serving import run

STARTED, STOPPED = b"started\n", b"stopped\n"
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CONNECTIONS_AT_ONCE = 64

# `complete`: every source answered. `partial`: some did. `empty`: none did, and the response is not an error.
Outcome = Literal["complete", "partial", "empty", "refused"]


class Load(Struct, frozen=True):
    """The i-th caller repeats the searches `callers[i]` for `seconds`. It pauses after every response, and longer after
    a refusal; with 0 it calls again at once, like a client that ignores `Retry-After`."""

    url: str
    seconds: float
    callers: tuple[tuple[SearchRequest, ...], ...]
    pause_s: float = 0.0
    refused_pause_s: float = 0.0


class CallResult(Struct, frozen=True, array_like=True):
    """`at_s` is the time of the response since the start of the load."""

    caller: int
    outcome: Outcome
    at_s: float
    wall_ms: float


class _SourceReport(Struct, frozen=True):
    status: str


class _Content(Struct, frozen=True):
    # Those that did not answer as usual.
    sources: dict[str, _SourceReport] = {}


class _Result(Struct, frozen=True, rename="camel"):
    structured_content: _Content | None = None
    is_error: bool = False


class _Response(Struct, frozen=True):
    id: int
    result: _Result | None = None


_decode = msgspec.json.Decoder(_Response).decode


def classify(status: int, body: bytes, request_id: int) -> Outcome:
    if status == 503:
        return "refused"
    try:
        response = _decode(body)
    except msgspec.DecodeError as error:
        raise UnexpectedResponse(f"unexpected response {status} to call {request_id}: {body[:500]!r}") from error
    result = response.result
    if status != 200 or response.id != request_id or result is None:
        raise UnexpectedResponse(f"unexpected response {status} to call {request_id}: {body[:500]!r}")
    if result.is_error or result.structured_content is None:
        return "refused"
    failed = sum(report.status != "ok" for report in result.structured_content.sources.values())
    if not failed:
        return "complete"
    return "partial" if failed < len(SOURCE_NAMES) else "empty"


class Caller(asyncio.Protocol):
    """One connection with one call in flight."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._response: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport does not inherit from it

    def connection_lost(self, exc: Exception | None) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_exception(UnexpectedResponse("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        head_end = self._received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        length = _CONTENT_LENGTH.search(self._received, 0, head_end)
        end = head_end + 4 + (int(length[1]) if length else 0)
        if len(self._received) >= end and self._response is not None:
            status, body = int(self._received[9:12]), bytes(self._received[head_end + 4 : end])
            del self._received[:end]
            self._response.set_result((status, body))

    async def call(self, request: bytes) -> tuple[int, bytes]:
        assert self._transport is not None
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await asyncio.wait_for(self._response, RESPONSE_TIMEOUT_S)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def open_callers(url: str, count: int) -> list[Caller]:
    """Opens the connections in groups, because a listening socket has a short queue."""
    address, loop, callers = urlsplit(url), asyncio.get_running_loop(), [Caller() for _ in range(count)]
    assert address.hostname
    assert address.port
    for start in range(0, count, _CONNECTIONS_AT_ONCE):
        group = callers[start : start + _CONNECTIONS_AT_ONCE]
        opening = (loop.create_connection(partial(_return, caller), address.hostname, address.port) for caller in group)
        await asyncio.wait_for(asyncio.gather(*opening), CONNECT_TIMEOUT_S)
    return callers


def _return(caller: Caller) -> Caller:
    return caller


async def run_load(callers: Sequence[Caller], load: Load) -> list[CallResult]:
    results: list[CallResult] = []
    started_at = time.perf_counter()

    async def work(number: int, caller: Caller, searches: Sequence[SearchRequest]) -> None:
        # Prepared requests: preparing one costs as much as the server needs to refuse it.
        templates = [render_request(load.url, search, FIRST_ID) for search in searches]
        random.Random(number).shuffle(templates)
        index = 0
        while time.perf_counter() - started_at < load.seconds:
            sent_at = time.perf_counter()
            status, body = await caller.call(templates[index % len(templates)])
            now = time.perf_counter()
            outcome = classify(status, body, FIRST_ID)
            results.append(CallResult(number, outcome, now - started_at, (now - sent_at) * 1000))
            index += outcome != "refused"
            await asyncio.sleep(load.refused_pause_s if outcome == "refused" else load.pause_s)

    asyncio.get_running_loop().call_later(load.seconds, write_line, STOPPED)
    # A load can end before its time if every caller has made its last call.
    waiting = asyncio.sleep(load.seconds)
    await asyncio.gather(waiting, *(work(n, callers[n], searches) for n, searches in enumerate(load.callers)))
    return results


async def main() -> None:
    for line in sys.stdin.buffer:
        load = msgspec.json.decode(line, type=Load)
        callers = await open_callers(load.url, len(load.callers))
        write_line(STARTED)
        results: Any = await run_load(callers, load)
        for caller in callers:
            caller.close()
        write_line(msgspec.json.encode(results) + b"\n")


if __name__ == "__main__":
    run(main())
