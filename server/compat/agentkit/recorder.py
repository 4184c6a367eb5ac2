"""Keeps what is said through this server: each turn once, however often and with however much history it is sent.

A conversation is known by the name that the client gives it, or else by what the user said first in it.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from config.errors import Conflict, NotFound
from config.times import parse_time
from server.compat.agentkit.alignment import Held, Meeting, align
from server.compat.agentkit.chat.completion_stream import Completion
from server.compat.agentkit.chat.turns import Turn, fingerprint_of, first_said
from sources.drafts import ConversationDraft, MessageDraft
from sources.records import Conversation, Message
from sources.storage.contract import Chats
from sources.text.titles import title_from_messages

# How far back turns are compared. A client that lost more than this of a conversation has begun another.
_WINDOW = 200
# Somebody else may write to the conversation meanwhile.
_ATTEMPTS = 4
_VIA = {"via": "completions"}


class Talk(Struct, frozen=True, kw_only=True):
    """A turn to be kept: everything the client sent, and what was answered. `name` is what the client calls the
    conversation. `cut` says who ended an answer that was not at its end: client, upstream or server."""

    name: str | None
    turns: tuple[Turn, ...]
    completion: Completion
    asked_at: str
    cut: str | None = None
    idempotency_key: str | None = None
    tool: str | None = None
    citations: tuple[dict[str, Any], ...] = ()

    @property
    def spoken(self) -> tuple[Turn, ...]:
        """Without the instructions, which change from turn to turn in some clients: they often hold the time."""
        return tuple(turn for turn in self.turns if turn.role != "system")

    @property
    def session(self) -> str:
        """Under which the conversation is found again."""
        return self.name or f"completions-{_digest(self._beginning)}"

    @property
    def session_by_answer(self) -> str:
        """The same for one that gave up its name to a later conversation that began with the same words."""
        return f"{self.session}-{_digest(first_said(self.turns, 'assistant'))}"

    @property
    def _beginning(self) -> str:
        spoken = self.spoken
        return first_said(spoken, "user") or (spoken[0].content if spoken else "")


class Recorder:
    def __init__(self, retry_s: float, turns_max: int, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._retry = timedelta(seconds=retry_s)
        self._turns_max = turns_max
        self._now = now

    async def record(self, chats: Chats, talk: Talk) -> str:
        """The id of the conversation that holds the turn."""
        for _ in range(_ATTEMPTS - 1):
            with suppress(Conflict):
                return await self._record(chats, talk)
        return await self._record(chats, talk)

    async def _record(self, chats: Chats, talk: Talk) -> str:
        conversation = await find_conversation(chats, talk)
        if conversation is None:
            return await self._begin(chats, talk)
        last_number = await chats.last_message_number(conversation.id)
        skipped = max(0, conversation.message_count - _WINDOW)
        messages = (await chats.messages(conversation.id, _WINDOW, skipped)).rows
        spoken = [message for message in messages if message.role != "system"]
        step = self._next_step(talk, spoken, is_whole=skipped == 0)
        if step.replaced is not None:
            await self._replace(chats, talk, step.replaced)
        elif step.begins_anew:
            await _give_up_name(chats, conversation, spoken)
            return await self._begin(chats, talk)
        else:
            drafts = [*_drafts(step.tail, talk.asked_at, step.parent_id), self._answer(talk)]
            await chats.append(conversation.id, drafts, expected_last_number=last_number)
        return conversation.id

    def _next_step(self, talk: Talk, spoken: Sequence[Message], *, is_whole: bool) -> "_Step":
        sent = talk.spoken[-_WINDOW:]
        meeting = align(_held(spoken), [turn.fingerprint for turn in sent], is_whole=is_whole)
        tail = sent[meeting.sent :]
        if meeting.held < 0:
            return _Step(tail, begins_anew=talk.name is None and bool(spoken))
        if tail or meeting.held == len(spoken) - 1:
            return _Step(tail, parent_id=_parent(spoken, meeting))
        # Everything was sent before, and was answered.
        answer = spoken[meeting.held + 1]
        if meeting.held == len(spoken) - 2 and answer.role == "assistant" and self._is_same_turn(talk, answer):
            return _Step(replaced=answer)
        return _Step(sent[-1:], parent_id=_parent(spoken, Meeting(meeting.held - 1)), begins_anew=talk.name is None)

    def _is_same_turn(self, talk: Talk, answer: Message) -> bool:
        """Keys decide where both have one. Else a turn is the same that was cut, or that was stored just now."""
        key, kept = talk.idempotency_key, answer.metadata.get("idempotency_key")
        if key and kept:
            return bool(key == kept)
        if "cut" in answer.metadata:
            return True
        return self._now() - parse_time(answer.last_modified) <= self._retry

    async def _replace(self, chats: Chats, talk: Talk, answer: Message) -> None:
        """The answer that the client has now is the one that counts; one that broke off replaces none that did not."""
        is_worse = talk.cut is not None and "cut" not in answer.metadata
        if not is_worse:
            await chats.update_message(answer.id, self._answer(talk), answer.version)

    async def _begin(self, chats: Chats, talk: Talk) -> str:
        drafts = [*_drafts(talk.turns[-self._turns_max + 1 :], talk.asked_at, UNSET), self._answer(talk)]
        draft = ConversationDraft(title=title_from_messages(drafts), session_id=talk.session, metadata=_VIA)
        return (await chats.create(draft, drafts)).id

    def _answer(self, talk: Talk) -> MessageDraft:
        completion = talk.completion
        metadata = completion.metadata | _VIA
        if talk.cut is not None:
            metadata["cut"] = talk.cut
        if talk.idempotency_key:
            metadata["idempotency_key"] = talk.idempotency_key
        return MessageDraft(
            role="assistant",
            content=completion.turn.content,
            model=completion.model,
            tool=talk.tool,
            citations=talk.citations,
            metadata=metadata,
        )


class _Step(Struct, frozen=True):
    """What is to be written: turns that follow a stored message, or an answer in the place of another, or all of it as
    another conversation."""

    tail: Sequence[Turn] = ()
    parent_id: str | UnsetType = UNSET
    replaced: Message | None = None
    begins_anew: bool = False


async def find_conversation(chats: Chats, talk: Talk) -> Conversation | None:
    """By the name it was given, which may be the id of any conversation; else by how it begins."""
    if talk.name is not None:
        with suppress(NotFound):
            return await chats.get(talk.name)
    for session in (talk.session_by_answer, talk.session) if talk.name is None else (talk.session,):
        with suppress(NotFound):
            return await chats.get_by_session(session)
    return None


async def _give_up_name(chats: Chats, conversation: Conversation, spoken: Sequence[Message]) -> None:
    """A conversation that began with the same words makes room for a new one, and is called by its first answer too."""
    if conversation.message_count > len(spoken):
        spoken = (await chats.messages(conversation.id, _WINDOW, 0)).rows
    first = next((message.content for message in spoken if message.role == "assistant"), "")
    aside = f"{conversation.session_id}-{_digest(first)}"
    try:
        await chats.update(conversation.id, ConversationDraft(session_id=aside))
    except Conflict:  # there are two with the same answer
        await chats.update(conversation.id, ConversationDraft(session_id=""))


def _held(spoken: Sequence[Message]) -> list[Held]:
    places = {message.id: place for place, message in enumerate(spoken)}
    return [
        Held(fingerprint_of(message), places.get(message.parent_id or "", -1) if message.parent_id else place - 1)
        for place, message in enumerate(spoken)
    ]


def _parent(spoken: Sequence[Message], meeting: Meeting) -> str | UnsetType:
    """What a new message follows, where that is not the last one."""
    return spoken[meeting.held].id if 0 <= meeting.held < len(spoken) - 1 else UNSET


def _drafts(turns: Sequence[Turn], asked_at: str, parent_id: str | UnsetType) -> list[MessageDraft]:
    return [
        MessageDraft(
            role=turn.role,
            sender=turn.name or UNSET,
            content=turn.content,
            tool=turn.name or None if turn.role == "tool" else None,
            attachments=turn.attachments,
            metadata=turn.metadata | _VIA,
            parent_id=parent_id if place == 0 else UNSET,
            created_at=asked_at,
        )
        for place, turn in enumerate(turns)
    ]


def _digest(text: str) -> str:
    return sha256(text.strip().encode()).hexdigest()[:32]
