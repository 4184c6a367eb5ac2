"""Which rows of a transaction have to be indexed again. Applied before the transaction is committed, so that a search
sees every write that it can read."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Collection

from config.postgres.connection import PostgresConnection
from sources.storage.postgres.index.entries import (
    CHARACTER_ENTRIES,
    CHAT_ENTRIES,
    HUMAN_ONLY_ENTRIES,
    MEDIA_ENTRIES,
    NOTE_ENTRIES,
    OBSERVATION_ENTRIES,
    PROMPT_ENTRIES,
    increase_version,
    index_rows,
)
from sources.storage.tables.indexes import CHUNK_BITS

_SIMPLE_KINDS = {
    "notes": NOTE_ENTRIES,
    "characters": CHARACTER_ENTRIES,
    "observations": OBSERVATION_ENTRIES,
    "prompts": PROMPT_ENTRIES,
}
# Columns whose values no index contains.
_UNINDEXED = frozenset(
    ("version", "last_modified", "client_id", "metadata", "arrived", "content_hash", "is_pinned", "is_archived")
)
_MESSAGES_OF = "SELECT id FROM messages WHERE conversation_id = ?"
_CHUNKS_OF = f"""
    SELECT id FROM chunks WHERE id >= ?1 AND id < ?2
    UNION SELECT id FROM index_entries WHERE kind = {MEDIA_ENTRIES.number} AND id >= ?1 AND id < ?2
"""
# The two messages after each of these, whose context they are part of.
_FOLLOWING = """
    SELECT DISTINCT following.id FROM messages m JOIN LATERAL (
        SELECT f.id FROM messages f WHERE f.conversation_id = m.conversation_id AND f.position > m.position
        AND f.deleted = 0 AND f.human_only = 0 ORDER BY f.position LIMIT 2) AS following ON TRUE
    WHERE m.id = ANY(CAST(? AS BIGINT[]))
"""


class IndexChanges:
    """The rows that one transaction changed."""

    def __init__(self) -> None:
        self._rows: dict[str, set[int]] = {}

    def add(self, table: str, rowid: int, columns: Collection[str] | None = None) -> None:
        """Notes a row that was written. `columns` are those that changed; None for all."""
        if columns is None or not _UNINDEXED.issuperset(columns):
            self._rows.setdefault(table, set()).add(rowid)

    def add_parts(self, connection: PostgresConnection, table: str, rowid: int) -> None:
        """Notes an item with the rows that belong to it. Must be called before they are deleted, and when the item is
        hidden or becomes visible again."""
        self.add(table, rowid)
        if table == "conversations":
            rows = connection.execute(_MESSAGES_OF, (rowid,)).fetchall()
            self._rows.setdefault("messages", set()).update(message for (message,) in rows)

    def apply(self, connection: PostgresConnection) -> None:
        """Indexes the rows. Does nothing if there are none."""
        if not self._rows:
            return
        for table, kind in _SIMPLE_KINDS.items():
            if rowids := self._rows.get(table):
                index_rows(connection, kind, rowids)
        self._index_messages(connection)
        self._index_chunks(connection)
        increase_version(connection)
        self._rows.clear()

    def _index_messages(self, connection: PostgresConnection) -> None:
        messages = self._rows.get("messages", set())
        titles = {-rowid for rowid in self._rows.get("conversations", ())}
        if messages:
            following = {rowid for (rowid,) in connection.execute(_FOLLOWING, (sorted(messages),))}
            index_rows(connection, HUMAN_ONLY_ENTRIES, messages)
            messages = messages | following
        if messages or titles:
            index_rows(connection, CHAT_ENTRIES, messages | titles)

    def _index_chunks(self, connection: PostgresConnection) -> None:
        for item in sorted(self._rows.get("media", ())):
            bounds = (item << CHUNK_BITS, (item + 1) << CHUNK_BITS)
            rows = connection.execute(_CHUNKS_OF, bounds).fetchall()
            index_rows(connection, MEDIA_ENTRIES, [rowid for (rowid,) in rows])
