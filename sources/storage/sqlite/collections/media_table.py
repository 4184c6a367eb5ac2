"""The tables of media items: the item, its whole text, the chunks that are searched, and transcript segments."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import sqlite3

from msgspec import UNSET

from sources.drafts import MediaDraft
from sources.records import Hit, MediaItem
from sources.storage.contract import Search
from sources.storage.sqlite.index.text_index import index_form
from sources.storage.sqlite.schema.media import CHUNK_BITS, CHUNKS_MAX, MEDIA_INDEX
from sources.storage.sqlite.search.candidates import TextCandidate
from sources.storage.sqlite.search.target import SearchTarget
from sources.storage.sqlite.sql import SqlFilter, SqlValue, one_of_ignoring_case
from sources.storage.sqlite.vectors.kinds import CHUNK_VECTORS
from sources.storage.sqlite.write import validation
from sources.storage.sqlite.write.item_table import (
    ComputedColumn,
    ItemKey,
    ItemTable,
    TableColumn,
    WriteContext,
    content_hash,
    index_form_of,
)
from sources.storage.sqlite.write.media_chunks import MediaBody, body_of
from sources.storage.sqlite.write.validation import FieldLimits, invalid_field
from sources.text.token_estimates import TokenScale


class MediaTable(ItemTable[MediaItem, MediaDraft]):
    """Writes the text, chunks and segments of an item together with its row."""

    def insert(
        self, connection: sqlite3.Connection, draft: MediaDraft, context: WriteContext, **columns: SqlValue
    ) -> int:
        title = "" if draft.title is UNSET else validation.short_text(context.limits, "title", draft.title)
        body = body_of(draft, context.limits) or body_of(MediaDraft(content=""), context.limits)
        assert body is not None
        _require_chunk_count(body)
        rowid = super().insert(connection, draft, context, **_body_columns(title, body), **columns)
        _insert_body(connection, rowid, body)
        return rowid

    def _enqueue_hidden(self, connection: sqlite3.Connection, rowid: int) -> None:
        """Writes the chunks again while the item is still hidden: the triggers then add them to the queue without
        removing entries, which the index does not have."""
        sql = "UPDATE chunks SET text = text WHERE id >= ? AND id < ?"
        connection.execute(sql, (rowid << CHUNK_BITS, (rowid + 1) << CHUNK_BITS))

    def update(
        self,
        connection: sqlite3.Connection,
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

    def purge(self, connection: sqlite3.Connection, key: ItemKey) -> None:
        _delete_body(connection, self.rowid(connection, key))
        super().purge(connection, key)

    def has_values_of(self, connection: sqlite3.Connection, rowid: int, draft: MediaDraft, limits: FieldLimits) -> bool:
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
        ComputedColumn("id", "id"),
        ComputedColumn("length_chars", "length_chars"),
        ComputedColumn("text_weight", "text_weight"),
        ComputedColumn("chunk_count", "chunk_count"),
        ComputedColumn("has_transcript", "has_transcript", bool),
    ),
)


class MediaCandidate(TextCandidate, gc=False):
    """One chunk of an item."""

    length_chars: int
    media_type: str
    url: str
    chunk_index: int
    chunk_uuid: str
    start_ms: int | None
    text_weight: int | None

    def hit(self) -> Hit:
        return self.make_hit(
            self.text or self.title,
            self.length_chars,
            media_type=self.media_type,
            url=self.url,
            chunk_index=self.chunk_index,
            chunk_uuid=self.chunk_uuid,
            start_ms=self.start_ms,
            more_in_item=self.more_in_item,
            text_weight=self.text_weight,
        )


class _MediaTarget(SearchTarget, frozen=True, kw_only=True):
    def filter(self, search: Search) -> SqlFilter:
        return super().filter(search) & one_of_ignoring_case("r.media_type", search.media_types)


MEDIA_TARGET = _MediaTarget(
    table="media",
    id_column="id",
    index=MEDIA_INDEX,
    weights=(2.0, 1.0),
    title_column="title",
    candidate=MediaCandidate,
    candidate_sql=f"""
        SELECT r.id, r.title, r.tags, r.created_at, r.last_modified, r.version, r.content_hash,
            r.title_seg, c.text, c.text_seg, r.length_chars, r.media_type, r.url, c.id & {CHUNKS_MAX - 1}, c.uuid,
            c.start_ms, r.text_weight
        FROM json_each(?) wanted CROSS JOIN chunks c ON c.id = wanted.value
            CROSS JOIN media r ON r.id = c.id >> {CHUNK_BITS}
    """,
    item_bits=CHUNK_BITS,
    vectors=(CHUNK_VECTORS,),
)


def _body_columns(title: str, body: MediaBody) -> dict[str, SqlValue]:
    return {
        "content_hash": content_hash(title, body.content),
        "length_chars": len(body.content),
        "text_weight": TokenScale().weigh(body.content),
        "chunk_count": len(body.chunks),
        "has_transcript": int(bool(body.segments)),
    }


def _read_content(connection: sqlite3.Connection, rowid: int) -> str:
    [content] = connection.execute("SELECT content FROM texts WHERE id = ?", (rowid,)).fetchone()
    return str(content)


def _require_chunk_count(body: MediaBody) -> None:
    if len(body.chunks) > CHUNKS_MAX:
        raise invalid_field("content", expected=f"at most {CHUNKS_MAX} chunks", got=f"{len(body.chunks)}")


def _insert_body(connection: sqlite3.Connection, rowid: int, body: MediaBody) -> None:
    connection.execute("INSERT INTO texts VALUES (?, ?)", (rowid, body.content))
    base = rowid << CHUNK_BITS
    connection.executemany(
        "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (base + c.index, c.uuid, c.start, c.end, c.start_ms, c.end_ms, c.speaker, c.text, index_form(c.text))
            for c in body.chunks
        ],
    )
    connection.executemany(
        "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?)",
        [(rowid, position, s.start_ms, s.end_ms, s.speaker, s.text) for position, s in enumerate(body.segments)],
    )


def _delete_body(connection: sqlite3.Connection, rowid: int) -> None:
    base = rowid << CHUNK_BITS
    connection.execute("DELETE FROM chunks WHERE id >= ? AND id < ?", (base, base + CHUNKS_MAX))
    connection.execute("DELETE FROM segments WHERE media_id = ?", (rowid,))
    connection.execute("DELETE FROM texts WHERE id = ?", (rowid,))
