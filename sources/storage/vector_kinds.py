"""What is embedded: the rows of each table and their passages, which are the same on both engines.

Human-only messages are a kind of their own, which agents never search, and their text is not part of the passage of any
other message.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from config.paths import DatabaseKind
from sources.installed import TABLE_KINDS
from sources.kinds import Kind
from sources.storage.embedding import Passage, split_fields, split_message, split_text
from sources.storage.tables.dialect import Dialect
from sources.storage.tables.kind_tables import text_index
from sources.storage.tables.sql import CHUNK_BITS, SqlRows, json_array

_decode_texts = msgspec.json.Decoder(list[str]).decode
_ROWID = "CAST(wanted.value AS BIGINT)"


class PassageConnection(Protocol):
    """A connection from which the rows of passages are read."""

    def execute(self, sql: str, parameters: Any = (), /) -> SqlRows: ...


class VectorKind(Struct, frozen=True, kw_only=True):
    """Rows with the rowids of `table`. `index` is the full-text index that has an entry for each of them."""

    name: str
    database: DatabaseKind
    table: str
    index: str
    # The tables that SQLite has for each kind.
    vectors: str = ""
    queue: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "vectors", f"{self.name}_vectors")
        force_setattr(self, "queue", f"{self.name}_vectors_queue")

    def passages(
        self, connection: PassageConnection, dialect: Dialect, rowids: Sequence[int], *, has_context: bool
    ) -> Iterator[tuple[int, list[Passage]]]:
        """Yields the passages of the live rows among these. With `has_context`, a message has the message before it."""
        raise NotImplementedError


class ItemVectors(VectorKind, frozen=True, kw_only=True):
    """Items with a title and other texts, all in one row."""

    title: str
    texts: tuple[str, ...]
    # Columns that contain JSON arrays of texts.
    lists: tuple[str, ...] = ()

    def passages(
        self, connection: PassageConnection, dialect: Dialect, rowids: Sequence[int], *, has_context: bool
    ) -> Iterator[tuple[int, list[Passage]]]:
        columns = ", ".join(f"r.{name}" for name in (self.title, *self.texts, *self.lists))
        rows = connection.execute(
            f"SELECT r.id, {columns} FROM {dialect.listed()} CROSS JOIN {self.table} r "
            f"WHERE r.id = {_ROWID} AND r.deleted = 0",
            (json_array(rowids),),
        )
        for rowid, title, *texts in rows:
            plain, lists = texts[: len(self.texts)], texts[len(self.texts) :]
            fields = [*plain, *(text for value in lists for text in _decode_texts(value))]
            yield rowid, split_fields(title, fields)


class ChunkVectors(VectorKind, frozen=True, kw_only=True):
    """The chunks of media, each with the title of its item."""

    def passages(
        self, connection: PassageConnection, dialect: Dialect, rowids: Sequence[int], *, has_context: bool
    ) -> Iterator[tuple[int, list[Passage]]]:
        rows = connection.execute(
            f"SELECT c.id, m.title, c.text FROM {dialect.listed()} CROSS JOIN chunks c CROSS JOIN media m "
            f"WHERE c.id = {_ROWID} AND m.id = c.id >> {CHUNK_BITS} AND m.deleted = 0",
            (json_array(rowids),),
        )
        for rowid, title, text in rows:
            yield rowid, split_text(title, text)


class TitleVectors(VectorKind, frozen=True, kw_only=True):
    """The titles of conversations."""

    def passages(
        self, connection: PassageConnection, dialect: Dialect, rowids: Sequence[int], *, has_context: bool
    ) -> Iterator[tuple[int, list[Passage]]]:
        rows = connection.execute(
            f"SELECT r.id, r.title FROM {dialect.listed()} CROSS JOIN conversations r "
            f"WHERE r.id = {_ROWID} AND r.deleted = 0",
            (json_array(rowids),),
        )
        for rowid, title in rows:
            yield rowid, split_text("", title)


class MessageVectors(VectorKind, frozen=True, kw_only=True):
    """Messages, either the human-only ones or all others."""

    is_human_only: bool

    def passages(
        self, connection: PassageConnection, dialect: Dialect, rowids: Sequence[int], *, has_context: bool
    ) -> Iterator[tuple[int, list[Passage]]]:
        previous = "NULL"
        if has_context and not self.is_human_only:
            previous = (
                "(SELECT p.content FROM messages p WHERE p.conversation_id = m.conversation_id "
                "AND p.position < m.position AND p.deleted = 0 AND p.human_only = 0 ORDER BY p.position DESC LIMIT 1)"
            )
        rows = connection.execute(
            f"SELECT m.id, m.sender, m.content, {previous} FROM {dialect.listed()} CROSS JOIN messages m "
            f"CROSS JOIN conversations c WHERE m.id = {_ROWID} AND c.id = m.conversation_id "
            f"AND m.deleted = 0 AND c.deleted = 0 AND m.human_only = {int(self.is_human_only)}",
            (json_array(rowids),),
        )
        for rowid, sender, content, context in rows:
            yield rowid, split_message(sender, content, context)


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


# The newest and the oldest rows of each kind that are read to tell the languages of a library.
_SAMPLED_ROWS = 32


def sample_texts(connection: PassageConnection, dialect: Dialect, kinds: Sequence[VectorKind]) -> list[str]:
    """Returns the first passages of some rows. Human-only messages are left out: what agents find must not depend on
    them."""
    texts = []
    for kind in kinds:
        if kind is HUMAN_ONLY_VECTORS:
            continue
        rowids: set[int] = set()
        for order in ("ASC", "DESC"):
            sql = f"SELECT r.id FROM {kind.table} r ORDER BY r.id {order} LIMIT ?"
            rowids.update(rowid for (rowid,) in connection.execute(sql, (_SAMPLED_ROWS,)))
        found = kind.passages(connection, dialect, sorted(rowids), has_context=False)
        texts += [passages[0].text for _, passages in found if passages]
    return texts


def kinds_of(database: DatabaseKind) -> tuple[VectorKind, ...]:
    return tuple(kind for kind in ALL_KINDS if kind.database == database)
