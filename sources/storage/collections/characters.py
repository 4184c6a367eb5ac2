"""Characters: character cards (version 3)."""

from sources.drafts import CharacterDraft
from sources.records import Character
from sources.storage.collections.collection import StoredItems
from sources.storage.tables.character_table import CHARACTERS


class StoredCharacters(StoredItems[Character, CharacterDraft, int]):
    source = "characters"
    table = CHARACTERS
