"""Stores the turns of chat completions: each turn once, however often and with however much history it is sent.

A conversation is identified by the name that the client gives it, or else by the user's first message.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from config.errors import Conflict, NotFound
from config.times import parse_time
from server.compat.agentkit.chat.passages import NO_MODEL
from server.compat.agentkit.chat.turns import ChatTurn, Completion, first_content, message_fingerprint
from sources.drafts import ConversationDraft, MessageDraft
from sources.records import Conversation, Message
from sources.storage.collections.chats import Chats
from sources.text.chunking import title_from_messages

# How many messages back turns are compared. A client that lost more of a conversation than this starts a new one.
_WINDOW = 200
# Another client may write to the conversation at the same time.
_ATTEMPTS = 4
_VIA = {"via": "completions"}


class CompletedTurn(Struct, frozen=True, kw_only=True):
    """Everything the client sent, and the answer."""

    conversation_name: str | None  # the client's name for it
    turns: tuple[ChatTurn, ...]
    completion: Completion
    requested_at: str
    cut_by: str | None = None  # who interrupted an incomplete answer: client, upstream or server
    idempotency_key: str | None = None
    tool: str | None = None
    citations: tuple[dict[str, Any], ...] = ()

    @property
    def dialogue(self) -> tuple[ChatTurn, ...]:
        """The turns without system messages, which some clients change with every turn (they often hold the time)."""
        return tuple(turn for turn in self.turns if turn.role != "system")

    @property
    def session_id(self) -> str:
        """The session under which the conversation is found again."""
        if self.conversation_name:
            return self.conversation_name
        dialogue = self.dialogue
        first_text = first_content(dialogue, "user") or (dialogue[0].content if dialogue else "")
        return f"completions-{_digest(first_text)}"


class TurnRecorder:
    """For `retry_s` seconds, the same request without an idempotency key counts as a retry."""

    def __init__(self, retry_s: float, turns_max: int, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._retry = timedelta(seconds=retry_s)
        self._turns_max = turns_max
        self._now = now

    async def record(self, chats: Chats, turn: CompletedTurn) -> str:
        """Stores the turn and returns the id of its conversation."""
        for _ in range(_ATTEMPTS - 1):
            with suppress(Conflict):
                return await self._record(chats, turn)
        return await self._record(chats, turn)

    async def _record(self, chats: Chats, turn: CompletedTurn) -> str:
        conversation = await find_conversation(chats, turn)
        if conversation is None:
            return await self._start_conversation(chats, turn)
        # Read first: if another client appends meanwhile, `append` below fails and the turn is compared again.
        last_number = await chats.last_message_number(conversation.id)
        skipped = max(0, conversation.message_count - _WINDOW)
        messages = (await chats.messages(conversation.id, _WINDOW, skipped)).rows
        dialogue = [message for message in messages if message.role != "system"]
        plan = self._plan(turn, dialogue, is_whole=skipped == 0)
        if plan.replaces is not None:
            # The client's latest answer replaces the stored one, unless only the latest was interrupted.
            is_worse = turn.cut_by is not None and "cut" not in plan.replaces.metadata
            if not is_worse:
                await chats.update_message(plan.replaces.id, self._answer_draft(turn), plan.replaces.version)
        elif plan.starts_conversation:
            # Frees the session id for the new conversation, which has the same first message. That of the old one gets
            # a suffix derived from its first answer.
            first = dialogue
            if conversation.message_count > len(dialogue):
                first = list((await chats.messages(conversation.id, _WINDOW, 0)).rows)
            answer = next((message.content for message in first if message.role == "assistant"), "")
            session_id = f"{conversation.session_id}-{_digest(answer)}"
            try:
                await chats.update(conversation.id, ConversationDraft(session_id=session_id))
            except Conflict:  # a third conversation has the same first answer
                await chats.update(conversation.id, ConversationDraft(session_id=""))
            return await self._start_conversation(chats, turn)
        else:
            drafts = [*_drafts(plan.new_turns, turn.requested_at, plan.parent_id), self._answer_draft(turn)]
            await chats.append(conversation.id, drafts, expected_last_number=last_number)
        return conversation.id

    def _plan(self, turn: CompletedTurn, dialogue: Sequence[Message], *, is_whole: bool) -> "_WritePlan":
        sent = turn.dialogue[-_WINDOW:]
        indexes = {message.id: index for index, message in enumerate(dialogue)}
        stored_turns = [
            StoredTurn(
                message_fingerprint(message),
                indexes.get(message.parent_id or "", -1) if message.parent_id else index - 1,
            )
            for index, message in enumerate(dialogue)
        ]
        overlap = find_overlap(stored_turns, [one.fingerprint for one in sent], is_whole=is_whole)
        new_turns = sent[overlap.sent_count :]
        has_name = turn.conversation_name is not None
        if overlap.last_stored < 0:
            # No stored message was sent again. A client that names the conversation continues it anyway.
            return _WritePlan(new_turns, starts_conversation=not has_name and bool(dialogue))
        if new_turns or overlap.last_stored == len(dialogue) - 1:
            return _WritePlan(new_turns, parent_id=_parent_id(dialogue, overlap.last_stored))
        # Everything was sent before, and was answered.
        answer = dialogue[overlap.last_stored + 1]
        is_last = overlap.last_stored == len(dialogue) - 2
        # Idempotency keys decide if both have one; otherwise it is a retry if the answer was interrupted or is recent.
        key, stored_key = turn.idempotency_key, answer.metadata.get("idempotency_key")
        if key and stored_key:
            is_retry = bool(key == stored_key)
        else:
            is_recent = self._now() - parse_time(answer.last_modified) <= self._retry
            is_retry = "cut" in answer.metadata or is_recent
        if is_last and answer.role == "assistant" and is_retry:
            return _WritePlan(replaces=answer)
        parent_id = _parent_id(dialogue, overlap.last_stored - 1)
        return _WritePlan(sent[-1:], parent_id=parent_id, starts_conversation=not has_name)

    async def _start_conversation(self, chats: Chats, turn: CompletedTurn) -> str:
        turns = turn.turns[-self._turns_max + 1 :]
        drafts = [*_drafts(turns, turn.requested_at, UNSET), self._answer_draft(turn)]
        draft = ConversationDraft(
            title=title_from_messages(drafts),
            session_id=turn.session_id,
            metadata=_VIA,
            created_at=drafts[0].created_at,
        )
        return (await chats.create(draft, drafts)).id

    def _answer_draft(self, turn: CompletedTurn) -> MessageDraft:
        completion = turn.completion
        metadata = completion.metadata | _VIA
        if turn.cut_by is not None:
            metadata["cut"] = turn.cut_by
        if turn.idempotency_key:
            metadata["idempotency_key"] = turn.idempotency_key
        return MessageDraft(
            role="assistant",
            content=completion.turn.content,
            model=completion.model,
            tool=turn.tool,
            citations=turn.citations,
            metadata=metadata,
        )


class _WritePlan(Struct, frozen=True):
    """Either new turns after a stored message, an answer that replaces another, or a new conversation."""

    new_turns: Sequence[ChatTurn] = ()
    parent_id: str | UnsetType = UNSET
    replaces: Message | None = None
    starts_conversation: bool = False


async def find_conversation(chats: Chats, turn: CompletedTurn) -> Conversation | None:
    """Looks up the client's name for the conversation, which may be any conversation's id; without a name, the session
    derived from its first message."""
    if turn.conversation_name is not None:
        with suppress(NotFound):
            return await chats.get(turn.conversation_name)
        session_ids: tuple[str, ...] = (turn.session_id,)
    else:
        # The first is that of a conversation that a later one with the same first message has replaced.
        session_ids = (f"{turn.session_id}-{_digest(first_content(turn.turns, 'assistant'))}", turn.session_id)
    for session_id in session_ids:
        with suppress(NotFound):
            return await chats.get_by_session(session_id)
    return None


def _parent_id(dialogue: Sequence[Message], index: int) -> str | UnsetType:
    """The message that a new one follows, if that is not the last one."""
    return dialogue[index].id if 0 <= index < len(dialogue) - 1 else UNSET


def _drafts(turns: Sequence[ChatTurn], created_at: str, parent_id: str | UnsetType) -> list[MessageDraft]:
    return [
        MessageDraft(
            role=turn.role,
            sender=turn.name or UNSET,
            content=turn.content,
            tool=turn.name or None if turn.role == "tool" else None,
            attachments=turn.attachments,
            # An answer made of passages can quote human-only messages, and comes back from the client without its mark.
            metadata=turn.metadata
            | _VIA
            | ({"human_only": True} if turn.role == "assistant" and turn.content.startswith(NO_MODEL) else {}),
            parent_id=parent_id if index == 0 else UNSET,
            created_at=created_at,
        )
        for index, turn in enumerate(turns)
    ]


def _digest(text: str) -> str:
    return sha256(text.strip().encode()).hexdigest()[:32]


# -- alignment ---------------------------------------------------------------------------------------------------------
# Matches the messages that a client sends against those that are stored, so that only new ones are written.
#
# Clients send the whole conversation with every turn, or the end of it; they may also go back and say something else.

Fingerprint = tuple[str, ...]


class StoredTurn(Struct, frozen=True):
    """A stored message."""

    fingerprint: Fingerprint
    previous: int  # the index of the message it follows; -1 if unknown


class Overlap(Struct, frozen=True):
    last_stored: int = -1  # the index of the last stored message that was sent again; -1 if none was
    sent_count: int = 0  # how many of the sent messages end there


def find_overlap(stored: Sequence[StoredTurn], sent: Sequence[Fingerprint], *, is_whole: bool) -> Overlap:
    """Finds the longest run of consecutive messages that occurs in both; of equal runs, the one that was sent last.

    A single message is no proof, because people repeat themselves: it counts only if both sequences begin with it.
    `is_whole` says that `stored` is the whole conversation.
    """
    run_lengths: list[list[int]] = []
    best_length, overlap = 0, Overlap()
    for index, turn in enumerate(stored):
        previous = run_lengths[turn.previous] if turn.previous >= 0 else None
        # For each sent message, the length of the run that ends with it and with the stored message.
        run_lengths.append(
            [
                (1 + (previous[position - 1] if previous is not None and position else 0))
                if fingerprint == turn.fingerprint
                else 0
                for position, fingerprint in enumerate(sent)
            ]
        )
        for position, length in enumerate(run_lengths[index]):
            begins_both = is_whole and index == position == 0
            is_proof = length > 1 or (length == 1 and begins_both)
            if is_proof and (length, position + 1) >= (best_length, overlap.sent_count):
                best_length, overlap = length, Overlap(index, position + 1)
    return overlap
