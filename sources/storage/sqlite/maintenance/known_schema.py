"""The triggers and views that Florilegium itself creates. Others, in a file from elsewhere, would run or be read with
the rights of the server."""

import sqlite3
from contextlib import closing

from config.paths import DatabaseKind
from sources.storage.sqlite.maintenance.maintenance import ON_DEMAND_INDEXES, SCHEMAS
from sources.storage.sqlite.schema.chacha import CHACHA
from sources.storage.sqlite.schema.migrations import migrate_to
from sources.storage.sqlite.vectors.vector_tables import vector_tables

SchemaObject = tuple[str, str, str]

_TRIGGERS_AND_VIEWS = "SELECT type, name, sql FROM sqlite_schema WHERE type IN ('trigger', 'view')"


def find_foreign_object(connection: sqlite3.Connection, kind: DatabaseKind | None, version: int) -> str | None:
    """Returns a trigger or view of a file, as "trigger NAME", that this schema version does not have. A file without a
    kind is the control database or the audit log, which have none at all."""
    known = _known_objects(kind, version) if kind is not None else frozenset()
    for row in connection.execute(_TRIGGERS_AND_VIEWS):
        if row not in known:
            return f"{row[0]} {row[1]}"
    return None


def _known_objects(kind: DatabaseKind, version: int) -> frozenset[SchemaObject]:
    """Creates an empty library of that version in memory, with what is created on demand: indexes and vectors."""
    schema = SCHEMAS[kind]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate_to(schema, connection, version)
        if schema is CHACHA and version:
            for index in ON_DEMAND_INDEXES:
                index.create(connection)
        if version:
            vector_tables(kind).create(connection, model="")
        return frozenset(connection.execute(_TRIGGERS_AND_VIEWS).fetchall())
