"""Indexes the rows that a transaction wrote, before it is committed, so that a search sees every write that it can
read."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Collection, Mapping

from config.postgres.connection import PostgresConnection
from sources.storage.postgres.index.entries import (
    CHARACTER_ENTRIES,
    CHAT_ENTRIES,
    HUMAN_ONLY_ENTRIES,
    MEDIA_ENTRIES,
    NOTE_ENTRIES,
    OBSERVATION_ENTRIES,
    PROMPT_ENTRIES,
    EntryKind,
    index_rows,
)
from sources.storage.postgres.vectors.changed_rows import update_vectors
from sources.storage.tables.indexes import CHUNK_BITS

_SIMPLE_KINDS = {
    "notes": NOTE_ENTRIES,
    "characters": CHARACTER_ENTRIES,
    "observations": OBSERVATION_ENTRIES,
    "prompts": PROMPT_ENTRIES,
}
_IS_INDEXED = f"""
    EXISTS (SELECT 1 FROM index_entries e WHERE e.id = m.id AND e.kind = CASE m.human_only
        WHEN 1 THEN {HUMAN_ONLY_ENTRIES.number} ELSE {CHAT_ENTRIES.number} END)
"""
# Messages of conversations that were hidden or are visible again.
_MESSAGES_TO_INDEX = f"""
    SELECT m.id FROM conversations c JOIN messages m ON m.conversation_id = c.id
    WHERE c.id = ANY(CAST(? AS BIGINT[])) AND CASE c.deleted WHEN 1 THEN {_IS_INDEXED}
        ELSE m.deleted = 0 AND NOT {_IS_INDEXED} END
"""
_PURGED = "SELECT id FROM unnest(CAST(? AS BIGINT[])) AS changed (id) WHERE id NOT IN (SELECT id FROM conversations)"
_ENTRIES_WITHOUT_MESSAGE = f"""
    DELETE FROM index_entries WHERE kind IN ({CHAT_ENTRIES.number}, {HUMAN_ONLY_ENTRIES.number}) AND id > 0
    AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.id = index_entries.id) RETURNING kind, id
"""
# For each item by itself, so that the primary keys are used.
_CHUNKS_OF = f"""
    SELECT chunk.id FROM unnest(CAST(? AS BIGINT[])) AS item (id) JOIN LATERAL (
        SELECT c.id FROM chunks c WHERE c.id >= item.id << {CHUNK_BITS} AND c.id < (item.id + 1) << {CHUNK_BITS}
        UNION SELECT e.id FROM index_entries e WHERE e.kind = {MEDIA_ENTRIES.number}
            AND e.id >= item.id << {CHUNK_BITS} AND e.id < (item.id + 1) << {CHUNK_BITS}) AS chunk ON TRUE
"""
# The two messages after each of these, whose context they are part of. The conditions are ranges, as in `entries.py`.
_FOLLOWING = """
    SELECT DISTINCT following.id FROM messages m JOIN LATERAL (
        SELECT f.id FROM messages f WHERE (f.conversation_id, f.position) > (m.conversation_id, m.position)
        AND f.conversation_id < m.conversation_id + 1 AND f.deleted <> 1 AND f.human_only <> 1
        ORDER BY f.conversation_id, f.position LIMIT 2) AS following ON TRUE
    WHERE m.id = ANY(CAST(? AS BIGINT[]))
"""


def index_changes(connection: PostgresConnection, changes: Mapping[str, Collection[int]]) -> None:
    """`changes` are the rowids of rows that were inserted, updated or deleted, by table. Updates full-text entries and
    vectors."""
    indexed: dict[int, set[int]] = {}

    def index(kind: EntryKind, rowids: Collection[int]) -> None:
        index_rows(connection, kind, rowids)
        indexed.setdefault(kind.number, set()).update(rowids)

    for table, kind in _SIMPLE_KINDS.items():
        if rowids := changes.get(table):
            index(kind, rowids)
    conversations, messages = changes.get("conversations", ()), set(changes.get("messages", ()))
    if conversations:
        for number, rowid in _remove_purged(connection, conversations):
            indexed.setdefault(number, set()).add(rowid)
        rows = connection.execute(_MESSAGES_TO_INDEX, (sorted(conversations),))
        messages |= {rowid for (rowid,) in rows}
    if messages:
        following = {rowid for (rowid,) in connection.execute(_FOLLOWING, (sorted(messages),))}
        index(HUMAN_ONLY_ENTRIES, messages)
        index(CHAT_ENTRIES, messages | following)
    if conversations:
        index(CHAT_ENTRIES, [-rowid for rowid in conversations])
    if media := changes.get("media"):
        index(MEDIA_ENTRIES, [rowid for (rowid,) in connection.execute(_CHUNKS_OF, (sorted(media),))])
    update_vectors(connection, indexed)


def _remove_purged(connection: PostgresConnection, conversations: Collection[int]) -> list[tuple[int, int]]:
    """Removes the entries of messages whose conversation was purged. Returns their kinds and rowids."""
    if not connection.execute(f"{_PURGED} LIMIT 1", (sorted(conversations),)).fetchone():
        return []
    return connection.execute(_ENTRIES_WITHOUT_MESSAGE).fetchall()
