"""The databases of tldw: ChaChaNotes (notes, characters, conversations), Media (see `tldw_media.py`), and prompts.
Deleted items and the trash are not imported; the messages of a deleted conversation count as deleted, whatever their
own rows say.

Items keep their ids, so that a newer file updates what an older one imported, and what refers to an item by its number
still does. A number that another item of the library has cannot be kept.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.drafts import CharacterDraft, ConversationDraft, MessageDraft, NoteDraft, PromptDraft
from sources.importers.engine.chat_messages import MessageTree, conversation_parts, thread_messages
from sources.importers.engine.files import (
    DeletedItem,
    FailedItem,
    ImportedCharacter,
    ImportedNote,
    ImportedPrompt,
    SkippedItem,
    stable_uuid,
)
from sources.importers.engine.importer import Events, FileProbe, Importer, ImportLimits, ProgressCallback, StartPosition
from sources.importers.engine.table_reader import (
    FollowedDatabase,
    FollowedTable,
    KeywordLinks,
    LookupTable,
    TableReader,
    TableSpec,
    has_tables,
    open_database,
)
from sources.importers.engine.values import (
    Fields,
    clean_line,
    clean_tags,
    compact_metadata,
    json_or_none,
    key_label,
    require_storable,
    texts,
)
from sources.importers.formats.tldw_media import (
    CHUNKS,
    MEDIA,
    MEDIA_KEYWORDS,
    NAME,
    TRANSCRIPTS,
    VERSIONS,
    import_metadata,
    is_live,
    item_number,
    item_uuid,
    read_media,
)

# -- chats -------------------------------------------------------------------------------------------------------------

NOTES = TableSpec(
    "notes", ("id", "title", "content", "created_at", "last_modified", "deleted"), ("conversation_id", "message_id")
)
CHARACTERS = TableSpec(
    "character_cards",
    (
        *("id", "name", "description", "personality", "scenario", "system_prompt", "post_history_instructions"),
        *("first_message", "message_example", "creator_notes", "alternate_greetings", "tags", "creator"),
        *("character_version", "extensions", "created_at", "deleted"),
    ),
)
CONVERSATIONS = TableSpec(
    "conversations",
    (
        *("id", "title", "character_id", "rating", "created_at", "last_modified", "deleted"),
        *("forked_from_message_id", "parent_conversation_id"),
    ),
    ("topic_label", "source", "external_ref"),
)
MESSAGES = TableSpec("messages", ("id", "conversation_id", "timestamp", "deleted", "sender", "parent_message_id"))
MESSAGE_CONTENT = TableSpec("messages", ("content", "image_mime_type", "ranking"))
MESSAGE_IMAGES = TableSpec("message_images", ("message_id", "image_mime_type"))
MESSAGE_METADATA = TableSpec("message_metadata", ("message_id", "tool_calls_json"))
NOTE_KEYWORDS = KeywordLinks("note_keywords", "note_id")
CONVERSATION_KEYWORDS = KeywordLinks("conversation_keywords", "conversation_id")

_CARD_TEXTS = (
    *("description", "personality", "scenario", "system_prompt", "post_history_instructions", "first_message"),
    *("message_example", "creator_notes"),
)
_ROLES = {"user": "user", "human": "user", "you": "user", "assistant": "assistant", "system": "system", "tool": "tool"}


def read_note(reader: TableReader, row: Fields) -> Events:
    if not is_live(row):
        yield SkippedItem("deleted note")
        yield DeletedItem("notes", _row_uuid("notes", row["id"]))
        return
    content = row.text("content")
    require_storable(content, reader.limits)
    yield ImportedNote(
        NoteDraft(
            uuid=_row_uuid("notes", row["id"]),
            title=row.line("title"),
            content=content,
            tags=reader.keywords(NOTE_KEYWORDS, row["id"]),
            metadata=import_metadata(conversation=row.line("conversation_id"), message=row.line("message_id")),
            created_at=row.time("created_at") or UNSET,
            last_modified=row.time("last_modified") or UNSET,
        )
    )


def read_character(reader: TableReader, row: Fields) -> Events:
    if not is_live(row):
        yield SkippedItem("deleted character")
        yield DeletedItem("characters", _character_uuid(row))
        return
    card_texts: dict[str, Any] = {field: row.text(field) for field in _CARD_TEXTS}
    for text in card_texts.values():
        require_storable(text, reader.limits)
    extensions = json_or_none(row["extensions"], reader.limits)
    yield ImportedCharacter(
        CharacterDraft(
            uuid=_character_uuid(row),
            preferred_id=item_number(row),
            name=row.line("name"),
            **card_texts,
            creator=row.line("creator"),
            character_version=row.line("character_version"),
            alternate_greetings=tuple(texts(json_or_none(row["alternate_greetings"], reader.limits))),
            tags=clean_tags([clean_line(tag) for tag in texts(json_or_none(row["tags"], reader.limits))]),
            card={"extensions": extensions} if isinstance(extensions, dict) and extensions else {},
            metadata=import_metadata(),
            created_at=row.time("created_at") or UNSET,
        )
    )


class _MessageRow(Struct, frozen=True):
    """A message without its content, which is read when the draft is made."""

    rowid: int
    key: str
    time: str
    parent: str | None
    row: Fields


def read_conversation(reader: TableReader, row: Fields) -> Events:
    message_rowids = reader.rowids_where(MESSAGES, "conversation_id", row["id"])
    if not is_live(row):
        yield SkippedItem("deleted conversation")
        yield DeletedItem("chats", _row_uuid("conversations", row["id"]))
        for message_rowid in message_rowids:
            yield SkippedItem("message of a deleted conversation")
            # A followed database withdraws what was imported before it was deleted.
            yield DeletedItem("messages", _row_uuid("messages", _message_row(reader, message_rowid).key))
        return
    cards = reader.rows_where(CHARACTERS, "id", row["character_id"]) if row["character_id"] is not None else ()
    card = next(filter(is_live, cards), None)
    draft = ConversationDraft(
        uuid=_row_uuid("conversations", row["id"]),
        title=row.line("title"),
        character=_character_uuid(card) if card else UNSET,
        tags=reader.keywords(CONVERSATION_KEYWORDS, row["id"]),
        metadata=import_metadata(
            character=card.line("name") if card else None,
            rating=row["rating"] if isinstance(row["rating"], int) else None,
            topic=row.line("topic_label"),
            source=row.line("source"),
            external_ref=row.line("external_ref"),
            forked_from_message=row.line("forked_from_message_id"),
            parent_conversation=row.line("parent_conversation_id"),
        ),
        created_at=row.time("created_at") or UNSET,
        last_modified=row.time("last_modified") or UNSET,
    )
    messages = sorted(
        (_message_row(reader, message_rowid) for message_rowid in message_rowids),
        key=lambda message: (message.time, message.rowid),
    )
    drafts: dict[str, MessageDraft] = {}
    chars = 0
    for message in messages:
        try:
            live = _message_draft(reader, message) if is_live(message.row) else None
        except InvalidParams as error:
            location = f"conversation {key_label(row['id'])}, message {key_label(message.key)}"
            yield FailedItem(location, error.message)
            continue
        if live is None:
            yield SkippedItem("empty message" if is_live(message.row) else "deleted message")
            yield DeletedItem("messages", _row_uuid("messages", message.key))
            continue
        chars += len(str(live.content))
        # The drafts of a conversation are held until its branches are known.
        if chars > reader.limits.line_max_bytes:
            raise InvalidParams(f"conversation is longer than {reader.limits.line_max_bytes} characters")
        drafts[message.key] = live
    # Most clients of tldw do not store the parent; it is then the previous message.
    keys = {message.key for message in messages}
    parents: dict[str, str | None] = {}
    for message in messages:
        parents[message.key] = message.parent if message.parent in keys else next(reversed(parents), None)
    tree = MessageTree(parents)
    # tldw does not store which branch was last read; take the one with the newest message.
    newest = next((message.key for message in reversed(messages) if message.key in drafts), None)
    path = tree.path_to(newest)
    threaded = thread_messages(tree, path, drafts, lambda key: _row_uuid("messages", key), draft.created_at)
    yield from conversation_parts(draft, threaded)


def _message_row(reader: TableReader, rowid: int) -> _MessageRow:
    row = reader.row(MESSAGES, rowid)
    return _MessageRow(
        rowid=rowid,
        key=row.line("id") or f"row {rowid}",
        time=row.time("timestamp") or "",
        parent=row.line("parent_message_id") or None,
        row=row,
    )


def _message_draft(reader: TableReader, message: _MessageRow) -> MessageDraft | None:
    """Returns None for a message with neither text nor images."""
    message_id = message.row["id"]
    row = reader.row(MESSAGE_CONTENT, message.rowid)
    images = [image["image_mime_type"] for image in reader.rows_where(MESSAGE_IMAGES, "message_id", message_id)]
    mime_types = [kind for image in (row["image_mime_type"], *images) if (kind := clean_line(image))]
    content = row.text("content")
    if not content.strip():
        content = "\n".join(f"[image: {kind}]" for kind in mime_types)
    if not content:
        return None
    require_storable(content, reader.limits)
    sender = message.row.line("sender")
    calls = [extra["tool_calls_json"] for extra in reader.rows_where(MESSAGE_METADATA, "message_id", message_id)]
    return MessageDraft(
        # A sender that is not a role is the name of a character.
        role=_ROLES.get(sender.lower(), "assistant"),
        sender=sender,
        content=content,
        attachments=tuple({"mime_type": kind} for kind in dict.fromkeys(mime_types)),
        metadata=compact_metadata(
            ranking=row["ranking"] if isinstance(row["ranking"], int) else None,
            tool_calls=json_or_none(calls[0], reader.limits) if calls else None,
        ),
        created_at=message.time or UNSET,
    )


def _row_uuid(kind: str, key: Any) -> str:
    return item_uuid(key, kind, key_label(key))


def _character_uuid(row: Fields) -> str:
    """Adds the creation time to the id, because ids are numbers that repeat between files."""
    return stable_uuid(NAME, "characters", f"{row['id']}/{row['created_at']}")


# -- prompts -----------------------------------------------------------------------------------------------------------
# Prompts of tldw: today's database, and `prompts.db` of versions before 2025, which has neither UUIDs nor times.

PROMPTS = TableSpec(
    "Prompts",
    (
        *("id", "uuid", "name", "author", "details", "system_prompt", "user_prompt", "last_modified", "deleted"),
        # Tells tldw's table apart from those of other programs, including this one, that have all columns above.
        "merge_parent_uuid",
    ),
    ("prompt_format", "prompt_definition_json"),
)
PROMPT_KEYWORDS = KeywordLinks("PromptKeywordLinks", "prompt_id", "PromptKeywordsTable")
OLD_PROMPTS = TableSpec("Prompts", ("id", "name", "details", "system", "user"), ("author",))
_OLD_PROMPT_KEYWORDS = KeywordLinks("PromptKeywords", "prompt_id", "Keywords")
OLD_KEYWORDS = TableSpec("Keywords", ("id", "keyword"))
OLD_KEYWORD_LINKS = TableSpec("PromptKeywords", ("prompt_id", "keyword_id"))


def read_prompt(reader: TableReader, row: Fields) -> Events:
    uuid = item_uuid(row["uuid"], "prompts", row.line("name"))
    if not is_live(row):
        yield SkippedItem("deleted prompt")
        yield DeletedItem("prompts", uuid)
        return
    metadata = import_metadata(definition=json_or_none(row["prompt_definition_json"], reader.limits))
    draft = _prompt_draft(reader, row, uuid, "system_prompt", "user_prompt", PROMPT_KEYWORDS)
    # tldw does not store when a prompt was created.
    yield ImportedPrompt(replace(draft, metadata=metadata, created_at=row.time("last_modified") or UNSET))


def read_old_prompt(reader: TableReader, row: Fields) -> Events:
    # The name is unique.
    uuid = item_uuid(None, "prompts", row.line("name"))
    yield ImportedPrompt(_prompt_draft(reader, row, uuid, "system", "user", _OLD_PROMPT_KEYWORDS))


def _prompt_draft(
    reader: TableReader, row: Fields, uuid: str, system: str, user: str, keywords: KeywordLinks
) -> PromptDraft:
    for field in ("details", system, user):
        require_storable(row.text(field), reader.limits)
    return PromptDraft(
        uuid=uuid,
        preferred_id=item_number(row),
        name=row.line("name"),
        author=row.line("author"),
        details=row.text("details"),
        system_prompt=row.text(system),
        user_prompt=row.text(user),
        tags=reader.keywords(keywords, row["id"]),
        metadata=import_metadata(),
    )


# -- followed ----------------------------------------------------------------------------------------------------------
# The tables of tldw that make up its items, for reading only those that changed.


def _items(spec: TableSpec, *parts: FollowedTable, lookups: tuple[LookupTable, ...] = ()) -> FollowedTable:
    return FollowedTable(spec.name, spec.required, spec.optional, parts=parts, lookups=lookups)


def _part(spec: TableSpec, parent_column: str, *, is_counted: bool = True) -> FollowedTable:
    return FollowedTable(spec.name, spec.required, spec.optional, parent_column, is_counted=is_counted)


def _keywords(links: KeywordLinks) -> FollowedTable:
    keywords = LookupTable(links.keyword_table, ("id", "keyword"), "keyword_id", ("deleted",))
    columns = (links.item_column, "keyword_id")
    return FollowedTable(links.link_table, columns, parent_column=links.item_column, lookups=(keywords,))


_MESSAGE_TABLE = FollowedTable(
    MESSAGES.name,
    MESSAGES.required + MESSAGE_CONTENT.required,
    parent_column="conversation_id",
    parts=(_part(MESSAGE_IMAGES, "message_id"), _part(MESSAGE_METADATA, "message_id")),
)
_CHARACTER = LookupTable(CHARACTERS.name, CHARACTERS.required, "character_id", CHARACTERS.optional)

FOLLOWED_DATABASES = (
    FollowedDatabase(
        (
            _items(NOTES, _keywords(NOTE_KEYWORDS)),
            _items(CHARACTERS),
            _items(CONVERSATIONS, _MESSAGE_TABLE, _keywords(CONVERSATION_KEYWORDS), lookups=(_CHARACTER,)),
        )
    ),
    FollowedDatabase(
        (
            _items(
                MEDIA,
                # Chunks are replaced when a text is chunked again, and do not change what is stored.
                _part(CHUNKS, "media_id", is_counted=False),
                _part(TRANSCRIPTS, "media_id"),
                _part(VERSIONS, "media_id"),
                _keywords(MEDIA_KEYWORDS),
            ),
        )
    ),
    FollowedDatabase((_items(PROMPTS, _keywords(PROMPT_KEYWORDS)),)),
)


# The tables by which each kind of database is recognized.
_DATABASES = (
    (NOTES, CHARACTERS, CONVERSATIONS, MESSAGES),
    (MEDIA,),
    (PROMPTS,),
    (OLD_PROMPTS, OLD_KEYWORDS, OLD_KEYWORD_LINKS),
)


class TldwImporter(Importer):
    name = NAME
    title = "tldw databases (ChaChaNotes, Media, prompts)"
    suffixes = (".db", ".sqlite", ".sqlite3")
    reads_files_alone = True
    followed_databases = FOLLOWED_DATABASES
    # The folder of a user has many other databases.
    followed_names = ("ChaChaNotes.db", "Media_DB_v2.db", "prompts_user_dbs/user_prompts_v2.sqlite")

    def recognizes(self, probe: FileProbe) -> float:
        return 0.95 if any(has_tables(probe, tables) for tables in _DATABASES) else 0.0

    def read(self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: StartPosition) -> Events:
        with open_database(path, limits, progress) as reader:
            # By their tables and not by their names.
            database = next((tables for tables in _DATABASES if all(map(reader.has, tables))), None)
            if database is None:
                raise InvalidParams("not a tldw database")
            tables = [table for table in database if table in _ROW_READERS]
            reader.expect_rows(*tables)
            yield from reader.read_rows(tables, lambda table, row: _ROW_READERS[table](reader, row))
            if MESSAGES in database:
                orphans = reader.orphan_count(MESSAGES, "conversation_id", CONVERSATIONS)
                yield from (SkippedItem("message without a conversation") for _ in range(orphans))


_ROW_READERS: Mapping[TableSpec, Callable[[TableReader, Fields], Events]] = {
    NOTES: read_note,
    CHARACTERS: read_character,
    CONVERSATIONS: read_conversation,
    MEDIA: read_media,
    PROMPTS: read_prompt,
    OLD_PROMPTS: read_old_prompt,
}
