"""Conversations and their messages. The position of a message never changes and is never reused."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from config.errors import Conflict, NotFound
from sources.drafts import ConversationDraft, MessageDraft, ThreadDraft, ThreadUpsertResult
from sources.records import Conversation, ExactHit, ExactHits, ListPage, Message, MessageHit, MessageHits, Namespace
from sources.storage.collections.collection import StoredCollection, read_method
from sources.storage.contract import CreationPosition, ExactSearch, MessageSearch, MetadataFilter
from sources.storage.search.exact_expression import ExactMatches
from sources.storage.search.exact_snippets import ExactHighlighter
from sources.storage.tables import thread_upsert, validation
from sources.storage.tables.conversation_tables import (
    CONVERSATIONS,
    MESSAGES,
    NEXT_NUMBER,
    NEXT_POSITION,
    TOUCH_CONVERSATION,
)
from sources.storage.tables.item_table import WriteContext
from sources.storage.tables.sql import SqlConnection, SqlFilter, equals, json_array
from sources.storage.tables.upsert import withdraw_rows
from sources.storage.tables.validation import clamp_count, is_storable, storable_beginning

# Instead of the content of a human-only message. AgentChatBus clients match on this text.
HIDDEN = "[human-only content hidden]"

# Several times what removing one message from all indexes takes on a machine of 2026.
_REMOVAL_MS_PER_MESSAGE = 1
_NAMESPACE_COUNTS = (
    "SELECT c.namespace, count(*) FROM {} CROSS JOIN conversations c WHERE c.uuid = wanted.value AND c.deleted = 0 "
    "GROUP BY c.namespace"
)


class Chats(StoredCollection[Conversation, ConversationDraft, str]):
    """Conversations and their messages. Each engine has its own searches.

    An agent sees that a human-only message exists, but not its content: every method that returns messages passes them
    through `_shown`, and no search of an agent finds them. So no tool, resource or route has to check for them itself.
    """

    source = "chats"
    table = CONVERSATIONS

    async def find_messages(self, search: MessageSearch) -> MessageHits:
        raise NotImplementedError

    async def match_messages(self, search: ExactSearch) -> ExactHits:
        raise NotImplementedError

    async def change_token(self) -> str:
        """Returns a text that is different after every change of a conversation or message. It may also differ if
        something else has changed."""
        raise NotImplementedError

    async def get_by_session(self, session_id: str) -> Conversation:
        condition = "session_id = ?1 AND session_id <> ''"
        return await self._read(lambda connection: self.table.get_first(connection, condition, session_id))

    async def get_message(self, message_id: str) -> Message:
        return self._shown(await self._read(lambda connection: MESSAGES.get(connection, message_id)))

    @read_method
    def list(
        self,
        connection: SqlConnection,
        limit: int,
        offset: int,
        *,
        namespace: str | None = None,
        search: str | None = None,
        is_pinned: bool | None = None,
        is_archived: bool | None = None,
    ) -> ListPage[Conversation]:
        """Returns a page of conversations, most recently modified first. `search` is a case-insensitive part of a title
        or a part of an id."""
        if not is_storable(namespace or "") or not is_storable(search or ""):
            return ListPage((), 0)
        listed = equals("namespace", namespace) & equals("is_archived", is_archived) & equals("is_pinned", is_pinned)
        if not search:
            return self.table.page(connection, limit, offset, f"TRUE{listed.sql}", listed.parameters)
        rowids = self._find_conversations(connection, listed, search.casefold())
        start = clamp_count(offset)
        page = rowids[start : start + clamp_count(limit)]
        return ListPage(tuple(self.table.get_by_rowids(connection, page)), len(rowids))

    def _find_conversations(self, connection: SqlConnection, listed: SqlFilter, folded: str) -> Sequence[int]:
        """Returns the rowids of listed conversations with a case-folded text in their title or id, newest first."""
        sql = f"SELECT id, title, uuid FROM conversations WHERE deleted = 0{listed.sql}"
        rows = connection.execute(f"{sql} ORDER BY last_modified DESC, id DESC", listed.parameters)
        return [rowid for rowid, title, uuid in rows if folded in title.casefold() or folded in uuid.lower()]

    async def list_created(
        self,
        limit: int,
        *,
        namespace: str,
        after: CreationPosition | None = None,
        metadata: MetadataFilter | None = None,
        is_archived: bool | None = None,
    ) -> ListPage[Conversation]:
        """Returns conversations of a namespace, newest `created_at` first, then by id. `total` counts all of them,
        including those before the position `after`."""
        query = thread_upsert.CreatedQuery(namespace, after, metadata, is_archived)
        return await self._read(lambda connection: thread_upsert.list_created(connection, query, limit))

    async def ids(self, after: str, limit: int) -> Sequence[str]:
        """Returns the conversation ids that sort after `after`, which need not exist, in order."""
        sql = "SELECT uuid FROM conversations WHERE deleted = 0 AND uuid > ? ORDER BY uuid LIMIT ?"
        parameters = (storable_beginning(after), clamp_count(limit))
        return await self._read(lambda connection: [uuid for (uuid,) in connection.execute(sql, parameters)])

    async def namespaces(self) -> Sequence[Namespace]:
        """Returns all namespaces by name, always including the default one."""
        return await self._read(thread_upsert.list_namespaces)

    @read_method
    def namespace_counts(self, connection: SqlConnection, conversation_ids: Sequence[str]) -> Mapping[str, int]:
        """Returns how many of these conversations each namespace has."""
        sql = _NAMESPACE_COUNTS.format(connection.dialect.listed())
        return dict(connection.execute(sql, (json_array(conversation_ids),)).fetchall())

    async def create_namespace(self, name: str) -> Namespace:
        name = validation.required_short_text(self._settings.limits, "name", name)
        return await self._write(lambda connection, _context: thread_upsert.create_namespace(connection, name))

    async def rename_namespace(self, name: str, new_name: str) -> Namespace:
        """Renames a namespace and moves its conversations. The default namespace cannot be renamed."""
        new_name = validation.required_short_text(self._settings.limits, "new_name", new_name)
        return await self._write(
            lambda connection, context: thread_upsert.rename_namespace(connection, name, new_name, context)
        )

    async def delete_namespace(self, name: str) -> int:
        """Moves the conversations of a namespace to the default one, which itself cannot be deleted. Returns how many
        were moved."""
        return await self._remove(lambda connection, context: thread_upsert.delete_namespace(connection, name, context))

    @read_method
    def messages(self, connection: SqlConnection, conversation_id: str, limit: int, offset: int) -> ListPage[Message]:
        conversation = self.table.get(connection, conversation_id)
        rowid = self.table.rowid(connection, conversation_id)
        parameters = (rowid, clamp_count(limit), clamp_count(offset))
        rows = MESSAGES.select(connection, "conversation_id = ? ORDER BY position LIMIT ? OFFSET ?", parameters)
        return ListPage(tuple(map(self._shown, rows)), conversation.message_count)

    @read_method
    def messages_after(
        self,
        connection: SqlConnection,
        conversation_id: str,
        number: int,
        limit: int,
        metadata: MetadataFilter | None = None,
    ) -> Sequence[Message]:
        """Returns the messages with a greater number, in order."""
        rowid = self._live_rowid(connection, conversation_id)
        found = thread_upsert.messages_after(connection, rowid, number, limit, metadata, is_agent=self._is_agent)
        return [*map(self._shown, found)]

    @read_method
    def count_before(self, connection: SqlConnection, message_id: str) -> int:
        """Returns how many messages of its conversation come before a message."""
        sql = (
            "SELECT count(*) FROM messages m JOIN messages earlier ON earlier.conversation_id = m.conversation_id "
            "AND earlier.position < m.position AND earlier.deleted = 0 WHERE m.uuid = ?"
        )
        MESSAGES.get(connection, message_id)
        [count] = connection.execute(sql, (message_id,)).fetchone()
        return int(count)

    @read_method
    def messages_around(
        self, connection: SqlConnection, conversation_id: str, position: int, before: int, after: int
    ) -> Sequence[Message]:
        """Returns the message at a position with its neighbours, in order; only the neighbours if it was deleted."""
        position = clamp_count(position)
        rowid = self._live_rowid(connection, conversation_id)
        earlier = MESSAGES.select(
            connection,
            "conversation_id = ? AND position < ? ORDER BY position DESC LIMIT ?",
            (rowid, position, clamp_count(before)),
        )
        later = MESSAGES.select(
            connection,
            "conversation_id = ? AND position >= ? ORDER BY position LIMIT ?",
            (rowid, position, clamp_count(after) + 1),
        )
        # One more was read for the message at the position itself, which may have been deleted.
        if later and later[0].position != position:
            later = later[: clamp_count(after)]
        return [*map(self._shown, (*reversed(earlier), *later))]

    async def create(
        self,
        draft: ConversationDraft,
        messages: Sequence[MessageDraft] = (),
        *,
        idempotency_key: str | None = None,
    ) -> Conversation:
        self._require_batch(messages)

        def work(connection: SqlConnection, context: WriteContext) -> Conversation:
            def write() -> Sequence[str]:
                rowid = self.table.insert(connection, draft, context)
                _append_messages(connection, rowid, messages, context)
                return [self.table.get_by_rowid(connection, rowid).uuid]

            [uuid] = self._run_once(connection, idempotency_key, (draft, [*messages]), write)
            return self.table.get_by_uuid(connection, uuid)

        return await self._write(work, 1)

    async def get_or_create(self, draft: ConversationDraft, namespace_max: int) -> tuple[Conversation, bool]:
        """Returns the first conversation with the title of the draft in its namespace, or creates it, and whether it
        was created. Concurrent calls create one conversation. Raises `Conflict` if the namespace already has
        `namespace_max` conversations."""
        limits = self._settings.limits
        namespace = validation.required_short_text(limits, "namespace", draft.namespace)
        title = validation.short_text(limits, "title", draft.title)

        def work(connection: SqlConnection, context: WriteContext) -> tuple[Conversation, bool]:
            if existing := thread_upsert.find_by_title(connection, namespace, title):
                return existing, False
            thread_upsert.require_room(connection, namespace, namespace_max)
            return self.table.get_by_rowid(connection, self.table.insert(connection, draft, context)), True

        # Most calls find the conversation, and need no write.
        existing = await self._read(lambda connection: thread_upsert.find_by_title(connection, namespace, title))
        return (existing, False) if existing else await self._write(work, 1)

    async def upsert_many(
        self, threads: Sequence[ThreadDraft], *, keeps_edits: bool = False
    ) -> Sequence[ThreadUpsertResult]:
        """Writes imported conversations. Messages are identified by uuid; new ones are appended in the given order.
        `keeps_edits` is that of `ItemCollection.upsert_many`."""
        self._require_batch([*threads, *(message for thread in threads for message in thread.messages)])

        def work(connection: SqlConnection, context: WriteContext) -> Sequence[ThreadUpsertResult]:
            upserter = thread_upsert.ThreadUpserter(connection, threads, context, keeps_edits=keeps_edits)
            return [upserter.upsert(thread) for thread in threads]

        return await self._write(work, len(threads), may_exist=True)

    async def withdraw_many(self, uuids: Sequence[str], *, keeps_edits: bool = True) -> Sequence[str]:
        """Withdraws conversations, as `ItemCollection.withdraw_many`. One with messages that were edited or added here
        counts as edited."""
        self._require_batch(uuids)
        kept: list[str] = []
        # One transaction each, with the time that its messages need.
        for uuid in uuids:
            try:
                extra_ms = await self._removal_ms(uuid)
            except NotFound:
                continue
            kept += await self._remove(_withdrawal(uuid, keeps_edits=keeps_edits), extra_ms)
        return kept

    async def withdraw_messages(
        self, uuids: Sequence[str], *, outside: Sequence[str] = (), keeps_edits: bool = True
    ) -> Sequence[str]:
        """Withdraws messages, except those in the conversations `outside`."""
        self._require_batch(uuids)

        def work(connection: SqlConnection, context: WriteContext) -> Sequence[str]:
            withdrawn = thread_upsert.messages_outside(connection, uuids, outside)
            return withdraw_rows(connection, MESSAGES, withdrawn, context, keeps_edits=keeps_edits)

        return await self._remove(work)

    async def append(
        self,
        conversation_id: str,
        messages: Sequence[MessageDraft],
        *,
        idempotency_key: str | None = None,
        expected_last_number: int | None = None,
    ) -> Sequence[Message]:
        """Appends messages. Changes the modification time of the conversation, but not its version. Raises `Conflict`
        if the last message of the conversation does not have the expected number."""
        self._require_batch(messages)

        def work(connection: SqlConnection, context: WriteContext) -> Sequence[Message]:
            rowid = self._live_rowid(connection, conversation_id)

            def write() -> Sequence[str]:
                # Not before: a call that is repeated with its key finds the messages of the first one.
                last = _last_number(connection, rowid) if expected_last_number is not None else None
                if last != expected_last_number:
                    raise Conflict(
                        f"the conversation has changed: expected {expected_last_number} as its last message number, "
                        f"found {last}",
                        {"last_number": last, "expected_last_number": expected_last_number},
                    )
                return [message.uuid for message in _append_messages(connection, rowid, messages, context)]

            uuids = self._run_once(connection, idempotency_key, (conversation_id, [*messages]), write)
            return [self._shown(MESSAGES.get(connection, uuid)) for uuid in uuids]

        return await self._write(work)

    async def last_message_number(self, conversation_id: str) -> int:
        """Returns the number of the last message written to the conversation, even if it was deleted since; 0 if there
        is none."""
        return await self._read(
            lambda connection: _last_number(connection, self._live_rowid(connection, conversation_id))
        )

    async def update_message(
        self, message_id: str, draft: MessageDraft, expected_version: int | None = None
    ) -> Message:
        def work(connection: SqlConnection, context: WriteContext) -> Message:
            rowid = MESSAGES.update(connection, message_id, draft, expected_version, context)
            _touch_conversation(connection, rowid, context.time)
            return self._shown(MESSAGES.get_by_rowid(connection, rowid))

        return await self._write(work)

    async def delete_message(self, message_id: str, expected_version: int | None = None) -> None:
        def work(connection: SqlConnection, context: WriteContext) -> None:
            rowid = MESSAGES.delete(connection, message_id, expected_version, context)
            _touch_conversation(connection, rowid, context.time)

        await self._remove(work)

    def _shown(self, message: Message) -> Message:
        if not (self._is_agent and message.is_human_only):
            return message
        # The line numbers of an imported session stay: transcripts are read by them.
        values = {name: message.metadata.get(name) for name in ("line_start", "line_end")}
        lines = {name: value for name, value in values.items() if isinstance(value, int)}
        metadata = {"human_only": True, **lines}
        return replace(message, content=HIDDEN, attachments=(), citations=(), content_hash="", metadata=metadata)

    def _write_context(self) -> WriteContext:
        return replace(super()._write_context(), is_agent=self._is_agent)

    async def _removal_ms(self, item_id: str) -> int:
        """A conversation is removed from all indexes in one transaction, so a long one needs more time."""

        def work(connection: SqlConnection) -> int:
            sql = "SELECT count(*) FROM messages WHERE conversation_id = ?"
            [messages] = connection.execute(sql, (self.table.rowid(connection, item_id),)).fetchone()
            return int(messages) * _REMOVAL_MS_PER_MESSAGE

        return await self._read(work)

    def _live_rowid(self, connection: SqlConnection, conversation_id: str) -> int:
        rowid: int = self.table.stored_values(connection, conversation_id)["id"]
        return rowid


def _withdrawal(uuid: str, *, keeps_edits: bool) -> Callable[[SqlConnection, WriteContext], Sequence[str]]:
    return lambda connection, context: thread_upsert.withdraw_thread(connection, uuid, context, keeps_edits=keeps_edits)


def _append_messages(
    connection: SqlConnection, conversation: int, drafts: Sequence[MessageDraft], context: WriteContext
) -> Sequence[Message]:
    [position] = connection.execute(NEXT_POSITION, (conversation,)).fetchone()
    [number] = connection.execute(NEXT_NUMBER).fetchone()
    rowids = [
        MESSAGES.insert(
            connection,
            thread_upsert.with_sender(draft),
            context,
            id=number + offset,
            conversation_id=conversation,
            position=position + offset,
        )
        for offset, draft in enumerate(drafts)
    ]
    messages = MESSAGES.get_by_rowids(connection, rowids)
    if messages:
        _touch_conversation(connection, rowids[-1], max(message.created_at for message in messages))
    return messages


def _touch_conversation(connection: SqlConnection, message: int, time: str) -> None:
    """Updates the modification time of a message's conversation."""
    [conversation] = connection.execute("SELECT conversation_id FROM messages WHERE id = ?", (message,)).fetchone()
    connection.execute(TOUCH_CONVERSATION, (time, conversation))


def _last_number(connection: SqlConnection, conversation: int) -> int:
    sql = "SELECT id FROM messages WHERE conversation_id = ? ORDER BY position DESC LIMIT 1"
    row = connection.execute(sql, (conversation,)).fetchone()
    return row[0] if row else 0


# -- hits --------------------------------------------------------------------------------------------------------------
# The messages that a search found, in its order.

# The title of a message's conversation, in a SELECT of MESSAGES.
_TITLE = "c.title"


def message_hits(connection: SqlConnection, rowids: Sequence[int], *, is_complete: bool = True) -> MessageHits:
    rows = MESSAGES.get_by_rowids_with(connection, rowids, _TITLE)
    return MessageHits(tuple(MessageHit(message=message, title=title) for message, title in rows), is_complete)


def exact_hits(connection: SqlConnection, matches: ExactMatches, *, is_complete: bool) -> ExactHits:
    rows = MESSAGES.get_by_rowids_with(connection, [match.rowid for match in matches.matches], _TITLE)
    highlighter = ExactHighlighter(matches.phrases)
    hits = tuple(
        ExactHit(message=message, title=title, snippet=highlighter.snippet(message.content), rank=match.rank)
        for match, (message, title) in zip(matches.matches, rows, strict=True)
    )
    return ExactHits(hits=hits, read_as=matches.read_as, is_ranked=matches.is_ranked, is_complete=is_complete)
