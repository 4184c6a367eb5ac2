"""The control database: users, keys, accounts, connections and followed sources, which all processes share.

It is a file of SQLite (`auth.sqlite_control`) or a schema of PostgreSQL (`auth.postgres_control`). Each operation is
one function that gets a connection, in one transaction. Operations use only SQL that both engines understand.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from msgspec import Struct

T = TypeVar("T")
Migration = Sequence[str]


class ControlSchema(Struct, frozen=True):
    """The statements that create the schema `first_version`, and the migrations after it. After a release, neither may
    change, because they have already run. Only append migrations."""

    first_version: int
    statements: Migration
    migrations: tuple[Migration, ...] = ()

    @property
    def newest_version(self) -> int:
        return self.first_version + len(self.migrations)

    def migrations_after(self, version: int) -> tuple[Migration, ...]:
        return self.migrations[version - self.first_version :]


class ControlRows(Protocol):
    """The rows of a statement. `rowcount` is the number of rows that it changed."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...

    def close(self) -> None: ...


class ControlConnection(Protocol):
    def execute(self, sql: str, parameters: Any = (), /) -> ControlRows: ...

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> ControlRows: ...


class ControlDatabase(Protocol):
    """An open control database."""

    async def read(self, operation: Callable[[ControlConnection], T], /) -> T: ...

    async def write(self, operation: Callable[[ControlConnection], T], /) -> T:
        """Runs the operation in one transaction. No other write runs at the same time, in any process."""
        ...

    async def withdraw(self, operation: Callable[[ControlConnection], T], /) -> T:
        """Like `write`, for operations that withdraw access: they also succeed on a full disk if possible."""
        ...

    def revision(self) -> int:
        """Returns a number that changes after any process has changed the database. Takes microseconds."""
        ...


# -- reserved space ----------------------------------------------------------------------------------------------------
# Space that is set aside so that access can be withdrawn on a full disk.
#
# A transaction needs a rollback journal and sometimes new pages. Both exist in advance: a file of zeros next to the
# database, which becomes the journal, and free pages in the database. SQLite takes a journal that begins with a zero
# byte for one that has ended, as `journal_mode = PERSIST` leaves it, and overwrites it, so no other writer of the disk
# can take the space in between.

# No operation that withdraws access adds more than one row to each of two tables.
_SPARE_PAGES = 16
# A journal holds every page of the database at most once, with eight bytes more, and a header.
_JOURNAL_OVERHEAD = 1.01
_STEP_BYTES = 256 * 1024


def reserve_space(control_path: Path, connection: sqlite3.Connection) -> None:
    """Sets space aside as far as the disk has room. Must not be called within a transaction."""
    with suppress(sqlite3.Error):
        _add_spare_pages(connection)
    with suppress(OSError):
        # Creates the file, or replaces it if the database has outgrown it.
        path = _reserved_file(control_path)
        # Rounded up, so that the file is not replaced whenever the database grows by a page.
        size = (int(control_path.stat().st_size * _JOURNAL_OVERHEAD) // _STEP_BYTES + 1) * _STEP_BYTES
        if not (path.exists() and path.stat().st_size >= size):
            path.unlink(missing_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(descriptor, 0, size)
                else:
                    for _ in range(size // _STEP_BYTES):
                        os.write(descriptor, bytes(_STEP_BYTES))
            except OSError:
                path.unlink(missing_ok=True)
                raise
            finally:
                os.close(descriptor)


def use_as_journal(control_path: Path) -> None:
    """Makes the reserved file the journal of the current transaction, which must hold the write lock and must not have
    written anything: then no journal is in use, neither here nor in another process."""
    with suppress(FileNotFoundError):
        _reserved_file(control_path).replace(f"{control_path}-journal")


def _reserved_file(control_path: Path) -> Path:
    return control_path.with_name(f"{control_path.name}-reserved")


def _add_spare_pages(connection: sqlite3.Connection) -> None:
    if _pragma(connection, "freelist_count") >= _SPARE_PAGES:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute("CREATE TABLE spare_pages (content BLOB)")
        size = _SPARE_PAGES * _pragma(connection, "page_size")
        connection.execute("INSERT INTO spare_pages VALUES (zeroblob(?))", (size,))
        connection.execute("DROP TABLE spare_pages")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value
