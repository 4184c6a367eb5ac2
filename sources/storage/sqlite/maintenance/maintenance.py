"""Maintenance of one user's files: schema status, migration, and rebuilding of full-text indexes. Works while a server
is running, whose writes wait until it is done.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters
# ruff: noqa: S608 - table names come from our own schemas

import os
import sqlite3
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct

from config.errors import DATABASE_ERRORS, DiskFull, StorageError, replace_undecodable
from config.paths import DatabaseKind, DataRoot, UserId, inherit_owner, set_aside, sync_directory
from sources.storage.job_queue import Job
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.connection.errors import is_no_space, translate
from sources.storage.sqlite.connection.open import DatabaseFile, SqliteOptions, connect_writer
from sources.storage.sqlite.index.text_index import BEFORE_FIRST_ROWID, resegment_batch, save_segment_version
from sources.storage.sqlite.schema import kinds
from sources.storage.sqlite.schema.tables import CHACHA, MEDIA, PROMPTS
from sources.storage.sqlite.search.exact import EXACT_INDEX, HUMAN_ONLY_EXACT_INDEX
from sources.storage.sqlite.search.substring import SUBSTRING_INDEX
from sources.storage.sqlite.vectors.vector_tables import vector_tables

SCHEMAS: dict[DatabaseKind, kinds.DatabaseSchema] = {schema.kind: schema for schema in (CHACHA, MEDIA, PROMPTS)}
# Indexes of messages that are created when they are first needed.
ON_DEMAND_INDEXES = (SUBSTRING_INDEX, EXACT_INDEX, HUMAN_ONLY_EXACT_INDEX)
# Tables with rows of their own, and whether they have no rowids. Queues are empty between transactions.
ROW_TABLES = (
    "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table' "
    "AND name NOT GLOB 'sqlite_*' AND name NOT GLOB '*_queue' ORDER BY name"
)
# The definitions of ordinary tables.
_TABLE_STATEMENTS = (
    "SELECT s.sql FROM sqlite_schema s JOIN pragma_table_list t ON t.name = s.name WHERE t.schema = 'main' "
    "AND t.type = 'table' AND t.name NOT GLOB 'sqlite_*'"
)
_DEADLINE_S = 24 * 3600.0


class SchemaStatus(Struct, frozen=True):
    """The schema version of one file, and the newest version that this program supports."""

    kind: DatabaseKind
    version: int
    newest: int
    # Whether it has the tables of all installed kinds.
    has_kinds: bool = True

    @property
    def is_current(self) -> bool:
        return self.version == self.newest and self.has_kinds

    @property
    def is_unsupported(self) -> bool:
        return self.version > self.newest


def schema_statuses(data_root: DataRoot, user_id: UserId) -> list[SchemaStatus]:
    """Returns the status of each file, without changing anything. Empty files are omitted; their schema is created on
    first use."""
    statuses = []
    for kind, schema in SCHEMAS.items():
        path: Path = getattr(data_root.paths_of(user_id), kind)
        if path.exists() and path.stat().st_size:
            # Without a log, a file that is opened as immutable is complete and nothing is created next to it.
            mode = "mode=ro" if path.with_name(path.name + "-wal").exists() else "immutable=1"
            with _translated_errors(kind), closing(sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True)) as connection:
                version, newest = kinds.schema_version(connection), schema.newest_version
                has_kinds = version != newest or kind != "chacha" or kinds.has_current_kinds(connection, "main")
                statuses.append(SchemaStatus(kind, version, newest, has_kinds))
    return statuses


def upgrade(data_root: DataRoot, user_id: UserId, kind: DatabaseKind, options: SqliteOptions) -> None:
    """Copies one file and migrates it. Rejects a file that was written by a newer version."""
    with _open_writer(data_root, user_id, kind, options):
        pass


def reindex(data_root: DataRoot, user_id: UserId, kind: DatabaseKind, options: SqliteOptions) -> int:
    """Rebuilds the indexes of one file in one transaction. Returns the number of index entries."""
    with _open_writer(data_root, user_id, kind, options) as connection:
        job = Job(lambda writer: _rebuild(SCHEMAS[kind], writer), _DEADLINE_S)
        return connection.run(job, "BEGIN IMMEDIATE")


def _rebuild(schema: kinds.DatabaseSchema, connection: JobConnection) -> int:
    indexes = tuple(
        dict.fromkeys(index for table in schema.segmented for index in (table.index, *table.index.companions))
    )
    connection.execute("REINDEX")
    for index in indexes:
        # Queued changes would remove text that a damaged index may not contain.
        connection.execute(f"DELETE FROM {index.table}_queue")
        connection.execute(f"INSERT INTO {index.table} ({index.table}) VALUES ('rebuild')")
    for table in schema.segmented:
        last: int | None = BEFORE_FIRST_ROWID
        while last is not None:
            last = resegment_batch(table, last, connection)
    save_segment_version(connection)
    if schema is CHACHA:
        for message_index in ON_DEMAND_INDEXES:
            message_index.rebuild(connection)
    vector_tables(schema.kind).repair(connection)
    counts = (connection.execute(f"SELECT count(*) FROM {index.table}_docsize").fetchone()[0] for index in indexes)
    return sum(counts)


@contextmanager
def _open_writer(
    data_root: DataRoot, user_id: UserId, kind: DatabaseKind, options: SqliteOptions
) -> Iterator[JobConnection]:
    file = DatabaseFile(SCHEMAS[kind], data_root, user_id)
    due = time.monotonic() + _DEADLINE_S
    with _translated_errors(kind), closing(connect_writer(file, options, due)) as connection:
        yield connection


@contextmanager
def _translated_errors(kind: DatabaseKind) -> Iterator[None]:
    try:
        yield
    except DATABASE_ERRORS as error:
        translated = translate(error, kind, int(_DEADLINE_S * 1000))
        raise StorageError(f"{kind} library: {translated.message}") from error


# -- salvage -----------------------------------------------------------------------------------------------------------
# Copies the readable rows of a damaged file to a new one.
#
# SQLite reads a table up to a damaged page. Rows behind the page are found by looking them up by their rowid, so only
# the rows on damaged pages are lost. Indexes are not copied: they are rebuilt from the rows.

_ROWID_MAX = 2**63 - 1
_FILE_MODE = 0o600


class SalvageReport(Struct, frozen=True):
    """The rows that were copied, and how many unreadable places each table has. `replaced` is the damaged file."""

    rows: Mapping[str, int]
    gaps: Mapping[str, int]
    replaced: str


# Of a write-ahead log (sqlite.org/fileformat2.html#the_write_ahead_log).
_LOG_HEADER_BYTES = 32
_LOG_MAGIC = 0x377F0682  # or one more, if words are big-endian


def find_log_fault(path: Path) -> str | None:
    """Returns what is wrong with the write-ahead log of a file. SQLite ignores one with a damaged header, and deletes
    it when the file is closed."""
    try:
        with path.with_name(f"{path.name}-wal").open("rb") as file:
            header = file.read(_LOG_HEADER_BYTES + 1)
    except OSError:  # there is none, or SQLite cannot read it either and says why
        return None
    if len(header) <= _LOG_HEADER_BYTES:
        return None
    magic, *expected = struct.unpack(">I20x2I", header[:_LOG_HEADER_BYTES])
    words = struct.unpack(f"{'>' if magic & 1 else '<'}6I", header[:24])
    first = second = 0
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    is_intact = magic & ~1 == _LOG_MAGIC and [first, second] == expected
    return None if is_intact else f"the header of {path.name}-wal is damaged, so that its commits are lost"


def salvage(data_root: DataRoot, user_id: UserId, kind: DatabaseKind) -> SalvageReport:
    """Replaces a damaged file, which must not be in use, by one with its readable rows. The damaged file is kept. The
    indexes of the new file are empty."""
    path: Path = getattr(data_root.paths_of(user_id), kind)
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    try:
        rows, gaps = _copy_rows(path, unfinished, kind)
        replaced = set_aside(path)
        unfinished.replace(path)
        sync_directory(path.parent)
    except DATABASE_ERRORS as error:
        if is_no_space(error):
            raise DiskFull from error
        raise StorageError(f"nothing can be salvaged from {kind}.db ({error}); restore it from a backup") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return SalvageReport(rows, gaps, replaced.name if replaced else "")


def _copy_rows(path: Path, target_path: Path, kind: DatabaseKind) -> tuple[dict[str, int], dict[str, int]]:
    descriptor = os.open(target_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
    inherit_owner(descriptor, target_path.parent)
    os.close(descriptor)
    # With a writable schema, SQLite ignores damaged entries of the schema and a file that is too short.
    # SQLite would delete a damaged log, which is kept with the file.
    mode = "immutable=1" if find_log_fault(path) else "mode=rw"
    connection = sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True, isolation_level=None)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("PRAGMA query_only = ON")
    connection.text_factory = replace_undecodable
    with closing(connection) as source, closing(sqlite3.connect(target_path)) as target:
        version = kinds.schema_version(source)
        if not 0 < version <= SCHEMAS[kind].newest_version:
            raise StorageError(f"nothing can be salvaged from {kind}.db: its schema is {version}")
        triggers = _create_schema(source, target, kind)
        rows, gaps = {}, {}
        for table, is_without_rowid in target.execute(ROW_TABLES).fetchall():
            # The columns that are stored.
            columns = [
                name
                for name, hidden in target.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", (table,))
                if not hidden
            ]
            reader = _TableReader(source, table, columns)
            records = reader.read_both_ways() if is_without_rowid else reader.read_by_rowid()
            rows[table] = reader.copy_to(target, records)
            gaps[table] = reader.gaps
        for index in ON_DEMAND_INDEXES:  # these are created again when they are needed
            target.execute("DELETE FROM state WHERE name = ?", (index.table,))
        vector_tables(kind).drop(target)
        for trigger in triggers:
            target.execute(trigger)
        target.commit()
    return rows, {table: count for table, count in gaps.items() if count}


def _create_schema(source: sqlite3.Connection, target: sqlite3.Connection, kind: DatabaseKind) -> list[str]:
    """Creates empty tables without triggers, which would queue every copied row. Returns the triggers."""
    version = kinds.schema_version(source)
    if version < SCHEMAS[kind].first_version:  # the file is converted when it is next opened
        for (sql,) in source.execute(_TABLE_STATEMENTS).fetchall():
            target.execute(sql)
        target.execute(f"PRAGMA user_version = {version}")
    else:
        kinds.migrate_to(SCHEMAS[kind], target, version)
        if kind == "chacha":
            kinds.create_kinds(target)
    triggers = target.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        target.execute(f"DROP TRIGGER {name}")
    for table, _ in target.execute(ROW_TABLES).fetchall():
        target.execute(f"DELETE FROM {table}")
    return [sql for _, sql in triggers]


class _TableReader:
    """Reads as many rows of one table as possible. `gaps` counts the places where reading failed."""

    def __init__(self, source: sqlite3.Connection, table: str, columns: list[str]) -> None:
        self.gaps = 0
        self._source = source
        self._table = table
        self._names = ", ".join(f'"{name}"' for name in columns)
        self._marks = ", ".join("?" for _ in columns)

    def copy_to(self, target: sqlite3.Connection, records: Iterator[tuple[object, ...]]) -> int:
        insert = f"INSERT OR IGNORE INTO {self._table} ({self._names}) VALUES ({self._marks})"
        return target.executemany(insert, records).rowcount

    def read_by_rowid(self) -> Iterator[tuple[object, ...]]:
        after: int | None = -_ROWID_MAX - 1
        query = f"SELECT rowid, {self._names} FROM {self._table} WHERE rowid > ? ORDER BY rowid"
        while after is not None:
            try:
                for row in self._source.execute(query, (after,)):
                    after = row[0]
                    yield row[1:]
            except DATABASE_ERRORS:
                self.gaps += 1
                after = self._next_readable(after)
            else:
                return

    def read_both_ways(self) -> Iterator[tuple[object, ...]]:
        """A table without rowids is read from both ends. Rows that are read twice are inserted once."""
        for direction in ("ASC", "DESC"):
            try:
                yield from self._source.execute(f"SELECT {self._names} FROM {self._table} ORDER BY 1 {direction}")
            except DATABASE_ERRORS:
                self.gaps = 1
            else:
                return

    def _next_readable(self, after: int) -> int | None:
        """Returns the smallest rowid after `after` behind which reading works again, or None if there is none."""
        unreadable, step = after, 1
        while not self._is_readable(after + step):
            unreadable = after + step
            step *= 2
            if after + step > _ROWID_MAX:
                return None
        readable = after + step
        while readable - unreadable > 1:
            middle = (readable + unreadable) // 2
            if self._is_readable(middle):
                readable = middle
            else:
                unreadable = middle
        return readable

    def _is_readable(self, after: int) -> bool:
        query = f"SELECT {self._names} FROM {self._table} WHERE rowid > ? ORDER BY rowid LIMIT 1"
        try:
            self._source.execute(query, (after,)).fetchone()
        except DATABASE_ERRORS:
            return False
        return True
