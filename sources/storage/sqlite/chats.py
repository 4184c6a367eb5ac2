"""Conversations and their messages. A message's position never changes, and none is given twice."""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

import sqlite3
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from sources.records import Conversation, Found, Hit, Message, Page
from sources.scoring import MESSAGE_AND_CONTEXT
from sources.segment import fold
from sources.storage.contract import ConversationDraft, MessageDraft, Search
from sources.storage.sqlite import cleaning
from sources.storage.sqlite.collection import Collection
from sources.storage.sqlite.counting import Counter
from sources.storage.sqlite.items import Column, Derived, Form, Items, Stamp, form_of, read_objects, read_texts
from sources.storage.sqlite.schema.chacha import CHATS_INDEX, MESSAGE_CONTEXT, MESSAGE_OWN
from sources.storage.sqlite.target import Candidate, Filter, Target, dated, either, equal, json_list, one_of, tagged

_DEFAULT_ROLE = "user"

CONVERSATIONS = Items(
    table="conversations",
    kind="conversation",
    record=Conversation,
    key="uuid",
    columns=(
        Column("title", cleaning.line),
        Column("namespace", cleaning.line),
        Column("session_id", cleaning.line),
        Column("character_id", cleaning.number_or_none, None),
    ),
    hashed=("title",),
    forms=(form_of("title"),),
    index=CHATS_INDEX,
    derived=(
        Derived(
            "message_count",
            "SELECT count(*) FROM messages m WHERE m.conversation_id = conversations.id AND m.deleted = 0",
        ),
    ),
)

MESSAGES = Items(
    table="messages",
    kind="message",
    record=Message,
    key="uuid",
    columns=(
        Column("role", cleaning.line, _DEFAULT_ROLE),
        Column("sender", cleaning.line),
        Column("content", cleaning.text),
        Column("model", cleaning.line_or_none, None),
        Column("tool", cleaning.line_or_none, None),
        Column("attachments", cleaning.json, "[]", read_objects),
        Column("citations", cleaning.json, "[]", read_objects),
        Column("parent_id", cleaning.line_or_none, None),
        Column("is_canonical", cleaning.flag, 1, bool),
    ),
    hashed=("sender", "content"),
    forms=(Form("text_seg", lambda values: f"{values['sender']}: {values['content']}"),),
    index=CHATS_INDEX,
    derived=(
        Derived("conversation_id", "SELECT c.uuid FROM conversations c WHERE c.id = messages.conversation_id"),
        Derived("position", "position"),
    ),
    alive="deleted = 0 AND EXISTS (SELECT 1 FROM conversations c WHERE c.id = messages.conversation_id "
    "AND c.deleted = 0)",
)

_HIT = "c.uuid, c.title, c.tags"
_MESSAGE_ROWS = f"""
    SELECT {_HIT}, m.content, m.created_at, m.last_modified, m.version, m.content_hash, length(m.content),
        m.uuid, m.position, m.sender, m.role, {MESSAGE_OWN}, {MESSAGE_CONTEXT}, m.id
    FROM json_each(?) wanted CROSS JOIN messages m ON m.id = wanted.value
        CROSS JOIN conversations c ON c.id = m.conversation_id
"""
# A title is shown with the beginning of its conversation.
_TITLE_ROWS = f"""
    SELECT {_HIT},
        coalesce((SELECT m.content FROM messages m WHERE m.conversation_id = c.id AND m.deleted = 0
            ORDER BY m.position LIMIT 1), ''),
        c.created_at, c.last_modified, c.version, c.content_hash,
        coalesce((SELECT sum(length(m.content)) FROM messages m WHERE m.conversation_id = c.id AND m.deleted = 0), 0),
        NULL, NULL, NULL, NULL, coalesce(c.title_seg, c.title), '', -c.id
    FROM json_each(?) wanted CROSS JOIN conversations c ON c.id = -wanted.value
"""


def _filter(search: Search) -> Filter:
    found = (
        tagged(search, "conversations", "c.id")
        & dated(search, "coalesce(r.created_at, c.created_at)")
        & equal("c.character_id", search.character_id)
        & equal("c.uuid", search.within)
    )
    if search.senders:
        found &= either(one_of("r.sender", search.senders), one_of("r.role", search.senders))
    if search.by != "both":
        found &= Filter(("r.id IS NULL" if search.by == "title" else "r.id IS NOT NULL",))
    return found


def _listed(search: Search) -> str:
    if search.by == "title":
        return (
            "SELECT -c.id AS number, c.last_modified AS age FROM conversations c LEFT JOIN messages r ON FALSE "
            "WHERE c.deleted = 0"
        )
    return (
        "SELECT r.id AS number, r.last_modified AS age FROM messages r "
        "JOIN conversations c ON c.id = r.conversation_id WHERE r.deleted = 0 AND c.deleted = 0"
    )


def _candidates(connection: sqlite3.Connection, numbers: Sequence[int]) -> Sequence[Candidate]:
    messages = [number for number in numbers if number > 0]
    titles = [number for number in numbers if number < 0]
    rows = {row[-1]: row for row in connection.execute(_MESSAGE_ROWS, (json_list(messages),))}
    if titles:
        rows |= {row[-1]: row for row in connection.execute(_TITLE_ROWS, (json_list(titles),))}
    return [_candidate(rows[number]) for number in numbers]


def _candidate(row: tuple[Any, ...]) -> Candidate:
    *_, own, context, number = row
    return Candidate(
        row=row,
        prominent=fold(own),
        other=fold(context),
        chars=len(own) + len(context),
        has_title=number < 0,
        age=row[5],
        identity=row[9] or row[0],
    )


def _hit(found: Candidate, _search: Search, _counter: Counter) -> Hit:
    conversation, title, tags, text, created_at, last_modified, version, content_hash, chars, *place = found.row
    message, position, sender, role, *_ = place
    return Hit(
        id=conversation,
        title=title,
        text=text,
        score=found.score,
        holds_all_terms=found.holds_all,
        created_at=created_at,
        last_modified=last_modified,
        version=version,
        tags=read_texts(tags),
        content_hash=content_hash,
        item_chars=chars,
        conversation_id=conversation,
        message_id=message,
        message_index=position,
        sender=sender,
        role=role,
    )


TARGET = Target(
    index=CHATS_INDEX,
    bm25="bm25(chats_index, 3.0, 3.0, 1.0)",
    title="title",
    join="LEFT JOIN messages r ON r.id = chats_index.rowid "
    "CROSS JOIN conversations c ON c.id = coalesce(r.conversation_id, -chats_index.rowid)",
    age="coalesce(r.last_modified, c.last_modified)",
    prominence=MESSAGE_AND_CONTEXT,
    filter=_filter,
    listed=_listed,
    candidates=_candidates,
    hit=_hit,
)


class SqliteChats(Collection[Conversation]):
    source = "chats"
    items = CONVERSATIONS

    async def search(self, search: Search) -> Found:
        return await self._search(TARGET, search)

    async def get(self, conversation_id: str) -> Conversation:
        return await self._get(conversation_id)

    async def get_message(self, message_id: str) -> Message:
        return await self._read(lambda connection: MESSAGES.get(connection, message_id))

    async def list(self, limit: int, offset: int) -> Page[Conversation]:
        return await self._list(limit, offset)

    async def messages(self, conversation_id: str, limit: int, offset: int) -> Page[Message]:
        def work(connection: sqlite3.Connection) -> Page[Message]:
            conversation = self.items.get(connection, conversation_id)
            number = self.items.number(connection, conversation_id)
            parameters = (number, cleaning.count(limit), cleaning.count(offset))
            rows = MESSAGES.select(connection, "conversation_id = ? ORDER BY position LIMIT ? OFFSET ?", parameters)
            return Page(tuple(rows), conversation.message_count)

        return await self._read(work)

    async def around(self, conversation_id: str, position: int, before: int, after: int) -> Sequence[Message]:
        """The message at a position with its neighbours, in order; the neighbours alone where it was deleted."""
        position = cleaning.count(position)

        def work(connection: sqlite3.Connection) -> Sequence[Message]:
            number = self.items.row(connection, conversation_id)["id"]
            earlier = MESSAGES.select(
                connection,
                "conversation_id = ? AND position < ? ORDER BY position DESC LIMIT ?",
                (number, position, cleaning.count(before)),
            )
            later = MESSAGES.select(
                connection,
                "conversation_id = ? AND position >= ? ORDER BY position LIMIT ?",
                (number, position, cleaning.count(after) + 1),
            )
            if later and later[0].position != position:
                later = later[: cleaning.count(after)]
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

    async def append(
        self, conversation_id: str, messages: Sequence[MessageDraft], *, idempotency_key: str | None = None
    ) -> Sequence[Message]:
        """New messages at the end. The conversation becomes newer by it, not another version of itself."""
        self._require_batch(messages)

        def work(connection: sqlite3.Connection, stamp: Stamp) -> Sequence[Message]:
            number = self.items.row(connection, conversation_id)["id"]

            def make() -> Sequence[str]:
                return [message.uuid for message in self._add(connection, number, messages, stamp)]

            uuids = self._once(connection, idempotency_key, (conversation_id, list(messages)), make)
            return [MESSAGES.get(connection, uuid) for uuid in uuids]

        return await self._write(work)

    async def update(
        self, conversation_id: str, draft: ConversationDraft, expected_version: int | None = None
    ) -> Conversation:
        return await self._update(conversation_id, draft, expected_version)

    async def update_message(
        self, message_id: str, draft: MessageDraft, expected_version: int | None = None
    ) -> Message:
        def work(connection: sqlite3.Connection, stamp: Stamp) -> Message:
            number = MESSAGES.update(connection, message_id, draft, expected_version, stamp, self._rules.limits)
            _touch(connection, number, stamp.time)
            return MESSAGES.made(connection, number)

        return await self._write(work)

    async def delete(self, conversation_id: str, expected_version: int | None = None) -> None:
        await self._delete(conversation_id, expected_version)

    async def delete_message(self, message_id: str, expected_version: int | None = None) -> None:
        def work(connection: sqlite3.Connection, stamp: Stamp) -> None:
            _touch(connection, MESSAGES.delete(connection, message_id, expected_version, stamp), stamp.time)

        await self._write(work)

    async def purge(self, conversation_id: str) -> None:
        await self._purge(conversation_id)

    def _add(
        self, connection: sqlite3.Connection, conversation: int, drafts: Sequence[MessageDraft], stamp: Stamp
    ) -> Sequence[Message]:
        position = connection.execute(_NEXT_POSITION, (conversation,)).fetchone()[0]
        numbers = [
            MESSAGES.insert(
                connection,
                _with_sender(draft),
                stamp,
                self._rules.limits,
                conversation_id=conversation,
                position=position + offset,
            )
            for offset, draft in enumerate(drafts)
        ]
        messages = [MESSAGES.made(connection, number) for number in numbers]
        if messages:
            _touch(connection, numbers[-1], max(message.created_at for message in messages))
        return messages


_NEXT_POSITION = "SELECT coalesce(max(position) + 1, 0) FROM messages WHERE conversation_id = ?"


def _with_sender(draft: MessageDraft) -> MessageDraft:
    """Who speaks is the role, where no name was given."""
    if draft.sender is UNSET or not draft.sender:
        return replace(draft, sender=_DEFAULT_ROLE if draft.role is UNSET else draft.role)
    return draft


def _touch(connection: sqlite3.Connection, message: int, time: str) -> None:
    """A conversation is as new as what was last done in it."""
    connection.execute(
        "UPDATE conversations SET last_modified = max(last_modified, ?1) "
        "WHERE id = (SELECT conversation_id FROM messages WHERE id = ?2)",
        (time, message),
    )
