"""Creates or migrates the schema of one file, in one transaction. Rejects a file of a newer version."""

import sqlite3
from collections.abc import Sequence

from msgspec import Struct

from config.errors import StorageError
from config.paths import DatabaseKind
from sources.storage.sqlite.index.text_index import save_segment_version
from sources.storage.sqlite.schema.conversion import convert
from sources.storage.tables.sql import SegmentedTable, TextIndex

Migration = Sequence[str]


class DatabaseSchema(Struct, frozen=True, kw_only=True):
    """The schema of one of a user's files: the statements that create the schema `first_version`, the migrations after
    it, the tables whose text is segmented, and whether it has the column `media.text_weight`.

    After a release, neither its statements nor its migrations may change, because they have already run on users'
    files. Only append migrations.
    """

    kind: DatabaseKind
    first_version: int
    statements: Sequence[str]
    migrations: tuple[Migration, ...] = ()
    segmented: tuple[SegmentedTable, ...]
    has_text_weights: bool = False

    @property
    def newest_version(self) -> int:
        return self.first_version + len(self.migrations)

    @property
    def counted_indexes(self) -> tuple[TextIndex, ...]:
        """The indexes in which the terms of a library are counted."""
        return tuple(dict.fromkeys(table.index for table in self.segmented if table.is_counted))


def schema_version(connection: sqlite3.Connection) -> int:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def is_current(schema: DatabaseSchema, version: int) -> bool:
    if version > schema.newest_version:
        raise StorageError(
            f"the {schema.kind} library has schema {version}, written by a newer version of Florilegium; "
            f"this version supports schemas up to {schema.newest_version}: upgrade Florilegium"
        )
    return version == schema.newest_version


def migrate(schema: DatabaseSchema, connection: sqlite3.Connection) -> None:
    """Must run in a transaction started as a writer, so that two processes cannot both migrate."""
    version = schema_version(connection)
    if is_current(schema, version):
        return
    if 0 < version < schema.first_version:
        convert(schema.kind, schema.statements, connection, version)
        connection.execute(f"PRAGMA user_version = {schema.first_version}")
    migrate_to(schema, connection, schema.newest_version)
    if version == 0:
        save_segment_version(connection)


def migrate_to(schema: DatabaseSchema, connection: sqlite3.Connection, version: int) -> None:
    """Creates the tables in an empty file, and runs the migrations up to a version."""
    current = schema_version(connection)
    if current == 0:
        _run(schema.statements, schema.first_version, connection)
        current = schema.first_version
    for number, statements in enumerate(schema.migrations, start=schema.first_version + 1):
        if current < number <= version:
            _run(statements, number, connection)


def _run(statements: Sequence[str], version: int, connection: sqlite3.Connection) -> None:
    for statement in statements:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {version}")
