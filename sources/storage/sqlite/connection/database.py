"""One file of one user: opened when first used, read by one connection and written by another.

Opening brings the schema up to date. Only the writer ever writes, and it is closed last, so that the file is whole
and its log is gone when nobody uses it.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from loguru import logger

from config.errors import StorageError, Unavailable
from sources.query import ParsedQuery
from sources.storage.contract import Corpus
from sources.storage.sqlite.connection.connection import Channel, JobConnection, LazyChannel, Work
from sources.storage.sqlite.connection.errors import translate
from sources.storage.sqlite.connection.open import Engine, File, connect_reader, connect_writer
from sources.storage.sqlite.index.statistics import Statistics
from sources.storage.sqlite.index.text_index import TextIndex, drain, mark_segmented, renew
from sources.text.segmentation import SEGMENT_VERSION

T = TypeVar("T")

_BEFORE_ALL = -(2**63)


class Database:
    """A file, its reader and its writer. `siblings` are the user's other files: a reader looks into them to see how
    common a word is in the whole library."""

    def __init__(self, file: File, engine: Engine, siblings: Sequence[File] = ()) -> None:
        self.statistics = Statistics(file.blueprint.indexes)
        self._file = file
        self._engine = engine
        self._siblings = siblings
        self._reader = LazyChannel(self._open_reader)
        self._writer = LazyChannel(self._open_writer)
        self._renewal: asyncio.Task[None] | None = None

    async def read(self, source: str, work: Work[T], deadline_ms: int | None = None) -> T:
        """Run the work on one snapshot of the file, within the deadline (that of the settings, if none is given)."""
        deadline_ms = self._engine.deadline_ms if deadline_ms is None else deadline_ms
        due = time.monotonic() + deadline_ms / 1000
        # The caller is let go at the deadline, even if SQLite is still stopping.
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                channel = self._reader.channel or await self._reader.open()
                return await channel.read(work, due)
        except (sqlite3.Error, TimeoutError) as error:
            raise translate(error, source, deadline_ms) from error

    async def write(self, source: str, index: TextIndex, work: Work[T], more_ms: int = 0) -> T:
        """Run the work in one transaction, and let the index follow in the same. What is known to be large is given
        more time than the settings say."""
        deadline_ms = self._engine.deadline_ms + more_ms
        due = time.monotonic() + deadline_ms / 1000
        try:
            async with asyncio.timeout(deadline_ms / 1000) as waiting:
                channel = self._writer.channel or await self._writer.open()
                return await channel.write(partial(_with_index, work, index), due, lambda: waiting.reschedule(None))
        except (sqlite3.Error, TimeoutError) as error:
            raise translate(error, source, deadline_ms) from error

    async def corpus(self, query: ParsedQuery, deadline_ms: int) -> Corpus:
        """How common the terms of a query are in the whole library."""
        return await self.read(self._file.blueprint.kind, partial(self.statistics.corpus, query), deadline_ms)

    async def close(self) -> None:
        """To be called when nobody uses the file any more."""
        await self.close_reader()
        await self.close_writer()

    async def close_reader(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            with suppress(asyncio.CancelledError):
                await self._renewal
        await self._reader.close()

    async def close_writer(self) -> None:
        await self._writer.close()

    async def _open_reader(self) -> Channel:
        channel = await self._open(partial(connect_reader, self._file, self._siblings))
        if channel.segment_version != SEGMENT_VERSION and self._renewal is None:
            self._renewal = asyncio.create_task(self._renew())
        return channel

    async def _open_writer(self) -> Channel:
        channel = await self._open(partial(connect_writer, self._file))
        reader = self._reader.channel
        if reader is not None and reader.is_frozen:
            # It took the file for one that never changes, and would not see what is written now.
            await self._reader.close()
        return channel

    async def _open(self, connect: Callable[[Engine, float], JobConnection]) -> Channel:
        due = time.monotonic() + self._engine.deadline_ms / 1000
        return await Channel.open(partial(connect, self._engine, due), self._engine.slots, self._engine.queue_max)

    async def _renew(self) -> None:
        """After an upgrade that segments texts differently: row by row, while the library is in use."""
        kind = self._file.blueprint.kind
        try:
            for table in self._file.blueprint.segmented:
                last: int | None = _BEFORE_ALL
                while last is not None:
                    last = await self.write(kind, table.index, partial(renew, table, last))
            await self.write(kind, self._file.blueprint.segmented[0].index, mark_segmented)
        except (StorageError, Unavailable) as error:
            # What was renewed stays; the rest is when the file is opened next.
            logger.warning("the index of a {} library could not be renewed: {}", kind, error.message)


def _with_index(work: Work[T], index: TextIndex, connection: JobConnection) -> T:
    result = work(connection)
    drain(connection, index)
    return result
