"""Characters: character cards (version 3), searchable by all of their text."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from sources.drafts import CharacterDraft
from sources.records import Character
from sources.storage.sqlite.collections.collection import SqliteItemCollection
from sources.storage.sqlite.schema.chacha import CHARACTER_BODY, CHARACTER_FIELDS, CHARACTERS_INDEX
from sources.storage.sqlite.search.candidates import NamedFieldsCandidate
from sources.storage.sqlite.search.target import SearchTarget
from sources.storage.sqlite.vectors.kinds import CHARACTER_VECTORS
from sources.storage.sqlite.write import validation
from sources.storage.sqlite.write.item_table import (
    ComputedColumn,
    IndexFormColumn,
    ItemTable,
    TableColumn,
    decode_object,
    decode_texts,
    index_form_of,
)

_LONG_TEXTS = (
    "description",
    "personality",
    "scenario",
    "first_message",
    "message_example",
    "system_prompt",
    "post_history_instructions",
    "creator_notes",
)
_SHORT_TEXTS = ("creator", "character_version", "nickname")

CHARACTERS: ItemTable[Character, CharacterDraft] = ItemTable(
    table="characters",
    kind="character",
    record=Character,
    key="id",
    columns=(
        TableColumn("name", validation.required_short_text, is_required=True),
        *(TableColumn(name, validation.long_text) for name in _LONG_TEXTS),
        *(TableColumn(name, validation.short_text) for name in _SHORT_TEXTS),
        TableColumn("alternate_greetings", validation.text_list, "[]", decode_texts),
        TableColumn("group_only_greetings", validation.text_list, "[]", decode_texts),
        TableColumn("card", validation.json_text, "{}", decode_object),
    ),
    hashed_columns=("name", *CHARACTER_FIELDS, "group_only_greetings", "card"),
    # The body is joined in the same way in the view that the index reads.
    index_forms=(index_form_of("name"), IndexFormColumn("body_seg", CHARACTER_FIELDS)),
    index=CHARACTERS_INDEX,
    computed=(ComputedColumn("id", "id"),),
)


class CharacterCandidate(NamedFieldsCandidate, gc=False):
    """The title is the name of the character."""

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


class SqliteCharacters(SqliteItemCollection[Character, CharacterDraft, int]):
    source = "characters"
    target = CHARACTERS_TARGET
    table = CHARACTERS
