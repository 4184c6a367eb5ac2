"""What is embedded: the rows of each table, their passages, and the tables and triggers that belong to them.

The vectors of a kind are in `<name>_vectors`. The rows that need new ones are in `<name>_vectors_queue`. Triggers
remove the vectors of a row in the transaction that changes its text, and add the row to the queue.

Human-only messages are a kind of their own, which agents never search, and their text is not part of the passage of any
other message.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from config.paths import DatabaseKind
from sources.installed import TABLE_KINDS
from sources.kinds import Kind
from sources.storage.embedding import Passage, split_fields, split_message, split_text
from sources.storage.search.engine import SearchConnection
from sources.storage.tables.kind_tables import text_index
from sources.storage.tables.sql import CHUNK_BITS, json_array

_decode_texts = msgspec.json.Decoder(list[str]).decode


class VectorKind(Struct, frozen=True, kw_only=True):
    """Rows with the rowids of `table`. `index` is the full-text index that has an entry for each of them."""

    name: str
    database: DatabaseKind
    table: str
    index: str

    @property
    def vectors(self) -> str:
        return f"{self.name}_vectors"

    @property
    def queue(self) -> str:
        return f"{self.name}_vectors_queue"

    @property
    def entry_rowid(self) -> str:
        """The SQL expression of the index rowid of a row `id`."""
        return "id"

    def ddl(self) -> Iterator[str]:
        yield (
            # Rowids are never reused, so vectors that are kept in memory can be checked by their rowid.
            f"CREATE TABLE {self.vectors} (id INTEGER PRIMARY KEY AUTOINCREMENT, model INTEGER NOT NULL, "
            "item INTEGER NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL, vector BLOB NOT NULL) STRICT"
        )
        yield f"CREATE INDEX {self.vectors}_of_item ON {self.vectors} (item, model)"
        yield f"CREATE TABLE {self.queue} (id INTEGER PRIMARY KEY) STRICT"
        for event, body in self._triggers():
            yield f"CREATE TRIGGER {self.vectors}_{event} {body}; END"

    def rowids_sql(self) -> str:
        """Selects the rowids up to a given one. Those of deleted rows may be among them."""
        return f"SELECT r.id FROM {self.table} r WHERE r.id <= ?"

    def rows_without_item_sql(self) -> str:
        """Selects vectors whose row was deleted."""
        return (
            f"SELECT v.id FROM {self.vectors} v WHERE NOT EXISTS "
            f"(SELECT 1 FROM {self.table} r WHERE r.id = v.item AND r.deleted = 0)"
        )

    def count_sql(self) -> str:
        """Counts the live rows up to a rowid."""
        return f"SELECT count(*) FROM {self.index}_docsize WHERE id <= ?"

    def passages(
        self, connection: SearchConnection, rowids: Sequence[int], *, has_context: bool
    ) -> Iterator[tuple[int, list[Passage]]]:
        """Yields the passages of the live rows among these. With `has_context`, a message has the message before it."""
        raise NotImplementedError

    def _triggers(self) -> Iterator[tuple[str, str]]:
        raise NotImplementedError

    # Statements of triggers

    def _remove(self, rowids: str) -> str:
        return f"DELETE FROM {self.vectors} WHERE item IN ({rowids}); DELETE FROM {self.queue} WHERE id IN ({rowids})"

    def _enqueue(self, rowids: str) -> str:
        return f"INSERT OR IGNORE INTO {self.queue} {rowids}"


class ItemVectors(VectorKind, frozen=True, kw_only=True):
    """Items with a title and other texts, all in one row."""

    title: str
    texts: tuple[str, ...]
    # Columns that contain JSON arrays of texts.
    lists: tuple[str, ...] = ()

    def passages(
        self, connection: SearchConnection, rowids: Sequence[int], *, has_context: bool
    ) -> Iterator[tuple[int, list[Passage]]]:
        columns = ", ".join(f"r.{name}" for name in (self.title, *self.texts, *self.lists))
        rows = connection.execute(
            f"SELECT r.id, {columns} FROM json_each(?) wanted CROSS JOIN {self.table} r ON r.id = wanted.value "
            "WHERE r.deleted = 0",
            (json_array(rowids),),
        )
        for rowid, title, *texts in rows:
            plain, lists = texts[: len(self.texts)], texts[len(self.texts) :]
            fields = [*plain, *(text for value in lists for text in _decode_texts(value))]
            yield rowid, split_fields(title, fields)

    def _triggers(self) -> Iterator[tuple[str, str]]:
        watched = (self.title, *self.texts, *self.lists, "deleted")
        yield "added", f"AFTER INSERT ON {self.table} BEGIN {self._enqueue('SELECT new.id')}"
        changed = f"{self._remove('old.id')}; {self._enqueue('SELECT new.id WHERE new.deleted = 0')}"
        yield "changed", f"AFTER UPDATE OF {', '.join(watched)} ON {self.table} {_if_changed(watched)} BEGIN {changed}"
        yield "removed", f"AFTER DELETE ON {self.table} BEGIN {self._remove('old.id')}"


class ChunkVectors(VectorKind, frozen=True, kw_only=True):
    """The chunks of media, each with the title of its item."""

    def rows_without_item_sql(self) -> str:
        return (
            f"SELECT v.id FROM {self.vectors} v WHERE NOT EXISTS (SELECT 1 FROM chunks c "
            f"JOIN media m ON m.id = c.id >> {CHUNK_BITS} WHERE c.id = v.item AND m.deleted = 0)"
        )

    def passages(
        self, connection: SearchConnection, rowids: Sequence[int], *, has_context: bool
    ) -> Iterator[tuple[int, list[Passage]]]:
        rows = connection.execute(
            "SELECT c.id, m.title, c.text FROM json_each(?) wanted CROSS JOIN chunks c ON c.id = wanted.value "
            f"CROSS JOIN media m ON m.id = c.id >> {CHUNK_BITS} WHERE m.deleted = 0",
            (json_array(rowids),),
        )
        for rowid, title, text in rows:
            yield rowid, split_text(title, text)

    def _triggers(self) -> Iterator[tuple[str, str]]:
        first, end = f"old.id << {CHUNK_BITS}", f"(old.id + 1) << {CHUNK_BITS}"
        chunks = f"SELECT id FROM chunks WHERE id >= {first} AND id < {end}"
        remove = f"DELETE FROM {self.vectors} WHERE item >= {first} AND item < {end}"
        yield "added", f"AFTER INSERT ON chunks BEGIN {self._enqueue('SELECT new.id')}"
        changed = f"{self._remove('old.id')}; {self._enqueue('SELECT new.id')}"
        yield "changed", f"AFTER UPDATE OF text ON chunks {_if_changed(('text',))} BEGIN {changed}"
        yield "removed", f"AFTER DELETE ON chunks BEGIN {self._remove('old.id')}"
        watched = ("title", "deleted")
        renamed = f"{remove}; {self._enqueue(f'{chunks} AND new.deleted = 0')}"
        yield "renamed", f"AFTER UPDATE OF title, deleted ON media {_if_changed(watched)} BEGIN {renamed}"


class TitleVectors(VectorKind, frozen=True, kw_only=True):
    """The titles of conversations."""

    @property
    def entry_rowid(self) -> str:
        return "-id"

    def count_sql(self) -> str:
        return f"SELECT count(*) FROM {self.index}_docsize WHERE id < 0 AND id >= -?"

    def passages(
        self, connection: SearchConnection, rowids: Sequence[int], *, has_context: bool
    ) -> Iterator[tuple[int, list[Passage]]]:
        rows = connection.execute(
            "SELECT r.id, r.title FROM json_each(?) wanted CROSS JOIN conversations r ON r.id = wanted.value "
            "WHERE r.deleted = 0",
            (json_array(rowids),),
        )
        for rowid, title in rows:
            yield rowid, split_text("", title)

    def _triggers(self) -> Iterator[tuple[str, str]]:
        watched = ("title", "deleted")
        yield "added", f"AFTER INSERT ON {self.table} BEGIN {self._enqueue('SELECT new.id')}"
        changed = f"{self._remove('old.id')}; {self._enqueue('SELECT new.id WHERE new.deleted = 0')}"
        yield "changed", f"AFTER UPDATE OF title, deleted ON {self.table} {_if_changed(watched)} BEGIN {changed}"
        yield "removed", f"AFTER DELETE ON {self.table} BEGIN {self._remove('old.id')}"


class MessageVectors(VectorKind, frozen=True, kw_only=True):
    """Messages, either the human-only ones or all others."""

    is_human_only: bool

    def rowids_sql(self) -> str:
        if self.is_human_only:
            return (
                "SELECT r.id FROM messages r INDEXED BY messages_human_only "
                "WHERE r.human_only = 1 AND r.deleted = 0 AND r.id <= ?"
            )
        return super().rowids_sql()

    def rows_without_item_sql(self) -> str:
        return (
            f"SELECT v.id FROM {self.vectors} v WHERE NOT EXISTS (SELECT 1 FROM messages m "
            "JOIN conversations c ON c.id = m.conversation_id WHERE m.id = v.item AND m.deleted = 0 AND c.deleted = 0 "
            f"AND m.human_only = {int(self.is_human_only)})"
        )

    def count_sql(self) -> str:
        return f"SELECT count(*) FROM {self.index}_docsize WHERE id > 0 AND id <= ?"

    def passages(
        self, connection: SearchConnection, rowids: Sequence[int], *, has_context: bool
    ) -> Iterator[tuple[int, list[Passage]]]:
        previous = "NULL"
        if has_context and not self.is_human_only:
            previous = (
                "(SELECT p.content FROM messages p WHERE p.conversation_id = m.conversation_id "
                "AND p.position < m.position AND p.deleted = 0 AND p.human_only = 0 ORDER BY p.position DESC LIMIT 1)"
            )
        rows = connection.execute(
            f"SELECT m.id, m.sender, m.content, {previous} FROM json_each(?) wanted "
            "CROSS JOIN messages m ON m.id = wanted.value CROSS JOIN conversations c ON c.id = m.conversation_id "
            f"WHERE m.deleted = 0 AND c.deleted = 0 AND m.human_only = {int(self.is_human_only)}",
            (json_array(rowids),),
        )
        for rowid, sender, content, context in rows:
            yield rowid, split_message(sender, content, context)

    def _triggers(self) -> Iterator[tuple[str, str]]:
        is_own = f"human_only = {int(self.is_human_only)}"
        is_live = f"new.deleted = 0 AND new.{is_own}"
        watched = ("sender", "content", "conversation_id", "position", "deleted", "human_only")
        changed = f"{self._remove('old.id')}; {self._enqueue(f'SELECT new.id WHERE {is_live}')}"
        yield "added", f"AFTER INSERT ON messages WHEN {is_live} BEGIN {self._enqueue('SELECT new.id')}"
        yield "changed", f"AFTER UPDATE OF {', '.join(watched)} ON messages {_if_changed(watched)} BEGIN {changed}"
        yield "removed", f"AFTER DELETE ON messages BEGIN {self._remove('old.id')}"
        all_messages = "SELECT id FROM messages WHERE conversation_id = old.id"
        restored = f"{all_messages} AND deleted = 0 AND {is_own} AND new.deleted = 0"
        hidden = f"{self._remove(all_messages)}; {self._enqueue(restored)}"
        yield "hidden", f"AFTER UPDATE OF deleted ON conversations {_if_changed(('deleted',))} BEGIN {hidden}"
        if not self.is_human_only:
            yield from self._triggers_of_context(watched)

    def _triggers_of_context(self, watched: Sequence[str]) -> Iterator[tuple[str, str]]:
        """A message is part of the passage of the one after it, unless it is human-only."""
        following = (
            "SELECT id FROM messages WHERE conversation_id = old.conversation_id AND position > old.position "
            "AND deleted = 0 AND human_only = 0 ORDER BY position LIMIT 1"
        )
        changed = f"{self._remove(following)}; {self._enqueue(following)}"
        is_public = "(old.human_only = 0 OR new.human_only = 0)"
        columns = ", ".join(watched)
        condition = f"{_if_changed(watched)} AND {is_public}"
        yield "context_changed", f"AFTER UPDATE OF {columns} ON messages {condition} BEGIN {changed}"
        yield "context_removed", f"AFTER DELETE ON messages WHEN old.human_only = 0 BEGIN {changed}"


def _if_changed(columns: Sequence[str]) -> str:
    """Writes often set a column to the value it has."""
    old, new = (", ".join(f"{row}.{name}" for name in columns) for row in ("old", "new"))
    return f"WHEN ({old}) IS NOT ({new})" if len(columns) > 1 else f"WHEN {old} IS NOT {new}"


def item_vectors(kind: Kind) -> ItemVectors:
    embedded = [kind.field(name) for name in kind.embedded]
    return ItemVectors(
        name=kind.source,
        database=kind.database,
        table=kind.source,
        index=text_index(kind).table,
        title=kind.title,
        texts=tuple(field.name for field in embedded if field.shape != "list"),
        lists=tuple(field.name for field in embedded if field.shape == "list"),
    )


# Those of kinds with a table of their own, by its name.
ITEM_VECTORS: Mapping[str, ItemVectors] = {kind.source: item_vectors(kind) for kind in TABLE_KINDS}
NOTE_VECTORS = ITEM_VECTORS["notes"]
CHUNK_VECTORS = ChunkVectors(name="chunks", database="media", table="chunks", index="media_index")
TITLE_VECTORS = TitleVectors(name="titles", database="chacha", table="conversations", index="chats_index")
MESSAGE_VECTORS = MessageVectors(
    name="messages", database="chacha", table="messages", index="chats_index", is_human_only=False
)
HUMAN_ONLY_VECTORS = MessageVectors(
    name="human_only", database="chacha", table="messages", index="human_only_index", is_human_only=True
)

ALL_KINDS: tuple[VectorKind, ...] = (
    MESSAGE_VECTORS,
    HUMAN_ONLY_VECTORS,
    TITLE_VECTORS,
    *ITEM_VECTORS.values(),
    CHUNK_VECTORS,
)


def kinds_of(database: DatabaseKind) -> tuple[VectorKind, ...]:
    return tuple(kind for kind in ALL_KINDS if kind.database == database)
