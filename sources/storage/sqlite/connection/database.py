"""The files of one user: opened on first use, all read by one connection, and each written by another.

Opening migrates the schema. Only the writer ever writes. It is closed last, so that the file is complete and has no
write-ahead log while it is not in use.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from loguru import logger

from config.errors import DATABASE_ERRORS, StorageError, Unavailable
from config.paths import DATABASE_KINDS, DatabaseKind, UserId, stored_bytes
from config.tracing import span
from sources.installed import ITEM_KINDS
from sources.storage.job_queue import CURRENT_GROUP, RunAlone, background_jobs
from sources.storage.quota import UserQuota
from sources.storage.sqlite.connection.connection import (
    ConnectionStuck,
    FileReplaced,
    JobConnection,
    LazyConnection,
    QueuedConnection,
    Work,
)
from sources.storage.sqlite.connection.errors import translate
from sources.storage.sqlite.connection.open import (
    DatabaseFile,
    SqliteOptions,
    attach_file,
    connect_reader,
    connect_writer,
)
from sources.storage.sqlite.index import text_index
from sources.storage.sqlite.index.statistics import CorpusStatistics, LibraryIndexes
from sources.storage.sqlite.vectors.vector_tables import vector_tables
from sources.storage.tables.sql import TextIndex
from sources.text.segmentation import SEGMENT_VERSION

# -- quota -------------------------------------------------------------------------------------------------------------
# Measures what a user stores in files. Reading their sizes takes about 40 microseconds.

T = TypeVar("T")

# The tables whose rows are items, by file.
_ITEM_TABLES: dict[DatabaseKind, Sequence[str]] = {
    database: [kind.table for kind in ITEM_KINDS.values() if kind.database == database] for database in DATABASE_KINDS
}


class UserFile(Protocol):
    """One of the user's files that can be read."""

    @property
    def kind(self) -> DatabaseKind: ...
    @property
    def path(self) -> Path: ...

    async def read(self, source: str, work: Work[T], deadline_ms: int | None = None) -> T: ...


class FileMeter:
    """Implements `UsageMeter`."""

    def __init__(self, files: Sequence[UserFile]) -> None:
        self._files = files

    async def estimated_bytes(self) -> int:
        return stored_bytes([file.path for file in self._files])

    async def used_bytes(self) -> int:
        return sum([await self._read(file, partial(_used_bytes, file.kind)) for file in self._files])

    async def count_items(self) -> int:
        return sum([await self._read(file, partial(_count_items, file.kind)) for file in self._files])

    async def count_passages(self) -> int:
        return sum([await self._read(file, vector_tables(file.kind).count_passages) for file in self._files])

    async def _read(self, file: UserFile, work: Work[int]) -> int:
        """A file that does not exist yet is not created."""
        return await file.read(file.kind, work) if file.path.exists() else 0


def _used_bytes(kind: DatabaseKind, connection: JobConnection) -> int:
    """Free pages do not count, because the next writes use them."""
    pages, free, size = (
        connection.execute(f"PRAGMA {kind}.{name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def count_items_of_closed(kind: DatabaseKind, path: Path) -> int:
    """Counts the items in a file that nothing has open. A file is empty until it is used first."""
    if not path.exists() or not path.stat().st_size:
        return 0
    try:
        with closing(sqlite3.connect(path)) as connection:
            return _count_items(kind, connection)
    except sqlite3.Error as error:
        raise translate(error, kind, 0) from error


def _count_items(kind: DatabaseKind, connection: JobConnection | sqlite3.Connection) -> int:
    queries = (f"SELECT count(*) FROM {table} WHERE deleted = 0" for table in _ITEM_TABLES[kind])  # noqa: S608 - constants
    return sum(connection.execute(query).fetchone()[0] for query in queries)


class LibraryReader:
    """The connection that reads all files of a library, and what it has counted in them."""

    def __init__(self, files: Sequence[DatabaseFile], options: SqliteOptions) -> None:
        self.indexes = LibraryIndexes(options.vocabularies)
        self._files = files
        self._options = options
        # By the sources to which a credential is restricted; None for all.
        self._statistics: dict[frozenset[str] | None, CorpusStatistics] = {}
        self.lazy = LazyConnection(self._open)
        # The files to attach when the connection is opened. The first is always attached: most calls need it.
        self.wanted: set[DatabaseKind] = {files[0].schema.kind}

    async def open(self, kind: DatabaseKind, limit_s: float) -> QueuedConnection:
        self.wanted.add(kind)
        return self.lazy.connection or await open_in_time(self.lazy, limit_s)

    async def close(self) -> None:
        await self.lazy.close()

    async def follow_writer(self, kind: DatabaseKind, attach: Work[None]) -> None:
        """Lets the reader, if it is open, see what is written to a file from now on."""
        connection = self.lazy.connection
        if connection is None:
            return
        attached = connection.attached.get(kind)
        if attached is None and kind not in connection.pending:
            await connection.attach(attach, self._options.deadline_ms / 1000)
        elif attached is not None and attached.is_immutable:
            await self.close()

    def statistics(self, sources: frozenset[str] | None) -> CorpusStatistics:
        """Returns the counts of the library, or of these sources of it."""
        statistics = self._statistics.get(sources)
        if statistics is None:
            statistics = self._statistics[sources] = CorpusStatistics(self.indexes, sources)
        return statistics

    async def _open(self) -> QueuedConnection:
        return await open_connection(
            self._files[0].user_id, self._options, partial(connect_reader, self._files, self.wanted)
        )


async def open_connection(
    user_id: UserId, options: SqliteOptions, connect: Callable[[SqliteOptions, float], JobConnection]
) -> QueuedConnection:
    connect_in_time = partial(connect, options, time.monotonic() + options.deadline_ms / 1000)
    connection = QueuedConnection(connect_in_time, options.jobs, user_id, options.queue_max, options.stop_ms / 1000)
    return await connection.open()


async def open_in_time(connection: LazyConnection, limit_s: float) -> QueuedConnection:
    async with asyncio.timeout(limit_s):
        return await connection.open()


class Database:
    """One of the files, with its writer, and the reader that it shares with the others."""

    def __init__(self, file: DatabaseFile, options: SqliteOptions, reader: LibraryReader) -> None:
        self.kind: DatabaseKind = file.schema.kind
        self.path = file.path
        self.quota = UserQuota(FileMeter((self,)), options.quota)
        self._file = file
        self._options = options
        self._reader = reader
        self._writer = LazyConnection(self._open_writer)
        self._updating: asyncio.Task[None] | None = None
        self._flushing: asyncio.Task[None] | None = None
        # Counts calls, to learn whether there is new text to embed.
        self.writes = 0
        # The model whose vectors are searched, once it is known. Reset when that may have changed.
        self.vector_model: str | None = None

    @property
    def has_content(self) -> bool:
        """Whether the file exists and is not empty. Reading or writing creates it otherwise."""
        return self._file.has_content

    async def read(self, source: str, work: Work[T], deadline_ms: int | None = None) -> T:
        """Runs the work on one snapshot of the file. Without a deadline, that of the settings applies. Time in the job
        queue does not count."""
        deadline_ms = self._options.deadline_ms if deadline_ms is None else deadline_ms
        limit_s = deadline_ms / 1000
        try:
            while True:
                connection = self._reader.lazy.connection or await self._reader.open(self.kind, limit_s)
                # The call before this one may not stop; then this one runs on another connection. If another file was
                # replaced, this one is read again.
                with suppress(ConnectionStuck), span("storage read", {"florilegium.source": source}):
                    try:
                        if self.kind not in connection.attached:
                            # If it cannot be opened, this raises the error.
                            await connection.attach(self._attach, limit_s)
                        if connection.attached[self.kind].has_outdated_rows and self._updating is None:
                            self._updating = asyncio.create_task(self._update_rows())
                        group = CURRENT_GROUP.get()
                        if group is not None and group.call is not None:
                            # The other sources of a search read at the same time.
                            with suppress(RunAlone):
                                return await connection.joint_reads.read(group.call, work, limit_s)
                        return await connection.read(work, limit_s)
                    except FileReplaced as error:
                        if error.path == self.path:
                            await self._close_replaced(connection)
                            raise
                        self._reader.wanted.update(DATABASE_KINDS)
                        await self._reader.lazy.discard(connection)
                    except Unavailable:
                        # Also a read that another call has begun on it, or was about to begin, when it was discarded.
                        if not connection.is_discarded:
                            raise
        except (*DATABASE_ERRORS, TimeoutError) as error:
            raise translate(error, source, deadline_ms) from error

    async def write(self, source: str, index: TextIndex, work: Work[T], extra_ms: int = 0) -> T:
        """Runs the work in one transaction and updates the index in the same transaction. `extra_ms` extends the
        deadline of the settings for a write that is known to be large."""
        deadline_ms = self._options.deadline_ms + extra_ms
        limit_s = deadline_ms / 1000
        self.writes += 1
        try:
            connection = self._writer.connection or await open_in_time(self._writer, limit_s)
            with span("storage write", {"florilegium.source": source}):
                result = await connection.write(partial(_work_and_apply_queue, work, index), limit_s)
        except FileReplaced:
            await self._close_replaced(self._reader.lazy.connection)
            raise
        except (*DATABASE_ERRORS, TimeoutError) as error:
            raise translate(error, source, deadline_ms) from error
        if self._options.flush_s and self._flushing is None:
            self._flushing = asyncio.create_task(self._flush_later())
        return result

    async def write_rows(self, source: str, work: Work[T]) -> T:
        """Runs a write that does not change any text, so that no index needs to be named."""
        return await self.write(source, self._file.schema.segmented[0].index, work)

    async def close(self) -> None:
        """Must not be called while the file is in use."""
        await self.stop_updating()
        await self._reader.close()
        await self.close_writer()

    async def _close_replaced(self, reader: QueuedConnection | None) -> None:
        """The next call opens the file that is there now, or reports that it is missing."""
        logger.warning("A file of a library was deleted or replaced while it was in use")
        await asyncio.gather(self._reader.lazy.discard(reader), self._writer.close(), return_exceptions=True)

    async def stop_updating(self) -> None:
        if self._updating is not None:
            self._updating.cancel()
            with suppress(asyncio.CancelledError):
                await self._updating

    async def close_writer(self) -> None:
        if (flushing := self._flushing) is not None:
            flushing.cancel()
            with suppress(asyncio.CancelledError):
                await flushing
        await self._writer.close()

    async def _flush_later(self) -> None:
        """SQLite itself flushes only when many pages were written and when the file is closed: in a library that is
        rarely written to, the last writes could be hours old."""
        flushed_writes = -1
        try:
            while flushed_writes != self.writes and (connection := self._writer.connection) is not None:
                await asyncio.sleep(self._options.flush_s)
                flushed_writes = self.writes
                with background_jobs():
                    await connection.flush(self._options.deadline_ms / 1000)
        except (*DATABASE_ERRORS, TimeoutError, StorageError, Unavailable) as error:
            # Nothing is lost by that. The next write tries again.
            logger.warning("Flushing a {} library failed: {}", self._file.schema.kind, error)
        finally:
            self._flushing = None

    async def _open_writer(self) -> QueuedConnection:
        connection = await open_connection(self._file.user_id, self._options, partial(connect_writer, self._file))
        await self._reader.follow_writer(self.kind, self._attach)
        return connection

    def _attach(self, connection: JobConnection) -> None:
        connection.pending.pop(self.kind, None)
        if self.kind not in connection.attached:  # by another call
            attach_file(connection, self._file, self._options, time.monotonic() + self._options.deadline_ms / 1000)

    async def _update_rows(self) -> None:
        """Computes in batches what rows lack after an upgrade, while the file is in use."""
        try:
            with background_jobs():
                schema = self._file.schema
                while schema.has_text_weights and await self.write(
                    schema.kind, schema.segmented[0].index, text_index.weigh_batch
                ):
                    pass
                await self._resegment()
        except (StorageError, Unavailable) as error:
            # The batches that were written stay. The rest follows when the file is opened next.
            logger.warning("Updating the rows of a {} library failed: {}", self._file.schema.kind, error.message)

    async def _resegment(self) -> None:
        """Updates the index after an upgrade that segments text differently."""
        kind, tables = self._file.schema.kind, self._file.schema.segmented
        if await self.read(kind, lambda connection: text_index.segment_version(connection, kind)) == SEGMENT_VERSION:
            return
        for table in tables:
            last: int | None = text_index.BEFORE_FIRST_ROWID
            while last is not None:
                last = await self.write(kind, table.index, partial(text_index.resegment_batch, table, last))
        await self.write(kind, tables[0].index, text_index.save_segment_version)


def _work_and_apply_queue(work: Work[T], index: TextIndex, connection: JobConnection) -> T:
    result = work(connection)
    text_index.apply_queue(connection, index)
    return result
