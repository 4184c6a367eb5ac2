"""Conditions that only Python can check exactly: case folding and literal comparison.

SQLite calls Python for each row. PostgreSQL cannot, so the values that meet such a condition are looked up first.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from config.postgres.connection import PostgresConnection
from sources.storage.contract import Search
from sources.storage.search.engine import SearchTarget
from sources.storage.tables.sql import SqlFilter, either
from sources.storage.tables.validation import is_storable
from sources.text.segmentation import contains_literal, literal_form

# The texts in which a literal is looked up, by table. A control character between values keeps a text from matching
# across two of them.
_LITERAL_COLUMNS = {
    "conversations": ("messages", ("content",)),
    "observations": (
        "observations",
        ("title", "subtitle", "narrative", "facts", "concepts", "files_read", "files_modified", "type", "project"),
    ),
}
_LISTS = frozenset(("facts", "concepts", "files_read", "files_modified"))
_BETWEEN_VALUES = "\x01"
_BATCH_ROWS = 2_000


def resolve_filter(connection: PostgresConnection, target: SearchTarget, search: Search) -> SqlFilter:
    """Returns the conditions of a search."""
    plain = replace(search, contains=None, senders=(), projects=(), media_types=())
    conditions = target.filter(plain)
    is_chats = target.table == "conversations"
    if search.contains is not None:
        conditions &= _rows_with_literal(connection, target, literal_form(search.contains))
    if search.senders and is_chats:
        sender = _one_of(connection, "messages", "sender", search.senders)
        conditions &= either(sender, _one_of(connection, "messages", "role", search.senders))
    if search.projects and is_chats:
        names = {literal_form(name) for name in search.projects if is_storable(name)}
        found = []
        rows = connection.execute("SELECT id, namespace, metadata FROM conversations WHERE deleted = 0").fetchall()
        for rowid, namespace, metadata in rows:
            # The project that the metadata name, or the namespace.
            project = msgspec.json.decode(metadata).get("project") if "project" in metadata else None
            name = literal_form(project) if isinstance(project, str) else ""
            if (name or literal_form(namespace)) in names:
                found.append(rowid)
        conditions &= _rowid_in("c.id", found)
    if search.media_types and target.table == "media":
        conditions &= _one_of(connection, "media", "media_type", search.media_types)
    return conditions


def _one_of(connection: PostgresConnection, table: str, column: str, values: Sequence[str]) -> SqlFilter:
    folded = {value.casefold() for value in values}
    rows = connection.execute(f"SELECT DISTINCT {column} FROM {table}").fetchall()
    found = [value for (value,) in rows if value.casefold() in folded]
    return SqlFilter((f"r.{column} = ANY(CAST(? AS TEXT[]))",), (tuple(found),))  # type: ignore[arg-type]  # an array


def _rows_with_literal(connection: PostgresConnection, target: SearchTarget, literal: str) -> SqlFilter:
    if target.table not in _LITERAL_COLUMNS:
        return SqlFilter(("FALSE",))
    table, columns = _LITERAL_COLUMNS[target.table]
    found: list[int] = []
    last = 0
    sql = f"SELECT id, {', '.join(columns)} FROM {table} WHERE deleted = 0 AND id > ? ORDER BY id LIMIT ?"
    while rows := connection.execute(sql, (last, _BATCH_ROWS)).fetchall():
        for rowid, *values in rows:
            texts = [
                _BETWEEN_VALUES.join(map(str, msgspec.json.decode(value))) if name in _LISTS else value
                for name, value in zip(columns, values, strict=True)
            ]
            if contains_literal(_BETWEEN_VALUES.join(texts), literal):
                found.append(rowid)
        last = rows[-1][0]
    return _rowid_in("r.id", found)


def _rowid_in(column: str, rowids: Sequence[int]) -> SqlFilter:
    return SqlFilter((f"{column} = ANY(CAST(? AS BIGINT[]))",), (tuple(rowids),))  # type: ignore[arg-type]  # an array
