"""Notes, media, characters and prompts in the user's files."""

from sources.drafts import CharacterDraft, MediaDraft, NoteDraft, PromptDraft
from sources.records import Character, MediaItem, Note, SavedPrompt
from sources.storage.collections.characters import StoredCharacters
from sources.storage.collections.media import StoredMedia
from sources.storage.collections.notes import StoredNotes
from sources.storage.collections.prompts import StoredPrompts
from sources.storage.sqlite.collections.searchable import SqliteCollection
from sources.storage.sqlite.search.targets.characters import CHARACTERS_TARGET
from sources.storage.sqlite.search.targets.media import MEDIA_TARGET
from sources.storage.sqlite.search.targets.notes import NOTES_TARGET
from sources.storage.sqlite.search.targets.prompts import PROMPTS_TARGET


class SqliteNotes(SqliteCollection[Note, NoteDraft, str], StoredNotes):
    target = NOTES_TARGET


class SqliteMedia(SqliteCollection[MediaItem, MediaDraft, int], StoredMedia):
    target = MEDIA_TARGET


class SqliteCharacters(SqliteCollection[Character, CharacterDraft, int], StoredCharacters):
    target = CHARACTERS_TARGET


class SqlitePrompts(SqliteCollection[SavedPrompt, PromptDraft, int], StoredPrompts):
    target = PROMPTS_TARGET
