"""Translates SQLite's errors. The messages are shown to clients, so they contain no path and no SQL."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import errno
import os
import sqlite3
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import groupby
from typing import Any

from config.errors import DiskFull, FlorilegiumError, SourceTimeout, StorageError, Unavailable, result_code
from sources.storage.tables.dialect import SQLITE
from sources.storage.tables.sql import CHUNK_BITS, PendingConflict, SqlValue

_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_OTHER_ERROR = "the library cannot be used"
_MESSAGES = {
    sqlite3.SQLITE_READONLY: "nothing was written: the library's file or directory is read-only",
    sqlite3.SQLITE_IOERR: "the disk with the library reported an I/O error; nothing was written",
    sqlite3.SQLITE_CORRUPT: "the library is damaged; restore it from a backup",
    sqlite3.SQLITE_NOTADB: "the library is not an SQLite database; restore it from a backup",
    sqlite3.SQLITE_CANTOPEN: "the library cannot be opened; check the permissions of the data directory",
    sqlite3.SQLITE_PERM: "the library cannot be opened; check the permissions of the data directory",
    sqlite3.SQLITE_NOMEM: "not enough memory to use the library",
    sqlite3.SQLITE_TOOBIG: "nothing was written: a text is larger than SQLite can store",
}
# A write to a full disk fails with FULL, or with one of the others if the operating system rejects it first (quota,
# file size limit). SHMSIZE and SHMOPEN are failures to create the shared memory of a write-ahead log.
_NO_SPACE = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_SHMOPEN,
}


class Interrupted(sqlite3.OperationalError):
    """A job was stopped between two statements. Has the same code as a job that SQLite interrupts within a
    statement."""

    sqlite_errorcode = sqlite3.SQLITE_INTERRUPT


def is_busy(error: Exception) -> bool:
    """Whether another connection holds a lock, so that the same job may succeed in a moment."""
    return _primary_code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def is_unwritable(error: Exception) -> bool:
    """Whether a file could not be opened because its write-ahead log cannot be created next to it."""
    return _primary_code(error) in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY} or is_no_space(error)


def is_no_space(error: Exception) -> bool:
    """Whether the disk is full. To open a file, SQLite needs space for the shared memory of its write-ahead log."""
    return result_code(error) in _NO_SPACE


def is_damage(error: Exception) -> bool:
    """Whether a file is permanently unreadable."""
    return _primary_code(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR}


def is_interrupted(error: Exception) -> bool:
    return _primary_code(error) == sqlite3.SQLITE_INTERRUPT


def too_many_open_files() -> Unavailable:
    return Unavailable("too many open files; try again in a moment")


def is_out_of_descriptors(error: BaseException | None) -> bool:
    """Whether the process has no file descriptors left. SQLite only reports that it cannot open a file, so in that case
    another file is opened to find out."""
    if isinstance(error, OSError):
        return error.errno in _OUT_OF_DESCRIPTORS
    if error is None or _primary_code(error) != sqlite3.SQLITE_CANTOPEN:
        return False
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as cannot_open:
        return cannot_open.errno in _OUT_OF_DESCRIPTORS
    return False


def translate(error: Exception, source: str, deadline_ms: int) -> FlorilegiumError:
    """Returns the error to raise for a failed read or write of `source`, which had `deadline_ms` to finish."""
    if isinstance(error, TimeoutError):
        return SourceTimeout(source, deadline_ms)
    primary = _primary_code(error)
    if is_interrupted(error):
        return SourceTimeout(source, deadline_ms)
    if is_busy(error):
        return Unavailable(f"{source} is busy; try again in a moment")
    if is_no_space(error) or primary == sqlite3.SQLITE_FULL:
        return DiskFull()
    if is_out_of_descriptors(error):
        return too_many_open_files()
    return StorageError(_MESSAGES.get(primary, _OTHER_ERROR))


def _primary_code(error: BaseException) -> int:
    return result_code(error) & 0xFF


# -- rows --------------------------------------------------------------------------------------------------------------
# Writes the rows of item tables. Triggers add what changed to the queues of the full-text indexes.

# Write the parts of an item again while it is still hidden: the triggers then add them to the queues without removing
# entries, which the indexes do not have. The triggers of a table with one entry per row do so themselves.
_ENQUEUE_PARTS = {
    "conversations": (
        "UPDATE conversations SET title = title WHERE id = ?",
        "UPDATE messages SET content = content WHERE conversation_id = ? AND deleted = 0",
    ),
    "media": (f"UPDATE chunks SET text = text WHERE id >= ?1 << {CHUNK_BITS} AND id < (?1 + 1) << {CHUNK_BITS}",),
}


class RowConnection(sqlite3.Connection):
    """Implements `executemany_later` and the row methods of `SqlConnection`.

    The rows that a job adds one after the other are written together, before its next statement. Whenever SQLite and
    Python take turns, each has to load its own code into the processor's cache again: an import with a turn for each
    row takes an eighth more CPU time.
    """

    dialect = SQLITE

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Whether there are pending rows, other statements that run after them, or known rowids.
        self._has_pending = False
        self._rows: list[tuple[str, Mapping[str, SqlValue]]] = []
        self._parameters: dict[str, list[Any]] = {}
        # The rowid of the next new row, by table, until the next statement.
        self._next_rowids: dict[str, int] = {}

    def executemany_later(self, sql: str, parameters: Iterable[Any], /) -> object:
        self._has_pending = True
        self._parameters.setdefault(sql, []).extend(parameters)
        return None

    def insert_row(self, table: str, values: Mapping[str, SqlValue]) -> int | None:
        """The first row is inserted at once, which returns its rowid. Those of later ones follow from it, and messages
        come with theirs."""
        next_rowid = self._next_rowids.get(table)
        rowid = values.get("id", next_rowid)
        if rowid is None:
            try:
                rowid = self.execute(_insert_sql(table, tuple(values)), tuple(values.values())).lastrowid
            except sqlite3.IntegrityError:
                return None
            next_rowid = rowid
        else:
            self._rows.append((table, values if "id" in values else {**values, "id": rowid}))
        assert isinstance(rowid, int)
        if next_rowid is not None:
            self._next_rowids[table] = max(rowid + 1, next_rowid)
        self._has_pending = True
        return rowid

    def write_pending(self) -> None:
        """Writes the pending rows in their order, and then those that refer to them. Raises PendingConflict if an item
        exists already."""
        # First, because each statement writes what is pending.
        rows, parameters = self._rows, self._parameters
        self.discard_pending()
        for (table, columns), group in groupby(rows, lambda row: (row[0], tuple(row[1]))):
            batch = [values for _, values in group]
            try:
                self.executemany(_insert_sql(table, columns), [tuple(values.values()) for values in batch])
            except sqlite3.IntegrityError:
                # The statement ended at the first row that it could not insert.
                is_inserted = f"SELECT 1 FROM {table} WHERE id = ?"
                missing = (row for row in batch if not self.execute(is_inserted, (row["id"],)).fetchone())
                raise PendingConflict(table, next(missing, batch[-1])["uuid"]) from None
        for sql, listed in parameters.items():
            self.executemany(sql, listed)

    def discard_pending(self) -> None:
        self._has_pending = False
        self._rows, self._parameters, self._next_rowids = [], {}, {}

    def update_row(self, table: str, rowid: int, values: Mapping[str, SqlValue]) -> None:
        assignments = ", ".join(f"{name} = ?" for name in values)
        self.execute(f"UPDATE {table} SET {assignments} WHERE id = ?", (*values.values(), rowid))

    def restore_row(self, table: str, rowid: int, values: Mapping[str, SqlValue]) -> None:
        for statement in _ENQUEUE_PARTS.get(table, ()):
            self.execute(statement, (rowid,))
        self.update_row(table, rowid, values)

    def delete_row(self, table: str, rowid: int) -> None:
        self.execute(f"DELETE FROM {table} WHERE id = ?", (rowid,))


@lru_cache
def _insert_sql(table: str, columns: tuple[str, ...]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
