"""The databases of tldw: ChaChaNotes (notes, characters, conversations), Media, and prompts.
Deleted items and the trash are not imported; the messages of a deleted conversation count as deleted, whatever their
own rows say.

Items keep their ids, so that a newer file updates what an older one imported, and what refers to an item by its number
still does. A number that another item of the library has cannot be kept.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import UNSET, Struct, UnsetType, structs

from config.errors import InvalidParams
from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.importers.engine import events, table_reader, values
from sources.importers.engine.chat_messages import MessageTree, conversation_parts
from sources.importers.engine.importer import Events, FileImporter, FileProbe, InputFile
from sources.importers.engine.table_reader import FollowedTable, KeywordLinks, TableReader, TableSpec
from sources.importers.engine.values import Fields
from sources.records import MediaChunk, Segment

# -- rows --------------------------------------------------------------------------------------------------------------
# What the rows of all tldw tables have in common.

NAME = "tldw"


def is_live(row: Fields) -> bool:
    """tldw marks rows as deleted instead of removing them."""
    return not row["deleted"]


def import_metadata(**fields: Any) -> dict[str, Any]:
    return {"imported_from": NAME, **values.compact_metadata(**fields)}


def item_uuid(value: object, kind: str, key: str) -> str:
    """Returns a row's own UUID, or one derived from `key` if it has none."""
    return values.valid_uuid(value) or events.stable_uuid(NAME, kind, key)


def item_number(row: Fields) -> int | UnsetType:
    """Returns the id by which tldw's clients know the row."""
    number = row["id"]
    return number if isinstance(number, int) else UNSET


# -- chats -------------------------------------------------------------------------------------------------------------

# The tables of items name their parts, so that only the items that changed are read of a followed database.


def _keywords(links: KeywordLinks) -> FollowedTable:
    keywords = table_reader.LookupTable(links.keyword_table, ("id", "keyword"), ("deleted",), "keyword_id")
    columns = (links.item_column, "keyword_id")
    return FollowedTable(links.link_table, columns, parent_column=links.item_column, lookups=(keywords,))


NOTE_KEYWORDS = KeywordLinks("note_keywords", "note_id")
CONVERSATION_KEYWORDS = KeywordLinks("conversation_keywords", "conversation_id")
NOTES = FollowedTable(
    "notes",
    ("id", "title", "content", "created_at", "last_modified", "deleted"),
    ("conversation_id", "message_id"),
    parts=(_keywords(NOTE_KEYWORDS),),
)
CHARACTERS = FollowedTable(
    "character_cards",
    (
        *("id", "name", "description", "personality", "scenario", "system_prompt", "post_history_instructions"),
        *("first_message", "message_example", "creator_notes", "alternate_greetings", "tags", "creator"),
        *("character_version", "extensions", "created_at", "deleted"),
    ),
)
MESSAGES = TableSpec("messages", ("id", "conversation_id", "timestamp", "deleted", "sender", "parent_message_id"))
MESSAGE_CONTENT = TableSpec("messages", ("content", "image_mime_type", "ranking"))
MESSAGE_IMAGES = FollowedTable("message_images", ("message_id", "image_mime_type"), parent_column="message_id")
MESSAGE_METADATA = FollowedTable("message_metadata", ("message_id", "tool_calls_json"), parent_column="message_id")
_WHOLE_MESSAGES = FollowedTable(
    MESSAGES.name,
    MESSAGES.required + MESSAGE_CONTENT.required,
    parent_column="conversation_id",
    parts=(MESSAGE_IMAGES, MESSAGE_METADATA),
)
CONVERSATIONS = FollowedTable(
    "conversations",
    (
        *("id", "title", "character_id", "rating", "created_at", "last_modified", "deleted"),
        *("forked_from_message_id", "parent_conversation_id"),
    ),
    ("topic_label", "source", "external_ref"),
    parts=(_WHOLE_MESSAGES, _keywords(CONVERSATION_KEYWORDS)),
    lookups=(table_reader.LookupTable(CHARACTERS.name, CHARACTERS.required, CHARACTERS.optional, "character_id"),),
)

_CARD_TEXTS = (
    *("description", "personality", "scenario", "system_prompt", "post_history_instructions", "first_message"),
    *("message_example", "creator_notes"),
)
_ROLES = {"user": "user", "human": "user", "you": "user", "assistant": "assistant", "system": "system", "tool": "tool"}


def read_note(reader: TableReader, row: Fields) -> Events:
    if not is_live(row):
        yield events.SkippedItem("deleted note")
        yield events.DeletedItem("notes", _row_uuid("notes", row["id"]))
        return
    content = row.text("content")
    values.require_storable(content, reader.limits)
    yield events.ImportedNote(
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
        yield events.SkippedItem("deleted character")
        yield events.DeletedItem("characters", _character_uuid(row))
        return
    card_texts: dict[str, Any] = {field: row.text(field) for field in _CARD_TEXTS}
    for text in card_texts.values():
        values.require_storable(text, reader.limits)
    extensions = values.json_or_none(row["extensions"], reader.limits)
    yield events.ImportedCharacter(
        CharacterDraft(
            uuid=_character_uuid(row),
            preferred_id=item_number(row),
            name=row.line("name"),
            **card_texts,
            creator=row.line("creator"),
            character_version=row.line("character_version"),
            alternate_greetings=tuple(values.texts(values.json_or_none(row["alternate_greetings"], reader.limits))),
            tags=values.clean_tags(
                [values.clean_line(tag) for tag in values.texts(values.json_or_none(row["tags"], reader.limits))]
            ),
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
        yield events.SkippedItem("deleted conversation")
        yield events.DeletedItem("chats", _row_uuid("conversations", row["id"]))
        for message_rowid in message_rowids:
            yield events.SkippedItem("message of a deleted conversation")
            # A followed database withdraws what was imported before it was deleted.
            yield events.DeletedItem("messages", _row_uuid("messages", _message_row(reader, message_rowid).key))
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
            location = f"conversation {values.key_label(row['id'])}, message {values.key_label(message.key)}"
            yield events.FailedItem(location, error.message)
            continue
        if live is None:
            yield events.SkippedItem("empty message" if is_live(message.row) else "deleted message")
            yield events.DeletedItem("messages", _row_uuid("messages", message.key))
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
    threaded = tree.messages(path, drafts, partial(_row_uuid, "messages"), draft.created_at)
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
    mime_types = [kind for image in (row["image_mime_type"], *images) if (kind := values.clean_line(image))]
    content = row.text("content")
    if not content.strip():
        content = "\n".join(f"[image: {kind}]" for kind in mime_types)
    if not content:
        return None
    values.require_storable(content, reader.limits)
    sender = message.row.line("sender")
    calls = [extra["tool_calls_json"] for extra in reader.rows_where(MESSAGE_METADATA, "message_id", message_id)]
    return MessageDraft(
        # A sender that is not a role is the name of a character.
        role=_ROLES.get(sender.lower(), "assistant"),
        sender=sender,
        content=content,
        attachments=tuple({"mime_type": kind} for kind in dict.fromkeys(mime_types)),
        metadata=values.compact_metadata(
            ranking=row["ranking"] if isinstance(row["ranking"], int) else None,
            tool_calls=values.json_or_none(calls[0], reader.limits) if calls else None,
        ),
        created_at=message.time or UNSET,
    )


def _row_uuid(kind: str, key: Any) -> str:
    return item_uuid(key, kind, values.key_label(key))


def _character_uuid(row: Fields) -> str:
    """Adds the creation time to the id, because ids are numbers that repeat between files."""
    return events.stable_uuid(NAME, "characters", f"{row['id']}/{row['created_at']}")


# -- media -------------------------------------------------------------------------------------------------------------
# Texts with their stored chunks, and transcripts. If a document has several versions, the media row holds the current
# one.

CHUNKS = FollowedTable(
    "UnvectorizedMediaChunks",
    ("media_id", "uuid", "chunk_text", "chunk_index", "start_char", "end_char", "chunk_type", "deleted"),
    parent_column="media_id",
    # Chunks are replaced when a text is chunked again, and do not change what is stored.
    is_counted=False,
)
TRANSCRIPTS = FollowedTable(
    "Transcripts",
    ("media_id", "transcription", "whisper_model", "created_at", "deleted"),
    ("transcription_run_id",),
    parent_column="media_id",
)
VERSIONS = FollowedTable(
    "DocumentVersions",
    ("media_id", "version_number", "prompt", "analysis_content", "deleted"),
    parent_column="media_id",
)
MEDIA_KEYWORDS = KeywordLinks("MediaKeywords", "media_id", "Keywords")
MEDIA = FollowedTable(
    "Media",
    (
        *("id", "uuid", "url", "title", "type", "content", "author", "ingestion_date", "transcription_model"),
        *("is_trash", "deleted"),
    ),
    ("latest_transcription_run_id",),
    parts=(CHUNKS, TRANSCRIPTS, VERSIONS, _keywords(MEDIA_KEYWORDS)),
)

_TRANSCRIPT_ID_OFFSET = 1_000_000_000

# The share of a text's words that must occur in a transcript for the two to be the same. tldw writes times and a line
# about the model between the words; `2.5s` is a time and not a word.
_SAME_SHARE = 0.9
_WORD = re.compile(r"[^\W\d_]{2,}")
_SECONDS, _MILLISECONDS = 1000, 1
_TIME_FIELDS = (
    ("start", "end", _SECONDS),
    ("start_seconds", "end_seconds", _SECONDS),
    ("start_ms", "end_ms", _MILLISECONDS),
)
_CLOCK = re.compile(r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2}(?:[.,]\d{1,6})?)\Z")
# A thousand hours. Larger numbers are in another unit.
_TIME_MAX_MS = 3_600_000_000


def read_media(reader: TableReader, row: Fields) -> Events:
    if not is_live(row) or row["is_trash"]:
        yield events.SkippedItem("media item in the trash" if is_live(row) else "deleted media item")
        yield events.DeletedItem("media", _media_uuid(row))
        yield events.DeletedItem("media", _transcript_uuid(_media_uuid(row)))
        return
    uuid, content = _media_uuid(row), row.text("content")
    transcript, segments = _current_transcript(reader, row)
    versions = [version for version in reader.rows_where(VERSIONS, "media_id", row["id"]) if is_live(version)]
    current: Fields = max(versions, key=lambda version: _number(version["version_number"]), default=Fields())
    draft = MediaDraft(
        uuid=uuid,
        preferred_id=item_number(row),
        title=row.line("title"),
        media_type=row.line("type") or "text",
        url=values.url_or_empty(row["url"]),
        author=row.line("author"),
        tags=reader.keywords(MEDIA_KEYWORDS, row["id"]),
        metadata=import_metadata(
            transcription_model=row.line("transcription_model"),
            analysis=current.text("analysis_content"),
            analysis_prompt=current.text("prompt"),
        ),
        created_at=row.time("ingestion_date") or UNSET,
    )
    words, transcript_words = _WORD.findall(content.lower()), set(_WORD.findall(transcript.lower()))
    is_same = sum(word in transcript_words for word in words) >= _SAME_SHARE * len(words)
    transcript_draft = draft
    if not transcript.strip() or not is_same:
        values.require_storable(content, reader.limits)
        yield events.ImportedMedia(
            structs.replace(draft, content=content, chunks=_stored_chunks(reader, row, content) or UNSET)
        )
        # A transcript that differs from the item's text is an item of its own, so that both can be found. Its id leaves
        # the next numbers to tldw's own items.
        transcript_draft = MediaDraft(
            preferred_id=UNSET if draft.preferred_id is UNSET else _TRANSCRIPT_ID_OFFSET + draft.preferred_id,
            uuid=_transcript_uuid(uuid),
            title=draft.title,
            media_type="transcript",
            url=draft.url,
            author=draft.author,
            tags=draft.tags,
            metadata=import_metadata(transcript_of=draft.uuid),
            created_at=draft.created_at,
        )
    if transcript.strip():
        values.require_storable(transcript, reader.limits)
        parts = {"segments": segments} if segments else {"content": transcript}
        yield events.ImportedMedia(structs.replace(transcript_draft, **parts))
    if not transcript.strip() or is_same:
        yield events.DeletedItem("media", _transcript_uuid(uuid))


def _media_uuid(row: Fields) -> str:
    return item_uuid(row["uuid"], "media", f"{row['id']}/{row['ingestion_date']}")


def _transcript_uuid(media_uuid: str) -> str:
    return events.stable_uuid(NAME, "transcripts", media_uuid)


# -- chunks ------------------------------------------------------------------------------------------------------------


def _stored_chunks(reader: TableReader, row: Fields, content: str) -> Sequence[MediaChunk]:
    """Returns the stored chunks if together they cover the current text; otherwise none, and the text is chunked again.
    A text may have been chunked in several ways, which differ in `chunk_type`."""
    rows = [chunk for chunk in reader.rows_where(CHUNKS, "media_id", row["id"]) if is_live(chunk)]
    by_type: dict[str, list[Fields]] = {}
    for chunk in sorted(rows, key=lambda chunk: _number(chunk["chunk_index"])):
        by_type.setdefault(chunk.text("chunk_type"), []).append(chunk)
    for stored in by_type.values():
        located: list[MediaChunk] = []
        after = end = 0
        is_covered = True
        for index, chunk in enumerate(stored):
            text = chunk.text("chunk_text")
            # The text is at the stored offset, or anywhere after the previous chunk.
            start = _number(chunk["start_char"])
            if content[start : start + len(text)] != text:
                start = content.find(text, after)
            if text.strip() and start >= 0:
                after = start + 1
                # Only white space may be outside the chunks: other text would never be found.
                is_covered = is_covered and not content[end:start].strip()
                end = max(end, start + len(text))
                uuid = item_uuid(chunk["uuid"], "chunks", f"{_media_uuid(row)}/{index}")
                located.append(MediaChunk(index=index, uuid=uuid, text=text, start=start, end=start + len(text)))
        if located and is_covered and not content[end:].strip():
            return located
    return ()


# -- transcripts -------------------------------------------------------------------------------------------------------


def _current_transcript(reader: TableReader, row: Fields) -> tuple[str, Sequence[Segment]]:
    """Returns the text and the segments of the run that the item names, or else of the newest."""
    transcripts = [other for other in reader.rows_where(TRANSCRIPTS, "media_id", row["id"]) if is_live(other)]
    run = row["latest_transcription_run_id"]
    of_run = [other for other in transcripts if run is not None and other["transcription_run_id"] == run]
    current = max(of_run or transcripts, key=lambda other: other.time("created_at") or "", default=Fields())
    # Parses plain text, or the JSON of several transcription programs.
    stored = current.text("transcription")
    value = values.json_or_none(stored, reader.limits) if stored.lstrip()[:1] in ("{", "[") else None
    if value is None:
        return stored, ()
    lines = value if isinstance(value, list) else _first_field(value, ("segments", "Segments"))
    segments = []
    for line in Fields.each(lines):
        line_text, times = _line_text(line), _times(line)
        if line_text and times is not None:
            speaker = line.line("speaker") or None
            segments.append(Segment(start_ms=times[0], end_ms=max(times), text=line_text, speaker=speaker))
    if segments:
        return "\n".join(segment.text for segment in segments), segments
    text = _first_field(value, ("text", "transcription")) if isinstance(value, dict) else None
    return text if isinstance(text, str) else "\n".join(map(_line_text, Fields.each(lines))), ()


def _line_text(line: Mapping[str, Any]) -> str:
    return " ".join(values.text_or_empty(_first_field(line, ("text", "Text", "transcription", "transcript"))).split())


def _times(line: Mapping[str, Any]) -> tuple[int, int] | None:
    for start_field, end_field, factor in _TIME_FIELDS:
        start = _milliseconds(line.get(start_field), factor)
        if start is not None:
            end = _milliseconds(line.get(end_field), factor)
            return start, start if end is None else end
    times = []
    for field in ("start_time", "end_time"):
        # Seconds, or hours, minutes and seconds.
        value = line.get(field)
        clock = _CLOCK.match(value.strip()) if isinstance(value, str) else None
        if clock is not None:
            hours, minutes, seconds = clock.groups(default="0")
            value = (int(hours) * 60 + int(minutes)) * 60 + float(seconds.replace(",", "."))
        times.append(_milliseconds(value, _SECONDS))
    start, end = times
    return None if start is None else (start, start if end is None else end)


def _milliseconds(value: Any, factor: int) -> int | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if isinstance(value, bool) or not math.isfinite(number) or not 0 <= number * factor <= _TIME_MAX_MS:
        return None
    return round(number * factor)


def _first_field(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((fields[name] for name in names if fields.get(name)), None)


def _number(value: Any) -> int:
    """Returns an index or offset; 0 if it is invalid."""
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else 0


# -- prompts -----------------------------------------------------------------------------------------------------------
# Prompts of tldw: today's database, and `prompts.db` of versions before 2025, which has neither UUIDs nor times.

PROMPT_KEYWORDS = KeywordLinks("PromptKeywordLinks", "prompt_id", "PromptKeywordsTable")
PROMPTS = FollowedTable(
    "Prompts",
    (
        *("id", "uuid", "name", "author", "details", "system_prompt", "user_prompt", "last_modified", "deleted"),
        # Tells tldw's table apart from those of other programs, including this one, that have all columns above.
        "merge_parent_uuid",
    ),
    ("prompt_format", "prompt_definition_json"),
    parts=(_keywords(PROMPT_KEYWORDS),),
)
OLD_PROMPTS = TableSpec("Prompts", ("id", "name", "details", "system", "user"), ("author",))
_OLD_PROMPT_KEYWORDS = KeywordLinks("PromptKeywords", "prompt_id", "Keywords")
OLD_KEYWORDS = TableSpec("Keywords", ("id", "keyword"))
OLD_KEYWORD_LINKS = TableSpec("PromptKeywords", ("prompt_id", "keyword_id"))


def read_prompt(reader: TableReader, row: Fields) -> Events:
    uuid = item_uuid(row["uuid"], "prompts", row.line("name"))
    if not is_live(row):
        yield events.SkippedItem("deleted prompt")
        yield events.DeletedItem("prompts", uuid)
        return
    metadata = import_metadata(definition=values.json_or_none(row["prompt_definition_json"], reader.limits))
    draft = _prompt_draft(reader, row, uuid, "system_prompt", "user_prompt", PROMPT_KEYWORDS)
    # tldw does not store when a prompt was created.
    yield events.ImportedPrompt(
        structs.replace(draft, metadata=metadata, created_at=row.time("last_modified") or UNSET)
    )


def read_old_prompt(reader: TableReader, row: Fields) -> Events:
    # The name is unique.
    uuid = item_uuid(None, "prompts", row.line("name"))
    yield events.ImportedPrompt(_prompt_draft(reader, row, uuid, "system", "user", _OLD_PROMPT_KEYWORDS))


def _prompt_draft(
    reader: TableReader, row: Fields, uuid: str, system: str, user: str, keywords: KeywordLinks
) -> PromptDraft:
    for field in ("details", system, user):
        values.require_storable(row.text(field), reader.limits)
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


FOLLOWED_DATABASES = tuple(
    map(table_reader.FollowedDatabase, ((NOTES, CHARACTERS, CONVERSATIONS), (MEDIA,), (PROMPTS,)))
)
# The tables by which each kind of database is recognized.
_DATABASES = (
    (NOTES, CHARACTERS, CONVERSATIONS, MESSAGES),
    (MEDIA,),
    (PROMPTS,),
    (OLD_PROMPTS, OLD_KEYWORDS, OLD_KEYWORD_LINKS),
)


class TldwImporter(FileImporter):
    name = NAME
    title = "tldw databases (ChaChaNotes, Media, prompts)"
    suffixes = (".db", ".sqlite", ".sqlite3")
    reads_files_alone = True
    followed_databases = FOLLOWED_DATABASES
    # The folder of a user has many other databases.
    followed_names = ("ChaChaNotes.db", "Media_DB_v2.db", "prompts_user_dbs/user_prompts_v2.sqlite")

    def recognizes(self, probe: FileProbe) -> float:
        return 0.95 if any(probe.has_tables(*tables) for tables in _DATABASES) else 0.0

    def read_file(self, file: InputFile) -> Events:
        with file.open_database() as reader:
            # By their tables and not by their names.
            database = next((tables for tables in _DATABASES if all(map(reader.has, tables))), None)
            if database is None:
                raise InvalidParams("not a tldw database")
            tables = [table for table in database if table in _ROW_READERS]
            reader.expect_rows(*tables)
            yield from reader.read_rows(tables, lambda table, row: _ROW_READERS[table](reader, row))
            if MESSAGES in database:
                orphans = reader.orphan_count(MESSAGES, "conversation_id", CONVERSATIONS)
                yield from (events.SkippedItem("message without a conversation") for _ in range(orphans))


_ROW_READERS: Mapping[TableSpec, Callable[[TableReader, Fields], Events]] = {
    NOTES: read_note,
    CHARACTERS: read_character,
    CONVERSATIONS: read_conversation,
    MEDIA: read_media,
    PROMPTS: read_prompt,
    OLD_PROMPTS: read_old_prompt,
}
