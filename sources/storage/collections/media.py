"""Media: long texts, stored whole and in chunks, and the timed segments of transcripts."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Mapping, Sequence

from config.errors import NotFound
from sources.drafts import MediaDraft
from sources.records import MediaChunk, MediaItem, Segment
from sources.storage.collections.collection import StoredItems
from sources.storage.tables.connection import SqlConnection
from sources.storage.tables.indexes import CHUNK_BITS, CHUNKS_MAX
from sources.storage.tables.media_table import MEDIA_ITEMS
from sources.storage.tables.validation import COUNT_MAX, clamp_count, is_storable

_CHUNKS = f"""
    SELECT id & {CHUNKS_MAX - 1}, uuid, text, start, "end", start_ms, end_ms, speaker
    FROM chunks WHERE id >= ?1 AND id < ?2
"""
_CHUNK_BY_UUID = f"{_CHUNKS} AND uuid = ?3"
# The last chunk that starts at or before a character, or the first chunk if all start after it.
_CHUNK_AT = f"{_CHUNKS} ORDER BY start > ?3, CASE WHEN start > ?3 THEN start ELSE -start END LIMIT 1"
_SEGMENTS = """
    SELECT start_ms, end_ms, text, speaker FROM segments WHERE media_id = ? AND end_ms >= ? AND start_ms <= ?
    ORDER BY position
"""

# Beyond the longest text that SQLite can store; `substr` takes 32-bit numbers.
_TEXT_END = 1 << 30


class StoredMedia(StoredItems[MediaItem, MediaDraft, int]):
    source = "media"
    table = MEDIA_ITEMS

    async def get_by_uuid(self, uuid: str) -> MediaItem:
        return await self._read(lambda connection: self.table.get_by_uuid(connection, uuid))

    async def content(self, item_id: int, start: int = 0, length: int | None = None) -> str:
        length = _TEXT_END if length is None else min(clamp_count(length), _TEXT_END)
        parameters = (item_id, min(clamp_count(start), _TEXT_END) + 1, length)

        def work(connection: SqlConnection) -> str:
            self.table.get(connection, item_id)
            [text] = connection.execute(
                "SELECT substr(content, ?2, ?3) FROM texts WHERE id = ?1", parameters
            ).fetchone()
            return str(text)

        return await self._read(work)

    async def chunks(self, item_id: int, first: int, count: int) -> Sequence[MediaChunk]:
        first = min(clamp_count(first), CHUNKS_MAX)
        end = min(first + clamp_count(count), CHUNKS_MAX)

        def work(connection: SqlConnection) -> Sequence[MediaChunk]:
            self.table.get(connection, item_id)
            base = item_id << CHUNK_BITS
            rows = connection.execute(f"{_CHUNKS} ORDER BY id", (base + first, base + end))
            return [_chunk(*row) for row in rows]

        return await self._read(work)

    async def chunk_by_uuid(self, item_id: int, uuid: str) -> MediaChunk:
        return await self._read(lambda connection: self._get_chunk(connection, item_id, _CHUNK_BY_UUID, uuid))

    async def chunk_at(self, item_id: int, offset: int) -> MediaChunk:
        return await self._read(lambda connection: self._get_chunk(connection, item_id, _CHUNK_AT, offset))

    async def segments(self, item_id: int, from_ms: int | None = None, to_ms: int | None = None) -> Sequence[Segment]:
        start_ms = clamp_count(from_ms or 0)
        end_ms = COUNT_MAX if to_ms is None else clamp_count(to_ms)

        def work(connection: SqlConnection) -> Sequence[Segment]:
            self.table.get(connection, item_id)
            rows = connection.execute(_SEGMENTS, (item_id, start_ms, end_ms))
            return [
                Segment(start_ms=start, end_ms=end, text=text, speaker=speaker) for start, end, text, speaker in rows
            ]

        return await self._read(work)

    async def types(self) -> Mapping[str, int]:
        sql = "SELECT media_type, count(*) FROM media WHERE deleted = 0 GROUP BY media_type ORDER BY 2 DESC, 1"
        return await self._read(lambda connection: dict(connection.execute(sql).fetchall()))

    def _get_chunk(self, connection: SqlConnection, item_id: int, sql: str, key: str | int) -> MediaChunk:
        self.table.get(connection, item_id)
        base = item_id << CHUNK_BITS
        row = connection.execute(sql, (base, base + CHUNKS_MAX, key)).fetchone() if is_storable(key) else None
        if row is None:
            raise NotFound("chunk", str(key))
        return _chunk(*row)


def _chunk(
    index: int,
    uuid: str,
    text: str,
    start: int,
    end: int,
    start_ms: int | None,
    end_ms: int | None,
    speaker: str | None,
) -> MediaChunk:
    """Takes the columns of `_CHUNKS`."""
    return MediaChunk(
        index=index, uuid=uuid, text=text, start=start, end=end, start_ms=start_ms, end_ms=end_ms, speaker=speaker
    )
