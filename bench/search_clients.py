"""Clients of `knowledge_search`, in a separate process: open connections with one search at a time on each.

It reads batches of searches as JSON lines from standard input and prints how long every search took. Every response is
parsed and checked.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from bench.load import CONNECT_TIMEOUT_S, RESPONSE_TIMEOUT_S, UnexpectedResponse, write_line
from bench.request_templates import FIRST_ID, ToolCall, modern_request
from bench.sources import LIMIT
from server.serving import run


class SearchRequest(Struct, frozen=True):
    """A query, the token of the user who sends it, and which libraries to search if it is not all."""

    token: str
    query: str
    libraries: tuple[str, ...] = ()


class SearchBatch(Struct, frozen=True):
    """Searches that are sent by a number of concurrent clients."""

    url: str
    clients: int
    requests: tuple[SearchRequest, ...]


class BatchResult(Struct, frozen=True):
    """`wall_ms` is in the order of the requests."""

    wall_ms: tuple[float, ...]
    hits: int


class _SourceReport(Struct, frozen=True):
    status: str
    error: str = ""


class _Content(Struct, frozen=True):
    results: list[msgspec.Raw]
    # Those that did not answer as usual.
    sources: dict[str, _SourceReport] = {}
    libraries: dict[str, dict[str, _SourceReport]] = {}


class _Result(Struct, frozen=True, rename="camel"):
    structured_content: _Content
    is_error: bool = False


class _Response(Struct, frozen=True):
    id: int
    result: _Result


_decode = msgspec.json.Decoder(_Response).decode


def render_request(url: str, request: SearchRequest, request_id: int) -> bytes:
    named = {"libraries": request.libraries} if request.libraries else {}
    call = ToolCall("knowledge_search", {"query": request.query, "limit": LIMIT, **named})
    return modern_request(url, call, request.token).render(request_id)


def count_hits(body: bytes, request_id: int) -> int:
    """Checks that a response has the expected id and that every source contributed, and counts its hits."""
    try:
        response = _decode(body)
    except msgspec.DecodeError as error:
        raise UnexpectedResponse(f"unexpected response to call {request_id}: {body[:500]!r}") from error
    content = response.result.structured_content
    if response.id != request_id or response.result.is_error:
        raise UnexpectedResponse(f"unexpected response to call {request_id}: {body[:500]!r}")
    reports = {"own": content.sources, **content.libraries}
    if missing := {
        (library, name): report
        for library, by_source in reports.items()
        for name, report in by_source.items()
        if report.status != "ok"
    }:
        raise UnexpectedResponse(f"response to call {request_id} lacks sources: {missing}")
    return len(content.results)


class SearchClient:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, request: bytes) -> bytes:
        """Returns the body of the response."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise UnexpectedResponse(f"unexpected response {head!r}")
        fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:-2])
        return await self._reader.readexactly(int(fields[b"content-length"]))

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


class ClientPool:
    """Clients that share the searches of a batch: each takes the next one that has not been sent."""

    def __init__(self, clients: Sequence[SearchClient]) -> None:
        self._clients = clients
        self._last_id = FIRST_ID

    async def run(self, batch: SearchBatch) -> BatchResult:
        pending = iter(list(enumerate(batch.requests)))
        wall_ms = [0.0] * len(batch.requests)
        hits = 0

        async def work(client: SearchClient) -> None:
            nonlocal hits
            for index, search in pending:
                self._last_id += 1
                request_id = self._last_id
                request = render_request(batch.url, search, request_id)
                started_at = time.perf_counter()
                body = await asyncio.wait_for(client.send(request), RESPONSE_TIMEOUT_S)
                wall_ms[index] = (time.perf_counter() - started_at) * 1000
                hits += count_hits(body, request_id)

        await asyncio.gather(*(work(client) for client in self._clients[: batch.clients]))
        return BatchResult(tuple(wall_ms), hits)


@asynccontextmanager
async def open_clients(url: str, count: int) -> AsyncIterator[ClientPool]:
    address = urlsplit(url)
    clients: list[SearchClient] = []
    try:
        for _ in range(count):
            connection = asyncio.open_connection(address.hostname, address.port, limit=2**20)
            clients.append(SearchClient(*await asyncio.wait_for(connection, CONNECT_TIMEOUT_S)))
        yield ClientPool(clients)
    finally:
        for client in clients:
            await client.close()


async def main(url: str, count: int) -> None:
    async with open_clients(url, count) as clients:
        for line in sys.stdin.buffer:
            result = await clients.run(msgspec.json.decode(line, type=SearchBatch))
            write_line(msgspec.json.encode(result) + b"\n")


if __name__ == "__main__":
    run(main(sys.argv[1], int(sys.argv[2])))
