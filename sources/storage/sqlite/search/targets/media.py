"""How media are searched: by their chunks."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from sources.records import Hit
from sources.storage.contract import Search
from sources.storage.search.candidates import TextCandidate
from sources.storage.search.target import SearchTarget
from sources.storage.sqlite.vectors.kinds import CHUNK_VECTORS
from sources.storage.tables.indexes import CHUNK_BITS, CHUNKS_MAX, MEDIA_INDEX
from sources.storage.tables.sql import SqlFilter, one_of_ignoring_case


class MediaCandidate(TextCandidate, gc=False):
    """One chunk of an item."""

    length_chars: int
    media_type: str
    url: str
    chunk_index: int
    chunk_uuid: str
    start_ms: int | None
    text_weight: int | None

    @property
    def item_chars(self) -> int:
        return self.length_chars

    def hit(self) -> Hit:
        return self.make_hit(
            self.hit_text,
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
