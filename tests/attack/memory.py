"""Clients that try to fill the memory of a server: pipelined requests without a credential, and large responses that
nobody reads. The server runs in a process of its own, whose resident memory the kernel counts.
"""

import asyncio
import json
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

from msgspec import Struct

from bench.processes import resident_bytes
from config.settings import Settings
from server.transports.client_connections import USER_SHARE
from tests.live import free_port
from tests.server.cli.program import Program
from tests.server.http_client import WAIT_MAX_S, RawConnection, fetch, request_bytes

MEGABYTE = 1_000_000
# What a server may hold besides unread responses: caches that the first requests fill, and for each connection one read
# (256 KiB) and the requests of one slice. 16 connections took 16 MB in one run. Without limits, 1,000 pipelined
# requests took 110 MB.
GROWTH_MAX_BYTES = 40 * MEGABYTE
_CONNECTIONS = 16
_PIPELINED = 200
_LARGE_CHARS = 8_500_000  # of two bytes each
_POLL_S = 0.1
_SETTLE_S = 5.0


class MemoryPart(Struct, frozen=True):
    """Resident memory before an attack, and afterwards, while its connections are still open."""

    name: str
    responses: int
    before_bytes: int
    after_bytes: int
    growth_max_bytes: int

    @property
    def is_too_much(self) -> bool:
        return self.after_bytes - self.before_bytes > self.growth_max_bytes

    def describe(self) -> str:
        before, after = self.before_bytes / MEGABYTE, self.after_bytes / MEGABYTE
        limit = self.growth_max_bytes / MEGABYTE
        return f"{self.name}: {self.responses} responses, {before:.0f} → {after:.0f} MB (at most +{limit:.0f} MB)"


class AttackedProcess(Struct, frozen=True):
    """A server in a process of its own. No credential is needed, so that every request reaches its handler."""

    url: str
    pid: int

    async def measure(self, name: str, growth_max_bytes: int, attack: Callable[[], Awaitable[int]]) -> MemoryPart:
        """`attack` returns the number of responses; what it opened is still open then."""
        before = resident_bytes(self.pid)
        responses = await attack()
        # What is freed at the end of the attack takes a moment.
        settled_before = time.monotonic() + _SETTLE_S
        while (after := resident_bytes(self.pid)) > before + growth_max_bytes and time.monotonic() < settled_before:
            await asyncio.sleep(_POLL_S)
        return MemoryPart(name, responses, before, after, growth_max_bytes)


@asynccontextmanager
async def attacked_process(home: Path, **settings: str) -> AsyncIterator[AttackedProcess]:
    """`settings` are environment variables."""
    port, home = free_port(), home / "memory"
    home.mkdir()
    environment = {
        "FLORILEGIUM_BODY_MAX_BYTES": str(64 * MEGABYTE),
        "FLORILEGIUM_RATE_USER_PER_MINUTE": "0",
        "FLORILEGIUM_RATE_TOOL_PER_MINUTE": "0",
        # A busy machine needs longer for texts of this size.
        "FLORILEGIUM_LIBRARY_DEADLINE_MS": "60000",
        "FLORILEGIUM_CALL_DEADLINE_MS": "120000",
        "FLORILEGIUM_LOG_LEVEL": "error",
        **settings,
    }
    with ExitStack() as stack:
        serving = Program(home).serving("--port", str(port), **environment)
        server = await asyncio.to_thread(stack.enter_context, serving)
        yield AttackedProcess(f"http://127.0.0.1:{port}", server.process.pid)


async def attack_memory(directory: Path, pipelined: int, unread: int) -> list[MemoryPart]:
    """Sends so many pipelined requests in each way, and so many requests for large responses that are never read."""
    async with attacked_process(directory) as server:
        parts = [await attack_by_pipelining(server, "/healthz", 1, pipelined)]
        parts.append(await attack_by_pipelining(server, "/docs", _CONNECTIONS, pipelined))
        parts.append(await attack_with_unread_responses(server, unread))
    return parts


async def attack_by_pipelining(
    server: AttackedProcess, path: str, connections: int, responses: int, growth_max_bytes: int = GROWTH_MAX_BYTES
) -> MemoryPart:
    """Sends requests without waiting, and reads the responses."""
    await fetch(server.url, "GET", path)
    share = -(-responses // connections)
    name = f"pipelined {path} on {connections} connection{'s' if connections > 1 else ''}"
    async with _open_connections(server.url, connections) as opened:

        async def attack() -> int:
            return sum(await asyncio.gather(*(_pipeline(connection, path, share) for connection in opened)))

        return await server.measure(name, growth_max_bytes, attack)


@asynccontextmanager
async def _open_connections(url: str, count: int) -> AsyncIterator[list[RawConnection]]:
    async with RawConnection.open(url) as connection:
        if count == 1:
            yield [connection]
            return
        async with _open_connections(url, count - 1) as others:
            yield [connection, *others]


async def _pipeline(connection: RawConnection, path: str, responses: int) -> int:
    """Sends requests until so many were answered. Far more are sent than answered."""
    requests = request_bytes("GET", path, {"Host": "127.0.0.1"}) * _PIPELINED

    async def send() -> None:
        with suppress(TimeoutError):  # the server reads no further while requests wait
            while True:
                await connection.send(requests)

    sending = asyncio.ensure_future(send())
    try:
        for _ in range(responses):
            status = (await connection.response()).status
            assert status == 200, f"{path} was answered with {status}"
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    return responses


async def attack_with_unread_responses(
    server: AttackedProcess, responses: int, growth_max_bytes: int | None = None
) -> MemoryPart:
    """Requests a text of 17 MB on many connections at once and reads no response."""
    limit = (
        GROWTH_MAX_BYTES + Settings().requests_max_bytes // USER_SHARE if growth_max_bytes is None else growth_max_bytes
    )
    path = await _large_text(server.url)
    size = len((await fetch(server.url, "GET", path)).body)
    clients = [_deaf_client(server.url) for _ in range(responses)]
    request = request_bytes("GET", path, {"Host": "127.0.0.1"})

    async def attack() -> int:
        return sum(await asyncio.gather(*(_request_only(client, request) for client in clients)))

    try:
        name = f"{responses} responses of {size / MEGABYTE:.0f} MB that are never read"
        return await server.measure(name, limit, attack)
    finally:
        for client in clients:
            client.close()


async def _large_text(url: str) -> str:
    """Creates a note and returns the address of its whole text. Long words, because each word takes time to index."""
    words = ("é" * 999 + " ") * (_LARGE_CHARS // 1000)
    note = json.dumps({"title": "Large", "content": words}, ensure_ascii=False).encode()
    created = await fetch(url, "POST", "/api/v1/items/notes", {"Content-Type": "application/json"}, note)
    assert created.status == 201, created.body[:500]
    found = re.search(rb'"uri": ?"(notes://[^"]+)"', created.body)
    assert found is not None
    return f"/api/v1/items/fields?uri={found[1].decode()}"


def _deaf_client(url: str) -> socket.socket:
    """Returns a connection whose side of the kernel takes little, so that the server has to keep the response."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, _, port = url.removeprefix("http://").partition(":")
    client.connect((host, int(port)))
    client.setblocking(False)
    return client


async def _request_only(client: socket.socket, request: bytes) -> int:
    """Returns 1 once the response has begun, or 0 if the server closed the connection instead."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(client, request)
    try:
        async with asyncio.timeout(2 * WAIT_MAX_S):
            return int(bool(await loop.sock_recv(client, 1)))
    except ConnectionError:
        return 0
