"""A proxy before PostgreSQL that loses the connection at a COMMIT, before the server receives it or after it, or passes
on no answers for a while, as if the server hangs. It can also look like a connection pooler."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

# The message of a simple query: its type, its length and a text that ends with NUL.
_COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"
# That of the data for cancelling: its type, its length, and the process id.
_PROCESS_ID = re.compile(rb"(K\0\0\0\x0c)....", re.DOTALL)
_READ_BYTES = 65_536

Loss = Literal["before", "after"]


class CommitProxy:
    """With `is_pooler`, clients get a process id that is not the server's, as from connection poolers."""

    def __init__(self, url: str, *, is_pooler: bool = False) -> None:
        self._upstream = urlsplit(url)
        self._is_pooler = is_pooler
        self._loss: Loss | None = None
        self._mark = b""
        self._answers = asyncio.Event()
        self._answers.set()
        # Falls silent when a client sends this text.
        self.silent_at = b""
        self.url = url

    def lose_next(self, loss: Loss, after: bytes) -> None:
        """Loses the next connection that commits a transaction in whose statements or parameters `after` occurs."""
        self._loss, self._mark = loss, after

    @contextmanager
    def silent(self) -> Iterator[None]:
        self._answers.clear()
        try:
            yield
        finally:
            self._answers.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["CommitProxy"]:
        listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        account = self._upstream.netloc.rpartition("@")[0]
        self.url = urlunsplit(self._upstream._replace(netloc=f"{account}@127.0.0.1:{port}"))
        try:
            yield self
        finally:
            listener.close()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection(self._upstream.hostname, self._upstream.port)
        responses = asyncio.create_task(_copy(server, to_client, self._answers, is_pooler=self._is_pooler))
        is_marked = False
        try:
            while data := await client.read(_READ_BYTES):
                is_marked = is_marked or bool(self._mark and self._mark in data)
                is_commit = _COMMIT in data
                if self.silent_at and self.silent_at in data:
                    self._answers.clear()
                if is_commit and is_marked and self._loss is not None:
                    await self._lose(data, server, to_server, responses)
                    break
                is_marked = is_marked and not is_commit
                to_server.write(data)
                await to_server.drain()
        except ConnectionError:
            pass
        finally:
            responses.cancel()
            to_server.close()
            to_client.close()

    async def _lose(
        self,
        commit: bytes,
        server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
        responses: "asyncio.Task[None]",
    ) -> None:
        loss, self._loss = self._loss, None
        responses.cancel()
        await asyncio.wait([responses])
        if loss == "after":
            to_server.write(commit)
            await server.read(_READ_BYTES)


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, allowed: asyncio.Event, *, is_pooler: bool
) -> None:
    try:
        while data := await reader.read(_READ_BYTES):
            await allowed.wait()
            if is_pooler:
                data = _PROCESS_ID.sub(b"\\1pool", data)
            writer.write(data)
            await writer.drain()
        # A client that closes its connection waits until the server has closed it, too.
        writer.close()
    except ConnectionError:
        writer.close()
