"""Copies the library of one user to PostgreSQL or back, as of one moment, while others use it.

A library is copied in one transaction or into new files, so that an interrupted copy leaves nothing usable behind. Rows
keep their ids, uuids, versions and times, also those of deleted items. Idempotency keys are kept: in PostgreSQL a
library has one set of them; in SQLite a key belongs to the file with the items that it made.
"""

# ruff: noqa: S608 - SQL is built from names in the schema; values are parameters

import hashlib
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import islice
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from auth.postgres_control import CONTROL_SCHEMA_NAME
from config.errors import DATABASE_ERRORS, StorageError, replace_undecodable
from config.paths import DATABASE_KINDS, DatabaseKind, DataRoot, UserId
from config.postgres.connection import ConnectionOptions, PostgresConnection, Transaction
from config.postgres.errors import driver_errors, error_code, postgres_errors
from sources.installed import ADDED_KINDS, ITEM_KINDS
from sources.storage.postgres.connection import WRITES, LibraryConnection, translate
from sources.storage.postgres.index.index_update import index_all
from sources.storage.postgres.schema import LibrarySchemas
from sources.storage.postgres.tables import LIBRARY_SCHEMA
from sources.storage.postgres.vectors.vector_tables import clear_vectors
from sources.storage.sqlite.connection.errors import translate as translate_sqlite
from sources.storage.sqlite.connection.open import SqliteOptions
from sources.storage.sqlite.maintenance.backups import open_snapshots
from sources.storage.sqlite.maintenance.maintenance import SCHEMAS, reindex, schema_statuses, upgrade
from sources.storage.sqlite.schema.kinds import create_kinds, migrate_to
from sources.storage.tables.sql import SAVE_STATE, Delete, Insert, Update
from sources.text.segmentation import SEGMENT_VERSION

# -- tables of either engine -------------------------------------------------------------------------------------------
# Whole tables are read and written, and compared by checksums.

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
                    try:
                        self._connection.execute(Insert(table, _list(columns)), row)
                    except driver_errors() as error:
                        if not _is_about_a_row(error):
                            raise
                        values = dict(zip(columns, row, strict=True))
                        name = next((one for one in _IDENTIFIERS if one in values), columns[0])
                        identifier = f"{name} {str(values[name])[:_IDENTIFIER_MAX_CHARS]}"
                        raise UncopiedRow(f"{translate(error, table, 0).message} ({table}, {identifier})") from error
            self._connection.run_script("RELEASE SAVEPOINT batch")

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


# -- one library -------------------------------------------------------------------------------------------------------

_KEY_COLUMNS = "key, digest, made, made_at"
_MADE, _MADE_AT = 2, 3
_SELECT_KEYS = f"SELECT {_KEY_COLUMNS} FROM idempotency"
_INSERT_KEY = Insert("idempotency", _KEY_COLUMNS, key="*")
# What is stored under these names describes the content; all others describe the indexes of an engine.
_CONTENT_STATE = "name LIKE 'bookmark:%' OR name = 'last_message_number'"
_SELECT_STATE = f"SELECT name, value FROM state WHERE {_CONTENT_STATE}"
_DELETE_STATE = Delete("state", f"{_CONTENT_STATE} OR name = 'trigrams' OR name LIKE 'last!_id:%' ESCAPE '!'")
_SELECT_WRITES = "SELECT value FROM state WHERE name = ?"
_COUNT_WRITE = Update("state", "value = CAST(CAST(value AS BIGINT) + 1 AS TEXT)", "name = ?")
_SAVE_COPY = """INSERT INTO store_copies (user_id, mark, rows, copied_at) VALUES (?, ?, ?, ?)
    ON CONFLICT (user_id) DO UPDATE SET mark = excluded.mark, rows = excluded.rows, copied_at = excluded.copied_at"""
_LAST_ID = "last_id:"
# Two writes within a tick of the file system's clock leave the same time.
_TICK_NS = 2_000_000_000
# PostgreSQL lists connections for a moment after they were closed, also those of this command.
_CLOSING_S = 3.0
_CLOSING_POLL_S = 0.05
# Fails instead of waiting without end for a server that writes to the library.
_WRITING = Transaction(schema=CONTROL_SCHEMA_NAME, lock_timeout_ms=10_000)
_READING = Transaction(schema=CONTROL_SCHEMA_NAME, is_read_only=True)


class LibraryCopy(Struct, frozen=True):
    """What was copied. `mark` changes with every write to the source."""

    mark: str
    tables: Mapping[str, TableDigest]

    @property
    def rows(self) -> int:
        return sum(digest.rows for digest in self.tables.values())


# From SQLite to PostgreSQL


def mark_of_files(data_root: DataRoot, user_id: UserId) -> str:
    """Returns a text that changes when a file or its write-ahead log is written. A checkpoint changes it, too. Returns
    an empty text, which matches none, if a file was written a moment ago."""
    parts = []
    for kind in DATABASE_KINDS:
        path = getattr(data_root.paths_of(user_id), kind)
        for file in (path, path.with_name(f"{path.name}-wal")):
            try:
                status = file.stat()
            except FileNotFoundError:
                parts.append("-")
            else:
                if time.time_ns() - status.st_mtime_ns < _TICK_NS:
                    return ""
                parts.append(f"{status.st_size}.{status.st_mtime_ns}")
    return " ".join(parts)


def prepare_files(data_root: DataRoot, user_id: UserId, options: SqliteOptions) -> None:
    """Migrates the files of a user, and rebuilds those whose index forms are from an earlier version."""
    for status in schema_statuses(data_root, user_id):
        if not status.is_current:
            upgrade(data_root, user_id, status.kind, options)
    with open_snapshots(data_root, user_id) as connections:
        outdated: list[DatabaseKind] = [
            kind for kind, connection in connections.items() if _segment_version(connection) != SEGMENT_VERSION
        ]
    for kind in outdated:
        reindex(data_root, user_id, kind, options)


def is_current(data_root: DataRoot, user_id: UserId) -> bool:
    """Whether the files can be copied without writing to them first."""
    if not all(status.is_current for status in schema_statuses(data_root, user_id)):
        return False
    with open_snapshots(data_root, user_id) as connections:
        return all(_segment_version(connection) == SEGMENT_VERSION for connection in connections.values())


def copy_to_postgres(data_root: DataRoot, user_id: UserId, options: ConnectionOptions) -> LibraryCopy:
    """Replaces the library of a user in PostgreSQL, and stores the mark of its files in the same transaction."""
    # Before the snapshot: what is written in between is in the copy, but the mark then differs, and it is copied again.
    mark = mark_of_files(data_root, user_id)
    with ExitStack() as stack:
        stack.enter_context(postgres_errors())
        files = stack.enter_context(open_snapshots(data_root, user_id))
        for connection in files.values():
            connection.text_factory = _storable_text
        target = stack.enter_context(closing(LibraryConnection.connect(options)))
        stack.enter_context(_transaction(target, _WRITING))
        schemas = LibrarySchemas()
        schemas.prepare(target)
        tenant, _ = schemas.open(user_id, target)
        target.enter_library(tenant, has_role=schemas.has_role)
        digests = copy_tables(LibraryFiles(files), PostgresTables(target, LIBRARY_SCHEMA), LIBRARY_TABLES)
        target.execute(Delete("idempotency"))
        target.execute(_DELETE_STATE)
        keys = [row for connection in files.values() for row in connection.execute(_SELECT_KEYS)]
        # A key that was used in several files keeps its last use: the first row is inserted, and the others conflict.
        keys.sort(key=lambda row: row[_MADE_AT], reverse=True)
        target.executemany(_INSERT_KEY, keys)
        state = [row for connection in files.values() for row in connection.execute(_SELECT_STATE)]
        for table, kind in TABLES_WITH_LAST_ID.items():
            if kind in files:
                row = files[kind].execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
                state += [(f"{_LAST_ID}{table}", str(row[0]))] if row else []
        target.executemany(SAVE_STATE, state)
        # Vectors and the full-text index are not copied: the target computes them again.
        clear_vectors(target)
        for index_table in ("index_entries", "index_words", "message_trigrams"):
            target.execute(Delete(index_table))
        index_all(target)
        # The copy counts as a write to the target, so that an earlier mark of it no longer matches.
        target.execute(_COUNT_WRITE, (WRITES,))
        copy = LibraryCopy(mark, digests)
        target.leave_library()
        target.execute(_SAVE_COPY, (user_id, mark, copy.rows, time.time()))
    return copy


def _storable_text(raw: bytes) -> str:
    """A text that is not UTF-8 or has a NUL, as in a damaged file, is copied as it is shown: with replacements."""
    return replace_undecodable(raw).replace("\0", "\ufffd")


def read_marks(options: ConnectionOptions) -> dict[UserId, str]:
    """Returns the marks of the libraries that were copied to PostgreSQL."""
    with postgres_errors(), closing(LibraryConnection.connect(options)) as target, _transaction(target, _READING):
        return {UserId(user_id): mark for user_id, mark in target.execute("SELECT user_id, mark FROM store_copies")}


def _segment_version(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT value FROM state WHERE name = 'segment_version'").fetchone()
    return int(row[0]) if row else 0


def move_schema(user_id: UserId, options: ConnectionOptions) -> bool:
    """Moves a library that has a schema of its own to the shared tables. Returns whether there was one."""
    schemas = LibrarySchemas()
    with postgres_errors(), closing(LibraryConnection.connect(options)) as source, _transaction(source, _WRITING):
        schemas.prepare(source)
        tenant, old_schema = schemas.find(user_id, source)
        if tenant is not None or old_schema is None:
            return False
        schemas.open(user_id, source)
        return True


# From PostgreSQL to SQLite


def mark_of_schema(user_id: UserId, options: ConnectionOptions) -> str:
    """Returns the number of writes to the library, or an empty text if there is none."""
    with _open_source(user_id, options) as (_, mark):
        return mark


def other_connections(options: ConnectionOptions) -> int:
    """Returns how many connections servers, or others with the same role, have to the database. Those that were just
    closed are listed for a moment."""
    sql = (
        "SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE datname = current_database() "
        "AND usename = current_user AND pid <> pg_backend_pid()"
    )
    ends_at = time.monotonic() + _CLOSING_S
    with postgres_errors(), closing(LibraryConnection.connect(options)) as source:
        while True:
            with _transaction(source, _READING):
                [[count]] = source.execute(sql)
            if not count or time.monotonic() > ends_at:
                return int(count)
            time.sleep(_CLOSING_POLL_S)


def copy_to_sqlite(
    user_id: UserId, options: ConnectionOptions, data_root: DataRoot, sqlite_options: SqliteOptions
) -> LibraryCopy:
    """Replaces the files of a user. They must not be in use."""
    # An earlier copy that was interrupted, or that is outdated. The source has everything.
    data_root.remove_user(user_id)
    with ExitStack() as stack:
        stack.enter_context(_file_errors())
        source, mark = stack.enter_context(_open_source(user_id, options))
        if not mark:
            return LibraryCopy("", {})
        files: dict[DatabaseKind, sqlite3.Connection] = {
            kind: stack.enter_context(_new_file(data_root, user_id, kind)) for kind in DATABASE_KINDS
        }
        digests = copy_tables(PostgresTables(source, LIBRARY_SCHEMA), LibraryFiles(files), LIBRARY_TABLES)
        for row in source.execute(_SELECT_KEYS):
            for kind in _kinds_of_key(files, msgspec.json.decode(row[_MADE], type=list[str])):
                files[kind].execute(_INSERT_KEY, row)
        files["chacha"].executemany(SAVE_STATE, source.execute(_SELECT_STATE).fetchall())
        # SQLite must not use the id of a deleted row again, also not one that was the last in PostgreSQL.
        for table, kind in TABLES_WITH_LAST_ID.items():
            last_ids = source.execute("SELECT value FROM state WHERE name = ?", (f"{_LAST_ID}{table}",)).fetchall()
            for (last_id,) in last_ids:
                files[kind].execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
                last = f"SELECT ?1, max(?2, coalesce(max(id), 0)) FROM {table}"
                files[kind].execute(f"INSERT INTO sqlite_sequence (name, seq) {last}", (table, int(last_id)))
    for kind in DATABASE_KINDS:
        reindex(data_root, user_id, kind, sqlite_options)
    return LibraryCopy(mark, digests)


@contextmanager
def _open_source(user_id: UserId, options: ConnectionOptions) -> Iterator[tuple[LibraryConnection, str]]:
    """Yields a connection that uses the library of the user, in one snapshot, and the mark, which is empty if there is
    no library. One of an earlier layout is moved to the shared tables first."""
    schemas, tenant = LibrarySchemas(), None
    with postgres_errors(), closing(LibraryConnection.connect(options)) as source:
        with _transaction(source, _WRITING):
            schemas.prepare(source)
            if any(schemas.find(user_id, source)):
                tenant, _ = schemas.open(user_id, source)
        with _transaction(source, _READING):
            if tenant is None:
                yield source, ""
                return
            source.enter_library(tenant, has_role=schemas.has_role)
            row = source.execute(_SELECT_WRITES, (WRITES,)).fetchone()
            yield source, f"{tenant} {row[0] if row else 0}"


@contextmanager
def _file_errors() -> Iterator[None]:
    try:
        yield
    except DATABASE_ERRORS as error:
        raise translate_sqlite(error, "library", 0) from error


@contextmanager
def _new_file(data_root: DataRoot, user_id: UserId, kind: DatabaseKind) -> Iterator[sqlite3.Connection]:
    """Creates a file with empty tables. Its triggers, which would queue every copied row, are added at the end."""
    path = data_root.ensure_database(user_id, kind)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        migrate_to(SCHEMAS[kind], connection, SCHEMAS[kind].newest_version)
        if kind == "chacha":
            create_kinds(connection)
        # Every index is built once at the end by `reindex`, instead of row by row.
        triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        yield connection
        for _, sql in triggers:
            connection.execute(sql)
        connection.execute("COMMIT")


def _kinds_of_key(files: Mapping[DatabaseKind, sqlite3.Connection], uuids: list[str]) -> tuple[DatabaseKind, ...]:
    """Returns the file with the items that were made with a key, or all files if these items were purged."""
    marks = ", ".join("?" * len(uuids))
    for kind, names in FILE_TABLES.items():
        for table in names:
            sql = f"SELECT 1 FROM {table} WHERE uuid IN ({marks})"
            if table not in _TABLES_WITHOUT_UUID and files[kind].execute(sql, uuids).fetchone() is not None:
                return (kind,)
    return DATABASE_KINDS


_TABLES_WITHOUT_UUID = frozenset(
    (*(name for name in LIBRARY_TABLES if name.endswith(("_tags", "_values"))), "texts", "segments", "namespaces")
) | {"agents", "followed_files", "followed_items", "chunks", "note_images"}


@contextmanager
def _transaction(connection: LibraryConnection, transaction: Transaction) -> Iterator[None]:
    connection.begin(transaction)
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()
