"""Clients of `knowledge_search`, in a process of their own: some connections that stay open, on each one search at a
time, every answer read and checked.

It takes lots of searches as JSON lines on standard input, and says of each lot how long every search took.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from bench.load import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, WrongAnswer, say
from bench.sources import LIMIT
from bench.wires import FIRST_ID, ToolCall, modern_line
from server.serving import run


class Asked(Struct, frozen=True):
    """A search, and the token of whoever asks."""

    token: str
    query: str


class Lot(Struct, frozen=True):
    """Searches to be put by so many clients at once."""

    url: str
    clients: int
    asked: tuple[Asked, ...]


class Heard(Struct, frozen=True):
    """How a lot was answered; `wall_ms` in the order of its searches."""

    wall_ms: tuple[float, ...]
    hits: int


class _Report(Struct, frozen=True):
    status: str
    error: str = ""


class _Content(Struct, frozen=True):
    results: list[msgspec.Raw]
    sources: dict[str, _Report]


class _Result(Struct, frozen=True, rename="camel"):
    structured_content: _Content
    is_error: bool = False


class _Answer(Struct, frozen=True):
    id: int
    result: _Result


_decode = msgspec.json.Decoder(_Answer).decode


def request_of(url: str, asked: Asked, request_id: int) -> bytes:
    line = modern_line(url, ToolCall("knowledge_search", {"query": asked.query, "limit": LIMIT}), asked.token)
    return b"%b%d%b" % (line.before, request_id, line.after)


def count_hits(body: bytes, request_id: int) -> int:
    """Of a good answer: the one that was asked for, to which every source contributed."""
    try:
        answer = _decode(body)
    except msgspec.DecodeError as error:
        raise WrongAnswer(f"call {request_id} was answered with {body[:500]!r}") from error
    content = answer.result.structured_content
    if answer.id != request_id or answer.result.is_error:
        raise WrongAnswer(f"call {request_id} was answered with {body[:500]!r}")
    if missing := {name: report for name, report in content.sources.items() if report.status != "ok"}:
        raise WrongAnswer(f"call {request_id} was answered without {missing}")
    return len(content.results)


class Client:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, request: bytes) -> bytes:
        """The body of the answer."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise WrongAnswer(f"answered with {head!r}")
        fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:-2])
        return await self._reader.readexactly(int(fields[b"content-length"]))

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


class Crowd:
    """Clients that put the searches of a lot, each taking the next that nobody has put yet."""

    def __init__(self, clients: Sequence[Client]) -> None:
        self._clients = clients
        self._last_id = FIRST_ID

    async def put(self, lot: Lot) -> Heard:
        waiting = iter(list(enumerate(lot.asked)))
        wall_ms = [0.0] * len(lot.asked)
        hits = 0

        async def work(client: Client) -> None:
            nonlocal hits
            for place, asked in waiting:
                self._last_id += 1
                request_id = self._last_id
                request = request_of(lot.url, asked, request_id)
                began = time.perf_counter()
                body = await asyncio.wait_for(client.ask(request), ANSWER_TIMEOUT_S)
                wall_ms[place] = (time.perf_counter() - began) * 1000
                hits += count_hits(body, request_id)

        await asyncio.gather(*(work(client) for client in self._clients[: lot.clients]))
        return Heard(tuple(wall_ms), hits)


@asynccontextmanager
async def open_crowd(url: str, count: int) -> AsyncIterator[Crowd]:
    address = urlsplit(url)
    clients: list[Client] = []
    try:
        for _ in range(count):
            opening = asyncio.open_connection(address.hostname, address.port, limit=2**20)
            clients.append(Client(*await asyncio.wait_for(opening, CONNECT_TIMEOUT_S)))
        yield Crowd(clients)
    finally:
        for client in clients:
            await client.close()


async def main(url: str, count: int) -> None:
    async with open_crowd(url, count) as crowd:
        for line in sys.stdin.buffer:
            heard = await crowd.put(msgspec.json.decode(line, type=Lot))
            say(msgspec.json.encode(heard) + b"\n")


if __name__ == "__main__":
    run(main(sys.argv[1], int(sys.argv[2])))
