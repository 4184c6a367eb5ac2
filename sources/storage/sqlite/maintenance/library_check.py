"""Checks the files of one user: that they exist, that they pass SQLite's integrity check, and that each full-text index
contains exactly its rows. Works while a server is running, whose writes wait during the comparison of an index.
"""

# ruff: noqa: S608 - table names come from our own schemas

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

from msgspec import Struct

from auth.library_files import recorded_files
from config.errors import DATABASE_ERRORS, StorageError, is_undecodable_text
from config.paths import DATABASE_KINDS, DatabaseKind, DataRoot, UserId, is_read_only
from sources.storage.sqlite.connection.errors import is_busy, is_unwritable
from sources.storage.sqlite.connection.open import add_functions
from sources.storage.sqlite.maintenance.maintenance import ON_DEMAND_INDEXES, ROW_TABLES, SCHEMAS, find_log_fault
from sources.storage.sqlite.schema.kinds import create_kinds, migrate_to, schema_version
from sources.storage.sqlite.schema.tables import CHACHA
from sources.storage.sqlite.vectors.vector_tables import vector_tables

# -- file faults -------------------------------------------------------------------------------------------------------
# Faults of single files that are not in use, such as the copies of a backup.


def connect_immutable(path: Path) -> sqlite3.Connection:
    """Opens a file that is not written to, so that SQLite creates no log next to it."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True, isolation_level=None)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def find_fault(path: Path) -> str | None:
    """Returns what is wrong with a file, to follow its name in a sentence."""
    try:
        with closing(connect_immutable(path)) as connection:
            [result] = connection.execute("PRAGMA quick_check(1)").fetchone()
    except DATABASE_ERRORS:
        result = "not a database"
    return None if result == "ok" else "failed SQLite's integrity check"


def missing_files(data_root: DataRoot, user_id: UserId) -> list[str]:
    """Returns a sentence for each file that the user must have but that does not exist, is empty or is inaccessible."""
    recorded = recorded_files(data_root.control_path, user_id)
    sentences = []
    for kind in DATABASE_KINDS:
        try:
            if kind in recorded and not data_root.has_content(user_id, kind):
                sentences.append(f"{kind}.db is missing or empty")
        except StorageError as error:
            sentences.append(f"{kind}.db: {error.message}")
    return sentences


# Nothing is known about the content of a file that is inaccessible.
FileState = Literal["ok", "missing", "damaged", "index damaged", "newer", "inaccessible"]

_BUSY_TIMEOUT_S = 30.0
# Faults of an index, which can be rebuilt from its rows. Since 3.44, SQLite's own check includes full-text tables.
_INDEX_FAULT = re.compile(r"missing from index|in index |non-unique entry|FTS5 table")
_FULL_TEXT_TABLES = "SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE % USING fts5 (%'"


class FileCheck(Struct, frozen=True):
    """The state of one file. `detail` is SQLite's first message about a fault."""

    kind: DatabaseKind
    state: FileState
    detail: str = ""


def check_library(data_root: DataRoot, user_id: UserId, *, is_quick: bool = False) -> list[FileCheck]:
    """Returns the state of every file that the user has or should have. A quick check does not read the indexes."""
    recorded = recorded_files(data_root.control_path, user_id)
    checks = []
    for kind in DATABASE_KINDS:
        try:
            if data_root.has_content(user_id, kind):
                path: Path = getattr(data_root.paths_of(user_id), kind)
                checks.append(_check_file(path, kind, is_quick=is_quick))
            elif kind in recorded:
                checks.append(FileCheck(kind, "missing"))
        except StorageError as error:
            checks.append(FileCheck(kind, "inaccessible", error.message))
    return checks


def _check_file(path: Path, kind: DatabaseKind, *, is_quick: bool) -> FileCheck:
    if fault := find_log_fault(path):
        return FileCheck(kind, "damaged", fault)
    try:
        # Nothing writes to a file on a read-only disk, and its indexes cannot be compared there.
        is_read_only_file = is_read_only(path)
        is_quick = is_quick or is_read_only_file
        with closing(connect_immutable(path) if is_read_only_file else _connect(path)) as connection:
            if schema_version(connection) > SCHEMAS[kind].newest_version:
                return FileCheck(kind, "newer", f"schema {schema_version(connection)}")
            pragma = "quick_check(10)" if is_quick else "integrity_check(10)"
            messages = [str(message) for (message,) in connection.execute(f"PRAGMA {pragma}")]
            faults = [] if messages == ["ok"] else messages
            if damage := [fault for fault in faults if not _INDEX_FAULT.search(fault)]:
                return FileCheck(kind, "damaged", damage[0])
            if not is_quick and (table := _table_with_undecodable_text(connection)):
                return FileCheck(kind, "damaged", f"{table}: a text is not UTF-8")
            if not is_quick:
                faults += [*_index_faults(connection), *vector_tables(kind).faults(connection)]
            return FileCheck(kind, "index damaged", faults[0]) if faults else FileCheck(kind, "ok")
    except DATABASE_ERRORS as error:
        if is_busy(error):
            raise
        # Its permissions are wrong, or the disk is full. Repairing or restoring the file could lose what it has.
        return FileCheck(kind, "inaccessible" if is_unwritable(error) else "damaged", str(error))


def _table_with_undecodable_text(connection: sqlite3.Connection) -> str | None:
    """SQLite's own check does not read texts."""
    for table, _ in connection.execute(ROW_TABLES).fetchall():
        try:
            for _ in connection.execute(f'SELECT * FROM "{table}"'):
                pass
        except sqlite3.OperationalError as error:
            if not is_undecodable_text(error):
                raise
            return str(table)
    return None


def _index_faults(connection: sqlite3.Connection) -> list[str]:
    """FTS5 checks an index with a statement that needs the write lock but writes nothing."""
    tables = [name for (name,) in connection.execute(_FULL_TEXT_TABLES).fetchall()]
    return [fault for table in tables for fault in _faults_of(connection, table)]


def _faults_of(connection: sqlite3.Connection, table: str) -> Iterator[str]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Indexes that are built on demand have no table to be compared with.
        compares_rows = int(table not in {index.table for index in ON_DEMAND_INDEXES})
        connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', {compares_rows})")
    except DATABASE_ERRORS as error:
        if is_busy(error) or is_unwritable(error):
            raise
        yield f"{table}: {error}"
    finally:
        connection.rollback()


def _connect(path: Path) -> sqlite3.Connection:
    uri = f"{path.as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
    connection.execute("PRAGMA trusted_schema = OFF")
    add_functions(connection)
    return connection


# -- known schema ------------------------------------------------------------------------------------------------------
# The triggers and views that Florilegium itself creates. Others, in a file from elsewhere, would run or be read with
# the rights of the server.

SchemaObject = tuple[str, str, str]

_TRIGGERS_AND_VIEWS = "SELECT type, name, sql FROM sqlite_schema WHERE type IN ('trigger', 'view')"


def find_foreign_object(connection: sqlite3.Connection, kind: DatabaseKind | None, version: int) -> str | None:
    """Returns a trigger or view of a file, as "trigger NAME", that this schema version does not have. A file without a
    kind is the control database or the audit log, which have none at all. A file from before the first schema loses
    all of them when it is converted, before anything is written to it."""
    if kind is not None and 0 < version < SCHEMAS[kind].first_version:
        return None
    known = _known_objects(kind, version) if kind is not None and version else frozenset()
    for object_type, name, sql in connection.execute(_TRIGGERS_AND_VIEWS):
        if (object_type, name, _normalized(sql)) not in known:
            return f"{object_type} {name}"
    return None


def _known_objects(kind: DatabaseKind, version: int) -> frozenset[SchemaObject]:
    """Creates an empty library of that version in memory, with what is created on demand: indexes and vectors."""
    schema = SCHEMAS[kind]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate_to(schema, connection, version)
        if schema is CHACHA:
            create_kinds(connection)
            for index in ON_DEMAND_INDEXES:
                index.create(connection)
        vector_tables(kind).create(connection, model="")
        rows = connection.execute(_TRIGGERS_AND_VIEWS).fetchall()
        return frozenset((object_type, name, _normalized(sql)) for object_type, name, sql in rows)


def _normalized(sql: str) -> str:
    """Two versions of this program may break the lines of a statement differently."""
    return " ".join(sql.split())
