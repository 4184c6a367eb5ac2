"""What a search runs on in SQLite: the index of each source, the tables behind it and the fields of a hit."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from sources.records import Hit
from sources.storage.contract import Search
from sources.storage.search.candidates import FieldsCandidate, NamedFieldsCandidate, TextCandidate
from sources.storage.search.engine import SearchTarget
from sources.storage.sqlite.schema.tables import CHARACTER_BODY
from sources.storage.sqlite.vectors.kinds import (
    CHARACTER_VECTORS,
    CHUNK_VECTORS,
    NOTE_VECTORS,
    OBSERVATION_VECTORS,
    PROMPT_VECTORS,
)
from sources.storage.tables.item_table import decode_texts
from sources.storage.tables.kind_tables import OBSERVATION_LISTS
from sources.storage.tables.sql import (
    CHARACTER_FIELDS,
    CHARACTERS_INDEX,
    CHUNK_BITS,
    CHUNKS_MAX,
    MEDIA_INDEX,
    NOTES_INDEX,
    OBSERVATION_FIELDS,
    OBSERVATIONS_INDEX,
    PROMPTS_INDEX,
    SqlFilter,
    one_of_ignoring_case,
)


class NoteCandidate(TextCandidate, gc=False):
    @property
    def item_chars(self) -> int:
        return len(self.text)

    def hit(self) -> Hit:
        return self.make_hit(self.hit_text)


NOTES_TARGET = SearchTarget(
    table="notes",
    id_column="uuid",
    index=NOTES_INDEX,
    weights=(2.0, 1.0),
    title_column="title",
    candidate=NoteCandidate,
    candidate_sql="""
        SELECT r.uuid, r.title, r.tags, r.created_at, r.last_modified, r.version, r.content_hash,
            r.title_seg, r.content, r.content_seg
        FROM json_each(?) wanted CROSS JOIN notes r ON r.id = wanted.value
    """,
    vectors=(NOTE_VECTORS,),
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


# -- characters --------------------------------------------------------------------------------------------------------
# How characters are searched: by all of their text.


class CharacterCandidate(NamedFieldsCandidate, gc=False):
    """The title is the name of the character."""

    has_authors = True
    unsearched = frozenset({"character_version", "group_only_greetings"})
    embedded = CHARACTER_VECTORS.texts

    description: str
    personality: str
    scenario: str
    first_message: str
    message_example: str
    system_prompt: str
    post_history_instructions: str
    creator_notes: str
    creator: str
    nickname: str
    alternate_greetings: str
    character_version: str
    group_only_greetings: str

    def fields(self) -> dict[str, str]:
        fields: dict[str, str] = {name: getattr(self, name) for name in _CHARACTER_FIELDS}
        fields["alternate_greetings"] = "\n\n".join(decode_texts(self.alternate_greetings))
        fields["tags"] = ", ".join(decode_texts(self.tags))
        fields["character_version"] = self.character_version
        fields["group_only_greetings"] = "\n\n".join(decode_texts(self.group_only_greetings))
        return fields

    @property
    def author_name(self) -> str:
        return self.creator

    @property
    def item_chars(self) -> int:
        return len(self.body)


# All but the tags, which every candidate has.
_CHARACTER_FIELDS = CHARACTER_FIELDS[:-1]

CHARACTERS_TARGET = SearchTarget(
    table="characters",
    id_column="id",
    index=CHARACTERS_INDEX,
    weights=(2.0, 1.0),
    title_column="name",
    candidate=CharacterCandidate,
    candidate_sql=f"""
        SELECT r.id, r.name, r.tags, r.created_at, r.last_modified, r.version, r.content_hash,
            r.name_seg, coalesce(r.body_seg, {CHARACTER_BODY}), {", ".join(f"r.{name}" for name in _CHARACTER_FIELDS)},
            r.character_version, r.group_only_greetings
        FROM json_each(?) wanted CROSS JOIN characters r ON r.id = wanted.value
    """,
    vectors=(CHARACTER_VECTORS,),
)


# -- prompts -----------------------------------------------------------------------------------------------------------
# How prompts are searched: by any of their fields.


class PromptCandidate(NamedFieldsCandidate, gc=False):
    """The title is the name of the prompt."""

    has_authors = True
    embedded = PROMPT_VECTORS.texts

    author: str
    details: str
    system_prompt: str
    user_prompt: str

    def fields(self) -> dict[str, str]:
        return {
            "details": self.details,
            "system_prompt": self.system_prompt,
            "user_prompt": self.user_prompt,
            "author": self.author,
            "keywords": ", ".join(decode_texts(self.tags)),
        }

    @property
    def author_name(self) -> str:
        return self.author

    @property
    def item_chars(self) -> int:
        return sum(map(len, (self.author, self.details, self.system_prompt, self.user_prompt)))


_PROMPT_FIELDS = ("author", "details", "system_prompt", "user_prompt")
_PROMPT_BODY = " || ' ' || ".join(f"coalesce(r.{name}_seg, r.{name})" for name in (*_PROMPT_FIELDS, "tags"))

PROMPTS_TARGET = SearchTarget(
    table="prompts",
    id_column="id",
    index=PROMPTS_INDEX,
    weights=(2.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    title_column="name",
    candidate=PromptCandidate,
    candidate_sql=f"""
        SELECT r.id, r.name, r.tags, r.created_at, r.last_modified, r.version, r.content_hash,
            r.name_seg, {_PROMPT_BODY}, {", ".join(f"r.{name}" for name in _PROMPT_FIELDS)}
        FROM json_each(?) wanted CROSS JOIN prompts r ON r.id = wanted.value
    """,
    vectors=(PROMPT_VECTORS,),
)


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


# Qualified, because `json_each` also has a column `type`.
_OBSERVATION_BODY = " || char(10) || ".join(f"r.{name}" for name in OBSERVATION_FIELDS)

# A control character between the values keeps a text from matching across two of them. Lists are JSON.
_LITERAL_TEXT = " || char(1) || ".join(
    f"(SELECT coalesce(group_concat(value, char(1)), '') FROM json_each(r.{name}))"
    if name in OBSERVATION_LISTS
    else f"r.{name}"
    for name in ("title", *OBSERVATION_FIELDS)
)

OBSERVATIONS_TARGET = SearchTarget(
    table="observations",
    id_column="uuid",
    index=OBSERVATIONS_INDEX,
    weights=(2.0, 1.0),
    title_column="title",
    candidate=ObservationCandidate,
    candidate_sql=f"""
        SELECT r.uuid, r.title, r.tags, r.created_at, r.last_modified, r.version, r.content_hash,
            r.title_seg, coalesce(r.body_seg, {_OBSERVATION_BODY}), r.subtitle, r.narrative, r.facts
        FROM json_each(?) wanted CROSS JOIN observations r ON r.id = wanted.value
    """,
    literal_text=_LITERAL_TEXT,
    vectors=(OBSERVATION_VECTORS,),
)
