"""One file of one user: opened when first used, read by one connection and written by another.

Opening brings the schema up to date. Only the writer ever writes, and it is closed last, so that the file is whole
and its log is gone when nobody uses it.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from loguru import logger
from msgspec import Struct

from config.errors import StorageError, Unavailable
from sources.query import ParsedQuery
from sources.segment import SEGMENT_VERSION
from sources.storage.contract import Corpus
from sources.storage.sqlite.connection import BUSY_TIMEOUT_MS, Channel, Job, JobConnection, LazyChannel, Work
from sources.storage.sqlite.errors import (
    descriptors_are_used_up,
    is_busy,
    is_unwritable,
    out_of_descriptors,
    translate,
)
from sources.storage.sqlite.index import TextIndex, drain, mark_segmented, renew, segment_version
from sources.storage.sqlite.migrations import Blueprint, is_current, migrate, schema_version
from sources.storage.sqlite.statistics import Statistics

T = TypeVar("T")

_STATEMENTS_CACHED = 256
_LOG_MAX_BYTES = 8 * 1024 * 1024
_SIBLING_CACHE_KIB = 128
_PAUSE_S = 0.005
_BEFORE_ALL = -(2**63)

_SAFETY = (
    f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA foreign_keys = ON",
    "PRAGMA temp_store = MEMORY",
)


class Engine(Struct, frozen=True):
    """What all files share: the jobs that may run at once, and their limits."""

    slots: asyncio.Semaphore
    queue_max: int
    deadline_ms: int
    cache_kib: int
    durability: str

    @property
    def reading(self) -> tuple[str, ...]:
        return (*_SAFETY, f"PRAGMA cache_size = -{self.cache_kib}", "PRAGMA query_only = ON")

    @property
    def writing(self) -> tuple[str, ...]:
        return (
            *_SAFETY,
            f"PRAGMA cache_size = -{self.cache_kib}",
            "PRAGMA journal_mode = WAL",
            f"PRAGMA synchronous = {self.durability.upper()}",
            f"PRAGMA journal_size_limit = {_LOG_MAX_BYTES}",
            # What is purged is overwritten where that costs no extra page.
            "PRAGMA secure_delete = FAST",
        )


class Database:
    """A file, its reader and its writer. `ensure` makes the file if need be and says where it is."""

    def __init__(self, blueprint: Blueprint, ensure: Callable[[], Path], engine: Engine) -> None:
        self.blueprint = blueprint
        self.engine = engine
        self.ensure = ensure
        self._reader = LazyChannel(self._open_reader)
        self._writer = LazyChannel(self._open_writer)
        self._renewal: asyncio.Task[None] | None = None
        self.statistics = Statistics(blueprint.indexes)
        # The user's other files: a reader looks into them to see how common a word is in the whole library.
        self.siblings: tuple[Database, ...] = ()

    async def read(self, source: str, work: Work[T], deadline_ms: int | None = None) -> T:
        """Run the work on one snapshot of the file, within the deadline (that of the settings, if none is given)."""
        deadline_ms = self.engine.deadline_ms if deadline_ms is None else deadline_ms
        due = time.monotonic() + deadline_ms / 1000
        # The caller is let go at the deadline, even if SQLite is still stopping.
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                channel = self._reader.channel or await self._reader.open()
                return await channel.read(work, due)
        except (sqlite3.Error, TimeoutError) as error:
            raise translate(error, source, deadline_ms) from error

    async def write(self, source: str, index: TextIndex, work: Work[T]) -> T:
        """Run the work in one transaction, and let the index follow in the same."""
        deadline_ms = self.engine.deadline_ms
        due = time.monotonic() + deadline_ms / 1000
        try:
            async with asyncio.timeout(deadline_ms / 1000) as waiting:
                channel = self._writer.channel or await self._writer.open()
                return await channel.write(partial(_with_index, work, index), due, lambda: waiting.reschedule(None))
        except (sqlite3.Error, TimeoutError) as error:
            raise translate(error, source, deadline_ms) from error

    async def corpus(self, query: ParsedQuery, deadline_ms: int) -> Corpus:
        """How common the terms of a query are in the whole library."""
        return await self.read(self.blueprint.kind, partial(self.statistics.corpus, query), deadline_ms)

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
        channel = await self._open(_connect_reader)
        if channel.segment_version != SEGMENT_VERSION and self._renewal is None:
            self._renewal = asyncio.create_task(self._renew())
        return channel

    async def _open_writer(self) -> Channel:
        channel = await self._open(_connect_writer)
        reader = self._reader.channel
        if reader is not None and reader.is_frozen:
            # It took the file for one that never changes, and would not see what is written now.
            await self._reader.close()
        return channel

    async def _open(self, connect: Callable[["Database", float], JobConnection]) -> Channel:
        due = time.monotonic() + self.engine.deadline_ms / 1000
        return await Channel.open(partial(connect, self, due), self.engine.slots, self.engine.queue_max)

    async def _renew(self) -> None:
        """After an upgrade that segments texts differently: row by row, while the library is in use."""
        kind = self.blueprint.kind
        try:
            for table in self.blueprint.segmented:
                last: int | None = _BEFORE_ALL
                while last is not None:
                    last = await self.write(kind, table.index, partial(renew, table, last))
            await self.write(kind, self.blueprint.segmented[0].index, mark_segmented)
        except (StorageError, Unavailable) as error:
            # What was renewed stays; the rest is when the file is opened next.
            logger.warning("the index of a {} library could not be renewed: {}", kind, error.message)


def _with_index(work: Work[T], index: TextIndex, connection: JobConnection) -> T:
    result = work(connection)
    drain(connection, index)
    return result


# The functions below run on a connection's own thread.


def _connect_writer(database: "Database", due: float) -> JobConnection:
    connection = _connect(_path(database), database.engine.writing, due)
    try:
        if not is_current(database.blueprint, schema_version(connection)):
            connection.perform(Job(partial(migrate, database.blueprint), due), "BEGIN IMMEDIATE")
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_reader(database: "Database", due: float) -> JobConnection:
    path = _path(database)
    try:
        connection = _connect(path, database.engine.reading, due)
    except sqlite3.OperationalError as error:
        if not is_unwritable(error) or descriptors_are_used_up(error):
            raise
        connection = _connect(path, database.engine.reading, due, _read_only(path))
        connection.is_frozen = True
    try:
        if not is_current(database.blueprint, schema_version(connection)):
            connection.close()
            _connect_writer(database, due).close()
            connection = _connect(path, database.engine.reading, due)
        connection.segment_version = segment_version(connection)
        for sibling in database.siblings:
            _attach(connection, sibling)
    except BaseException:
        connection.close()
        raise
    return connection


def _attach(connection: JobConnection, sibling: "Database") -> None:
    """Let a reader see another file of the same user. Without it words are weighed by what can be seen: a damaged
    file does not keep the others from being searched."""
    kind = sibling.blueprint.kind
    try:
        connection.execute(f"ATTACH DATABASE ? AS {kind}", (str(_path(sibling)),))
        connection.execute(f"PRAGMA {kind}.cache_size = -{_SIBLING_CACHE_KIB}")
    except (StorageError, sqlite3.Error) as error:
        logger.warning("words are weighed without the {} of the library: {}", kind, error)
    else:
        connection.attached[kind] = sibling.blueprint.indexes


def _path(database: "Database") -> Path:
    try:
        return database.ensure()
    except StorageError as error:
        if descriptors_are_used_up(error.__cause__):
            raise out_of_descriptors() from error
        raise


def _read_only(path: Path) -> str:
    """A disk that cannot be written has no room for a log. Without one, the file itself is the whole truth."""
    log = path.with_name(path.name + "-wal")
    option = "mode=ro" if log.exists() and log.stat().st_size else "immutable=1"
    return f"{path.as_uri()}?{option}"


def _connect(path: Path, pragmas: tuple[str, ...], due: float, uri: str | None = None) -> JobConnection:
    connection = sqlite3.connect(
        uri or path,
        uri=uri is not None,
        factory=JobConnection,
        isolation_level=None,
        cached_statements=_STATEMENTS_CACHED,
    )
    try:
        connection.create_function("casefold", 1, _casefold, deterministic=True)
        for pragma in pragmas:
            _patiently(connection, pragma, due)
        schema_version(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _casefold(text: str | None) -> str | None:
    """SQLite's own `lower` knows the Latin letters only."""
    return text and text.casefold()


def _patiently(connection: sqlite3.Connection, pragma: str, due: float) -> None:
    """Another process that opens or closes the file holds it for a moment."""
    while True:
        try:
            connection.execute(pragma).fetchall()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > due:
                raise
        else:
            return
        time.sleep(_PAUSE_S)
