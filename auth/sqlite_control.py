"""The control database as one small SQLite file that is shared by servers and the command line.

Each operation runs as one function on the connection's own thread. `revision` detects cheaply whether any process has
changed the file. This module knows nothing about users or keys, and rejects a file with a newer schema.
"""

import asyncio
import os
import sqlite3
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Self, TypeVar

import aiosqlite

from auth.control_database import ControlSchema, reserve_space, use_as_journal
from auth.conversion import convert_control
from config.errors import DATABASE_ERRORS, ControlDatabaseLocked, StorageError, result_code
from config.paths import save_copy_before_migration

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], T]

_PRAGMAS = (
    # Not WAL: several processes write this file, and SQLite before 3.51.3 can lose pages when a write coincides with
    # another connection's WAL reset. Not PERSIST: every reader would have to examine the remaining journal.
    "PRAGMA journal_mode = DELETE",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    # Deleted names and key hashes are overwritten, so that nothing of a purged user remains in the file.
    "PRAGMA secure_delete = ON",
)

_MESSAGES = {
    sqlite3.SQLITE_FULL: "the disk of {} is full",
    sqlite3.SQLITE_READONLY: "{} or its directory is read-only",
    sqlite3.SQLITE_IOERR: "the disk of {} reported an I/O error",
    sqlite3.SQLITE_CORRUPT: "{} is damaged; restore it from a backup",
    sqlite3.SQLITE_NOTADB: "{} is not an SQLite file; restore it from a backup",
    sqlite3.SQLITE_CANTOPEN: "{} cannot be opened; check the data directory's permissions",
}
# How SQLite reports a full disk: when it writes, or when it creates the journal.
_NO_SPACE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
# Copies to keep from before migrations. The file is small.
_COPIES_MAX = 3
_UNKNOWN = "{} cannot be used"
_CONTROL_DATABASE = "the control database"


class _Connection(aiosqlite.Connection):
    """aiosqlite's thread and queue, with a whole function as the unit of work.

    Cancelling a task does not remove its statement from the queue, and a task cancelled between BEGIN and COMMIT leaves
    the transaction open. A function that begins and ends its own transaction avoids both.
    """

    _stopping: asyncio.Future[Any] | None = None

    def stop(self) -> asyncio.Future[Any] | None:
        self._stopping = super().stop()
        return self._stopping

    async def start(self) -> None:
        """Connects. After a failure, waits for the thread, which would otherwise report to a closed event loop."""
        try:
            await self
        except BaseException:
            if self._stopping is not None:
                await self._stopping
            raise

    async def run(self, operation: Operation[T]) -> T:
        if self._connection is None:
            raise StorageError("the control database is closed")
        result: T = await self._execute(operation, self._connection)  # type: ignore[no-untyped-call]  # untyped in aiosqlite
        return result


# Held during a transaction. Other connections of this process would otherwise wait as those of other processes do, by
# trying again until their timeout, and on a slow disk a transaction takes longer than that.
CONTROL_LOCK = Lock()


class SqliteControlDatabase:
    """An open control database. Reads and writes run one after another on one thread."""

    def __init__(self, path: Path, connection: _Connection, probe: sqlite3.Connection, busy_timeout_s: float) -> None:
        self._path = path
        self._connection = connection
        self._busy_timeout_s = busy_timeout_s
        self._execute_probe = probe.cursor().execute
        self._unknown_revision = 0
        self._turn_revision: int | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path, schema: ControlSchema, busy_timeout_s: float) -> AsyncIterator[Self]:
        """Opens the file, creating it if necessary, and migrates its schema."""
        with storage_errors():
            ensure_private_file(path)
            connection = _Connection(partial(_connect, path, busy_timeout_s), iter_chunk_size=1)
            await connection.start()
        try:
            with storage_errors():
                await connection.run(partial(_migrate, path, schema))
                await connection.run(partial(reserve_space, path))
                probe = sqlite3.connect(path, timeout=0, isolation_level=None)
            with closing(probe):
                yield cls(path, connection, probe, busy_timeout_s)
        finally:
            await connection.close()

    async def read(self, operation: Operation[T]) -> T:
        with storage_errors():
            return await self._connection.run(self._within_timeout(operation))

    async def write(self, operation: Operation[T]) -> T:
        """Runs the operation in one transaction, which takes the write lock first so that it cannot fail later."""
        with storage_errors():
            return await self._connection.run(self._within_timeout(partial(self._write, operation)))

    async def withdraw(self, operation: Operation[T]) -> T:
        """Like `write`, for operations that withdraw access: on a full disk they use the reserved space."""
        with storage_errors():
            return await self._connection.run(self._within_timeout(partial(self._write_from_reserve, operation)))

    def _write(self, operation: Operation[T], connection: sqlite3.Connection) -> T:
        result = _in_transaction(operation, connection)
        reserve_space(self._path, connection)
        return result

    def _write_from_reserve(self, operation: Operation[T], connection: sqlite3.Connection) -> T:
        def with_reserve(connection: sqlite3.Connection) -> T:
            use_as_journal(self._path)
            return operation(connection)

        # A file system that copies on write may need new blocks even for the reserved file. The failed transaction has
        # deleted it, so that the last attempt has its space.
        for attempt in (operation, with_reserve):
            try:
                return self._write(attempt, connection)
            except DATABASE_ERRORS as error:
                if _primary_code(error) not in _NO_SPACE:
                    raise
        return self._write(operation, connection)

    def _within_timeout(self, operation: Operation[T]) -> Operation[T]:
        """Limits the wait for locks to what remains of the timeout, which starts now: operations queue for the thread,
        so otherwise each would wait for all the waits before it."""
        due = time.monotonic() + self._busy_timeout_s

        def run(connection: sqlite3.Connection) -> T:
            queued_at = time.monotonic()
            with CONTROL_LOCK:
                waited_s = time.monotonic() - queued_at
                remaining_ms = max(0, round((due + waited_s - time.monotonic()) * 1000))
                connection.execute(f"PRAGMA busy_timeout = {remaining_ms}")
                return operation(connection)

        return run

    def revision(self) -> int:
        """Returns a number that changes when any process commits. Takes microseconds, on the caller's thread.

        While another process is committing, the revision is unknown; then a number is returned that was never returned
        before, so that every comparison sees a change.

        The file is locked and read once in each turn of the event loop. A request that is handled later in the same
        turn was sent before the turn began, and so before a change that this misses.
        """
        if self._turn_revision is not None:
            return self._turn_revision
        try:
            version: int = self._execute_probe("PRAGMA data_version").fetchone()[0]
        except DATABASE_ERRORS as error:
            if _primary_code(error) != sqlite3.SQLITE_BUSY:
                raise _storage_error(error, _CONTROL_DATABASE) from error
            self._unknown_revision -= 1
            return self._unknown_revision
        self._turn_revision = version
        asyncio.get_running_loop().call_soon(setattr, self, "_turn_revision", None)
        return version


def _connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)
    try:
        for pragma in _PRAGMAS:
            connection.execute(pragma).fetchall()
    except DATABASE_ERRORS:
        connection.close()
        raise
    return connection


def ensure_private_file(path: Path) -> None:
    """Creates the file with mode 0600, or removes the permissions of others from an existing file.

    An existing file is never opened here: POSIX locks belong to the process, and closing any descriptor of a file drops
    SQLite's locks on it.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
    except FileExistsError:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise StorageError("the control database is not a regular file") from None
        if stat.S_IMODE(status.st_mode) & 0o077:
            with suppress(PermissionError):  # file systems without modes, where the mount options apply
                path.chmod(0o600)


def _in_transaction(operation: Operation[T], connection: sqlite3.Connection) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = operation(connection)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:  # SQLite has already rolled back if the disk is full
            connection.execute("ROLLBACK")
    return result


def _migrate(path: Path, schema: ControlSchema, connection: sqlite3.Connection) -> None:
    def apply(connection: sqlite3.Connection) -> None:
        version = _schema_version(connection)  # read again: another process may have migrated meanwhile
        if version > schema.newest_version:
            raise StorageError(
                f"the control database has schema version {version}, written by a newer Florilegium; "
                f"this one supports up to version {schema.newest_version}: upgrade Florilegium"
            )
        if 0 < version < schema.first_version:
            convert_control(schema.statements, connection, version)
            version = schema.first_version
        for statements in schema.migrations_after(version) if version else (schema.statements, *schema.migrations):
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {schema.newest_version}")

    version = _schema_version(connection)
    if 0 < version < schema.newest_version:
        save_copy_before_migration(connection, path, version, _COPIES_MAX)
    if version != schema.newest_version:
        _in_transaction(apply, connection)


def _schema_version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


@contextmanager
def storage_errors(file: str = _CONTROL_DATABASE) -> Iterator[None]:
    """Converts errors of SQLite and of the operating system to `StorageError`, which names the file."""
    try:
        yield
    except DATABASE_ERRORS as error:
        if _primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise ControlDatabaseLocked from error
        raise _storage_error(error, file) from error
    except OSError as error:
        raise StorageError(f"{file} cannot be opened: {(error.strerror or 'unknown error').lower()}") from error


def _storage_error(error: Exception, file: str) -> StorageError:
    return StorageError(_MESSAGES.get(_primary_code(error), _UNKNOWN).format(file))


def _primary_code(error: Exception) -> int:
    """Returns the low byte of SQLite's extended result code, or 0 for errors raised by Python's sqlite3 module."""
    return result_code(error) & 0xFF
