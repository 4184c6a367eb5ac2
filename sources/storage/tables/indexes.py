"""The full-text indexes of a library, the fields that they join, and the numbers of chunks."""

from sources.storage.tables.text_index import TextIndex

NOTES_INDEX = TextIndex("notes_index", ("title", "content"))
CHARACTERS_INDEX = TextIndex("characters_index", ("name", "body"))
CHARACTER_FIELDS = (
    "description",
    "personality",
    "scenario",
    "first_message",
    "message_example",
    "system_prompt",
    "post_history_instructions",
    "creator_notes",
    "creator",
    "nickname",
    "alternate_greetings",
    "tags",
)
OBSERVATIONS_INDEX = TextIndex("observations_index", ("title", "body"))
OBSERVATION_FIELDS = ("subtitle", "narrative", "facts", "concepts", "files_read", "files_modified", "type", "project")
MEDIA_INDEX = TextIndex("media_index", ("title", "text"))
PROMPT_FIELDS = ("name", "author", "details", "system_prompt", "user_prompt", "keywords")
PROMPTS_INDEX = TextIndex("prompts_index", PROMPT_FIELDS)

_MESSAGE_COLUMNS = ("title", "own", "context")
# The human-only messages, by their rowid. It has the columns of the other index; only `own` has text. Agents search
# the other one, which contains no text of a human-only message.
HUMAN_ONLY_INDEX = TextIndex("human_only_index", _MESSAGE_COLUMNS)
# Messages have their rowid, titles of conversations have their negative rowid: both are ranked together.
CHATS_INDEX = TextIndex(
    "chats_index",
    _MESSAGE_COLUMNS,
    parts=(("message_source", "now.id = queued.id"), ("title_source", "now.conversation_id = -queued.id")),
    companions=(HUMAN_ONLY_INDEX,),
)

# The rowid of a chunk is its item's rowid shifted left, plus its index. A search can thus tell which chunks belong
# together without reading their rows. An item can have a million chunks.
CHUNK_BITS = 20
CHUNKS_MAX = 1 << CHUNK_BITS
