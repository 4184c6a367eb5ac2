"""The tables of media items: the item, its whole text, the chunks that are searched, and transcript segments."""

from msgspec import UNSET

from sources.drafts import MediaDraft
from sources.records import MediaItem
from sources.storage.tables import validation
from sources.storage.tables.connection import SqlConnection
from sources.storage.tables.indexes import CHUNK_BITS, CHUNKS_MAX, MEDIA_INDEX
from sources.storage.tables.item_table import (
    ComputedColumn,
    ItemKey,
    ItemTable,
    TableColumn,
    WriteContext,
    content_hash,
    index_form_of,
)
from sources.storage.tables.media_chunks import MediaBody, body_of
from sources.storage.tables.sql import SqlValue
from sources.storage.tables.text_index import index_form
from sources.storage.tables.validation import FieldLimits, invalid_field
from sources.text.token_estimates import TokenScale


class MediaTable(ItemTable[MediaItem, MediaDraft]):
    """Writes the text, chunks and segments of an item together with its row."""

    def insert(self, connection: SqlConnection, draft: MediaDraft, context: WriteContext, **columns: SqlValue) -> int:
        title = "" if draft.title is UNSET else validation.short_text(context.limits, "title", draft.title)
        body = body_of(draft, context.limits) or body_of(MediaDraft(content=""), context.limits)
        assert body is not None
        _require_chunk_count(body)
        rowid = super().insert(connection, draft, context, **_body_columns(title, body), **columns)
        _insert_body(connection, rowid, body)
        return rowid

    def update(
        self,
        connection: SqlConnection,
        key: ItemKey,
        draft: MediaDraft,
        expected_version: int | None,
        context: WriteContext,
        **columns: SqlValue,
    ) -> int:
        stored = self.stored_values(connection, key)
        title = stored["title"]
        if draft.title is not UNSET:
            title = validation.short_text(context.limits, "title", draft.title)
        body = body_of(draft, context.limits)
        if body is None:
            columns["content_hash"] = content_hash(title, _read_content(connection, stored["id"]))
        else:
            _require_chunk_count(body)
            columns |= _body_columns(title, body)
        rowid = super().update(connection, key, draft, expected_version, context, **columns)
        if body is not None:
            _delete_body(connection, rowid)
            _insert_body(connection, rowid, body)
        return rowid

    def purge(self, connection: SqlConnection, key: ItemKey) -> None:
        _delete_body(connection, self.rowid(connection, key))
        super().purge(connection, key)

    def has_values_of(self, connection: SqlConnection, rowid: int, draft: MediaDraft, limits: FieldLimits) -> bool:
        body = body_of(draft, limits)
        if not super().has_values_of(connection, rowid, draft, limits):
            return False
        row = connection.execute("SELECT title, content_hash, has_transcript FROM media WHERE id = ?", (rowid,))
        title, stored_hash, has_transcript = row.fetchone()
        if body is None:
            return True
        return bool(stored_hash == content_hash(title, body.content)) and has_transcript == bool(body.segments)


MEDIA_ITEMS = MediaTable(
    table="media",
    kind="media",
    record=MediaItem,
    key="id",
    columns=(
        TableColumn("title", validation.short_text),
        TableColumn("media_type", validation.required_short_text, "text"),
        TableColumn("url", validation.short_text),
        TableColumn("author", validation.short_text),
    ),
    index_forms=(index_form_of("title", has_tags=True),),
    index=MEDIA_INDEX,
    computed=(
        ComputedColumn("id", "media.id"),
        ComputedColumn("length_chars", "length_chars"),
        ComputedColumn("text_weight", "text_weight"),
        ComputedColumn("chunk_count", "chunk_count"),
        ComputedColumn("has_transcript", "has_transcript", bool),
    ),
)


def _body_columns(title: str, body: MediaBody) -> dict[str, SqlValue]:
    return {
        "content_hash": content_hash(title, body.content),
        "length_chars": len(body.content),
        "text_weight": TokenScale().weigh(body.content),
        "chunk_count": len(body.chunks),
        "has_transcript": int(bool(body.segments)),
    }


def _read_content(connection: SqlConnection, rowid: int) -> str:
    [content] = connection.execute("SELECT content FROM texts WHERE id = ?", (rowid,)).fetchone()
    return str(content)


def _require_chunk_count(body: MediaBody) -> None:
    if len(body.chunks) > CHUNKS_MAX:
        raise invalid_field("content", expected=f"at most {CHUNKS_MAX} chunks", got=f"{len(body.chunks)}")


def _insert_body(connection: SqlConnection, rowid: int, body: MediaBody) -> None:
    connection.executemany_later("INSERT INTO texts (id, content) VALUES (?, ?)", [(rowid, body.content)])
    base = rowid << CHUNK_BITS
    connection.executemany_later(
        'INSERT INTO chunks (id, uuid, start, "end", start_ms, end_ms, speaker, text, text_seg) '
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (base + c.index, c.uuid, c.start, c.end, c.start_ms, c.end_ms, c.speaker, c.text, index_form(c.text))
            for c in body.chunks
        ],
    )
    connection.executemany_later(
        "INSERT INTO segments (media_id, position, start_ms, end_ms, speaker, text) VALUES (?, ?, ?, ?, ?, ?)",
        [(rowid, position, s.start_ms, s.end_ms, s.speaker, s.text) for position, s in enumerate(body.segments)],
    )


def _delete_body(connection: SqlConnection, rowid: int) -> None:
    base = rowid << CHUNK_BITS
    connection.execute("DELETE FROM chunks WHERE id >= ? AND id < ?", (base, base + CHUNKS_MAX))
    connection.execute("DELETE FROM segments WHERE media_id = ?", (rowid,))
    connection.execute("DELETE FROM texts WHERE id = ?", (rowid,))
