"""Opens the connections of one file, on the thread that will use them: settings, schema, and what to do where the disk
cannot be written or another process is in the way."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from loguru import logger
from msgspec import Struct

from config.errors import StorageError
from sources.storage.sqlite.connection.connection import BUSY_TIMEOUT_MS, Job, JobConnection
from sources.storage.sqlite.connection.copies import keep_copy
from sources.storage.sqlite.connection.errors import descriptors_are_used_up, is_busy, is_unwritable, out_of_descriptors
from sources.storage.sqlite.index.text_index import segment_version
from sources.storage.sqlite.schema.migrations import Blueprint, is_current, migrate, schema_version

_STATEMENTS_CACHED = 256
_LOG_MAX_BYTES = 8 * 1024 * 1024
_SIBLING_CACHE_KIB = 128
_PAUSE_S = 0.005
_MIGRATION_MAX_S = 600.0

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
    durability: Literal["normal", "full"]
    # Copies of a file that are kept from before its schema was changed.
    copies_max: int = 0

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


class File(Struct, frozen=True):
    """One of a user's files. `ensure` makes it if need be, and says where it is."""

    blueprint: Blueprint
    ensure: Callable[[], Path]

    def path(self) -> Path:
        try:
            return self.ensure()
        except StorageError as error:
            if descriptors_are_used_up(error.__cause__):
                raise out_of_descriptors() from error
            raise


def connect_writer(file: File, engine: Engine, due: float) -> JobConnection:
    path = file.path()
    connection = _connect(path, engine.writing, due)
    try:
        version = schema_version(connection)
        if not is_current(file.blueprint, version):
            if version:
                keep_copy(connection, path, version, engine.copies_max)
            # Whoever waits is let go at the deadline; a large file is brought up to date all the same, for the next.
            job = Job(lambda opened: migrate(file.blueprint, opened), max(due, time.monotonic() + _MIGRATION_MAX_S))
            connection.perform(job, "BEGIN IMMEDIATE")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(file: File, siblings: Sequence[File], engine: Engine, due: float) -> JobConnection:
    connection = _connect_somehow(file.path(), engine, due)
    try:
        if not is_current(file.blueprint, schema_version(connection)):
            connection.close()
            connect_writer(file, engine, due).close()
            connection = _connect(file.path(), engine.reading, due)
        connection.segment_version = segment_version(connection)
        for sibling in siblings:
            _attach(connection, sibling, due)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_somehow(path: Path, engine: Engine, due: float) -> JobConnection:
    """As ever; and where the disk cannot be written, as a file that never changes."""
    try:
        return _connect(path, engine.reading, due)
    except sqlite3.OperationalError as error:
        if not is_unwritable(error) or descriptors_are_used_up(error):
            raise
    connection = _connect(path, engine.reading, due, _read_only(path))
    connection.is_frozen = True
    return connection


def _read_only(path: Path) -> str:
    """A disk that cannot be written has no room for a log. Without one, the file itself is the whole truth."""
    log = path.with_name(path.name + "-wal")
    option = "mode=ro" if log.exists() and log.stat().st_size else "immutable=1"
    return f"{path.as_uri()}?{option}"


def _attach(connection: JobConnection, sibling: File, due: float) -> None:
    """Let a reader see another file of the same user. Without it words are weighed by what can be seen: a damaged
    file does not keep the others from being searched."""
    kind = sibling.blueprint.kind
    try:
        _patiently(connection, f"ATTACH DATABASE ? AS {kind}", due, (str(sibling.path()),))
        connection.execute(f"PRAGMA {kind}.cache_size = -{_SIBLING_CACHE_KIB}")
    except (StorageError, sqlite3.Error) as error:
        if descriptors_are_used_up(error):
            raise
        logger.warning("words are weighed without the {} of a library: {}", kind, error)
    else:
        connection.attached[kind] = sibling.blueprint.indexes


def _connect(path: Path, pragmas: Sequence[str], due: float, uri: str | None = None) -> JobConnection:
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
        schema_version(connection)  # SQLite opens the file no earlier than it has to
    except BaseException:
        connection.close()
        raise
    return connection


def _casefold(text: str | None) -> str | None:
    """SQLite's own `lower` knows the Latin letters only."""
    return text and text.casefold()


def _patiently(connection: sqlite3.Connection, sql: str, due: float, parameters: Sequence[str] = ()) -> None:
    """Another process that opens or closes the file holds it for a moment."""
    while True:
        try:
            connection.execute(sql, parameters).fetchall()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > due:
                raise
        else:
            return
        time.sleep(_PAUSE_S)
