"""The tables of kinds in SQLite, as their declarations say.

Those of other distributions are created when a file is first opened with them installed, without a numbered migration:
the file remembers a digest of the statements that made them. If a later version of the distribution declares more
fields, columns are added and the index is built again. Nothing is ever removed: the tables of a distribution that is no
longer installed stay as they are.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import sqlite3
from collections.abc import Sequence
from functools import cache
from hashlib import sha256

from msgspec import Struct

from config.errors import StorageError
from config.paths import DatabaseKind
from sources.installed import ADDED_KINDS
from sources.kinds import Kind
from sources.storage.sqlite.index import text_index
from sources.storage.sqlite.schema.conversion import convert
from sources.storage.sqlite.vectors.vector_tables import vector_ddl, vector_tables
from sources.storage.tables import kind_tables
from sources.storage.tables.dialect import SQLITE
from sources.storage.tables.sql import BOUNDED_TEXT, CHARS_BETWEEN, CONTEXT_CHARS, SegmentedTable, TextIndex
from sources.storage.vector_kinds import ITEM_VECTORS

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
    columns = ",\n    ".join((number, *kind_tables.ITEM_COLUMNS, *kind_tables.column_definitions(kind)))
    return (
        f"CREATE TABLE {kind.source} (\n    {columns}\n) STRICT",
        *item_indexes(kind.source),
        *_index_statements(kind),
    )


def _index_statements(kind: Kind) -> tuple[str, ...]:
    columns, index = kind_tables.index_columns(kind), kind_tables.text_index(kind)
    selected = (f"{sql} AS {column.name}" for sql, column in zip(kind_tables.indexed_sql(kind), columns, strict=True))
    texts = dict.fromkeys(name for column in columns for name in column.fields)
    watched = ", ".join((*texts, *(column.form for column in columns), "deleted"))
    return (
        f"""CREATE VIEW {index.table}_source AS
        SELECT id, {", ".join(selected)}
        FROM {kind.source} WHERE deleted = 0""",
        *text_index.fts_ddl(index),
        *text_index.fts_triggers(index, kind.source, watched),
    )


def has_current_kinds(connection: sqlite3.Connection, schema: str) -> bool:
    """Whether a file, which has tables, has those of all installed kinds as they are declared now."""
    return not ADDED_KINDS or _stored_versions(connection, schema) >= set(_versions().items())


def create_kinds(connection: sqlite3.Connection) -> None:
    """Creates what is missing, or differs from the declaration. Runs in one transaction of a writer."""
    stored = dict(_stored_versions(connection, "main"))
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
    table, index = kind.source, kind_tables.text_index(kind).table
    known = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}
    for definition in kind_tables.column_definitions(kind):
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
    last: int | None = text_index.BEFORE_FIRST_ROWID
    while last is not None:
        last = text_index.resegment_batch(kind_tables.segmented_table(kind, SQLITE), last, connection)


def _stored_versions(connection: sqlite3.Connection, schema: str) -> set[tuple[str, str]]:
    sql = f"SELECT name, value FROM {schema}.state WHERE name >= ? AND name < ?"
    rows = connection.execute(sql, (_STATE, f"{_STATE}~"))
    return {(name.removeprefix(_STATE), version) for name, version in rows}


@cache
def _versions() -> dict[str, str]:
    """A digest of the statements of each installed kind."""
    return {
        kind.source: sha256(
            "\0".join((*kind_statements(kind), *vector_ddl(ITEM_VECTORS[kind.source]))).encode()
        ).hexdigest()
        for kind in ADDED_KINDS
    }


# -- messages ----------------------------------------------------------------------------------------------------------
# Agents search `chats_index`, which contains no text of a human-only message, not even as the context of another one.
# Neither a hit, nor a count, nor a rank can therefore depend on such a text. People search both indexes.

MESSAGE_CONTEXT = f"""
    CASE m.human_only WHEN 1 THEN '' ELSE coalesce((SELECT group_concat(text, ' ') FROM (
        SELECT {BOUNDED_TEXT} AS text, {CHARS_BETWEEN} AS chars_between FROM (
            SELECT coalesce(p.text_seg, p.content) AS text, p.role, p.position FROM messages p
            WHERE p.conversation_id = m.conversation_id AND p.position < m.position AND p.deleted = 0
                AND p.human_only = 0
            ORDER BY p.position DESC LIMIT 2)
        ORDER BY position DESC) WHERE chars_between <= {CONTEXT_CHARS}), '') END
"""


# -- migrations --------------------------------------------------------------------------------------------------------
# Creates or migrates the schema of one file, in one transaction. Rejects a file of a newer version.

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


def schema_version(connection: sqlite3.Connection, schema: str = "main") -> int:
    [version] = connection.execute(f"PRAGMA {schema}.user_version").fetchone()
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
        text_index.save_segment_version(connection)


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
