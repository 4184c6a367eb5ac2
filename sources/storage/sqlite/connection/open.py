"""Opens the connections of a library, on the thread that will use them: pragmas, migration, and what to do if the disk
is read-only or another process holds a lock."""

import sqlite3
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

from loguru import logger
from msgspec import Struct

from auth.library_files import record_file, recorded_files, require_owner
from auth.quotas import UserLimits
from config.errors import DATABASE_ERRORS, StorageError
from config.paths import DatabaseKind, DataRoot, UserId, save_copy_before_migration
from sources.storage.job_queue import Job, JobQueue
from sources.storage.quota import NO_LIMITS
from sources.storage.search.vocabulary import VocabularyMemory
from sources.storage.sqlite.connection import errors
from sources.storage.sqlite.connection.connection import (
    BUSY_PAUSE_S,
    BUSY_TIMEOUT_MS,
    AttachedFile,
    FileReplaced,
    JobConnection,
)
from sources.storage.sqlite.index.text_index import lacks_weights, segment_version
from sources.storage.sqlite.schema import kinds
from sources.text.segmentation import SEGMENT_VERSION, contains_literal, literal_form, separate_letters

_CACHED_STATEMENTS = 256
_LOG_MAX_BYTES = 8 * 1024 * 1024
_MIGRATION_MAX_S = 600.0
# How long a search waits for a locked file that it needs only to count terms.
_LOCK_WAIT_S = 0.5

_COMMON_PRAGMAS = ("PRAGMA trusted_schema = OFF", "PRAGMA cell_size_check = ON", "PRAGMA temp_store = MEMORY")


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
    quota: UserLimits = NO_LIMITS

    @property
    def reader_pragmas(self) -> tuple[str, ...]:
        return (*_COMMON_PRAGMAS, "PRAGMA query_only = ON")

    @property
    def writer_pragmas(self) -> tuple[str, ...]:
        return (
            *_COMMON_PRAGMAS,
            "PRAGMA foreign_keys = ON",
            f"PRAGMA cache_size = -{self.cache_kib}",
            "PRAGMA journal_mode = WAL",
            f"PRAGMA synchronous = {self.durability.upper()}",
            f"PRAGMA journal_size_limit = {_LOG_MAX_BYTES}",
            # Overwrites purged data where that needs no additional page write.
            "PRAGMA secure_delete = FAST",
        )


class DatabaseFile(Struct, frozen=True):
    """One of a user's files."""

    schema: kinds.DatabaseSchema
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
        if not self.has_content:
            require_owner(self.data_root.control_path, self.user_id)
        try:
            return self.data_root.ensure_database(self.user_id, self.schema.kind)
        except StorageError as error:
            if errors.is_out_of_descriptors(error.__cause__):
                raise errors.too_many_open_files() from error
            raise

    def require_new(self, connection: sqlite3.Connection) -> None:
        """Raises if a file without a schema once had one, for example because its write-ahead log was deleted."""
        if self._is_recorded() and kinds.schema_version(connection) == 0:
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
        version = kinds.schema_version(connection)
        if not kinds.is_current(file.schema, version):
            if version:
                save_copy_before_migration(connection, path, version, options.copies_max)
            else:
                file.require_new(connection)
            # The caller times out at the deadline. The migration of a large file continues for the next caller.
            job = Job(lambda writer: kinds.migrate(file.schema, writer), max(due - time.monotonic(), _MIGRATION_MAX_S))
            connection.run(job, "BEGIN IMMEDIATE")
            if not version:
                # The file is recorded durably. Without a flush, a power failure could leave it empty, and a recorded
                # file that is empty counts as lost.
                connection.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
                file.record()
        if _lacks_kinds(connection, file.schema.kind, "main"):
            connection.run(Job(kinds.create_kinds, max(due - time.monotonic(), _MIGRATION_MAX_S)), "BEGIN IMMEDIATE")
        connection.watch_file(path)
    except BaseException as error:
        _close_after(error, connection)
        raise
    return connection


def connect_reader(
    files: Sequence[DatabaseFile], wanted: Collection[DatabaseKind], options: SqliteOptions, due: float
) -> JobConnection:
    """Connects to the files of a library at once: each connection parses the schema of every file that it reads, which
    takes more memory and time than anything else. Therefore a file that is not wanted now is attached when it is.

    A file that cannot be opened fails only those who read it, and one that was never used is created when it is read.
    """
    connection = _connect(":memory:", options.reader_pragmas, due)
    try:
        for file in files:
            if file.has_content:
                connection.pending[file.schema.kind] = partial(_attach_if_possible, file, options)
        for kind in [kind for kind in connection.pending if kind in wanted]:
            connection.attach_pending(kind)
    except BaseException as error:
        _close_after(error, connection)
        raise
    return connection


def _attach_if_possible(file: DatabaseFile, options: SqliteOptions, connection: JobConnection) -> None:
    is_within_job = connection.in_transaction
    wait_s = _LOCK_WAIT_S if is_within_job else options.deadline_ms / 1000
    try:
        attach_file(connection, file, options, time.monotonic() + wait_s)
    except (StorageError, *DATABASE_ERRORS) as error:
        if errors.is_interrupted(error) or errors.is_out_of_descriptors(error):
            raise
        if is_within_job:
            # SQLite cannot commit the transaction. The call is repeated on a connection that attaches all files first.
            raise FileReplaced(file.path) from error
        # Whoever reads it tries again, and gets the error.
        logger.warning("The {} file of a library cannot be opened: {}", file.schema.kind, error)


def attach_file(connection: JobConnection, file: DatabaseFile, options: SqliteOptions, due: float) -> None:
    """Attaches a file to a reader. Creates or migrates it first if necessary."""
    kind, schema = file.schema.kind, file.schema
    if kind in connection.unusable:
        _detach(connection, kind)
    try:
        version, is_immutable = _attach(connection, kind, file.ensure_path(), due)
        is_complete = kinds.is_current(schema, version)
        if is_complete and not is_immutable:
            is_complete = not _lacks_kinds(connection, kind, kind)
        if not is_complete:
            if connection.in_transaction:  # in which it cannot be detached
                raise FileReplaced(file.path)
            connection.execute(f"DETACH {kind}")
            connect_writer(file, options, due).close()
            _attach(connection, kind, file.ensure_path(), due)
        connection.execute(f"PRAGMA {kind}.cache_size = -{options.cache_kib}")
        is_outdated = segment_version(connection, kind) != SEGMENT_VERSION
        connection.watch_file(file.path)
        indexes = [index for table in schema.segmented for index in (table.index, *table.index.companions)]
        names = frozenset(index.table for index in indexes)
        if is_immutable:
            # Those of kinds that other distributions add could not be created.
            tables = f"SELECT name FROM {kind}.sqlite_schema WHERE type = 'table'"  # noqa: S608 - a constant
            names &= {name for (name,) in connection.execute(tables)}
        if kind == "chacha" and connection.attached:
            # Every file has a table `state`. Without a schema, this would be that of the file that was attached first.
            connection.execute("PRAGMA query_only = OFF")
            connection.execute("CREATE TEMP VIEW IF NOT EXISTS state AS SELECT * FROM chacha.state")
            connection.execute("PRAGMA query_only = ON")
        connection.attached[kind] = AttachedFile(
            names,
            tuple([index for index in schema.counted_indexes if index.table in names]),
            is_immutable,
            has_outdated_rows=is_outdated or (schema.has_text_weights and lacks_weights(connection)),
        )
    except BaseException:
        connection.unusable.add(kind)
        _detach(connection, kind)
        raise


def _detach(connection: JobConnection, kind: str) -> None:
    """Detaches a file that could not be used. In a transaction that has read it, that is not possible."""
    with suppress(*DATABASE_ERRORS):
        connection.execute(f"DETACH {kind}")
        connection.unusable.discard(kind)


def _lacks_kinds(connection: JobConnection, kind: DatabaseKind, schema: str) -> bool:
    """Whether a file with a current schema lacks tables of kinds that other distributions add."""
    return kind == "chacha" and not kinds.has_current_kinds(connection, schema)


def _attach(connection: JobConnection, kind: str, path: Path, due: float) -> tuple[int, bool]:
    """Attaches a file, as immutable if the disk is read-only. Returns the version of its schema, and whether it is."""
    attach = f"ATTACH DATABASE ? AS {kind}"
    try:
        _execute_with_retry(connection, attach, due, (str(path),))
        return kinds.schema_version(connection, kind), False  # SQLite does not read the file before
    except sqlite3.OperationalError as error:
        if not errors.is_unwritable(error) or errors.is_out_of_descriptors(error):
            raise
    with suppress(*DATABASE_ERRORS):  # it may not be attached
        connection.execute(f"DETACH {kind}")
    # On a read-only disk no log can be created. If there is none, the file itself is complete.
    log = path.with_name(path.name + "-wal")
    option = "mode=ro" if log.exists() and log.stat().st_size else "immutable=1"
    _execute_with_retry(connection, attach, due, (f"{path.as_uri()}?{option}",))
    return kinds.schema_version(connection, kind), True


def _connect(path: Path | str, pragmas: Sequence[str], due: float) -> JobConnection:
    connection = sqlite3.connect(
        path,
        timeout=BUSY_TIMEOUT_MS / 1000,
        uri=path == ":memory:",  # files can be attached by URIs then
        factory=JobConnection,
        isolation_level=None,
        cached_statements=_CACHED_STATEMENTS,
    )
    try:
        add_functions(connection)
        for pragma in pragmas:
            _execute_with_retry(connection, pragma, due)
        kinds.schema_version(connection)  # SQLite does not open the file before the first read
    except BaseException as error:
        _close_after(error, connection)
        raise
    return connection


def _close_after(error: BaseException, connection: sqlite3.Connection) -> None:
    """Closes a connection that cannot be used. Raises Unavailable if the process has no descriptors left, which is
    checked before closing frees some."""
    is_out = errors.is_out_of_descriptors(error)
    connection.close()
    if is_out:
        raise errors.too_many_open_files() from error


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
            if not errors.is_busy(error) or time.monotonic() > due:
                raise
        else:
            return
        time.sleep(BUSY_PAUSE_S)
