"""One HTTP/1.1 request and its answer as it comes. h11 reads the protocol, this reads the socket.

No pool, no redirect, no compression: a turn of a chat takes seconds, and its connection ends with it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import TypeVar

import h11

from server.compat.agentkit.chat.reply import Reply, UpstreamFailed, UpstreamSilent

T = TypeVar("T")
_READ_BYTES = 64 * 1024


class Exchange:
    """Over an open connection, which is its opener's to close. Each wait for the other side is bounded."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silence_s: float) -> None:
        self._reader = reader
        self._writer = writer
        self._silence_s = silence_s
        self._protocol = h11.Connection(h11.CLIENT)

    async def send(self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes) -> Reply:
        request = h11.Request(method=method, target=target, headers=list(headers))
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            self._writer.write(self._protocol.send(event) or b"")
        await self._within_time(self._writer.drain())
        return await self._head()

    async def _head(self) -> Reply:
        event = await self._next()
        while isinstance(event, h11.InformationalResponse):
            event = await self._next()
        if not isinstance(event, h11.Response):
            raise UpstreamFailed("the upstream closed the connection without an answer")
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in event.headers}
        return Reply(event.status_code, headers, self._body())

    async def _body(self) -> AsyncIterator[bytes]:
        """To its end: h11 raises where the connection ends before that."""
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)

    async def _next(self) -> object:
        try:
            while (event := self._protocol.next_event()) is h11.NEED_DATA:
                self._protocol.receive_data(await self._within_time(self._reader.read(_READ_BYTES)))
        except h11.RemoteProtocolError as error:
            raise UpstreamFailed("the upstream broke off, or does not speak HTTP") from error
        return event

    async def _within_time(self, waiting: Awaitable[T]) -> T:
        try:
            return await asyncio.wait_for(waiting, self._silence_s)
        except TimeoutError as error:
            raise UpstreamSilent(self._silence_s) from error
        except OSError as error:
            raise UpstreamFailed("the connection to the upstream was lost") from error
