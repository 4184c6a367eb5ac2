"""Queries for the threads of the message bus: by creation, by title, and messages by number."""

from collections.abc import Sequence

from msgspec import Struct

from config.errors import Conflict
from sources.records import Conversation, ListPage, Message
from sources.storage.contract import CreationPosition, MetadataFilter
from sources.storage.tables.connection import SqlConnection
from sources.storage.tables.conversation_tables import CONVERSATIONS, MESSAGES
from sources.storage.tables.sql import SqlFilter, equals, metadata_in
from sources.storage.tables.validation import clamp_count, is_storable


class CreatedQuery(Struct, frozen=True):
    namespace: str
    after: CreationPosition | None
    metadata: MetadataFilter | None
    is_archived: bool | None = None


def list_created(connection: SqlConnection, query: CreatedQuery, limit: int) -> ListPage[Conversation]:
    if not is_storable(query.namespace):
        return ListPage((), 0)
    matching = (
        equals("namespace", query.namespace)
        & equals("is_archived", query.is_archived)
        & _has_metadata("conversations.metadata", query.metadata)
    )
    rest = matching & _is_after(query.after)
    order = "ORDER BY created_at DESC, uuid DESC LIMIT ?"
    rows = CONVERSATIONS.select(connection, f"TRUE{rest.sql} {order}", (*rest.parameters, clamp_count(limit)))
    return ListPage(tuple(rows), CONVERSATIONS.count(connection, f"TRUE{matching.sql}", matching.parameters))


def find_by_title(connection: SqlConnection, namespace: str, title: str) -> Conversation | None:
    """Returns the first conversation with this title."""
    condition = "namespace = ? AND title = ? ORDER BY created_at, conversations.id LIMIT 1"
    return next(iter(CONVERSATIONS.select(connection, condition, (namespace, title))), None)


def require_room(connection: SqlConnection, namespace: str, namespace_max: int) -> None:
    if CONVERSATIONS.count(connection, "namespace = ?", (namespace,)) >= namespace_max:
        raise Conflict(f"the limit of {namespace_max} conversations in {namespace!r} is reached")


def messages_after(
    connection: SqlConnection,
    conversation: int,
    number: int,
    limit: int,
    metadata: MetadataFilter | None,
    *,
    is_agent: bool,
) -> Sequence[Message]:
    """Numbers increase with the position, and the index by position contains them. For an agent, a human-only message
    has no metadata."""
    column = "CASE messages.human_only WHEN 1 THEN '{}' ELSE messages.metadata END" if is_agent else "messages.metadata"
    condition = _has_metadata(column, metadata)
    sql = f"conversation_id = ? AND messages.id > ?{condition.sql} ORDER BY position LIMIT ?"
    return MESSAGES.select(
        connection, sql, (conversation, clamp_count(number), *condition.parameters, clamp_count(limit))
    )


def _has_metadata(column: str, metadata: MetadataFilter | None) -> SqlFilter:
    if metadata is None:
        return SqlFilter()
    return metadata_in(column, metadata.path, [value for value in metadata.values if is_storable(value or "")])


def _is_after(position: CreationPosition | None) -> SqlFilter:
    if position is None or not is_storable(position.id):
        return SqlFilter()
    return SqlFilter(("(created_at, uuid) < (?, ?)",), (position.created_at, position.id))
