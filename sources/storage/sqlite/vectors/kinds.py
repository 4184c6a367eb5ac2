"""The tables and triggers of vectors in SQLite.

The vectors of a kind are in `<name>_vectors`. The rows that need new ones are in `<name>_vectors_queue`. Triggers
remove the vectors of a row in the transaction that changes its text, and add the row to the queue.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Iterator, Sequence

from sources.storage.tables.sql import CHUNK_BITS
from sources.storage.vector_kinds import ChunkVectors, ItemVectors, MessageVectors, TitleVectors, VectorKind


def vector_ddl(kind: VectorKind) -> Iterator[str]:
    yield (
        # Rowids are never reused, so vectors that are kept in memory can be checked by their rowid.
        f"CREATE TABLE {kind.vectors} (id INTEGER PRIMARY KEY AUTOINCREMENT, model INTEGER NOT NULL, "
        "item INTEGER NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL, vector BLOB NOT NULL) STRICT"
    )
    yield f"CREATE INDEX {kind.vectors}_of_item ON {kind.vectors} (item, model)"
    yield f"CREATE TABLE {kind.queue} (id INTEGER PRIMARY KEY) STRICT"
    for event, body in _triggers(kind):
        yield f"CREATE TRIGGER {kind.vectors}_{event} {body}; END"


def rowids_sql(kind: VectorKind) -> str:
    """Selects the rowids up to a given one. Those of deleted rows may be among them."""
    if isinstance(kind, MessageVectors) and kind.is_human_only:
        return (
            "SELECT r.id FROM messages r INDEXED BY messages_human_only "
            "WHERE r.human_only = 1 AND r.deleted = 0 AND r.id <= ?"
        )
    return f"SELECT r.id FROM {kind.table} r WHERE r.id <= ?"


def rows_without_item_sql(kind: VectorKind) -> str:
    """Selects vectors whose row was deleted."""
    match kind:
        case ChunkVectors():
            rows = f"chunks c JOIN media m ON m.id = c.id >> {CHUNK_BITS} WHERE c.id = v.item AND m.deleted = 0"
        case MessageVectors(is_human_only=is_human_only):
            rows = (
                "messages m JOIN conversations c ON c.id = m.conversation_id WHERE m.id = v.item AND m.deleted = 0 "
                f"AND c.deleted = 0 AND m.human_only = {int(is_human_only)}"
            )
        case _:
            rows = f"{kind.table} r WHERE r.id = v.item AND r.deleted = 0"
    return f"SELECT v.id FROM {kind.vectors} v WHERE NOT EXISTS (SELECT 1 FROM {rows})"


def count_sql(kind: VectorKind) -> str:
    """Counts the live rows up to a rowid. Those of titles are negative in the index."""
    condition = "id <= ?"
    if isinstance(kind, TitleVectors):
        condition = "id < 0 AND id >= -?"
    elif isinstance(kind, MessageVectors):
        condition = "id > 0 AND id <= ?"
    return f"SELECT count(*) FROM {kind.index}_docsize WHERE {condition}"


# -- triggers ----------------------------------------------------------------------------------------------------------


def _remove(kind: VectorKind, rowids: str) -> str:
    return f"DELETE FROM {kind.vectors} WHERE item IN ({rowids}); DELETE FROM {kind.queue} WHERE id IN ({rowids})"


def _enqueue(kind: VectorKind, rowids: str) -> str:
    return f"INSERT OR IGNORE INTO {kind.queue} {rowids}"


def _triggers(kind: VectorKind) -> Iterator[tuple[str, str]]:
    match kind:
        case ItemVectors(title=title, texts=texts, lists=lists):
            return _row_triggers(kind, (title, *texts, *lists, "deleted"))
        case ChunkVectors():
            return _chunk_triggers(kind)
        case MessageVectors():
            return _message_triggers(kind)
        case _:
            return _row_triggers(kind, ("title", "deleted"))


def _row_triggers(kind: VectorKind, watched: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield "added", f"AFTER INSERT ON {kind.table} BEGIN {_enqueue(kind, 'SELECT new.id')}"
    changed = f"{_remove(kind, 'old.id')}; {_enqueue(kind, 'SELECT new.id WHERE new.deleted = 0')}"
    yield "changed", f"AFTER UPDATE OF {', '.join(watched)} ON {kind.table} {_if_changed(watched)} BEGIN {changed}"
    yield "removed", f"AFTER DELETE ON {kind.table} BEGIN {_remove(kind, 'old.id')}"


def _chunk_triggers(kind: ChunkVectors) -> Iterator[tuple[str, str]]:
    first, end = f"old.id << {CHUNK_BITS}", f"(old.id + 1) << {CHUNK_BITS}"
    chunks = f"SELECT id FROM chunks WHERE id >= {first} AND id < {end}"
    remove = f"DELETE FROM {kind.vectors} WHERE item >= {first} AND item < {end}"
    yield "added", f"AFTER INSERT ON chunks BEGIN {_enqueue(kind, 'SELECT new.id')}"
    changed = f"{_remove(kind, 'old.id')}; {_enqueue(kind, 'SELECT new.id')}"
    yield "changed", f"AFTER UPDATE OF text ON chunks {_if_changed(('text',))} BEGIN {changed}"
    yield "removed", f"AFTER DELETE ON chunks BEGIN {_remove(kind, 'old.id')}"
    watched = ("title", "deleted")
    renamed = f"{remove}; {_enqueue(kind, f'{chunks} AND new.deleted = 0')}"
    yield "renamed", f"AFTER UPDATE OF title, deleted ON media {_if_changed(watched)} BEGIN {renamed}"


def _message_triggers(kind: MessageVectors) -> Iterator[tuple[str, str]]:
    is_own = f"human_only = {int(kind.is_human_only)}"
    is_live = f"new.deleted = 0 AND new.{is_own}"
    watched = ("sender", "content", "conversation_id", "position", "deleted", "human_only")
    changed = f"{_remove(kind, 'old.id')}; {_enqueue(kind, f'SELECT new.id WHERE {is_live}')}"
    yield "added", f"AFTER INSERT ON messages WHEN {is_live} BEGIN {_enqueue(kind, 'SELECT new.id')}"
    yield "changed", f"AFTER UPDATE OF {', '.join(watched)} ON messages {_if_changed(watched)} BEGIN {changed}"
    yield "removed", f"AFTER DELETE ON messages BEGIN {_remove(kind, 'old.id')}"
    all_messages = "SELECT id FROM messages WHERE conversation_id = old.id"
    restored = f"{all_messages} AND deleted = 0 AND {is_own} AND new.deleted = 0"
    hidden = f"{_remove(kind, all_messages)}; {_enqueue(kind, restored)}"
    yield "hidden", f"AFTER UPDATE OF deleted ON conversations {_if_changed(('deleted',))} BEGIN {hidden}"
    if not kind.is_human_only:
        # A message is part of the passage of the one after it, unless it is human-only.
        following = (
            "SELECT id FROM messages WHERE conversation_id = old.conversation_id AND position > old.position "
            "AND deleted = 0 AND human_only = 0 ORDER BY position LIMIT 1"
        )
        changed = f"{_remove(kind, following)}; {_enqueue(kind, following)}"
        condition = f"{_if_changed(watched)} AND (old.human_only = 0 OR new.human_only = 0)"
        yield "context_changed", f"AFTER UPDATE OF {', '.join(watched)} ON messages {condition} BEGIN {changed}"
        yield "context_removed", f"AFTER DELETE ON messages WHEN old.human_only = 0 BEGIN {changed}"


def _if_changed(columns: Sequence[str]) -> str:
    """Writes often set a column to the value it has."""
    old, new = (", ".join(f"{row}.{name}" for name in columns) for row in ("old", "new"))
    return f"WHEN ({old}) IS NOT ({new})" if len(columns) > 1 else f"WHEN {old} IS NOT {new}"
