"""A reverse proxy that adds one header to every request, for a suite that cannot send a token.

Each connection carries one request, because the proxy asks the server to close it; so it need not parse bodies. Bytes
are copied as they arrive, so event streams and unusual headers are unchanged.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_HEAD_MAX_BYTES = 65_536
_READ_BYTES = 65_536


@asynccontextmanager
async def injecting_proxy(upstream_port: int, header: str, port: int = 0) -> AsyncIterator[int]:
    """Listens on a loopback port and yields it."""

    relays: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.create_task(_relay(reader, writer, upstream_port, header))
        relays.add(relay)
        await asyncio.wait((relay,))
        relays.discard(relay)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port, limit=_HEAD_MAX_BYTES)
    bound_port: int = server.sockets[0].getsockname()[1]
    try:
        yield bound_port
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
    upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", upstream_port)
    try:
        upstream_writer.write(_rewrite(head, header))
        pipes = (
            asyncio.create_task(_pipe(reader, upstream_writer)),
            asyncio.create_task(_pipe(upstream_reader, writer)),
        )
        # When one side disconnects, both end, so that the server notices a client that disconnects.
        _, unfinished = await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        for pipe in unfinished:
            pipe.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)
    finally:
        upstream_writer.close()


def _rewrite(head: bytes, header: str) -> bytes:
    request, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    remaining = [line for line in lines if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([request, *remaining, header.encode(), b"Connection: close", b"", b""])


async def _pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(_READ_BYTES):
        target.write(data)
        await target.drain()
