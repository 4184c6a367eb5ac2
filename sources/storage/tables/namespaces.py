"""Namespaces group conversations by name. A namespace exists if it was created or if a conversation is in it. The
default namespace always exists and cannot be renamed."""

from collections.abc import Sequence

from config.errors import Conflict, InvalidParams, NotFound
from sources.records import Namespace
from sources.storage.contract import DEFAULT_NAMESPACE
from sources.storage.tables.connection import SqlConnection
from sources.storage.tables.item_table import WriteContext


def list_namespaces(connection: SqlConnection) -> Sequence[Namespace]:
    counts: dict[str, int] = {DEFAULT_NAMESPACE: 0}
    counts |= {name: 0 for (name,) in connection.execute("SELECT name FROM namespaces")}
    counts |= dict(
        connection.execute("SELECT namespace, count(*) FROM conversations WHERE deleted = 0 GROUP BY namespace")
    )
    return [Namespace(name, counts[name]) for name in sorted(counts)]


def create_namespace(connection: SqlConnection, name: str) -> Namespace:
    if any(namespace.name == name for namespace in list_namespaces(connection)):
        raise Conflict(f"namespace {name!r} already exists")
    connection.execute("INSERT INTO namespaces (name) VALUES (?)", (name,))
    return Namespace(name, 0)


def rename_namespace(connection: SqlConnection, name: str, new_name: str, context: WriteContext) -> Namespace:
    namespace = _get_changeable(connection, name)
    if new_name == name:
        return namespace
    create_namespace(connection, new_name)
    _move_conversations(connection, name, new_name, context)
    return Namespace(new_name, namespace.conversations)


def delete_namespace(connection: SqlConnection, name: str, context: WriteContext) -> int:
    namespace = _get_changeable(connection, name)
    _move_conversations(connection, name, DEFAULT_NAMESPACE, context)
    return namespace.conversations


def _get_changeable(connection: SqlConnection, name: str) -> Namespace:
    if name == DEFAULT_NAMESPACE:
        raise InvalidParams(f"namespace: {name!r} is the default namespace, which cannot be renamed or deleted")
    for namespace in list_namespaces(connection):
        if namespace.name == name:
            return namespace
    raise NotFound("namespace", name)


def _move_conversations(connection: SqlConnection, name: str, new_name: str, context: WriteContext) -> None:
    """Increases the versions of the conversations but keeps their modification times."""
    connection.execute(
        "UPDATE conversations SET namespace = ?, version = version + 1, client_id = ? "
        "WHERE namespace = ? AND deleted = 0",
        (new_name, context.client_id, name),
    )
    connection.execute("DELETE FROM namespaces WHERE name = ?", (name,))
