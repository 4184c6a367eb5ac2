"""Conversations and their messages. A message's position never changes, and none is given twice."""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

import re
import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from config.errors import Conflict
from sources.drafts import ConversationDraft, MessageDraft, ThreadDraft, ThreadUpsertResult
from sources.records import (
    Conversation,
    ExactHit,
    ExactHits,
    ListPage,
    Message,
    MessageHit,
    MessageHits,
    Namespace,
)
from sources.storage.contract import ExactSearch, MessageSearch
from sources.storage.sqlite.collections.collection import CollectionSettings, SqliteCollection
from sources.storage.sqlite.collections.conversation_tables import CONVERSATIONS, MESSAGES, TARGET
from sources.storage.sqlite.collections.namespaces import (
    create_namespace,
    delete_namespace,
    list_namespaces,
    rename_namespace,
)
from sources.storage.sqlite.connection.database import Database
from sources.storage.sqlite.index.index_builder import IndexMaker
from sources.storage.sqlite.search import exact, substring
from sources.storage.sqlite.search.exact import EXACT_INDEX, Matches
from sources.storage.sqlite.search.substring import SUBSTRING_INDEX
from sources.storage.sqlite.search.target import Filter, equal
from sources.storage.sqlite.write import validation
from sources.storage.sqlite.write.items import Key, Stamp
from sources.storage.sqlite.write.thread_upsert import NEXT_NUMBER, NEXT_POSITION, ThreadUpserter, with_sender
from sources.storage.sqlite.write.validation import is_storable

T = TypeVar("T")


class SqliteChats(SqliteCollection[Conversation, ConversationDraft, str]):
    source = "chats"
    target = TARGET
    items = CONVERSATIONS

    def __init__(self, database: Database, settings: CollectionSettings, client_id: str, maker: IndexMaker) -> None:
        super().__init__(database, settings, client_id)
        self._maker = maker

    async def _write(self, work: Callable[[sqlite3.Connection, Stamp], T], more_ms: int = 0) -> T:
        """With the indexes that were made on demand, which follow in the same transaction as the others."""

        def followed(connection: sqlite3.Connection, stamp: Stamp) -> T:
            result = work(connection, stamp)
            SUBSTRING_INDEX.follow(connection)
            EXACT_INDEX.follow(connection)
            return result

        return await super()._write(followed, more_ms)

    async def find_messages(self, search: MessageSearch) -> MessageHits:
        """Where more messages would have to be looked through than may be, an index is made for the next time."""

        def work(connection: sqlite3.Connection) -> MessageHits:
            found = substring.find(connection, search, self._settings.scanned_rows_max)
            told = MESSAGES.numbered_beside(connection, found.numbers, _TITLE)
            hits = [MessageHit(message=message, title=title) for message, title in told]
            return MessageHits(tuple(hits), found.is_complete)

        found = await self._read(work, search.deadline_ms)
        if not found.is_complete:
            self._maker.start(SUBSTRING_INDEX)
        return found

    async def match_messages(self, search: ExactSearch) -> ExactHits:
        """The first call makes the index; in a large library it finds the newest messages before it finds all."""

        def work(connection: sqlite3.Connection) -> ExactHits | None:
            progress = EXACT_INDEX.progress(connection)
            if progress is None:
                return None
            matches = exact.find(connection, search, self._settings.ranked_rows_max)
            return _exact_found(connection, matches, is_complete=progress.is_complete)

        found = await self._read(work, search.deadline_ms)
        if found is None or not found.is_complete:
            self._maker.start(EXACT_INDEX, self._settings.scanned_rows_max)
            if await self._maker.wait(EXACT_INDEX, search.deadline_ms / 1000):
                found = await self._read(work, search.deadline_ms)
        return found or ExactHits(hits=(), is_complete=False)

    async def get_by_session(self, session_id: str) -> Conversation:
        condition = "session_id = ?1 AND session_id <> ''"
        return await self._read(lambda connection: self.items.first(connection, condition, session_id))

    async def get_message(self, message_id: str) -> Message:
        return await self._read(lambda connection: MESSAGES.get(connection, message_id))

    async def list(
        self, limit: int, offset: int, *, namespace: str | None = None, search: str | None = None
    ) -> ListPage[Conversation]:
        if not is_storable(namespace or "") or not is_storable(search or ""):
            return ListPage((), 0)
        narrowing = equal("namespace", namespace)
        condition = f"TRUE{narrowing.sql}"

        def work(connection: sqlite3.Connection) -> ListPage[Conversation]:
            if not search:
                return self.items.page(connection, limit, offset, condition, narrowing.parameters)
            holding = narrowing & _holding(search.casefold())
            numbers = _newest(connection, holding)
            start = validation.count(offset)
            shown = numbers[start : start + validation.count(limit)]
            return ListPage(tuple(self.items.numbered(connection, shown)), len(numbers))

        return await self._read(work)

    async def ids(self, after: str, limit: int) -> Sequence[str]:
        sql = "SELECT uuid FROM conversations WHERE deleted = 0 AND uuid > ? ORDER BY uuid LIMIT ?"
        parameters = (after, validation.count(limit))
        return await self._read(lambda connection: [uuid for (uuid,) in connection.execute(sql, parameters)])

    async def namespaces(self) -> Sequence[Namespace]:
        return await self._read(list_namespaces)

    async def create_namespace(self, name: str) -> Namespace:
        name = validation.name(self._settings.limits, "name", name)
        return await self._write(lambda connection, _stamp: create_namespace(connection, name))

    async def rename_namespace(self, name: str, new_name: str) -> Namespace:
        new_name = validation.name(self._settings.limits, "new_name", new_name)
        return await self._write(lambda connection, stamp: rename_namespace(connection, name, new_name, stamp))

    async def delete_namespace(self, name: str) -> int:
        return await self._write(lambda connection, stamp: delete_namespace(connection, name, stamp))

    async def messages(self, conversation_id: str, limit: int, offset: int) -> ListPage[Message]:
        def work(connection: sqlite3.Connection) -> ListPage[Message]:
            conversation = self.items.get(connection, conversation_id)
            number = self.items.number(connection, conversation_id)
            parameters = (number, validation.count(limit), validation.count(offset))
            rows = MESSAGES.select(connection, "conversation_id = ? ORDER BY position LIMIT ? OFFSET ?", parameters)
            return ListPage(tuple(rows), conversation.message_count)

        return await self._read(work)

    async def messages_around(self, conversation_id: str, position: int, before: int, after: int) -> Sequence[Message]:
        """The message at a position with its neighbours, in order; the neighbours alone where it was deleted."""
        position = validation.count(position)

        def work(connection: sqlite3.Connection) -> Sequence[Message]:
            number = self.items.row(connection, conversation_id)["id"]
            earlier = MESSAGES.select(
                connection,
                "conversation_id = ? AND position < ? ORDER BY position DESC LIMIT ?",
                (number, position, validation.count(before)),
            )
            later = MESSAGES.select(
                connection,
                "conversation_id = ? AND position >= ? ORDER BY position LIMIT ?",
                (number, position, validation.count(after) + 1),
            )
            if later and later[0].position != position:
                later = later[: validation.count(after)]
            return [*reversed(earlier), *later]

        return await self._read(work)

    async def create(
        self,
        draft: ConversationDraft,
        messages: Sequence[MessageDraft] = (),
        *,
        idempotency_key: str | None = None,
    ) -> Conversation:
        self._require_batch(messages)

        def work(connection: sqlite3.Connection, stamp: Stamp) -> Conversation:
            def make() -> Sequence[str]:
                number = self._insert(connection, draft, stamp)
                self._add(connection, number, messages, stamp)
                return [self.items.made(connection, number).uuid]

            [uuid] = self._once(connection, idempotency_key, (draft, list(messages)), make)
            return self.items.get_by_uuid(connection, uuid)

        return await self._write(work)

    async def upsert_many(self, threads: Sequence[ThreadDraft]) -> Sequence[ThreadUpsertResult]:
        messages = [message for thread in threads for message in thread.messages]
        self._require_batch([*threads, *messages])

        def work(connection: sqlite3.Connection, stamp: Stamp) -> Sequence[ThreadUpsertResult]:
            conversations = self._upserter(connection, [thread.draft for thread in threads], stamp)
            upserter = ThreadUpserter(connection, conversations, messages, stamp, self._settings.limits)
            return [upserter.put(thread) for thread in threads]

        return await self._write(work)

    async def append(
        self,
        conversation_id: str,
        messages: Sequence[MessageDraft],
        *,
        idempotency_key: str | None = None,
        expected_last_number: int | None = None,
    ) -> Sequence[Message]:
        """New messages at the end. The conversation becomes newer by it, not another version of itself."""
        self._require_batch(messages)

        def work(connection: sqlite3.Connection, stamp: Stamp) -> Sequence[Message]:
            number = self.items.row(connection, conversation_id)["id"]

            def make() -> Sequence[str]:
                _require_last(connection, number, expected_last_number)
                return [message.uuid for message in self._add(connection, number, messages, stamp)]

            uuids = self._once(connection, idempotency_key, (conversation_id, list(messages)), make)
            return [MESSAGES.get(connection, uuid) for uuid in uuids]

        return await self._write(work)

    async def update_message(
        self, message_id: str, draft: MessageDraft, expected_version: int | None = None
    ) -> Message:
        def work(connection: sqlite3.Connection, stamp: Stamp) -> Message:
            number = MESSAGES.update(connection, message_id, draft, expected_version, stamp, self._settings.limits)
            _touch(connection, number, stamp.time)
            return MESSAGES.made(connection, number)

        return await self._write(work)

    async def delete_message(self, message_id: str, expected_version: int | None = None) -> None:
        def work(connection: sqlite3.Connection, stamp: Stamp) -> None:
            _touch(connection, MESSAGES.delete(connection, message_id, expected_version, stamp), stamp.time)

        await self._write(work)

    def _remove(self, connection: sqlite3.Connection, item_id: str) -> None:
        connection.execute(_KEEP_NUMBER)
        self.items.purge(connection, item_id)

    async def _removal_ms(self, item_id: str) -> int:
        """The time it may take, beyond that of any write, to remove a conversation from all indexes: it is one
        transaction, because half a conversation would help nobody."""

        def work(connection: sqlite3.Connection) -> int:
            number = self.items.number(connection, item_id)
            messages: int = connection.execute(_COUNT, (number,)).fetchone()[0]
            return messages * _REMOVAL_MS_EACH

        return await self._read(work)

    async def last_message_number(self, conversation_id: str) -> int:
        return await self._read(
            lambda connection: _last_number(connection, self.items.row(connection, conversation_id)["id"])
        )

    def _insert(
        self, connection: sqlite3.Connection, draft: ConversationDraft, stamp: Stamp, **extra: validation.SqlValue
    ) -> int:
        _require_own_session(connection, draft, None)
        draft = _with_character(connection, draft)
        if draft.last_modified is UNSET:
            return super()._insert(connection, draft, stamp, **extra)
        last_modified = validation.time(self._settings.limits, "last_modified", draft.last_modified)
        number = super()._insert(connection, draft, stamp, **extra)
        _age(connection, number, last_modified)
        return number

    def _change(
        self,
        connection: sqlite3.Connection,
        key: Key,
        draft: ConversationDraft,
        expected_version: int | None,
        stamp: Stamp,
        **extra: validation.SqlValue,
    ) -> int:
        _require_own_session(connection, draft, str(key))
        draft = _with_character(connection, draft)
        return super()._change(connection, key, draft, expected_version, stamp, **extra)

    def _holds(self, connection: sqlite3.Connection, number: int, draft: ConversationDraft) -> bool:
        return super()._holds(connection, number, _with_character(connection, draft))

    def _add(
        self, connection: sqlite3.Connection, conversation: int, drafts: Sequence[MessageDraft], stamp: Stamp
    ) -> Sequence[Message]:
        position = connection.execute(NEXT_POSITION, (conversation,)).fetchone()[0]
        next_number = connection.execute(NEXT_NUMBER).fetchone()[0]
        numbers = [
            MESSAGES.insert(
                connection,
                with_sender(draft),
                stamp,
                self._settings.limits,
                id=next_number + offset,
                conversation_id=conversation,
                position=position + offset,
            )
            for offset, draft in enumerate(drafts)
        ]
        messages = [MESSAGES.made(connection, number) for number in numbers]
        if messages:
            _touch(connection, numbers[-1], max(message.created_at for message in messages))
        return messages


_KEEP_NUMBER = f"INSERT OR REPLACE INTO state SELECT 'last_message_number', CAST(({NEXT_NUMBER}) - 1 AS TEXT)"
_COUNT = "SELECT count(*) FROM messages WHERE conversation_id = ?"
# Several times what it takes with all indexes of messages on a machine of 2026.
_REMOVAL_MS_EACH = 1
_LAST_NUMBER = "SELECT id FROM messages WHERE conversation_id = ? ORDER BY position DESC LIMIT 1"


def _touch(connection: sqlite3.Connection, message: int, time: str) -> None:
    """A conversation is as new as what was last done in it."""
    connection.execute(
        "UPDATE conversations SET last_modified = max(last_modified, ?1) "
        "WHERE id = (SELECT conversation_id FROM messages WHERE id = ?2)",
        (time, message),
    )


def _age(connection: sqlite3.Connection, conversation: int, time: str) -> None:
    connection.execute(
        "UPDATE conversations SET last_modified = max(last_modified, ?) WHERE id = ?", (time, conversation)
    )


def _last_number(connection: sqlite3.Connection, conversation: int) -> int:
    found = connection.execute(_LAST_NUMBER, (conversation,)).fetchone()
    return found[0] if found else 0


def _require_last(connection: sqlite3.Connection, conversation: int, expected: int | None) -> None:
    if expected is None:
        return
    last = _last_number(connection, conversation)
    if last != expected:
        raise Conflict(
            f"the conversation has moved on: its last message has number {last}, expected was {expected}",
            {"last_number": last, "expected_last_number": expected},
        )


def _require_own_session(connection: sqlite3.Connection, draft: ConversationDraft, own: str | None) -> None:
    if draft.session_id is UNSET or not draft.session_id or not is_storable(draft.session_id):
        return
    sql = "SELECT uuid FROM conversations WHERE session_id = ? AND session_id <> '' AND deleted = 0"
    found = connection.execute(sql, (draft.session_id,)).fetchone()
    if found is not None and found[0] != own:
        raise Conflict(f"session_id: got {draft.session_id!r}, which is that of conversation {found[0]!r}")


def _with_character(connection: sqlite3.Connection, draft: ConversationDraft) -> ConversationDraft:
    """The number that a character has in this library, in place of its uuid; none where there is no such character."""
    if draft.character is UNSET or not is_storable(draft.character):
        return draft
    sql = "SELECT id FROM characters WHERE uuid = ? AND deleted = 0"
    found = connection.execute(sql, (draft.character,)).fetchone()
    return replace(draft, character_id=found[0] if found else None)


# Of the conversation in which a message stands.
_TITLE = "c.title"


def _exact_found(connection: sqlite3.Connection, matches: Matches, *, is_complete: bool) -> ExactHits:
    told = MESSAGES.numbered_beside(connection, [match.number for match in matches.found], _TITLE)
    hits = [
        ExactHit(message=message, title=title, snippet=match.snippet, rank=match.rank)
        for match, (message, title) in zip(matches.found, told, strict=True)
    ]
    return ExactHits(hits=tuple(hits), read_as=matches.read_as, is_ranked=matches.is_ranked, is_complete=is_complete)


# SQLite compares no longer ones, and no id is as long.
_PATTERN_MAX_CHARS = 10_000


def _holding(text: str) -> Filter:
    """Conversations with a folded text in their title or id. To fold a title costs ten times what looking into it does,
    so it is done only where letters beyond ASCII are in play."""
    if not text.isascii() or len(text) > _PATTERN_MAX_CHARS:
        return Filter(("instr(casefold(title), ?)",), (text,))
    pattern = re.sub(r"([\\%_])", r"\\\1", text)
    is_like = "LIKE '%' || ? || '%' ESCAPE '\\'"
    others = "(length(CAST(title AS BLOB)) <> length(title) AND instr(casefold(title), ?))"
    return Filter((f"(title {is_like} OR uuid {is_like} OR {others})",), (pattern, pattern, text))


def _newest(connection: sqlite3.Connection, narrowing: Filter) -> list[int]:
    # By an index all rows would be read in the order of their age, each from another page.
    rows = f"SELECT id FROM conversations NOT INDEXED WHERE deleted = 0{narrowing.sql}"
    sql = f"{rows} ORDER BY last_modified DESC, id DESC"
    return [number for (number,) in connection.execute(sql, narrowing.parameters)]
