"""The control database: one small SQLite file that servers and the command line share.

It runs each unit of work as one function on the connection's own thread and tells cheaply whether any process
has changed the file. It knows nothing of users or keys, and refuses a file that a newer program has made.
"""

import asyncio
import os
import sqlite3
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import aiosqlite

from config.errors import StorageError

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], T]
Migration = Sequence[str]

_PRAGMAS = (
    # Not WAL: several processes write this file, and SQLite before 3.51.3 can lose pages when a write meets
    # another connection's WAL reset. Not PERSIST: a journal that stays makes every reader look into it.
    "PRAGMA journal_mode = DELETE",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    # What is deleted, a name or the hash of a key, is overwritten: of a user who was purged nothing stays in the file.
    "PRAGMA secure_delete = ON",
)

_SENTENCES = {
    sqlite3.SQLITE_BUSY: "the control database is locked by another process; try again",
    sqlite3.SQLITE_LOCKED: "the control database is locked by another process; try again",
    sqlite3.SQLITE_FULL: "the disk that holds the control database is full",
    sqlite3.SQLITE_READONLY: "the control database cannot be written: it or its directory is read-only",
    sqlite3.SQLITE_IOERR: "the disk that holds the control database reports an error",
    sqlite3.SQLITE_CORRUPT: "the control database is damaged; restore it from a backup",
    sqlite3.SQLITE_NOTADB: "the control database is not an SQLite file; restore it from a backup",
    sqlite3.SQLITE_CANTOPEN: "the control database cannot be opened; check the data directory's permissions",
}
_UNKNOWN = "the control database cannot be used"


class _Connection(aiosqlite.Connection):
    """aiosqlite's thread and queue, with whole functions as the unit of work.

    Cancelling a task does not stop a statement that waits in the queue, and a task cancelled between BEGIN and
    COMMIT leaves the transaction open. A function that begins and ends its own transaction has no such gap.
    """

    _stopping: asyncio.Future[Any] | None = None

    def stop(self) -> asyncio.Future[Any] | None:
        self._stopping = super().stop()
        return self._stopping

    async def start(self) -> None:
        """Connects. After a failure the thread is waited for: it would report its end to a loop that may be gone."""
        try:
            await self
        except BaseException:
            if self._stopping is not None:
                await self._stopping
            raise

    async def run(self, job: Job[T]) -> T:
        if self._connection is None:
            raise StorageError("the control database is closed")
        result: T = await self._execute(job, self._connection)  # type: ignore[no-untyped-call]  # untyped there
        return result


class ControlDatabase:
    """An open control database. Reads and writes queue behind each other on one thread."""

    def __init__(self, connection: _Connection, probe: sqlite3.Connection) -> None:
        self._connection = connection
        self._ask = probe.cursor().execute
        self._unsure = 0

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path, migrations: Sequence[Migration], busy_timeout_s: float) -> AsyncIterator[Self]:
        """Open the file, make it if absent, and bring its schema up to date."""
        with _storage_errors():
            _ensure_private_file(path)
            connection = _Connection(partial(_connect, path, busy_timeout_s), iter_chunk_size=1)
            await connection.start()
        try:
            with _storage_errors():
                await connection.run(partial(_migrate, migrations))
                probe = sqlite3.connect(path, timeout=0, isolation_level=None)
            with closing(probe):
                yield cls(connection, probe)
        finally:
            await connection.close()

    async def read(self, job: Job[T]) -> T:
        with _storage_errors():
            return await self._connection.run(job)

    async def write(self, job: Job[T]) -> T:
        """Run the job in one transaction, begun as a writer so that it can never fail half-way for a lock."""
        with _storage_errors():
            return await self._connection.run(partial(_in_transaction, job))

    def revision(self) -> int:
        """A number that changes when any process commits. A few microseconds, on the caller's thread.

        While somebody is committing the answer cannot be known; then it is a number never given before, which
        every comparison takes for a change.
        """
        try:
            version: int = self._ask("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error as error:
            if _primary_code(error) != sqlite3.SQLITE_BUSY:
                raise StorageError(_SENTENCES.get(_primary_code(error), _UNKNOWN)) from error
            self._unsure -= 1
            return self._unsure
        return version


def _connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)
    try:
        for pragma in _PRAGMAS:
            connection.execute(pragma).fetchall()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _ensure_private_file(path: Path) -> None:
    """Create the file with mode 0600, or close an existing one to others.

    An existing file is never opened here: POSIX locks belong to the process, and closing any descriptor of a
    file drops those that SQLite holds on it.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
    except FileExistsError:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise StorageError("the control database is not a regular file") from None
        if stat.S_IMODE(found.st_mode) & 0o077:
            with suppress(PermissionError):  # shares mounted without modes: their mount options decide
                path.chmod(0o600)


def _in_transaction(job: Job[T], connection: sqlite3.Connection) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = job(connection)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:  # SQLite ends it by itself when the disk is full
            connection.execute("ROLLBACK")
    return result


def _migrate(migrations: Sequence[Migration], connection: sqlite3.Connection) -> None:
    if _schema_version(connection) != len(migrations):
        _in_transaction(partial(_apply, migrations), connection)


def _apply(migrations: Sequence[Migration], connection: sqlite3.Connection) -> None:
    version = _schema_version(connection)  # again: another process may have migrated while we waited for the lock
    if version > len(migrations):
        raise StorageError(
            f"the control database has schema {version}, made by a newer version of Florilegium; "
            f"this one knows schemas up to {len(migrations)}: upgrade it"
        )
    for number, statements in enumerate(migrations[version:], start=version + 1):
        for statement in statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {number}")


def _schema_version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


@contextmanager
def _storage_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(_SENTENCES.get(_primary_code(error), _UNKNOWN)) from error
    except OSError as error:
        raise StorageError(f"the control database cannot be opened: {(error.strerror or 'unknown').lower()}") from error


def _primary_code(error: sqlite3.Error) -> int:
    """The low byte of SQLite's extended result code; 0 for errors that Python's module raises by itself."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF
