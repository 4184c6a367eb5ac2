"""How characters are searched: by all of their text."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from sources.storage.search.candidates import NamedFieldsCandidate
from sources.storage.search.target import SearchTarget
from sources.storage.sqlite.schema.chacha import CHARACTER_BODY
from sources.storage.sqlite.vectors.kinds import CHARACTER_VECTORS
from sources.storage.tables.indexes import CHARACTER_FIELDS, CHARACTERS_INDEX
from sources.storage.tables.item_table import decode_texts


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
        fields: dict[str, str] = {name: getattr(self, name) for name in _CANDIDATE_FIELDS}
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
_CANDIDATE_FIELDS = CHARACTER_FIELDS[:-1]

CHARACTERS_TARGET = SearchTarget(
    table="characters",
    id_column="id",
    index=CHARACTERS_INDEX,
    weights=(2.0, 1.0),
    title_column="name",
    candidate=CharacterCandidate,
    candidate_sql=f"""
        SELECT r.id, r.name, r.tags, r.created_at, r.last_modified, r.version, r.content_hash,
            r.name_seg, coalesce(r.body_seg, {CHARACTER_BODY}), {", ".join(f"r.{name}" for name in _CANDIDATE_FIELDS)},
            r.character_version, r.group_only_greetings
        FROM json_each(?) wanted CROSS JOIN characters r ON r.id = wanted.value
    """,
    vectors=(CHARACTER_VECTORS,),
)
