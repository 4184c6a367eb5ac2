"""The tables of conversations and messages."""

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from config.errors import Conflict, InvalidParams
from sources.drafts import ConversationDraft, MessageDraft
from sources.records import Conversation, Message, is_human_only
from sources.storage.contract import DEFAULT_NAMESPACE
from sources.storage.tables import validation
from sources.storage.tables.item_table import (
    ComputedColumn,
    IndexFormColumn,
    ItemKey,
    ItemTable,
    TableColumn,
    WriteContext,
    decode_object,
    decode_objects,
    index_form_of,
)
from sources.storage.tables.sql import CHATS_INDEX, SqlConnection, SqlValue
from sources.storage.tables.validation import FieldLimits, is_storable
from sources.text.chunking import title_from_text

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
TOUCH_CONVERSATION = "UPDATE conversations SET last_modified = ?1 WHERE id = ?2 AND last_modified < ?1"
NEXT_POSITION = "SELECT coalesce(max(position) + 1, 0) FROM messages WHERE conversation_id = ?"
_SAVE_LAST_NUMBER = (
    "INSERT INTO state (name, value) VALUES ('last_message_number', ?) "
    "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
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


class ConversationTable(ItemTable[Conversation, ConversationDraft]):
    """Session ids are unique among live conversations, and a character can be given by its uuid."""

    def insert(
        self, connection: SqlConnection, draft: ConversationDraft, context: WriteContext, **columns: SqlValue
    ) -> int:
        _require_unused_session(connection, draft, None)
        return super().insert(connection, _with_character_id(connection, draft), context, **columns)

    def update(
        self,
        connection: SqlConnection,
        key: ItemKey,
        draft: ConversationDraft,
        expected_version: int | None,
        context: WriteContext,
        **columns: SqlValue,
    ) -> int:
        _require_unused_session(connection, draft, str(key))
        draft = _with_character_id(connection, draft)
        changed = {name for name in draft.__struct_fields__ if getattr(draft, name) is not UNSET}
        # Moving a conversation within lists changes nothing of the conversation itself, so it keeps its time.
        keeps_time = bool(changed) and changed <= _PLACE
        last_modified = self.stored_values(connection, key)["last_modified"] if keeps_time else None
        rowid = super().update(connection, key, draft, expected_version, context, **columns)
        if last_modified is not None:
            connection.execute("UPDATE conversations SET last_modified = ? WHERE id = ?", (last_modified, rowid))
        return rowid

    def _require_restorable(self, connection: SqlConnection, rowid: int) -> None:
        row = connection.execute(_OTHER_WITH_SESSION, (rowid,)).fetchone()
        if row is not None:
            raise Conflict(f"{self.kind} {row[0]!r} cannot be restored: another one has taken its place")

    def purge(self, connection: SqlConnection, key: ItemKey) -> None:
        [next_number] = connection.execute(NEXT_NUMBER).fetchone()
        connection.execute(_SAVE_LAST_NUMBER, (str(next_number - 1),))
        super().purge(connection, key)

    def has_values_of(
        self, connection: SqlConnection, rowid: int, draft: ConversationDraft, limits: FieldLimits
    ) -> bool:
        return super().has_values_of(connection, rowid, _with_character_id(connection, draft), limits)


CONVERSATIONS = ConversationTable(
    table="conversations",
    kind="conversation",
    record=Conversation,
    key="uuid",
    columns=(
        TableColumn("title", validation.short_text),
        TableColumn("namespace", _namespace, DEFAULT_NAMESPACE),
        TableColumn("session_id", validation.short_text),
        TableColumn("character_id", validation.optional_integer, None),
        TableColumn("is_pinned", validation.boolean, 0, bool),
        TableColumn("is_archived", validation.boolean, 0, bool),
    ),
    hashed_columns=("title",),
    index_forms=(index_form_of("title", has_tags=True),),
    index=CHATS_INDEX,
    computed=(
        ComputedColumn(
            "message_count",
            "SELECT count(*) FROM messages m WHERE m.conversation_id = conversations.id AND m.deleted = 0",
        ),
    ),
)


class MessageTable(ItemTable[Message, MessageDraft]):
    """Stores in a column whether a message is human-only. Agents cannot change such a message: they could remove the
    mark and then read it."""

    def update(
        self,
        connection: SqlConnection,
        key: ItemKey,
        draft: MessageDraft,
        expected_version: int | None,
        context: WriteContext,
        **columns: SqlValue,
    ) -> int:
        if context.is_agent and is_human_only(decode_object(self.stored_values(connection, key)["metadata"])):
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
        values["human_only"] = int(metadata != "{}" and is_human_only(decode_object(metadata)))


MESSAGES = MessageTable(
    table="messages",
    kind="message",
    record=Message,
    key="uuid",
    columns=(
        TableColumn("role", _role, DEFAULT_ROLE),
        TableColumn("sender", validation.short_text),
        TableColumn("content", validation.long_text),
        TableColumn("model", validation.optional_short_text, None),
        TableColumn("tool", validation.optional_short_text, None),
        TableColumn("attachments", validation.json_text, "[]", decode_objects),
        TableColumn("citations", validation.json_text, "[]", decode_objects),
        TableColumn("parent_id", validation.optional_short_text, None),
        TableColumn("is_canonical", validation.boolean, 1, bool),
    ),
    hashed_columns=("sender", "content"),
    index_forms=(IndexFormColumn("text_seg", ("sender", "content"), ": "),),
    index=CHATS_INDEX,
    computed=(
        ComputedColumn("conversation_id", "c.uuid"),
        ComputedColumn("position", "messages.position"),
        ComputedColumn("number", "messages.id"),
    ),
    join="CROSS JOIN conversations c ON c.id = messages.conversation_id",
    is_live="messages.deleted = 0 AND c.deleted = 0",
)


def _require_unused_session(connection: SqlConnection, draft: ConversationDraft, own_uuid: str | None) -> None:
    if draft.session_id is UNSET or not draft.session_id or not is_storable(draft.session_id):
        return
    sql = "SELECT uuid FROM conversations WHERE session_id = ? AND session_id <> '' AND deleted = 0"
    for (uuid,) in connection.execute(sql, (draft.session_id,)):
        if uuid != own_uuid:
            raise Conflict(f"session_id: {draft.session_id!r} is already used by conversation {uuid!r}")


def _with_character_id(connection: SqlConnection, draft: ConversationDraft) -> ConversationDraft:
    """Replaces the uuid of a character with its id in this library, or with None if there is no such character."""
    if draft.character is UNSET or not is_storable(draft.character):
        return draft
    sql = "SELECT id FROM characters WHERE uuid = ? AND deleted = 0"
    row = connection.execute(sql, (draft.character,)).fetchone()
    return replace(draft, character_id=row[0] if row else None)
