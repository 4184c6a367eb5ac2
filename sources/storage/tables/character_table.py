"""The table of characters: character cards, version 3."""

from sources.drafts import CharacterDraft
from sources.records import Character
from sources.storage.tables import validation
from sources.storage.tables.indexes import CHARACTER_FIELDS, CHARACTERS_INDEX
from sources.storage.tables.item_table import (
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
    computed=(ComputedColumn("id", "characters.id"),),
)
