"""A minimal HTTP/1.1 client: one request per connection, with the response body as a stream.

h11 handles the protocol; this module handles the socket. There is no connection pool, because a chat turn takes
seconds; redirects and compression are not supported.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import TypeVar

import h11

from server.compat.agentkit.chat.upstream_response import UpstreamError, UpstreamResponse, UpstreamTimeout

T = TypeVar("T")
_READ_BYTES = 64 * 1024


class HttpExchange:
    """One request and its response over an open connection, which the caller closes. Every wait is bounded."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout_s: float) -> None:
        self._reader = reader
        self._writer = writer
        self._timeout_s = timeout_s
        self._protocol = h11.Connection(h11.CLIENT)

    async def send(self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes) -> UpstreamResponse:
        request = h11.Request(method=method, target=target, headers=list(headers))
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            self._writer.write(self._protocol.send(event) or b"")
        await self._wait_for(self._writer.drain())
        return await self._read_head()

    async def _read_head(self) -> UpstreamResponse:
        event = await self._next_event()
        while isinstance(event, h11.InformationalResponse):
            event = await self._next_event()
        if not isinstance(event, h11.Response):
            raise UpstreamError("the upstream closed the connection without a response")
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in event.headers}
        return UpstreamResponse(event.status_code, headers, self._body())

    async def _body(self) -> AsyncIterator[bytes]:
        """Yields the body; h11 raises if the connection ends before the body does."""
        while isinstance(event := await self._next_event(), h11.Data):
            yield bytes(event.data)

    async def _next_event(self) -> object:
        try:
            while (event := self._protocol.next_event()) is h11.NEED_DATA:
                self._protocol.receive_data(await self._wait_for(self._reader.read(_READ_BYTES)))
        except h11.RemoteProtocolError as error:
            raise UpstreamError("the upstream sent an incomplete or invalid HTTP response") from error
        return event

    async def _wait_for(self, awaitable: Awaitable[T]) -> T:
        try:
            return await asyncio.wait_for(awaitable, self._timeout_s)
        except TimeoutError as error:
            raise UpstreamTimeout(self._timeout_s) from error
        except OSError as error:
            raise UpstreamError("the connection to the upstream was lost") from error
