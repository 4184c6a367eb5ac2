"""Upserts of imported conversations with their messages, some of which may already be stored."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Sequence

from msgspec import UNSET, Struct, structs

from config.errors import Conflict, InvalidParams, NotFound
from sources.drafts import ConversationDraft, MessageDraft, ThreadDraft, ThreadUpsertResult, UpsertResult
from sources.records import Conversation, ListPage, Message, Namespace
from sources.storage.contract import DEFAULT_NAMESPACE, CreationPosition, MetadataFilter
from sources.storage.tables import upsert
from sources.storage.tables.conversation_tables import (
    CONVERSATIONS,
    DEFAULT_ROLE,
    MESSAGES,
    NEXT_NUMBER,
    NEXT_POSITION,
    TOUCH_CONVERSATION,
    UNKNOWN_ROLE,
)
from sources.storage.tables.item_table import WriteContext
from sources.storage.tables.sql import Delete, Insert, SqlConnection, SqlFilter, Update, equals, json_array, metadata_in
from sources.storage.tables.validation import clamp_count, is_storable

# A message without a stamp was added here, and one whose version is not that of its stamp was edited in the library.
_HAS_OWN_MESSAGES = """
    SELECT 1 FROM messages WHERE conversation_id = ? AND deleted = 0 AND
        (arrived IS NULL OR (arrived LIKE '% v%' AND arrived NOT LIKE '% v' || version)) LIMIT 1
"""
_LIVE_MESSAGES = "SELECT uuid FROM messages WHERE conversation_id = ? AND deleted = 0"


def with_sender(draft: MessageDraft) -> MessageDraft:
    """A message without a sender is attributed to its role."""
    if draft.sender is UNSET or not draft.sender:
        role = DEFAULT_ROLE if draft.role is UNSET else draft.role
        return structs.replace(draft, sender=role or UNKNOWN_ROLE)
    return draft


class ThreadUpserter:
    """Upserts conversations one after the other, within one transaction."""

    def __init__(
        self,
        connection: SqlConnection,
        threads: Sequence[ThreadDraft],
        context: WriteContext,
        *,
        keeps_edits: bool = False,
    ) -> None:
        self._connection = connection
        self._conversations: upsert.Upserter[ConversationDraft] = upsert.Upserter(
            connection, CONVERSATIONS, [thread.draft for thread in threads], context, keeps_edits=keeps_edits
        )
        self._messages = _MessageUpserter(
            connection,
            [message for thread in threads for message in thread.messages],
            context,
            keeps_edits=keeps_edits,
        )

    def upsert(self, thread: ThreadDraft) -> ThreadUpsertResult:
        """If the conversation is older than the last imported state, existing rows are not changed, and messages that
        only the older state has are stored as an alternate branch."""
        row = self._conversations.rows.get(uuid) if isinstance(uuid := thread.draft.uuid, str) else None
        is_outdated = row is not None and not row.is_deleted and upsert.is_older(thread.draft, row)
        own = upsert.UNCHANGED if is_outdated else self._conversations.upsert(thread.draft)
        if own.outcome == "refused":
            return ThreadUpsertResult(own)
        if own.outcome == "deleted":
            return ThreadUpsertResult(own, [upsert.DELETED] * len(thread.messages))
        conversation = self._conversations.rows[upsert.uuid_of(thread.draft)].rowid
        self._messages.begin_conversation(conversation, is_new=own == upsert.NEW)
        results = [self._messages.upsert_into(draft, is_outdated=is_outdated) for draft in thread.messages]
        updated = [draft for draft, result in zip(thread.messages, results, strict=True) if result == upsert.UPDATED]
        # A conversation is as new as its newest message.
        newest = [self._messages.newest] if self._messages.newest else []
        if updated:
            rowids = json_array([self._messages.rows[upsert.uuid_of(draft)].rowid for draft in updated])
            listed = self._connection.dialect.listed()
            sql = f"SELECT max(r.last_modified) FROM {listed} CROSS JOIN messages r WHERE r.id = CAST(value AS BIGINT)"
            newest += self._connection.execute(sql, (rowids,)).fetchone()
        if newest:
            self._connection.executemany_later(TOUCH_CONVERSATION, [(max(newest), conversation)])
        return ThreadUpsertResult(upsert.combine_results(own, results), results)


def withdraw_thread(connection: SqlConnection, uuid: str, context: WriteContext, *, keeps_edits: bool) -> list[str]:
    """Withdraws a conversation and its messages, because not all of them may come back with it. One with a message that
    was edited or added here counts as edited."""
    row = upsert.rows_by_uuid(connection, CONVERSATIONS.name, [uuid]).get(uuid)
    if row is None or row.is_deleted:
        return []
    has_own_messages = connection.execute(_HAS_OWN_MESSAGES, (row.rowid,)).fetchone() is not None
    if keeps_edits and (row.has_edits or has_own_messages):
        return [uuid]
    messages = [message for (message,) in connection.execute(_LIVE_MESSAGES, (row.rowid,))]
    upsert.withdraw_rows(connection, MESSAGES, messages, context, keeps_edits=False)
    return upsert.withdraw_rows(connection, CONVERSATIONS, [uuid], context, keeps_edits=False)


def messages_outside(connection: SqlConnection, uuids: Sequence[str], conversations: Sequence[str]) -> Sequence[str]:
    """Returns the messages that are in none of the conversations."""
    dialect = connection.dialect
    sql = (
        f"SELECT m.uuid FROM {dialect.listed()} CROSS JOIN messages m JOIN conversations c ON c.id = m.conversation_id "
        f"WHERE m.uuid = wanted.value AND c.uuid NOT IN (SELECT value FROM {dialect.listed(name='others')})"
    )
    rows = connection.execute(sql, (json_array(uuids), json_array(conversations)))
    return [uuid for (uuid,) in rows]


class _MessageUpserter(upsert.Upserter[MessageDraft]):
    """Upserts messages into the conversation of the last `begin_conversation`."""

    def __init__(
        self,
        connection: SqlConnection,
        drafts: Sequence[MessageDraft],
        context: WriteContext,
        *,
        keeps_edits: bool,
    ) -> None:
        super().__init__(
            connection, MESSAGES, drafts, context, parent_column="r.conversation_id", keeps_edits=keeps_edits
        )
        self._next_number: int = connection.execute(NEXT_NUMBER).fetchone()[0]
        self._next_position = 0
        self._conversation = 0
        # The creation time of the newest message that was added to the conversation.
        self.newest = ""

    def begin_conversation(self, conversation: int, *, is_new: bool) -> None:
        self._conversation, self._next_position, self.newest = conversation, 0, ""
        if not is_new:
            [self._next_position] = self._connection.execute(NEXT_POSITION, (conversation,)).fetchone()

    def upsert_into(self, draft: MessageDraft, *, is_outdated: bool) -> UpsertResult:
        row = self.rows.get(draft.uuid) if isinstance(draft.uuid, str) else None
        if row is not None and row.parent != self._conversation:
            return UpsertResult("refused", f"uuid: {draft.uuid!r} is already used by a message in another conversation")
        if not is_outdated:
            return self.upsert(draft)
        if row is not None:
            return upsert.DELETED if row.is_deleted else upsert.UNCHANGED
        return self.upsert(structs.replace(draft, is_canonical=False))

    def _insert(self, draft: MessageDraft, uuid: str, import_stamp: str | None) -> upsert.StoredRow:
        stamp = upsert.next_stamp(draft, import_stamp, 0)
        rowid = MESSAGES.insert(
            self._connection,
            with_sender(draft),
            self._context,
            id=self._next_number,
            conversation_id=self._conversation,
            position=self._next_position,
            arrived=stamp,
        )
        self._next_number += 1
        self._next_position += 1
        self.newest = max(self.newest, MESSAGES.creation_time(draft, self._context))
        return upsert.StoredRow(rowid, uuid, stamp, parent=self._conversation)

    def _update(self, row: upsert.StoredRow, draft: MessageDraft, import_stamp: str | None) -> None:
        super()._update(row, with_sender(draft), import_stamp)

    def _has_values_of(self, row: upsert.StoredRow, draft: MessageDraft) -> bool:
        return super()._has_values_of(row, with_sender(draft))


# -- thread queries ----------------------------------------------------------------------------------------------------
# Queries for the threads of the message bus: by creation, by title, and messages by number.


class CreatedQuery(Struct, frozen=True):
    namespace: str
    after: CreationPosition | None
    metadata: MetadataFilter | None
    is_archived: bool | None = None


def list_created(connection: SqlConnection, query: CreatedQuery, limit: int) -> ListPage[Conversation]:
    if not is_storable(query.namespace):
        return ListPage((), 0)
    matching = (
        equals("namespace", query.namespace)
        & equals("is_archived", query.is_archived)
        & _has_metadata(connection, "conversations.metadata", query.metadata)
    )
    rest = matching
    if query.after is not None and is_storable(query.after.id):
        rest &= SqlFilter(("(created_at, uuid) < (?, ?)",), (query.after.created_at, query.after.id))
    order = "ORDER BY created_at DESC, uuid DESC LIMIT ?"
    rows = CONVERSATIONS.select(connection, f"TRUE{rest.sql} {order}", (*rest.parameters, clamp_count(limit)))
    return ListPage(tuple(rows), CONVERSATIONS.count(connection, f"TRUE{matching.sql}", matching.parameters))


def find_by_title(connection: SqlConnection, namespace: str, title: str) -> Conversation | None:
    """Returns the first conversation with this title."""
    condition = "namespace = ? AND title = ? ORDER BY created_at, conversations.id LIMIT 1"
    return next(iter(CONVERSATIONS.select(connection, condition, (namespace, title))), None)


def require_room(connection: SqlConnection, namespace: str, namespace_max: int) -> None:
    if CONVERSATIONS.count(connection, "namespace = ?", (namespace,)) >= namespace_max:
        raise Conflict(f"the limit of {namespace_max} conversations in {namespace!r} is reached")


def messages_after(
    connection: SqlConnection,
    conversation: int,
    number: int,
    limit: int,
    metadata: MetadataFilter | None,
    *,
    is_agent: bool,
) -> Sequence[Message]:
    """Numbers increase with the position, and the index by position contains them. For an agent, a human-only message
    has no metadata."""
    column = "CASE messages.human_only WHEN 1 THEN '{}' ELSE messages.metadata END" if is_agent else "messages.metadata"
    condition = _has_metadata(connection, column, metadata)
    sql = f"conversation_id = ? AND messages.id > ?{condition.sql} ORDER BY position LIMIT ?"
    return MESSAGES.select(
        connection, sql, (conversation, clamp_count(number), *condition.parameters, clamp_count(limit))
    )


def _has_metadata(connection: SqlConnection, column: str, metadata: MetadataFilter | None) -> SqlFilter:
    if metadata is None:
        return SqlFilter()
    values = [value for value in metadata.values if is_storable(value or "")]
    return metadata_in(connection.dialect, column, metadata.path, values)


# -- namespaces --------------------------------------------------------------------------------------------------------
# Namespaces group conversations by name. A namespace exists if it was created or if a conversation is in it. The
# default namespace always exists and cannot be renamed.


def list_namespaces(connection: SqlConnection) -> Sequence[Namespace]:
    counts: dict[str, int] = {DEFAULT_NAMESPACE: 0}
    counts |= {name: 0 for (name,) in connection.execute("SELECT name FROM namespaces")}
    counts |= dict(
        connection.execute("SELECT namespace, count(*) FROM conversations WHERE deleted = 0 GROUP BY namespace")
    )
    return [Namespace(name, counts[name]) for name in sorted(counts)]


def create_namespace(connection: SqlConnection, name: str) -> Namespace:
    if any(namespace.name == name for namespace in list_namespaces(connection)):
        raise Conflict(f"namespace {name!r} already exists")
    connection.execute(Insert("namespaces", "name"), (name,))
    return Namespace(name, 0)


def rename_namespace(connection: SqlConnection, name: str, new_name: str, context: WriteContext) -> Namespace:
    namespace = _get_changeable(connection, name)
    if new_name == name:
        return namespace
    create_namespace(connection, new_name)
    _move_conversations(connection, name, new_name, context)
    return Namespace(new_name, namespace.conversations)


def delete_namespace(connection: SqlConnection, name: str, context: WriteContext) -> int:
    namespace = _get_changeable(connection, name)
    # Deleting a namespace deletes no conversation.
    _move_conversations(connection, name, DEFAULT_NAMESPACE, context)
    return namespace.conversations


def _get_changeable(connection: SqlConnection, name: str) -> Namespace:
    if name == DEFAULT_NAMESPACE:
        raise InvalidParams(f"namespace: {name!r} is the default namespace, which cannot be renamed or deleted")
    for namespace in list_namespaces(connection):
        if namespace.name == name:
            return namespace
    raise NotFound("namespace", name)


def _move_conversations(connection: SqlConnection, name: str, new_name: str, context: WriteContext) -> None:
    """Increases the versions of the conversations but keeps their modification times."""
    connection.execute(
        Update("conversations", "namespace = ?, version = version + 1, client_id = ?", "namespace = ? AND deleted = 0"),
        (new_name, context.client_id, name),
    )
    connection.execute(Delete("namespaces", "name = ?"), (name,))
