"""Conversations that come from elsewhere with their messages, some of which may be there already."""

import sqlite3
from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from sources.drafts import MessageDraft, ThreadDraft, ThreadUpsertResult, UpsertResult
from sources.storage.sqlite.collections.conversation_tables import DEFAULT_ROLE, MESSAGES
from sources.storage.sqlite.search.target import json_list
from sources.storage.sqlite.write.items import Stamp
from sources.storage.sqlite.write.upsert import (
    DELETED,
    UNCHANGED,
    UPDATED,
    Held,
    Upserter,
    held_rows,
    is_older,
    summed,
    uuid_of,
)
from sources.storage.sqlite.write.validation import Limits

NEXT_POSITION = "SELECT coalesce(max(position) + 1, 0) FROM messages WHERE conversation_id = ?"
# SQLite would give the numbers of purged messages again.
NEXT_NUMBER = """
    SELECT 1 + max(coalesce((SELECT max(id) FROM messages), 0),
        coalesce((SELECT CAST(value AS INTEGER) FROM state WHERE name = 'last_message_number'), 0))
"""
# A conversation is as new as what was last done in it; the messages that are new to it have numbers in a row.
_TOUCH_BY_NEW = """
    UPDATE conversations SET last_modified =
        max(last_modified, (SELECT max(created_at) FROM messages WHERE id BETWEEN ?1 AND ?2)) WHERE id = ?3
"""
_TOUCH_BY_UPDATED = """
    UPDATE conversations SET last_modified = max(last_modified, (SELECT max(last_modified) FROM messages
        WHERE id IN (SELECT value FROM json_each(?1)))) WHERE id = ?2
"""


def with_sender(draft: MessageDraft) -> MessageDraft:
    """Who speaks is the role, where no name was given."""
    if draft.sender is UNSET or not draft.sender:
        return replace(draft, sender=DEFAULT_ROLE if draft.role is UNSET else draft.role)
    return draft


class ThreadUpserter:
    """Takes threads one after the other, within one transaction."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        conversations: Upserter,
        messages: Sequence[MessageDraft],
        stamp: Stamp,
        limits: Limits,
    ) -> None:
        self._connection = connection
        self._conversations = conversations
        self._stamp = stamp
        self._limits = limits
        self._next_number: int = connection.execute(NEXT_NUMBER).fetchone()[0]
        self._next_position = 0
        self._conversation = 0
        self._messages = Upserter(
            connection=connection,
            table="messages",
            held=held_rows(connection, "messages", messages, "r.conversation_id"),
            insert=self._insert,
            change=self._change,
            is_same=self._is_same,
            owner="r.conversation_id",
        )

    def put(self, thread: ThreadDraft) -> ThreadUpsertResult:
        """A conversation that is older than it came before changes nothing of what is there; what it alone has said is
        put beside the path."""
        found = self._conversations.held.get(uuid) if isinstance(uuid := thread.draft.uuid, str) else None
        is_late = found is not None and not found.is_deleted and is_older(thread.draft, found)
        own = UNCHANGED if is_late else self._conversations.put(thread.draft)
        if own.outcome == "refused":
            return ThreadUpsertResult(own)
        if own.outcome == "deleted":
            return ThreadUpsertResult(own, [DELETED] * len(thread.messages))
        self._conversation = self._conversations.held[uuid_of(thread.draft)].number
        self._next_position = self._connection.execute(NEXT_POSITION, (self._conversation,)).fetchone()[0]
        first = self._next_number
        puts = [self._put_message(draft, is_late=is_late) for draft in thread.messages]
        self._touch(first, [draft for draft, put in zip(thread.messages, puts, strict=True) if put == UPDATED])
        return ThreadUpsertResult(summed(puts, own), puts)

    def _put_message(self, draft: MessageDraft, *, is_late: bool) -> UpsertResult:
        found = self._messages.held.get(draft.uuid) if isinstance(draft.uuid, str) else None
        if found is not None and found.owner != self._conversation:
            return UpsertResult(
                "refused", f"uuid: got {draft.uuid!r}, which is that of a message in another conversation"
            )
        if not is_late:
            return self._messages.put(draft)
        if found is not None:
            return DELETED if found.is_deleted else UNCHANGED
        return self._messages.put(replace(draft, is_canonical=False))

    def _touch(self, first: int, updated: Sequence[MessageDraft]) -> None:
        if self._next_number > first:
            self._connection.execute(_TOUCH_BY_NEW, (first, self._next_number - 1, self._conversation))
        if updated:
            numbers = json_list([self._messages.held[uuid_of(draft)].number for draft in updated])
            self._connection.execute(_TOUCH_BY_UPDATED, (numbers, self._conversation))

    # What is done with one message

    def _insert(self, draft: MessageDraft, arrived: str | None) -> Held:
        number = MESSAGES.insert(
            self._connection,
            with_sender(draft),
            self._stamp,
            self._limits,
            id=self._next_number,
            conversation_id=self._conversation,
            position=self._next_position,
            arrived=arrived,
        )
        self._next_number += 1
        self._next_position += 1
        return Held(number, uuid_of(draft), arrived, owner=self._conversation)

    def _change(self, found: Held, draft: MessageDraft, arrived: str | None) -> None:
        MESSAGES.update(
            self._connection, found.uuid, with_sender(draft), None, self._stamp, self._limits, arrived=arrived
        )

    def _is_same(self, found: Held, draft: MessageDraft) -> bool:
        return MESSAGES.holds(self._connection, found.number, with_sender(draft), self._limits)
