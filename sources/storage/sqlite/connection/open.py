"""Opens the connections of one file, on the thread that will use them: pragmas, migration, and what to do if the disk
is read-only or another process holds a lock."""

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from loguru import logger
from msgspec import Struct

from auth.library_files import record_file, recorded_files
from config.errors import DATABASE_ERRORS, StorageError
from config.paths import DataRoot, UserId, save_copy_before_migration
from sources.storage.job_queue import JobQueue
from sources.storage.quota import QuotaLimits
from sources.storage.search.vocabulary import VocabularyMemory
from sources.storage.sqlite.connection.connection import BUSY_PAUSE_S, BUSY_TIMEOUT_MS, Job, JobConnection
from sources.storage.sqlite.connection.errors import (
    is_busy,
    is_out_of_descriptors,
    is_unwritable,
    too_many_open_files,
)
from sources.storage.sqlite.index.text_index import lacks_weights, segment_version
from sources.storage.sqlite.schema.kinds import (
    DatabaseSchema,
    create_kinds,
    has_current_kinds,
    is_current,
    migrate,
    schema_version,
)
from sources.text.segmentation import SEGMENT_VERSION, contains_literal, literal_form, separate_letters

_CACHED_STATEMENTS = 256
_LOG_MAX_BYTES = 8 * 1024 * 1024
_SIBLING_CACHE_KIB = 128
_MIGRATION_MAX_S = 600.0

_COMMON_PRAGMAS = (
    f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA foreign_keys = ON",
    "PRAGMA temp_store = MEMORY",
)


class SqliteOptions(Struct, frozen=True):
    """Options that all files share. `jobs` decides which job runs next, `vocabularies` keeps words of all libraries."""

    jobs: JobQueue
    vocabularies: VocabularyMemory
    queue_max: int
    deadline_ms: int
    cache_kib: int
    durability: Literal["normal", "full"]
    # How long after a write the file is flushed; 0: only when many pages were written, and when it is closed.
    flush_s: float = 0.0
    # How long a read past its deadline may take to stop before its connection is replaced.
    stop_ms: int = 1_000
    # Copies of a file to keep from before its schema was migrated.
    copies_max: int = 0
    quota: QuotaLimits = QuotaLimits()

    @property
    def reader_pragmas(self) -> tuple[str, ...]:
        return (*_COMMON_PRAGMAS, f"PRAGMA cache_size = -{self.cache_kib}", "PRAGMA query_only = ON")

    @property
    def writer_pragmas(self) -> tuple[str, ...]:
        return (
            *_COMMON_PRAGMAS,
            f"PRAGMA cache_size = -{self.cache_kib}",
            "PRAGMA journal_mode = WAL",
            f"PRAGMA synchronous = {self.durability.upper()}",
            f"PRAGMA journal_size_limit = {_LOG_MAX_BYTES}",
            # Overwrites purged data where that needs no additional page write.
            "PRAGMA secure_delete = FAST",
        )


class DatabaseFile(Struct, frozen=True):
    """One of a user's files."""

    schema: DatabaseSchema
    data_root: DataRoot
    user_id: UserId

    @property
    def path(self) -> Path:
        path: Path = getattr(self.data_root.paths_of(self.user_id), self.schema.kind)
        return path

    def ensure_path(self) -> Path:
        """Creates the file if necessary and returns its path. A file that was lost is not created again, because
        SQLite would then also delete its write-ahead log."""
        if not self.has_content and self._is_recorded() and not self.has_content:
            raise self.missing()
        try:
            return self.data_root.ensure_database(self.user_id, self.schema.kind)
        except StorageError as error:
            if is_out_of_descriptors(error.__cause__):
                raise too_many_open_files() from error
            raise

    def require_new(self, connection: sqlite3.Connection) -> None:
        """Raises if a file without a schema once had one, for example because its write-ahead log was deleted."""
        if self._is_recorded() and schema_version(connection) == 0:
            raise self.missing()

    def record(self) -> None:
        """Records that the user has this file from now on."""
        record_file(self.data_root.control_path, self.user_id, self.schema.kind)

    def missing(self) -> StorageError:
        return StorageError(
            f"{self.schema.kind}.db of this library is missing or empty; restore it from a backup with "
            "`florilegium restore DIR --user NAME`"
        )

    @property
    def has_content(self) -> bool:
        return self.data_root.has_content(self.user_id, self.schema.kind)

    def _is_recorded(self) -> bool:
        return self.schema.kind in recorded_files(self.data_root.control_path, self.user_id)


def connect_writer(file: DatabaseFile, options: SqliteOptions, due: float) -> JobConnection:
    path = file.ensure_path()
    # Choosing the kind of log flushes a file five times. A new one has nothing to lose before it is recorded.
    first = () if path.exists() and path.stat().st_size else ("PRAGMA synchronous = OFF",)
    connection = _connect(path, (*first, *options.writer_pragmas), due)
    try:
        version = schema_version(connection)
        if not is_current(file.schema, version):
            if version:
                save_copy_before_migration(connection, path, version, options.copies_max)
            else:
                file.require_new(connection)
            # The caller times out at the deadline. The migration of a large file continues for the next caller.
            job = Job(lambda writer: migrate(file.schema, writer), max(due - time.monotonic(), _MIGRATION_MAX_S))
            connection.run(job, "BEGIN IMMEDIATE")
            if not version:
                # The file is recorded durably. Without a flush, a power failure could leave it empty, and a recorded
                # file that is empty counts as lost.
                connection.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
                file.record()
        if _lacks_kinds(file.schema, connection):
            connection.run(Job(create_kinds, max(due - time.monotonic(), _MIGRATION_MAX_S)), "BEGIN IMMEDIATE")
        connection.watch_file(path)
    except BaseException as error:
        _close_after(error, connection)
        raise
    return connection


def _lacks_kinds(schema: DatabaseSchema, connection: sqlite3.Connection) -> bool:
    """Whether a file with a current schema lacks tables of kinds that other distributions add."""
    return schema.kind == "chacha" and not has_current_kinds(connection)


def connect_reader(
    file: DatabaseFile, siblings: Sequence[DatabaseFile], options: SqliteOptions, due: float
) -> JobConnection:
    connection = _connect_or_open_immutable(file.ensure_path(), options, due)
    try:
        is_complete = is_current(file.schema, schema_version(connection))
        if is_complete and not connection.is_immutable:
            is_complete = not _lacks_kinds(file.schema, connection)
        if not is_complete:
            connection.close()
            connect_writer(file, options, due).close()
            connection = _connect(file.ensure_path(), options.reader_pragmas, due)
        is_outdated = segment_version(connection) != SEGMENT_VERSION
        connection.has_outdated_rows = is_outdated or (file.schema.has_text_weights and lacks_weights(connection))
        for sibling in siblings:
            # Attaches another file of the same user. If it is damaged, terms are weighted without it.
            kind = sibling.schema.kind
            try:
                _execute_with_retry(connection, f"ATTACH DATABASE ? AS {kind}", due, (str(sibling.ensure_path()),))
                connection.execute(f"PRAGMA {kind}.cache_size = -{_SIBLING_CACHE_KIB}")
            except (StorageError, *DATABASE_ERRORS) as attach_error:
                if is_out_of_descriptors(attach_error):
                    raise
                logger.warning("Ignoring the {} file of a library when weighting terms: {}", kind, attach_error)
            else:
                connection.attached[kind] = sibling.schema.counted_indexes
        connection.watch_file(file.path)
    except BaseException as error:
        _close_after(error, connection)
        raise
    return connection


def _connect_or_open_immutable(path: Path, options: SqliteOptions, due: float) -> JobConnection:
    """Opens the file as immutable if the disk is read-only."""
    try:
        return _connect(path, options.reader_pragmas, due)
    except sqlite3.OperationalError as error:
        if not is_unwritable(error) or is_out_of_descriptors(error):
            raise
    # On a read-only disk no log can be created. If there is none, the file itself is complete.
    log = path.with_name(path.name + "-wal")
    option = "mode=ro" if log.exists() and log.stat().st_size else "immutable=1"
    connection = _connect(path, options.reader_pragmas, due, f"{path.as_uri()}?{option}")
    connection.is_immutable = True
    return connection


def _connect(path: Path, pragmas: Sequence[str], due: float, uri: str | None = None) -> JobConnection:
    connection = sqlite3.connect(
        uri or path,
        uri=uri is not None,
        factory=JobConnection,
        isolation_level=None,
        cached_statements=_CACHED_STATEMENTS,
    )
    try:
        add_functions(connection)
        for pragma in pragmas:
            _execute_with_retry(connection, pragma, due)
        schema_version(connection)  # SQLite does not open the file before the first read
    except BaseException as error:
        _close_after(error, connection)
        raise
    return connection


def _close_after(error: BaseException, connection: sqlite3.Connection) -> None:
    """Closes a connection that cannot be used. Raises Unavailable if the process has no descriptors left, which is
    checked before closing frees some."""
    is_out = is_out_of_descriptors(error)
    connection.close()
    if is_out:
        raise too_many_open_files() from error


def add_functions(connection: sqlite3.Connection) -> None:
    """Adds the SQL functions that queries and triggers use."""
    connection.create_function("casefold", 1, _casefold, deterministic=True)
    connection.create_function("separate_letters", 1, separate_letters, deterministic=True)
    connection.create_function("literal_form", 1, _literal_form, deterministic=True)
    connection.create_function("contains_literal", 2, _contains_literal, deterministic=True)


def _casefold(text: str | None) -> str | None:
    """SQLite's own `lower` folds ASCII letters only."""
    return text and text.casefold()


def _literal_form(text: str | None) -> str | None:
    return text and literal_form(text)


def _contains_literal(text: str | None, literal: str) -> bool:
    return text is not None and contains_literal(text, literal)


def _execute_with_retry(connection: sqlite3.Connection, sql: str, due: float, parameters: Sequence[str] = ()) -> None:
    """Another process that is opening or closing the file locks it for a moment."""
    while True:
        try:
            connection.execute(sql, parameters).fetchall()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > due:
                raise
        else:
            return
        time.sleep(BUSY_PAUSE_S)
