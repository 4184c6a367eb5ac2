"""Namespaces: names under which conversations are grouped. There is one where conversations are, or somebody made it.
The default one is always there and keeps its name."""

import sqlite3
from collections.abc import Sequence

from config.errors import Conflict, InvalidParams, NotFound
from sources.records import Namespace
from sources.storage.contract import DEFAULT_NAMESPACE
from sources.storage.sqlite.write.items import Stamp


def list_namespaces(connection: sqlite3.Connection) -> Sequence[Namespace]:
    counts: dict[str, int] = {DEFAULT_NAMESPACE: 0}
    counts |= {name: 0 for (name,) in connection.execute("SELECT name FROM namespaces")}
    counts |= dict(
        connection.execute("SELECT namespace, count(*) FROM conversations WHERE deleted = 0 GROUP BY namespace")
    )
    return [Namespace(name, counts[name]) for name in sorted(counts)]


def create_namespace(connection: sqlite3.Connection, name: str) -> Namespace:
    if any(one.name == name for one in list_namespaces(connection)):
        raise Conflict(f"namespace {name!r} exists already")
    connection.execute("INSERT INTO namespaces VALUES (?)", (name,))
    return Namespace(name, 0)


def rename_namespace(connection: sqlite3.Connection, name: str, new_name: str, stamp: Stamp) -> Namespace:
    held = _to_change(connection, name)
    if new_name == name:
        return held
    create_namespace(connection, new_name)
    _move(connection, name, new_name, stamp)
    return Namespace(new_name, held.conversations)


def delete_namespace(connection: sqlite3.Connection, name: str, stamp: Stamp) -> int:
    held = _to_change(connection, name)
    _move(connection, name, DEFAULT_NAMESPACE, stamp)
    return held.conversations


def _to_change(connection: sqlite3.Connection, name: str) -> Namespace:
    if name == DEFAULT_NAMESPACE:
        raise InvalidParams(f"namespace: got {name!r}, expected another one: this one is always there")
    for one in list_namespaces(connection):
        if one.name == name:
            return one
    raise NotFound("namespace", name)


def _move(connection: sqlite3.Connection, name: str, new_name: str, stamp: Stamp) -> None:
    """A conversation is another version of itself under another name, but no newer."""
    connection.execute(
        "UPDATE conversations SET namespace = ?, version = version + 1, client_id = ? "
        "WHERE namespace = ? AND deleted = 0",
        (new_name, stamp.client_id, name),
    )
    connection.execute("DELETE FROM namespaces WHERE name = ?", (name,))
