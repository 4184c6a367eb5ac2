"""A reverse proxy that adds one header to every request, for a suite that cannot send a token. Tests only.

Each connection carries one request: the proxy asks the server to close it, and so never needs to understand a body.
Bytes pass as they come, so event streams and odd headers arrive unchanged.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_HEAD_MAX_BYTES = 65_536
_PIECE_BYTES = 65_536


@asynccontextmanager
async def injecting_proxy(upstream_port: int, header: str, port: int = 0) -> AsyncIterator[int]:
    """Listens on a loopback port, which is what it yields."""

    relays: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.create_task(_relay(reader, writer, upstream_port, header))
        relays.add(relay)
        await asyncio.wait((relay,))
        relays.discard(relay)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port, limit=_HEAD_MAX_BYTES)
    bound: int = server.sockets[0].getsockname()[1]
    try:
        yield bound
    finally:
        server.close()
        for relay in relays:
            relay.cancel()
        await asyncio.gather(*relays, return_exceptions=True)


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream_port: int, header: str) -> None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (ConnectionError, asyncio.IncompleteReadError):
        return  # a connection that was opened and never used
    up_reader, up_writer = await asyncio.open_connection("127.0.0.1", upstream_port)
    try:
        up_writer.write(_rewrite(head, header))
        pipes = (
            asyncio.create_task(_pipe(reader, up_writer)),
            asyncio.create_task(_pipe(up_reader, writer)),
        )
        # Whichever side hangs up first ends both: a client that leaves must be felt by the server.
        _, open_still = await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        for pipe in open_still:
            pipe.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)
    finally:
        up_writer.close()


def _rewrite(head: bytes, header: str) -> bytes:
    request, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    kept = [line for line in lines if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([request, *kept, header.encode(), b"Connection: close", b"", b""])


async def _pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while piece := await source.read(_PIECE_BYTES):
        target.write(piece)
        await target.drain()
