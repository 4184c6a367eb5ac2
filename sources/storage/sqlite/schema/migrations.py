"""Migrates the schema of one file, in one transaction. Rejects a file that was written by a newer version."""

import sqlite3
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from config.errors import StorageError
from config.paths import DatabaseKind
from sources.records import is_human_only
from sources.storage.sqlite.index.text_index import save_segment_version
from sources.storage.tables.text_index import SegmentedTable, TextIndex

Migration = Sequence[str]


class DatabaseSchema(Struct, frozen=True):
    """The schema of one of a user's files: its migrations, the tables whose text is segmented, and whether it has the
    column `media.text_weight`.

    Existing migrations must not change, because they have already run on users' files. Only append to them.
    """

    kind: DatabaseKind
    migrations: tuple[Migration, ...]
    segmented: tuple[SegmentedTable, ...]
    has_text_weights: bool = False

    @property
    def counted_indexes(self) -> tuple[TextIndex, ...]:
        """The indexes in which the terms of a library are counted."""
        return tuple(dict.fromkeys(table.index for table in self.segmented if table.is_counted))


def schema_version(connection: sqlite3.Connection) -> int:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def is_current(schema: DatabaseSchema, version: int) -> bool:
    newest = len(schema.migrations)
    if version > newest:
        raise StorageError(
            f"the {schema.kind} library has schema {version}, written by a newer version of Florilegium; "
            f"this version supports schemas up to {newest}: upgrade Florilegium"
        )
    return version == newest


def migrate(schema: DatabaseSchema, connection: sqlite3.Connection) -> None:
    """Must run in a transaction started as a writer, so that two processes cannot both migrate."""
    version = schema_version(connection)
    if is_current(schema, version):
        return
    migrate_to(schema, connection, len(schema.migrations))
    if version == 0:
        save_segment_version(connection)


def migrate_to(schema: DatabaseSchema, connection: sqlite3.Connection, version: int) -> None:
    """Runs the migrations up to a version."""
    connection.create_function("is_human_only", 1, _is_human_only, deterministic=True)
    first = schema_version(connection)
    for number, statements in enumerate(schema.migrations[first:version], start=first + 1):
        for statement in statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {number}")


def _is_human_only(metadata: str) -> bool:
    return is_human_only(msgspec.json.decode(metadata, type=dict))
