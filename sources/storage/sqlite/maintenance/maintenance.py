"""Maintenance of one user's files: schema status, migration, and rebuilding of full-text indexes. Works while a server
is running, whose writes wait until it is done."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct

from config.errors import StorageError
from config.paths import DatabaseKind, DataRoot, UserId
from config.sqlite_errors import DATABASE_ERRORS
from sources.storage.sqlite.connection.connection import Job, JobConnection
from sources.storage.sqlite.connection.errors import translate
from sources.storage.sqlite.connection.open import DatabaseFile, SqliteOptions, connect_writer
from sources.storage.sqlite.index.text_index import BEFORE_FIRST_ROWID, resegment_batch, save_segment_version
from sources.storage.sqlite.schema.chacha import CHACHA
from sources.storage.sqlite.schema.media import MEDIA
from sources.storage.sqlite.schema.migrations import DatabaseSchema, schema_version
from sources.storage.sqlite.schema.prompts import PROMPTS
from sources.storage.sqlite.search.exact import EXACT_INDEX, HUMAN_ONLY_EXACT_INDEX
from sources.storage.sqlite.search.substring import SUBSTRING_INDEX
from sources.storage.sqlite.vectors.vector_tables import vector_tables

SCHEMAS: dict[DatabaseKind, DatabaseSchema] = {schema.kind: schema for schema in (CHACHA, MEDIA, PROMPTS)}
# Indexes of messages that are created when they are first needed.
ON_DEMAND_INDEXES = (SUBSTRING_INDEX, EXACT_INDEX, HUMAN_ONLY_EXACT_INDEX)
# Tables with rows of their own, and whether they have no rowids. Queues are empty between transactions.
ROW_TABLES = (
    "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table' "
    "AND name NOT GLOB 'sqlite_*' AND name NOT GLOB '*_queue' ORDER BY name"
)
_DEADLINE_S = 24 * 3600.0


class SchemaStatus(Struct, frozen=True):
    """The schema version of one file, and the newest version that this program supports."""

    kind: DatabaseKind
    version: int
    newest: int

    @property
    def is_current(self) -> bool:
        return self.version == self.newest

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
                statuses.append(SchemaStatus(kind, schema_version(connection), len(schema.migrations)))
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


def _rebuild(schema: DatabaseSchema, connection: JobConnection) -> int:
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
