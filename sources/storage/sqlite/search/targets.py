"""What a search runs on in SQLite: the index of each source, the tables behind it and the fields of a hit."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from sources.installed import ADDED_KINDS, ITEM_KINDS
from sources.kinds import Kind, field_text
from sources.records import CHARACTER, NOTE, OBSERVATION, PROMPT, Hit
from sources.storage.contract import Search
from sources.storage.search.candidates import FieldsCandidate, NamedFieldsCandidate, TextCandidate
from sources.storage.search.engine import SearchTarget
from sources.storage.sqlite.vectors.kinds import CHUNK_VECTORS, ITEM_VECTORS
from sources.storage.tables.item_table import decode_texts
from sources.storage.tables.kind_tables import OBSERVATION_LISTS, indexed_sql, text_index
from sources.storage.tables.sql import CHUNK_BITS, CHUNKS_MAX, MEDIA_INDEX, SqlFilter, one_of_ignoring_case


class NoteCandidate(TextCandidate, gc=False):
    @property
    def item_chars(self) -> int:
        return len(self.text)

    def hit(self) -> Hit:
        return self.make_hit(self.hit_text)


NOTES_TARGET = SearchTarget(
    table="notes",
    id_column="uuid",
    index=text_index(NOTE),
    weights=(2.0, 1.0),
    title_column="title",
    candidate=NoteCandidate,
    candidate_sql="""
        SELECT r.uuid, r.title, r.tags, r.created_at, r.last_modified, r.version, r.content_hash,
            r.title_seg, r.content, r.content_seg
        FROM json_each(?) wanted CROSS JOIN notes r ON r.id = wanted.value
    """,
    vectors=(ITEM_VECTORS["notes"],),
)


# -- media -------------------------------------------------------------------------------------------------------------
# How media are searched: by their chunks.


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


# -- kinds with several fields -----------------------------------------------------------------------------------------
# How characters, prompts and the kinds of other distributions are searched: by any of their fields.


class KindCandidate(NamedFieldsCandidate, gc=False):
    """An item of the kind `source`. `values` is a JSON array of its fields in reading order, without the tags."""

    has_authors = True

    source: str
    values: str

    @property
    def kind(self) -> Kind:
        return ITEM_KINDS[self.source]

    @property
    def title_field(self) -> str:
        return self.kind.title

    @property
    def embedded(self) -> Sequence[str]:
        return self.kind.embedded

    @property
    def unsearched(self) -> Collection[str]:
        return _unsearched_fields(self.source)

    def _values(self) -> dict[str, str]:
        return dict(zip(_value_fields(self.kind), decode_texts(self.values), strict=True))

    def fields(self) -> dict[str, str]:
        kind = self.kind
        values = {**self._values(), "tags": self.tags}
        lists = {field.name for field in kind.fields if field.shape == "list"} | {"tags"}
        return {
            kind.tags_name if name == "tags" else name: field_text(decode_texts(value), name)
            if name in lists
            else value
            for name, value in ((name, values[name]) for name in kind.read_fields)
        }

    @property
    def author_name(self) -> str:
        author = self.kind.author
        return self._values()[author] if author is not None else ""

    @property
    def item_chars(self) -> int:
        return len(self.body)


@lru_cache(maxsize=64)
def _unsearched_fields(source: str) -> frozenset[str]:
    kind = ITEM_KINDS[source]
    searched = kind.searched
    return frozenset(name for name in kind.read_fields if name not in searched and name != "tags")


def _value_fields(kind: Kind) -> list[str]:
    return [name for name in kind.read_fields if name != "tags"]


def kind_target(kind: Kind) -> SearchTarget:
    """The weight of a title is twice that of each other column."""
    _, *body = indexed_sql(kind, table="r.")
    return SearchTarget(
        table=kind.source,
        id_column=kind.key,
        index=text_index(kind),
        weights=(2.0, *(1.0 for _ in body)),
        title_column=kind.title,
        candidate=KindCandidate,
        candidate_sql=f"""
        SELECT r.{kind.key}, r.{kind.title}, r.tags, r.created_at, r.last_modified, r.version, r.content_hash,
            r.{kind.title}_seg, {" || ' ' || ".join(body)}, '{kind.source}',
            CAST(json_array({", ".join(f"r.{name}" for name in _value_fields(kind))}) AS TEXT)
        FROM json_each(?) wanted CROSS JOIN {kind.source} r ON r.id = wanted.value
        """,
        vectors=(ITEM_VECTORS[kind.source],),
    )


# By source.
KIND_TARGETS: Mapping[str, SearchTarget] = {
    kind.source: kind_target(kind) for kind in (CHARACTER, PROMPT, *ADDED_KINDS)
}


# -- observations ------------------------------------------------------------------------------------------------------
# How observations are searched.


class ObservationCandidate(FieldsCandidate, gc=False):
    subtitle: str
    narrative: str
    facts: str

    @property
    def item_chars(self) -> int:
        return len(self._text)

    def hit(self) -> Hit:
        return self.make_hit(self._text or self.title)

    @property
    def _text(self) -> str:
        return "\n".join(part for part in (self.subtitle, self.narrative, *decode_texts(self.facts)) if part)


# A control character between the values keeps a text from matching across two of them. Lists are JSON.
_LITERAL_TEXT = " || char(1) || ".join(
    f"(SELECT coalesce(group_concat(value, char(1)), '') FROM json_each(r.{name}))"
    if name in OBSERVATION_LISTS
    else f"r.{name}"
    for name in ("title", *OBSERVATION.searched)
)

OBSERVATIONS_TARGET = SearchTarget(
    table="observations",
    id_column="uuid",
    index=text_index(OBSERVATION),
    weights=(2.0, 1.0),
    title_column="title",
    candidate=ObservationCandidate,
    candidate_sql=f"""
        SELECT r.uuid, r.title, r.tags, r.created_at, r.last_modified, r.version, r.content_hash,
            r.title_seg, {indexed_sql(OBSERVATION, table="r.")[1]}, r.subtitle, r.narrative, r.facts
        FROM json_each(?) wanted CROSS JOIN observations r ON r.id = wanted.value
    """,
    literal_text=_LITERAL_TEXT,
    vectors=(ITEM_VECTORS["observations"],),
)
