"""An HTTP/1.1 client that sends exactly the bytes it is given. Every wait is bounded."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

# Long enough for a busy machine; only reached if a test fails.
WAIT_MAX_S = 60.0
# Headers that differ between otherwise equal responses. A refused connection is closed if the body has arrived.
_VOLATILE = frozenset(("date", "x-request-id", "connection"))


class HttpResponse(Struct, frozen=True):
    """A complete HTTP response."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for known, value in self.headers if known == name.lower()), None)

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def events(self) -> list[Any]:
        """Returns the messages of an event stream that has ended."""
        blocks = self.body.decode().split("\n\n")
        return [msgspec.json.decode(data) for block in blocks if (data := _data_of(block))]

    def comparable(self) -> tuple[int, tuple[tuple[str, str], ...], bytes]:
        """Returns everything a caller learns from this response, to compare it with another."""
        return self.status, tuple(h for h in self.headers if h[0] not in _VOLATILE), self.body


def _data_of(block: str) -> str:
    return "".join(line.removeprefix("data: ") for line in block.split("\n") if line.startswith("data: "))


class RawConnection:
    """A TCP connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader = reader
        self._writer = writer
        self._host = host
        self._events = b""

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator["RawConnection"]:
        host, port = urlsplit(url).hostname or "", urlsplit(url).port
        # A small buffer, so that a test can simulate a client that does not read.
        reader, writer = await asyncio.open_connection(host, port, limit=64 * 1024)
        connection = cls(reader, writer, f"{host}:{port}")
        try:
            yield connection
        finally:
            connection.abort()

    async def send(self, raw: bytes) -> None:
        async with asyncio.timeout(WAIT_MAX_S):
            self._writer.write(raw)
            await self._writer.drain()

    async def request(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> None:
        """Sends a well-formed request with additional headers."""
        await self.send(request_bytes(method, path, {"Host": self._host, **(headers or {})}, body))

    async def response(self) -> HttpResponse:
        """Reads the next response; an event stream is read to its end."""
        status, headers = await self.head()
        async with asyncio.timeout(WAIT_MAX_S):
            named = dict(headers)
            if named.get("transfer-encoding") == "chunked":
                body = b"".join([chunk async for chunk in self._chunks()])
            else:
                body = await self._reader.readexactly(int(named.get("content-length", "0")))
        return HttpResponse(status, headers, body)

    async def head(self) -> tuple[int, tuple[tuple[str, str], ...]]:
        async with asyncio.timeout(WAIT_MAX_S):
            raw = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = raw.decode("latin-1").strip().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        return int(first.split(" ")[1]), tuple((name.lower(), value) for name, value in pairs)

    async def event(self) -> Any:
        """Reads the next message of an event stream after its headers; None at the end of the stream."""
        while (block := await self.event_block()) is not None:
            if data := _data_of(block):
                return msgspec.json.decode(data)
        return None

    async def event_block(self) -> str | None:
        """Reads the next event or comment of an event stream as it was sent; None at the end of the stream."""
        async with asyncio.timeout(WAIT_MAX_S):
            while b"\n\n" not in self._events:
                chunk = await self._chunk()
                if not chunk:
                    return None
                self._events += chunk
        block, _, self._events = self._events.partition(b"\n\n")
        return block.decode()

    async def raw(self, count: int) -> bytes:
        async with asyncio.timeout(WAIT_MAX_S):
            return await self._reader.readexactly(count)

    async def closed(self) -> bytes:
        """Waits for the server to close the connection, and returns what it still sends."""
        received = b""
        with suppress(ConnectionError):
            async with asyncio.timeout(WAIT_MAX_S):
                while part := await self._reader.read(65_536):
                    received += part
        return received

    def abort(self) -> None:
        """Aborts the connection, like a client that crashed."""
        self._writer.transport.abort()

    async def _chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self._chunk():
            yield chunk

    async def _chunk(self) -> bytes:
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        return (await self._reader.readexactly(size + 2))[:-2]


def request_bytes(method: str, path: str, headers: Mapping[str, str], body: bytes | None = None) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body is not None and "Transfer-Encoding" not in headers:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


async def fetch(
    url: str, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> HttpResponse:
    """Sends a request on a new connection and returns the response."""
    async with RawConnection.open(url) as connection:
        await connection.request(method, path, headers, body)
        return await connection.response()
