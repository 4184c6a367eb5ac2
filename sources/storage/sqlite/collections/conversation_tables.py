"""The tables of conversations and messages, and how they are searched as one source."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import sqlite3
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from config.errors import Conflict, InvalidParams
from sources.drafts import ConversationDraft, MessageDraft
from sources.records import ALTERNATE_BRANCH_LABEL, Conversation, Hit, Message, is_human_only
from sources.search.scoring import MESSAGE_AND_CONTEXT
from sources.storage.contract import DEFAULT_NAMESPACE, Search
from sources.storage.sqlite.schema.messages import CHATS_INDEX, HUMAN_ONLY_INDEX, MESSAGE_CONTEXT, MESSAGE_OWN
from sources.storage.sqlite.search.candidates import HitCandidate
from sources.storage.sqlite.search.target import SearchTarget, has_tags
from sources.storage.sqlite.sql import (
    SqlFilter,
    SqlValue,
    between,
    contains,
    either,
    equals,
    json_array,
    one_of_ignoring_case,
    placeholders,
)
from sources.storage.sqlite.vectors.kinds import HUMAN_ONLY_VECTORS, MESSAGE_VECTORS, TITLE_VECTORS
from sources.storage.sqlite.write import validation
from sources.storage.sqlite.write.item_table import (
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
from sources.storage.sqlite.write.validation import FieldLimits, is_storable
from sources.text.literals import literal_form
from sources.text.titles import title_from_text

DEFAULT_ROLE = "user"
# Other systems store messages without a role.
UNKNOWN_ROLE = "unknown"
# SQLite would reuse the rowids of purged messages, but message numbers are never reused.
NEXT_NUMBER = """
    SELECT 1 + max(coalesce((SELECT max(id) FROM messages), 0),
        coalesce((SELECT CAST(value AS INTEGER) FROM state WHERE name = 'last_message_number'), 0))
"""
NEXT_POSITION = "SELECT coalesce(max(position) + 1, 0) FROM messages WHERE conversation_id = ?"
_SAVE_LAST_NUMBER = f"INSERT OR REPLACE INTO state SELECT 'last_message_number', CAST(({NEXT_NUMBER}) - 1 AS TEXT)"


_PLACE = frozenset(("is_pinned", "is_archived"))


def _only_places(draft: ConversationDraft) -> bool:
    """Whether a draft says only where a list shows the conversation, and changes nothing of the conversation itself."""
    names = {name for name in draft.__struct_fields__ if getattr(draft, name) is not UNSET}
    return bool(names) and names <= _PLACE


def _namespace(limits: FieldLimits, field: str, value: Any) -> str:
    return validation.short_text(limits, field, value).strip() or DEFAULT_NAMESPACE


def _role(limits: FieldLimits, field: str, value: Any) -> str:
    return validation.short_text(limits, field, value).strip() or UNKNOWN_ROLE


class ConversationTable(ItemTable[Conversation, ConversationDraft]):
    """Session ids are unique among live conversations, and a character can be given by its uuid."""

    def insert(
        self, connection: sqlite3.Connection, draft: ConversationDraft, context: WriteContext, **columns: SqlValue
    ) -> int:
        _require_unused_session(connection, draft, None)
        draft = _with_character_id(connection, draft)
        if draft.last_modified is UNSET:
            return super().insert(connection, draft, context, **columns)
        last_modified = validation.time(context.limits, "last_modified", draft.last_modified)
        rowid = super().insert(connection, draft, context, **columns)
        sql = "UPDATE conversations SET last_modified = max(last_modified, ?) WHERE id = ?"
        connection.execute(sql, (last_modified, rowid))
        return rowid

    def update(
        self,
        connection: sqlite3.Connection,
        key: ItemKey,
        draft: ConversationDraft,
        expected_version: int | None,
        context: WriteContext,
        **columns: SqlValue,
    ) -> int:
        _require_unused_session(connection, draft, str(key))
        draft = _with_character_id(connection, draft)
        last_modified = self.stored_values(connection, key)["last_modified"] if _only_places(draft) else None
        rowid = super().update(connection, key, draft, expected_version, context, **columns)
        if last_modified is not None:
            connection.execute("UPDATE conversations SET last_modified = ? WHERE id = ?", (last_modified, rowid))
        return rowid

    def _enqueue_hidden(self, connection: sqlite3.Connection, rowid: int) -> None:
        """Writes title and messages again while the conversation is still hidden: the triggers then add them to the
        queues without removing entries, which the indexes do not have."""
        connection.execute("UPDATE conversations SET title = title WHERE id = ?", (rowid,))
        connection.execute("UPDATE messages SET content = content WHERE conversation_id = ? AND deleted = 0", (rowid,))

    def purge(self, connection: sqlite3.Connection, key: ItemKey) -> None:
        connection.execute(_SAVE_LAST_NUMBER)
        super().purge(connection, key)

    def has_values_of(
        self, connection: sqlite3.Connection, rowid: int, draft: ConversationDraft, limits: FieldLimits
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
        connection: sqlite3.Connection,
        key: ItemKey,
        draft: MessageDraft,
        expected_version: int | None,
        context: WriteContext,
        **columns: SqlValue,
    ) -> int:
        if context.is_agent and is_human_only(decode_object(self.stored_values(connection, key)["metadata"])):
            raise InvalidParams(f"message {key!r} is human-only: agents cannot change it")
        rowid = super().update(connection, key, draft, expected_version, context, **columns)
        _remove_title_from_human_only_message(connection, rowid, context)
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


class ChatCandidate(HitCandidate, gc=False):
    """A message, or the title of a conversation. For a title, the message fields are None and `rowid` is negative."""

    content: str
    item_chars: int
    message_id: str | None
    position: int | None
    sender: str | None
    role: str | None
    own: str
    context: str
    rowid: int
    is_canonical: int

    @property
    def sort_key(self) -> str | int:
        return self.message_id or self.id

    @property
    def has_title(self) -> bool:
        return self.rowid < 0

    @property
    def speaker(self) -> str:
        return self.sender or ""

    @property
    def prominent_text(self) -> str:
        return self.own

    @property
    def other_text(self) -> str:
        return self.context

    @property
    def chars(self) -> int:
        return len(self.own) + len(self.context)

    def hit(self) -> Hit:
        return self.make_hit(
            self.content,
            self.item_chars,
            conversation_id=self.id,
            message_id=self.message_id,
            message_index=self.position,
            sender=self.sender,
            role=self.role,
            branch_label="" if self.is_canonical else ALTERNATE_BRANCH_LABEL,
            via="context" if self.is_matched_aside and self.rowid > 0 else None,
        )


_SELECT_MESSAGES = f"""
    SELECT c.uuid, c.title, c.tags, m.created_at, m.last_modified, m.version, m.content_hash,
        m.content, length(m.content), m.uuid, m.position, m.sender, m.role,
        {MESSAGE_OWN}, {MESSAGE_CONTEXT}, m.id, m.is_canonical
    FROM json_each(?) wanted CROSS JOIN messages m ON m.id = wanted.value
        CROSS JOIN conversations c ON c.id = m.conversation_id
"""
# The text of a title's hit is the first message of its conversation that agents may read.
_SELECT_TITLES = """
    SELECT c.uuid, c.title, c.tags, c.created_at, c.last_modified, c.version, c.content_hash,
        coalesce(first.content, ''),
        coalesce((SELECT sum(length(m.content)) FROM messages m
            WHERE m.conversation_id = c.id AND m.deleted = 0 AND m.human_only = 0), 0),
        NULL, NULL, NULL, NULL, coalesce(c.title_seg, c.title), '', -c.id, 1
    FROM json_each(?) wanted CROSS JOIN conversations c ON c.id = -wanted.value
        LEFT JOIN messages first ON first.id = (SELECT m.id FROM messages m
            WHERE m.conversation_id = c.id AND m.deleted = 0 AND m.human_only = 0 ORDER BY m.position LIMIT 1)
"""
# What `MESSAGE_CONTEXT` indexes, as it is written and in order.
_CONTEXT_TEXT = """
    SELECT coalesce(group_concat(text, char(10)), '') FROM (
        SELECT CASE p.sender WHEN '' THEN p.role ELSE p.sender END || ': ' || p.content AS text FROM (
            SELECT p.* FROM messages m JOIN messages p ON p.conversation_id = m.conversation_id
                AND p.position < m.position AND p.deleted = 0 AND p.human_only = 0
            WHERE m.uuid = ? ORDER BY p.position DESC LIMIT 2) p
        ORDER BY p.position)
"""
# Compared with a condition on the column, this need not read the rows, which can be long.
_HUMAN_ONLY_IDS = "SELECT id FROM messages INDEXED BY messages_human_only WHERE human_only = 1 AND deleted = 0"


class _ChatsTarget(SearchTarget, frozen=True, kw_only=True):
    """An index rowid is the rowid of a message, or the negative rowid of a conversation for its title. In conditions,
    `r` is the message, NULL for titles, and `c` is the conversation."""

    is_human_only: bool = False

    def join_on(self, rowid: str) -> str:
        return (
            f"LEFT JOIN messages r ON r.id = {rowid} "
            f"CROSS JOIN conversations c ON c.id = coalesce(r.conversation_id, -{rowid})"
        )

    @property
    def is_live(self) -> str:
        return f"c.deleted = 0 AND (r.id IS NULL OR (r.deleted = 0 AND r.human_only = {int(self.is_human_only)}))"

    @property
    def age(self) -> str:
        return "coalesce(r.last_modified, c.last_modified)"

    @property
    def created_at(self) -> str:
        return "coalesce(r.created_at, c.created_at)"

    def filter(self, search: Search) -> SqlFilter:
        conditions = (
            has_tags(search.tags, "conversations", "c.id")
            & between(self.created_at, search.date_from, search.date_to)
            & equals("c.character_id", search.character_id)
            & equals("c.uuid", search.within)
            & equals("c.namespace", search.namespace)
            & contains("r.content", search.contains)
            & _in_projects(search.projects)
        )
        if search.senders:
            conditions &= either(
                one_of_ignoring_case("r.sender", search.senders), one_of_ignoring_case("r.role", search.senders)
            )
        if search.by != "both":
            conditions &= SqlFilter(("r.id IS NULL" if search.by == "title" else "r.id IS NOT NULL",))
        return conditions

    def list_sql(self, search: Search) -> str:
        if search.by == "title":
            return (
                "SELECT -c.id AS number, c.last_modified AS age FROM conversations c LEFT JOIN messages r ON FALSE "
                f"WHERE c.deleted = 0 AND {not self.is_human_only}"
            )
        return (
            "SELECT r.id AS number, r.last_modified AS age FROM messages r "
            "JOIN conversations c ON c.id = r.conversation_id WHERE r.deleted = 0 AND c.deleted = 0 "
            f"AND r.id {'IN' if self.is_human_only else 'NOT IN'} ({_HUMAN_ONLY_IDS})"
        )

    def candidates(self, connection: sqlite3.Connection, rowids: Sequence[int]) -> list[HitCandidate]:
        messages = json_array([rowid for rowid in rowids if rowid > 0])
        candidates = [ChatCandidate(*row) for row in connection.execute(_SELECT_MESSAGES, (messages,))]
        titles = [rowid for rowid in rowids if rowid < 0]
        if not titles:
            return [*candidates]
        candidates += [ChatCandidate(*row) for row in connection.execute(_SELECT_TITLES, (json_array(titles),))]
        by_rowid = {candidate.rowid: candidate for candidate in candidates}
        return [by_rowid[rowid] for rowid in rowids if rowid in by_rowid]

    def with_context(self, connection: sqlite3.Connection, hits: tuple[Hit, ...]) -> tuple[Hit, ...]:
        """Adds the messages that are part of a message's index entry to those that match only through them."""
        return tuple([_with_context(connection, hit) if hit.via == "context" else hit for hit in hits])


def _with_context(connection: sqlite3.Connection, hit: Hit) -> Hit:
    [text] = connection.execute(_CONTEXT_TEXT, (hit.message_id,)).fetchone()
    return replace(hit, context=text)


_PROJECT_IN_METADATA = "CASE json_type(metadata, '$.project') WHEN 'text' THEN json_extract(metadata, '$.project') END"
_PROJECT = f"coalesce(nullif(literal_form({_PROJECT_IN_METADATA}), ''), literal_form(namespace))"


def _in_projects(projects: Sequence[str]) -> SqlFilter:
    """A subquery, so that the projects are compared once per conversation and not once per message."""
    if not projects:
        return SqlFilter()
    names = tuple(literal_form(name) for name in projects if is_storable(name))
    condition = f"c.id IN (SELECT id FROM conversations WHERE {_PROJECT} IN ({placeholders(names)}))"
    return SqlFilter((condition,), names)


CHATS_TARGET = _ChatsTarget(
    table="conversations",
    id_column="uuid",
    index=CHATS_INDEX,
    weights=(3.0, 3.0, 1.0),
    title_column="title",
    candidate=ChatCandidate,
    candidate_sql=_SELECT_MESSAGES,
    prominence=MESSAGE_AND_CONTEXT,
    # A single word may occur in the preceding messages (the context), but a phrase must be in the message itself.
    phrase_columns=("title", "own"),
    vectors=(MESSAGE_VECTORS, TITLE_VECTORS),
    # Messages are short, so that words alone order them less reliably than other texts.
    lexical_head=40,
)
# What only people search.
HUMAN_ONLY_TARGET: SearchTarget = replace(
    CHATS_TARGET, index=HUMAN_ONLY_INDEX, is_human_only=True, vectors=(HUMAN_ONLY_VECTORS,)
)


def has_human_only_messages(connection: sqlite3.Connection) -> bool:
    return connection.execute(f"{_HUMAN_ONLY_IDS} LIMIT 1").fetchone() is not None


def _remove_title_from_human_only_message(connection: sqlite3.Connection, rowid: int, context: WriteContext) -> None:
    """A title may have been made from a message before it became human-only."""
    sql = (
        "SELECT c.uuid, c.title, m.content FROM messages m JOIN conversations c ON c.id = m.conversation_id "
        "WHERE m.id = ? AND m.human_only = 1"
    )
    row = connection.execute(sql, (rowid,)).fetchone()
    if row is None:
        return
    uuid, title, content = row
    if title and title in (content, title_from_text(content)):
        CONVERSATIONS.update(connection, uuid, ConversationDraft(title=""), None, context)


def _require_unused_session(connection: sqlite3.Connection, draft: ConversationDraft, own_uuid: str | None) -> None:
    if draft.session_id is UNSET or not draft.session_id or not is_storable(draft.session_id):
        return
    sql = "SELECT uuid FROM conversations WHERE session_id = ? AND session_id <> '' AND deleted = 0"
    for (uuid,) in connection.execute(sql, (draft.session_id,)):
        if uuid != own_uuid:
            raise Conflict(f"session_id: {draft.session_id!r} is already used by conversation {uuid!r}")


def _with_character_id(connection: sqlite3.Connection, draft: ConversationDraft) -> ConversationDraft:
    """Replaces the uuid of a character with its id in this library, or with None if there is no such character."""
    if draft.character is UNSET or not is_storable(draft.character):
        return draft
    sql = "SELECT id FROM characters WHERE uuid = ? AND deleted = 0"
    row = connection.execute(sql, (draft.character,)).fetchone()
    return replace(draft, character_id=row[0] if row else None)
