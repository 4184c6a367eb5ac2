"""Media: long texts, kept whole and in chunks, and the timed lines of those that were spoken."""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET

from config.errors import NotFound
from sources.drafts import MediaDraft
from sources.records import Hit, MediaChunk, MediaItem, Segment
from sources.search.scoring import TITLE_AND_BODY
from sources.storage.contract import Search
from sources.storage.sqlite.collections.collection import SqliteItemCollection
from sources.storage.sqlite.index.text_index import counted_form, index_form
from sources.storage.sqlite.schema.media import CHUNK_BITS, CHUNKS_MAX, MEDIA_INDEX
from sources.storage.sqlite.search.counting import Counter
from sources.storage.sqlite.search.target import Candidate, Filter, Target, dated, equal, json_list, one_of, tagged
from sources.storage.sqlite.write import validation
from sources.storage.sqlite.write.items import Column, Derived, Items, Key, Stamp, content_hash, form_of, read_texts
from sources.storage.sqlite.write.media_chunks import Body, body_of

MEDIA = Items(
    table="media",
    kind="media",
    record=MediaItem,
    key="id",
    columns=(
        Column("title", validation.line),
        Column("media_type", validation.name, "text"),
        Column("url", validation.line),
        Column("author", validation.line),
    ),
    forms=(form_of("title"),),
    index=MEDIA_INDEX,
    derived=(
        Derived("id", "id"),
        Derived("length_chars", "length_chars"),
        Derived("chunk_count", "chunk_count"),
        Derived("has_transcript", "has_transcript", bool),
    ),
)

_CHUNK = f'id & {CHUNKS_MAX - 1}, uuid, text, start, "end", start_ms, end_ms, speaker'
_CHUNKS = f"SELECT {_CHUNK} FROM chunks WHERE id >= ?1 AND id < ?2"
_CHUNK_BY_UUID = f"{_CHUNKS} AND uuid = ?3"
# The last chunk that begins at or before a character; the first one for a character before all of them.
_CHUNK_AT = f"{_CHUNKS} ORDER BY start > ?3, CASE WHEN start > ?3 THEN start ELSE -start END LIMIT 1"
_SEGMENTS = (
    "SELECT start_ms, end_ms, text, speaker FROM segments WHERE media_id = ? AND end_ms >= ? AND start_ms <= ? "
    "ORDER BY position"
)

_ROWS = f"""
    SELECT m.id, m.title, c.text, m.title_seg, c.text_seg, m.tags, m.created_at, m.last_modified, m.version,
        m.content_hash, m.length_chars, m.media_type, m.url, c.id & {CHUNKS_MAX - 1}, c.uuid, c.start_ms
    FROM json_each(?) wanted CROSS JOIN chunks c ON c.id = wanted.value
        CROSS JOIN media m ON m.id = c.id >> {CHUNK_BITS}
"""


def _filter(search: Search) -> Filter:
    return (
        tagged(search, "media", "r.id")
        & dated(search, "r.created_at")
        & one_of("r.media_type", search.media_types)
        & equal("r.id", search.within)
    )


def _listed(_search: Search) -> str:
    return f"SELECT r.id << {CHUNK_BITS} AS number, r.last_modified AS age FROM media r WHERE r.deleted = 0"


def _candidates(connection: sqlite3.Connection, numbers: Sequence[int]) -> Sequence[Candidate]:
    return [
        Candidate(
            row=row,
            prominent=counted_form(row[1], row[3]),
            other=counted_form(row[2], row[4]),
            chars=len(row[1]) + len(row[2]),
            has_title=True,
            age=row[7],
            identity=row[0],
        )
        for row in connection.execute(_ROWS, (json_list(numbers),))
    ]


def _hit(found: Candidate, _search: Search, _counter: Counter) -> Hit:
    number, title, text, _, _, tags, created_at, last_modified, version, content_hash, chars, *place = found.row
    media_type, url, chunk_index, chunk_uuid, start_ms = place
    return Hit(
        id=number,
        title=title,
        text=text or title,
        score=found.score,
        bm25=found.bm25,
        created_at=created_at,
        last_modified=last_modified,
        version=version,
        tags=read_texts(tags),
        content_hash=content_hash,
        item_chars=chars,
        media_type=media_type,
        url=url,
        chunk_index=chunk_index,
        chunk_uuid=chunk_uuid,
        start_ms=start_ms,
        more_in_item=found.more_in_item,
    )


TARGET = Target(
    index=MEDIA_INDEX,
    bm25="bm25(media_index, 2.0, 1.0)",
    title="title",
    join=f"CROSS JOIN media r ON r.id = media_index.rowid >> {CHUNK_BITS}",
    age="r.last_modified",
    prominence=TITLE_AND_BODY,
    filter=_filter,
    listed=_listed,
    candidates=_candidates,
    hit=_hit,
    item_bits=CHUNK_BITS,
)

# Beyond the longest text SQLite can hold; its substr counts in 32 bits.
_TEXT_END = 1 << 30


class SqliteMedia(SqliteItemCollection[MediaItem, MediaDraft, int]):
    source = "media"
    target = TARGET
    items = MEDIA

    async def get_by_uuid(self, uuid: str) -> MediaItem:
        return await self._read(lambda connection: self.items.get_by_uuid(connection, uuid))

    async def content(self, media_id: int, start: int = 0, length: int | None = None) -> str:
        taken = _TEXT_END if length is None else min(validation.count(length), _TEXT_END)
        parameters = (media_id, min(validation.count(start), _TEXT_END) + 1, taken)

        def work(connection: sqlite3.Connection) -> str:
            self.items.get(connection, media_id)
            sql = "SELECT substr(content, ?2, ?3) FROM texts WHERE id = ?1"
            text: str = connection.execute(sql, parameters).fetchone()[0]
            return text

        return await self._read(work)

    async def chunks(self, media_id: int, first: int, count: int) -> Sequence[MediaChunk]:
        first = min(validation.count(first), CHUNKS_MAX)
        last = min(first + validation.count(count), CHUNKS_MAX)

        def work(connection: sqlite3.Connection) -> Sequence[MediaChunk]:
            self.items.get(connection, media_id)
            base = media_id << CHUNK_BITS
            rows = connection.execute(f"{_CHUNKS} ORDER BY id", (base + first, base + last))
            return [_chunk(row) for row in rows]

        return await self._read(work)

    async def chunk_by_uuid(self, media_id: int, uuid: str) -> MediaChunk:
        return await self._read(lambda connection: self._one_chunk(connection, media_id, _CHUNK_BY_UUID, uuid))

    async def chunk_at(self, media_id: int, offset: int) -> MediaChunk:
        return await self._read(lambda connection: self._one_chunk(connection, media_id, _CHUNK_AT, offset))

    async def segments(self, media_id: int, from_ms: int | None = None, to_ms: int | None = None) -> Sequence[Segment]:
        """The timed lines that are spoken at any moment of the window, its ends included."""

        def work(connection: sqlite3.Connection) -> Sequence[Segment]:
            self.items.get(connection, media_id)
            window = (
                validation.count(from_ms or 0),
                validation.COUNT_MAX if to_ms is None else validation.count(to_ms),
            )
            rows = connection.execute(_SEGMENTS, (media_id, *window))
            return [Segment(start_ms=start, end_ms=end, text=text, speaker=who) for start, end, text, who in rows]

        return await self._read(work)

    async def types(self) -> Mapping[str, int]:
        sql = "SELECT media_type, count(*) FROM media WHERE deleted = 0 GROUP BY media_type ORDER BY 2 DESC, 1"
        return await self._read(lambda connection: dict(connection.execute(sql).fetchall()))

    def _remove(self, connection: sqlite3.Connection, item_id: int) -> None:
        _remove_body(connection, self.items.number(connection, item_id))
        self.items.purge(connection, item_id)

    def _insert(
        self, connection: sqlite3.Connection, draft: MediaDraft, stamp: Stamp, **extra: validation.SqlValue
    ) -> int:
        limits = self._settings.limits
        title = "" if draft.title is UNSET else validation.line(limits, "title", draft.title)
        body = body_of(draft, limits) or body_of(MediaDraft(content=""), limits)
        assert body is not None
        _require_countable(body)
        number = self.items.insert(connection, draft, stamp, limits, **_measures(title, body), **extra)
        _add_body(connection, number, body)
        return number

    def _change(
        self,
        connection: sqlite3.Connection,
        key: Key,
        draft: MediaDraft,
        expected_version: int | None,
        stamp: Stamp,
        **extra: validation.SqlValue,
    ) -> int:
        held = self.items.row(connection, key)
        title = held["title"] if draft.title is UNSET else validation.line(self._settings.limits, "title", draft.title)
        body = body_of(draft, self._settings.limits)
        if body is None:
            extra["content_hash"] = _hash_with_text(connection, held["id"], title)
        else:
            _require_countable(body)
            extra |= _measures(title, body)
        number = self.items.update(connection, key, draft, expected_version, stamp, self._settings.limits, **extra)
        if body is not None:
            _remove_body(connection, number)
            _add_body(connection, number, body)
        return number

    def _holds(self, connection: sqlite3.Connection, number: int, draft: MediaDraft) -> bool:
        body = body_of(draft, self._settings.limits)
        if not super()._holds(connection, number, draft):
            return False
        row = connection.execute("SELECT title, content_hash, has_transcript FROM media WHERE id = ?", (number,))
        title, held_hash, has_transcript = row.fetchone()
        return body is None or (held_hash, has_transcript) == (content_hash(title, body.content), bool(body.segments))

    def _one_chunk(self, connection: sqlite3.Connection, media_id: int, sql: str, wanted: str | int) -> MediaChunk:
        self.items.get(connection, media_id)
        base = media_id << CHUNK_BITS
        parameters = (base, base + CHUNKS_MAX, wanted)
        row = connection.execute(sql, parameters).fetchone() if validation.is_storable(wanted) else None
        if row is None:
            raise NotFound("chunk", str(wanted))
        return _chunk(row)


def _measures(title: str, body: Body) -> dict[str, validation.SqlValue]:
    return {
        "content_hash": content_hash(title, body.content),
        "length_chars": len(body.content),
        "chunk_count": len(body.chunks),
        "has_transcript": int(bool(body.segments)),
    }


def _hash_with_text(connection: sqlite3.Connection, number: int, title: str) -> str:
    text: str = connection.execute("SELECT content FROM texts WHERE id = ?", (number,)).fetchone()[0]
    return content_hash(title, text)


def _require_countable(body: Body) -> None:
    if len(body.chunks) > CHUNKS_MAX:
        raise validation.refusal("content", f"{len(body.chunks)} chunks", f"at most {CHUNKS_MAX}")


def _add_body(connection: sqlite3.Connection, number: int, body: Body) -> None:
    connection.execute("INSERT INTO texts VALUES (?, ?)", (number, body.content))
    base = number << CHUNK_BITS
    connection.executemany(
        "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (base + c.index, c.uuid, c.start, c.end, c.start_ms, c.end_ms, c.speaker, c.text, index_form(c.text))
            for c in body.chunks
        ],
    )
    connection.executemany(
        "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?)",
        [(number, place, s.start_ms, s.end_ms, s.speaker, s.text) for place, s in enumerate(body.segments)],
    )


def _remove_body(connection: sqlite3.Connection, number: int) -> None:
    base = number << CHUNK_BITS
    connection.execute("DELETE FROM chunks WHERE id >= ? AND id < ?", (base, base + CHUNKS_MAX))
    connection.execute("DELETE FROM segments WHERE media_id = ?", (number,))
    connection.execute("DELETE FROM texts WHERE id = ?", (number,))


def _chunk(row: Sequence[Any]) -> MediaChunk:
    index, uuid, text, start, end, start_ms, end_ms, speaker = row
    return MediaChunk(
        index=index, uuid=uuid, text=text, start=start, end=end, start_ms=start_ms, end_ms=end_ms, speaker=speaker
    )
