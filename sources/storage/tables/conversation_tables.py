"""The tables of conversations and messages."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

from msgspec import UNSET, Struct, structs

from config.errors import Conflict, InvalidParams
from sources.drafts import ConversationDraft, MediaDraft, MessageDraft
from sources.records import Conversation, MediaChunk, MediaItem, Message, Segment, is_human_only
from sources.storage.contract import DEFAULT_NAMESPACE, MessageSearch
from sources.storage.tables import item_table, sql, validation
from sources.storage.tables.validation import FieldLimits, invalid_field, is_storable
from sources.text.chunking import TextChunk, split_into_chunks, title_from_text
from sources.text.token_estimates import TokenScale
from sources.text.transcripts import CueGroup, group_cues

DEFAULT_ROLE = "user"
# Other systems store messages without a role.
UNKNOWN_ROLE = "unknown"
# SQLite would reuse the rowids of purged messages, but message numbers are never reused.
NEXT_NUMBER = """
    SELECT 1 + max(number) FROM (
        SELECT coalesce(max(id), 0) AS number FROM messages
        UNION ALL SELECT CAST(value AS BIGINT) FROM state WHERE name = 'last_message_number') numbers
"""
# Sets a modification time, unless there is a later one.
TOUCH_CONVERSATION = sql.Update("conversations", "last_modified = ?1", "id = ?2 AND last_modified < ?1")
NEXT_POSITION = "SELECT coalesce(max(position) + 1, 0) FROM messages WHERE conversation_id = ?"
_HUMAN_ONLY_WITH_TITLE = """
    SELECT c.uuid, c.title, m.content FROM messages m JOIN conversations c ON c.id = m.conversation_id
    WHERE m.id = ? AND m.human_only = 1
"""
_OTHER_WITH_SESSION = """
    SELECT own.uuid FROM conversations own JOIN conversations other ON other.session_id = own.session_id
    WHERE own.id = ? AND own.session_id <> '' AND other.deleted = 0 AND other.id <> own.id LIMIT 1
"""


# The fields that say only where a list shows a conversation.
_PLACE = frozenset(("is_pinned", "is_archived"))


def _namespace(limits: FieldLimits, field: str, value: Any) -> str:
    return validation.short_text(limits, field, value).strip() or DEFAULT_NAMESPACE


def _role(limits: FieldLimits, field: str, value: Any) -> str:
    return validation.short_text(limits, field, value).strip() or UNKNOWN_ROLE


def message_filter(search: MessageSearch) -> sql.SqlFilter:
    """The conditions on messages `m` other than their text and conversation."""
    times = sql.between("m.created_at", search.date_from, search.date_to)
    if not search.roles:
        return times
    return times & sql.SqlFilter((f"m.role IN ({sql.placeholders(search.roles)})",), search.roles)


class ConversationTable(item_table.ItemTable[Conversation, ConversationDraft]):
    """Session ids are unique among live conversations, and a character can be given by its uuid."""

    def insert(
        self,
        connection: sql.SqlConnection,
        draft: ConversationDraft,
        context: item_table.WriteContext,
        **columns: sql.SqlValue,
    ) -> int:
        _require_unused_session(connection, draft, None)
        return super().insert(connection, _with_character_id(connection, draft), context, **columns)

    def update(
        self,
        connection: sql.SqlConnection,
        key: item_table.ItemKey,
        draft: ConversationDraft,
        expected_version: int | None,
        context: item_table.WriteContext,
        **columns: sql.SqlValue,
    ) -> int:
        _require_unused_session(connection, draft, str(key))
        draft = _with_character_id(connection, draft)
        changed = {name for name in draft.__struct_fields__ if getattr(draft, name) is not UNSET}
        # Moving a conversation within lists changes nothing of the conversation itself, so it keeps its time.
        keeps_time = bool(changed) and changed <= _PLACE
        last_modified = self.stored_values(connection, key)["last_modified"] if keeps_time else None
        rowid = super().update(connection, key, draft, expected_version, context, **columns)
        if last_modified is not None:
            connection.execute(sql.Update("conversations", "last_modified = ?", "id = ?"), (last_modified, rowid))
        return rowid

    def _require_restorable(self, connection: sql.SqlConnection, rowid: int) -> None:
        row = connection.execute(_OTHER_WITH_SESSION, (rowid,)).fetchone()
        if row is not None:
            raise Conflict(f"{self.kind} {row[0]!r} cannot be restored: another one has taken its place")

    def purge(self, connection: sql.SqlConnection, key: item_table.ItemKey) -> None:
        [next_number] = connection.execute(NEXT_NUMBER).fetchone()
        connection.execute(sql.SAVE_STATE, ("last_message_number", str(next_number - 1)))
        super().purge(connection, key)

    def has_values_of(
        self, connection: sql.SqlConnection, rowid: int, draft: ConversationDraft, limits: FieldLimits
    ) -> bool:
        return super().has_values_of(connection, rowid, _with_character_id(connection, draft), limits)


CONVERSATIONS = ConversationTable(
    table="conversations",
    kind="conversation",
    record=Conversation,
    key="uuid",
    columns=(
        item_table.TableColumn("title", validation.short_text),
        item_table.TableColumn("namespace", _namespace, DEFAULT_NAMESPACE),
        item_table.TableColumn("session_id", validation.short_text),
        item_table.TableColumn("character_id", validation.optional_integer, None),
        item_table.TableColumn("is_pinned", validation.boolean, 0, bool),
        item_table.TableColumn("is_archived", validation.boolean, 0, bool),
    ),
    hashed_columns=("title",),
    index_forms=(item_table.index_form_of("title", has_tags=True),),
    index=sql.CHATS_INDEX,
    computed=(
        item_table.ComputedColumn(
            "message_count",
            "SELECT count(*) FROM messages m WHERE m.conversation_id = conversations.id AND m.deleted = 0",
        ),
    ),
)


class MessageTable(item_table.ItemTable[Message, MessageDraft]):
    """Stores in a column whether a message is human-only. Agents cannot change such a message: they could remove the
    mark and then read it."""

    has_tags = False

    def update(
        self,
        connection: sql.SqlConnection,
        key: item_table.ItemKey,
        draft: MessageDraft,
        expected_version: int | None,
        context: item_table.WriteContext,
        **columns: sql.SqlValue,
    ) -> int:
        if context.is_agent and is_human_only(
            item_table.decode_object(self.stored_values(connection, key)["metadata"])
        ):
            raise InvalidParams(f"message {key!r} is human-only: agents cannot change it")
        rowid = super().update(connection, key, draft, expected_version, context, **columns)
        # The title of the conversation may have been made from the message before it became human-only.
        row = connection.execute(_HUMAN_ONLY_WITH_TITLE, (rowid,)).fetchone()
        if row is not None:
            uuid, title, content = row
            if title and title in (content, title_from_text(content)):
                CONVERSATIONS.update(connection, uuid, ConversationDraft(title=""), None, context)
        return rowid

    def _add_derived_values(self, values: dict[str, Any]) -> None:
        super()._add_derived_values(values)
        metadata = values["metadata"]
        # Most messages have no metadata, and need no decoding.
        values["human_only"] = int(metadata != "{}" and is_human_only(item_table.decode_object(metadata)))


MESSAGES = MessageTable(
    table="messages",
    kind="message",
    record=Message,
    key="uuid",
    columns=(
        item_table.TableColumn("role", _role, DEFAULT_ROLE),
        item_table.TableColumn("sender", validation.short_text),
        item_table.TableColumn("content", validation.long_text),
        item_table.TableColumn("model", validation.optional_short_text, None),
        item_table.TableColumn("tool", validation.optional_short_text, None),
        item_table.TableColumn("attachments", validation.json_text, "[]", item_table.decode_objects),
        item_table.TableColumn("citations", validation.json_text, "[]", item_table.decode_objects),
        item_table.TableColumn("parent_id", validation.optional_short_text, None),
        item_table.TableColumn("is_canonical", validation.boolean, 1, bool),
    ),
    hashed_columns=("sender", "content"),
    index_forms=(item_table.IndexFormColumn("text_seg", ("sender", "content"), ": "),),
    index=sql.CHATS_INDEX,
    computed=(
        item_table.ComputedColumn("conversation_id", "c.uuid"),
        item_table.ComputedColumn("position", "messages.position"),
        item_table.ComputedColumn("number", "messages.id"),
    ),
    join="CROSS JOIN conversations c",
    join_condition="c.id = messages.conversation_id",
    is_live="messages.deleted = 0 AND c.deleted = 0",
)


def _require_unused_session(connection: sql.SqlConnection, draft: ConversationDraft, own_uuid: str | None) -> None:
    if draft.session_id is UNSET or not draft.session_id or not is_storable(draft.session_id):
        return
    statement = "SELECT uuid FROM conversations WHERE session_id = ? AND session_id <> '' AND deleted = 0"
    for (uuid,) in connection.execute(statement, (draft.session_id,)):
        if uuid != own_uuid:
            raise Conflict(f"session_id: {draft.session_id!r} is already used by conversation {uuid!r}")


def _with_character_id(connection: sql.SqlConnection, draft: ConversationDraft) -> ConversationDraft:
    """Replaces the uuid of a character with its id in this library, or with None if there is no such character."""
    if draft.character is UNSET or not is_storable(draft.character):
        return draft
    statement = "SELECT id FROM characters WHERE uuid = ? AND deleted = 0"
    row = connection.execute(statement, (draft.character,)).fetchone()
    return structs.replace(draft, character_id=row[0] if row else None)


# -- media table -------------------------------------------------------------------------------------------------------
# The tables of media items: the item, its whole text, the chunks that are searched, and transcript segments.

# -- media chunks ------------------------------------------------------------------------------------------------------
# Builds the text of a media item and its chunks from a draft. Pure functions.


class MediaBody(Struct, frozen=True):
    """A text, its chunks (at least one), and its segments if it is a transcript."""

    content: str
    chunks: tuple[MediaChunk, ...]
    segments: tuple[Segment, ...]


def body_of(draft: MediaDraft, limits: FieldLimits) -> MediaBody | None:
    """Returns None if the draft does not set the text."""
    segments = () if draft.segments is UNSET else tuple(_valid_segment(limits, segment) for segment in draft.segments)
    chunks = () if draft.chunks is UNSET else tuple(_valid_chunk(limits, chunk) for chunk in draft.chunks)
    if draft.content is UNSET and not segments and not chunks:
        return None
    # The text of a transcript is that of its segments. A text that is made of chunks gives them their offsets; with a
    # text of its own, a draft has chunks with the offsets that the importer set.
    if segments:
        content = "\n".join(segment.text for segment in segments)
    elif draft.content is not UNSET:
        content = draft.content
    else:
        content = "\n".join(chunk.text for chunk in chunks)
        placed, start = [], 0
        for chunk in chunks:
            placed.append(structs.replace(chunk, start=start, end=start + len(chunk.text)))
            start += len(chunk.text) + 1
        chunks = tuple(placed)
    content = validation.long_text(limits, "content", content)
    return MediaBody(content, _numbered(chunks) if chunks else _split(content, segments, limits), segments)


def _split(content: str, segments: Sequence[Segment], limits: FieldLimits) -> tuple[MediaChunk, ...]:
    if segments:
        groups = group_cues(segments, limits.chunk_size_chars)
        return _numbered([chunk for group in groups for chunk in _transcript_chunks(group, limits)])
    spans = [
        (span.start, span.end)
        for span in split_into_chunks(content, limits.chunk_size_chars, limits.chunk_overlap_chars)
    ]
    return tuple(
        MediaChunk(index=index, uuid=str(uuid4()), text=content[start:end], start=start, end=end)
        # An empty text has one empty chunk, so that the item is indexed and found by its title.
        for index, (start, end) in enumerate(spans or [(0, 0)])
    )


def _transcript_chunks(group: CueGroup, limits: FieldLimits) -> Iterator[MediaChunk]:
    """Yields one chunk, or several with the same times if a single line is longer than a chunk."""
    text, size = group.text, limits.chunk_size_chars
    spans = [TextChunk(0, 0, len(text))]
    if len(text) > size:
        spans = split_into_chunks(text, size, limits.chunk_overlap_chars)
    for span in spans:
        yield MediaChunk(
            index=0,
            uuid=str(uuid4()),
            text=text[span.start : span.end],
            start=group.start + span.start,
            end=group.start + span.end,
            start_ms=group.start_ms,
            end_ms=group.end_ms,
            speaker=group.speaker,
        )


def _numbered(chunks: Sequence[MediaChunk]) -> tuple[MediaChunk, ...]:
    return tuple(structs.replace(chunk, index=index) for index, chunk in enumerate(chunks))


def _valid_chunk(limits: FieldLimits, chunk: MediaChunk) -> MediaChunk:
    if not 0 <= chunk.start <= chunk.end or not is_storable(chunk.end):
        raise invalid_field("chunks", expected="0 <= start <= end", got=f"characters {chunk.start} to {chunk.end}")
    _require_times("chunks", chunk.start_ms, chunk.end_ms)
    return structs.replace(
        chunk,
        uuid=validation.uuid(limits, "chunks", chunk.uuid) if chunk.uuid else str(uuid4()),
        text=validation.long_text(limits, "chunks", chunk.text),
        speaker=validation.optional_short_text(limits, "chunks", chunk.speaker),
    )


def _valid_segment(limits: FieldLimits, segment: Segment) -> Segment:
    _require_times("segments", segment.start_ms, segment.end_ms)
    return structs.replace(
        segment,
        text=validation.long_text(limits, "segments", segment.text),
        speaker=validation.optional_short_text(limits, "segments", segment.speaker),
    )


def _require_times(field: str, start_ms: int | None, end_ms: int | None) -> None:
    if start_ms is not None and end_ms is not None and not (0 <= start_ms <= end_ms and is_storable(end_ms)):
        raise invalid_field(field, expected="0 <= start_ms <= end_ms", got=f"{start_ms} ms to {end_ms} ms")


class MediaTable(item_table.ItemTable[MediaItem, MediaDraft]):
    """Writes the text, chunks and segments of an item together with its row."""

    def insert(
        self,
        connection: sql.SqlConnection,
        draft: MediaDraft,
        context: item_table.WriteContext,
        **columns: sql.SqlValue,
    ) -> int:
        title = "" if draft.title is UNSET else validation.short_text(context.limits, "title", draft.title)
        body = body_of(draft, context.limits) or body_of(MediaDraft(content=""), context.limits)
        assert body is not None
        _require_chunk_count(body)
        rowid = super().insert(connection, draft, context, **_body_columns(title, body), **columns)
        _insert_body(connection, rowid, body)
        return rowid

    def update(
        self,
        connection: sql.SqlConnection,
        key: item_table.ItemKey,
        draft: MediaDraft,
        expected_version: int | None,
        context: item_table.WriteContext,
        **columns: sql.SqlValue,
    ) -> int:
        stored = self.stored_values(connection, key)
        title = stored["title"]
        if draft.title is not UNSET:
            title = validation.short_text(context.limits, "title", draft.title)
        body = body_of(draft, context.limits)
        if body is None:
            [content] = connection.execute("SELECT content FROM texts WHERE id = ?", (stored["id"],)).fetchone()
            columns["content_hash"] = item_table.content_hash(title, str(content))
        else:
            _require_chunk_count(body)
            columns |= _body_columns(title, body)
        rowid = super().update(connection, key, draft, expected_version, context, **columns)
        if body is not None:
            _delete_body(connection, rowid)
            _insert_body(connection, rowid, body)
        return rowid

    def purge(self, connection: sql.SqlConnection, key: item_table.ItemKey) -> None:
        _delete_body(connection, self.rowid(connection, key))
        super().purge(connection, key)

    def has_values_of(self, connection: sql.SqlConnection, rowid: int, draft: MediaDraft, limits: FieldLimits) -> bool:
        body = body_of(draft, limits)
        if not super().has_values_of(connection, rowid, draft, limits):
            return False
        row = connection.execute("SELECT title, content_hash, has_transcript FROM media WHERE id = ?", (rowid,))
        title, stored_hash, has_transcript = row.fetchone()
        if body is None:
            return True
        return bool(stored_hash == item_table.content_hash(title, body.content)) and has_transcript == bool(
            body.segments
        )


MEDIA_ITEMS = MediaTable(
    table="media",
    kind="media",
    record=MediaItem,
    key="id",
    columns=(
        item_table.TableColumn("title", validation.short_text),
        item_table.TableColumn("media_type", validation.required_short_text, "text"),
        item_table.TableColumn("url", validation.short_text),
        item_table.TableColumn("author", validation.short_text),
    ),
    index_forms=(item_table.index_form_of("title", has_tags=True),),
    index=sql.MEDIA_INDEX,
    computed=(
        item_table.ComputedColumn("id", "media.id"),
        item_table.ComputedColumn("length_chars", "length_chars"),
        item_table.ComputedColumn("text_weight", "text_weight"),
        item_table.ComputedColumn("chunk_count", "chunk_count"),
        item_table.ComputedColumn("has_transcript", "has_transcript", bool),
    ),
)


def _body_columns(title: str, body: MediaBody) -> dict[str, sql.SqlValue]:
    return {
        "content_hash": item_table.content_hash(title, body.content),
        "length_chars": len(body.content),
        "text_weight": TokenScale().weigh(body.content),
        "chunk_count": len(body.chunks),
        "has_transcript": int(bool(body.segments)),
    }


def _require_chunk_count(body: MediaBody) -> None:
    if len(body.chunks) > sql.CHUNKS_MAX:
        raise invalid_field("content", expected=f"at most {sql.CHUNKS_MAX} chunks", got=f"{len(body.chunks)}")


def _insert_body(connection: sql.SqlConnection, rowid: int, body: MediaBody) -> None:
    connection.executemany_later(sql.Insert("texts", "id, content"), [(rowid, body.content)])
    base = rowid << sql.CHUNK_BITS
    connection.executemany_later(
        sql.Insert("chunks", 'id, uuid, start, "end", start_ms, end_ms, speaker, text, text_seg'),
        [
            (base + c.index, c.uuid, c.start, c.end, c.start_ms, c.end_ms, c.speaker, c.text, sql.index_form(c.text))
            for c in body.chunks
        ],
    )
    connection.executemany_later(
        sql.Insert("segments", "media_id, position, start_ms, end_ms, speaker, text"),
        [(rowid, position, s.start_ms, s.end_ms, s.speaker, s.text) for position, s in enumerate(body.segments)],
    )


def _delete_body(connection: sql.SqlConnection, rowid: int) -> None:
    # The ids of an item's chunks are a range, so no other index is needed to find them.
    base = rowid << sql.CHUNK_BITS
    connection.execute(sql.Delete("chunks", "id >= ? AND id < ?"), (base, base + sql.CHUNKS_MAX))
    connection.execute(sql.Delete("segments", "media_id = ?"), (rowid,))
    connection.execute(sql.Delete("texts", "id = ?"), (rowid,))
