"""Reads and writes whole tables of either engine, and compares them by checksums."""

# ruff: noqa: S608 - SQL is built from names in the schema; values are parameters

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from config.errors import StorageError
from config.paths import DatabaseKind
from config.postgres.connection import PostgresConnection
from config.postgres.errors import driver_errors, error_code
from sources.installed import ADDED_KINDS, ITEM_KINDS
from sources.storage.postgres.connection import translate
from sources.storage.tables.sql import Delete, Insert

Row = Sequence[Any]

# Rows are passed on in batches, so that a table of any size needs little memory.
_BATCH_ROWS = 1_000
_DIGEST_BITS = 256
# The classes of PostgreSQL's errors: data exception, integrity constraint violation, program limit exceeded.
_ROW_PROBLEMS = ("22", "23", "54")
# The columns that identify a row; an error names the first of them that the table has.
_IDENTIFIERS = ("uuid", "id", "name")
_IDENTIFIER_MAX_CHARS = 80


class UncopiedRow(StorageError):
    """The target cannot store a row, which concerns its library only."""


class Tables(Protocol):
    """The tables that a connection has open, in a transaction."""

    def columns(self, table: str) -> tuple[str, ...]:
        """Returns the names of the columns, or none if there is no such table."""
        ...

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]: ...

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None: ...

    def clear(self, table: str) -> None: ...


class SqliteTables:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def columns(self, table: str) -> tuple[str, ...]:
        return tuple(row[0] for row in self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,)))

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]:
        return self._connection.execute(f"SELECT {_list(columns)} FROM {table}")

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        values = ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO {table} ({_list(columns)}) VALUES ({values})", rows)

    def clear(self, table: str) -> None:
        self._connection.execute(f"DELETE FROM {table}")


class PostgresTables:
    """The control tables, or those of the library that the connection uses."""

    def __init__(self, connection: PostgresConnection, schema: str) -> None:
        self._connection = connection
        self._schema = schema

    def columns(self, table: str) -> tuple[str, ...]:
        sql = """SELECT CAST(attname AS TEXT) FROM pg_catalog.pg_attribute WHERE attrelid = to_regclass(CAST(? AS TEXT))
            AND attnum > 0 AND NOT attisdropped AND attname <> 'tenant_id' ORDER BY attnum"""
        return tuple(name for (name,) in self._connection.execute(sql, (f"{self._schema}.{table}",)))

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]:
        return self._connection.iterate(f"SELECT {_list(columns)} FROM {table}", _BATCH_ROWS)

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        remaining, sql = iter(rows), Insert(table, _list(columns))
        while batch := list(islice(remaining, _BATCH_ROWS)):
            self._connection.run_script("SAVEPOINT batch")
            try:
                self._connection.executemany(sql, batch)
            except driver_errors() as error:
                if not _is_about_a_row(error):
                    raise
                # One at a time, because the error does not say which.
                self._connection.run_script("ROLLBACK TO SAVEPOINT batch")
                for row in batch:
                    self._insert_row(table, columns, row)
            self._connection.run_script("RELEASE SAVEPOINT batch")

    def _insert_row(self, table: str, columns: Sequence[str], row: Row) -> None:
        try:
            self._connection.execute(Insert(table, _list(columns)), row)
        except driver_errors() as error:
            if not _is_about_a_row(error):
                raise
            values = dict(zip(columns, row, strict=True))
            name = next((one for one in _IDENTIFIERS if one in values), columns[0])
            identifier = f"{name} {str(values[name])[:_IDENTIFIER_MAX_CHARS]}"
            raise UncopiedRow(f"{translate(error, table, 0).message} ({table}, {identifier})") from error

    def clear(self, table: str) -> None:
        self._connection.execute(Delete(table))


class TableDigest(Struct, frozen=True):
    """The number of rows of a table, and a checksum that does not depend on their order."""

    rows: int
    checksum: str


class _DigestBuilder:
    """The sum of the rows' SHA-256 hashes."""

    # A sum does not depend on the order, in which the engines differ.

    def __init__(self) -> None:
        self._rows = 0
        self._sum = 0

    def add_all(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self._rows += 1
            digest = hashlib.sha256(msgspec.msgpack.encode(tuple(row))).digest()
            self._sum = (self._sum + int.from_bytes(digest, "big")) % (1 << _DIGEST_BITS)
            yield row

    def digest(self) -> TableDigest:
        return TableDigest(self._rows, f"{self._sum:064x}")


def copy_tables(source: Tables, target: Tables, names: Sequence[str]) -> Mapping[str, TableDigest]:
    """Replaces the rows of the target's tables with those of the source. Tables that others refer to come first.

    What was written is read again and compared, so that a value that an engine changes is noticed.
    """
    # Foreign keys: rows that refer to others are deleted first and inserted last.
    for name in reversed(names):
        target.clear(name)
    digests = {}
    for name in names:
        # Both must have the same columns: a value must not be left behind silently. They are sorted, so that the
        # checksum does not depend on their order in an engine.
        others = target.columns(name)
        columns = sorted(source.columns(name) or others)  # a file that was never written has no tables
        if set(columns) != set(others):
            different = ", ".join(sorted(set(columns) ^ set(others)))
            raise StorageError(f"the table {name} has other columns in the target: {different}; upgrade both first")
        builder = _DigestBuilder()
        target.insert(name, columns, builder.add_all(source.rows(name, columns)))
        digests[name] = builder.digest()
        copied = _DigestBuilder()
        for _ in copied.add_all(target.rows(name, columns)):
            pass
        if copied.digest() != digests[name]:
            raise StorageError(f"the copy of the table {name} differs from the original; nothing was kept of it")
    return digests


def _is_about_a_row(error: BaseException) -> bool:
    return error_code(error)[:2] in _ROW_PROBLEMS


def _list(columns: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


# -- library tables ----------------------------------------------------------------------------------------------------
# Which tables of a library are copied. Full-text indexes and embeddings are computed again by the target.

# Tables that others refer to come first.
FILE_TABLES: dict[DatabaseKind, tuple[str, ...]] = {
    "media": ("media", "media_tags", "texts", "chunks", "segments"),
    "chacha": (
        *("notes", "notes_tags", "note_images", "characters", "characters_tags"),
        *("conversations", "conversations_tags", "messages", "namespaces"),
        *("observations", "observations_tags", "observations_values"),
        *("agents", "followed_files", "followed_items"),
        *(table for kind in ADDED_KINDS for table in (kind.table, f"{kind.table}_tags")),
    ),
    "prompts": ("prompts", "prompts_tags"),
}
LIBRARY_TABLES = tuple(name for names in FILE_TABLES.values() for name in names)
# The tables whose ids SQLite never uses again. PostgreSQL keeps the last ids of all tables.
TABLES_WITH_LAST_ID: dict[str, DatabaseKind] = {
    kind.table: kind.database for kind in ITEM_KINDS.values() if kind.key == "id"
}
_KIND_OF_TABLE = {name: kind for kind, names in FILE_TABLES.items() for name in names}


class LibraryFiles:
    """The tables of a user's files as one set. Files that do not exist have no rows."""

    def __init__(self, connections: Mapping[DatabaseKind, sqlite3.Connection]) -> None:
        self._files = {kind: SqliteTables(connection) for kind, connection in connections.items()}

    def columns(self, table: str) -> tuple[str, ...]:
        file = self._files.get(_KIND_OF_TABLE[table])
        return file.columns(table) if file else ()

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]:
        file = self._files.get(_KIND_OF_TABLE[table])
        return file.rows(table, columns) if file else iter(())

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        self._files[_KIND_OF_TABLE[table]].insert(table, columns, rows)

    def clear(self, table: str) -> None:
        self._files[_KIND_OF_TABLE[table]].clear(table)
