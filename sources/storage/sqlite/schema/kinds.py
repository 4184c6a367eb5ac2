"""The tables of kinds in SQLite, as their declarations say.

Those of other distributions are created when a file is first opened with them installed, without a numbered migration:
the file remembers a digest of the statements that made them. If a later version of the distribution declares more
fields, columns are added and the index is built again. Nothing is ever removed: the tables of a distribution that is no
longer installed stay as they are.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import sqlite3
from functools import cache
from hashlib import sha256

from sources.installed import ADDED_KINDS
from sources.kinds import Kind
from sources.storage.sqlite.index.text_index import BEFORE_FIRST_ROWID, fts_ddl, fts_triggers, resegment_batch
from sources.storage.sqlite.vectors.kinds import ITEM_VECTORS
from sources.storage.sqlite.vectors.vector_tables import vector_tables
from sources.storage.tables.kind_tables import (
    ITEM_COLUMNS,
    column_definitions,
    index_columns,
    indexed_sql,
    segmented_table,
    text_index,
)

_STATE = "kind:"


def item_indexes(table: str) -> tuple[str, ...]:
    """Returns the index that lists items by age and the table that finds them by folded tag."""
    return (
        f"CREATE INDEX {table}_by_age ON {table} (last_modified DESC, id DESC) WHERE deleted = 0",
        f"""CREATE TABLE {table}_tags (
            folded TEXT NOT NULL,
            id INTEGER NOT NULL REFERENCES {table} (id) ON DELETE CASCADE,
            PRIMARY KEY (folded, id)
        ) STRICT, WITHOUT ROWID""",
        f"CREATE INDEX {table}_tags_of_item ON {table}_tags (id)",
    )


def kind_statements(kind: Kind) -> tuple[str, ...]:
    """The statements that create everything for a kind. Numbers that are public ids are never used again."""
    number = "id INTEGER PRIMARY KEY AUTOINCREMENT" if kind.key == "id" else "id INTEGER PRIMARY KEY"
    columns = ",\n    ".join((number, *ITEM_COLUMNS, *column_definitions(kind)))
    return (
        f"CREATE TABLE {kind.source} (\n    {columns}\n) STRICT",
        *item_indexes(kind.source),
        *_index_statements(kind),
    )


def _index_statements(kind: Kind) -> tuple[str, ...]:
    columns, index = index_columns(kind), text_index(kind)
    selected = (f"{sql} AS {column.name}" for sql, column in zip(indexed_sql(kind), columns, strict=True))
    texts = dict.fromkeys(name for column in columns for name in column.fields)
    watched = ", ".join((*texts, *(column.form for column in columns), "deleted"))
    return (
        f"""CREATE VIEW {index.table}_source AS
        SELECT id, {", ".join(selected)}
        FROM {kind.source} WHERE deleted = 0""",
        *fts_ddl(index),
        *fts_triggers(index, kind.source, watched),
    )


def has_current_kinds(connection: sqlite3.Connection) -> bool:
    """Whether a file, which has a schema, has the tables of all installed kinds as they are declared now."""
    return not ADDED_KINDS or _stored_versions(connection) >= set(_versions().items())


def create_kinds(connection: sqlite3.Connection) -> None:
    """Creates what is missing, or differs from the declaration. Runs in one transaction of a writer."""
    stored = dict(_stored_versions(connection))
    for kind in ADDED_KINDS:
        version = _versions()[kind.source]
        if stored.get(kind.source) == version:
            continue
        if kind.source in stored:
            _change(connection, kind)
        else:
            for statement in kind_statements(kind):
                connection.execute(statement)
        vector_tables(kind.database).add_kind(connection, ITEM_VECTORS[kind.source])
        connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (_STATE + kind.source, version))


def _change(connection: sqlite3.Connection, kind: Kind) -> None:
    """Adds columns and builds the index again, in the form that the declaration has now."""
    table, index = kind.source, text_index(kind).table
    known = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}
    for definition in column_definitions(kind):
        if definition.partition(" ")[0] not in known:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {definition}")
    for event in ("added", "changing", "removing"):
        connection.execute(f"DROP TRIGGER IF EXISTS {table}_{event}")
    connection.execute(f"DROP TABLE IF EXISTS {index}")
    connection.execute(f"DROP TABLE IF EXISTS {index}_queue")
    connection.execute(f"DROP VIEW IF EXISTS {index}_source")
    for statement in _index_statements(kind):
        connection.execute(statement)
    connection.execute(f"INSERT INTO {index} ({index}) VALUES ('rebuild')")
    last: int | None = BEFORE_FIRST_ROWID
    while last is not None:
        last = resegment_batch(segmented_table(kind), last, connection)


def _stored_versions(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    rows = connection.execute("SELECT name, value FROM state WHERE name >= ? AND name < ?", (_STATE, f"{_STATE}~"))
    return {(name.removeprefix(_STATE), version) for name, version in rows}


@cache
def _versions() -> dict[str, str]:
    """A digest of the statements of each installed kind."""
    return {
        kind.source: sha256("\0".join((*kind_statements(kind), *ITEM_VECTORS[kind.source].ddl())).encode()).hexdigest()
        for kind in ADDED_KINDS
    }
