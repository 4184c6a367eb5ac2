"""Layer 3: a conversation as it was, or some lines of it, within a budget. What does not fit is told, with the line to
read on from."""

from collections.abc import Sequence

from msgspec import Struct

from server.compat.conversation_memory import errors
from server.compat.conversation_memory.archive import find_conversation, project_of
from server.compat.conversation_memory.errors import refuse
from sources.reading.exchanges import Lines, Placed, has_kept_lines, lines_of, place
from sources.records import ALTERNATE_BRANCH_LABEL, Conversation, Message
from sources.storage.contract import Chats
from sources.text.excerpts import shorten
from sources.text.token_estimates import TokenScale
from sources.text.word_boundaries import word_boundary_before

_NAME_MAX_CHARS = 120
# The most that stands around a message in an answer, and after all of them; it is paid for too.
_LABEL = f"## Exchange 1000\n\n**Assistant{ALTERNATE_BRANCH_LABEL}:**"
_FRAME = f"\n\n---\n\n{_LABEL}\n*[1000000 more characters at line 1000000 do not fit]*"
_CLOSING = "\n\n---\n\n*The conversation goes on. Read on with startLine 1000000.*\n# Lines: 1000000-1000000"


class Budget(Struct, frozen=True):
    """How much an answer may hold, and by what that is measured."""

    scale: TokenScale
    room: int


class Said(Struct, frozen=True):
    """The shown part of a message; `left_out_chars` did not fit. `branch_label` marks an alternate branch."""

    role: str
    lines: Lines
    text: str
    left_out_chars: int = 0
    branch_label: str = ""


class Transcript(Struct, frozen=True, kw_only=True):
    """`next_line` is where it goes on, if the budget ended it; `is_whole` if it was read from beginning to end."""

    conversation: Conversation
    said: tuple[Said, ...]
    next_line: int | None
    is_whole: bool


async def read_transcript(chats: Chats, path: str, asked: Lines, budget: Budget, page_size: int) -> Transcript:
    conversation = await find_conversation(chats, path)
    around = budget.scale.weigh(head_of(conversation) + _CLOSING)
    excerpt = _Excerpt(asked, Budget(budget.scale, budget.room - around))
    position = await _first_position(chats, conversation.id, asked)
    while not excerpt.is_done and (messages := await chats.messages_around(conversation.id, position, 0, page_size)):
        excerpt.take(messages)
        position = messages[-1].position + 1
    if not excerpt.said and asked.start > 1:
        last = max(excerpt.last_line, await _last_line(chats, conversation))
        raise refuse(errors.BAD_LINES, f"startLine is {asked.start}, and the conversation ends at line {last}")
    return Transcript(
        conversation=conversation,
        said=tuple(excerpt.said),
        next_line=excerpt.next_line,
        is_whole=asked.start == 1 and not excerpt.is_done,
    )


def head_of(conversation: Conversation) -> str:
    name = shorten(conversation.session_id or conversation.title, _NAME_MAX_CHARS) or conversation.id
    project = shorten(project_of(conversation), _NAME_MAX_CHARS)
    return f"# Conversation: {name}\n# Project: {project}\n# Date: {conversation.created_at[:10]}"


async def _first_position(chats: Chats, conversation_id: str, asked: Lines) -> int:
    """Where lines are places, the place itself; the lines of a session's file are counted from its beginning."""
    first = await chats.messages_around(conversation_id, 0, 0, 1)
    return 0 if not first or has_kept_lines(first[0]) else asked.start - 1


async def _last_line(chats: Chats, conversation: Conversation) -> int:
    page = await chats.messages(conversation.id, 1, max(0, conversation.message_count - 1))
    return lines_of(page.rows[-1]).end if page.rows else 0


class _Excerpt:
    """The messages on some lines, for as long as the budget lasts."""

    def __init__(self, asked: Lines, budget: Budget) -> None:
        self.said: list[Said] = []
        self.next_line: int | None = None
        self.is_done = False
        self._asked = asked
        self._scale = budget.scale
        self._frame = budget.scale.weigh(_FRAME)
        self._room = budget.room
        self._last = Lines(0, 0)

    @property
    def last_line(self) -> int:
        return self._last.end

    def take(self, messages: Sequence[Message]) -> None:
        for placed in place(messages, self._last):
            self._last = placed.lines
            if placed.lines.start > self._asked.end:
                self.is_done = True
                return
            if placed.lines.end >= self._asked.start and not self._add(placed):
                self.is_done, self.next_line = True, placed.lines.start
                return

    def _add(self, placed: Placed) -> bool:
        """Whether there was room, or has to be: a message that would be asked for again at once is cut instead."""
        whole = placed.message.content
        room = max(0, self._room - self._frame)
        fits = self._scale.count_fitting(whole, room)
        if fits < len(whole) and self.said and placed.lines.start > self._asked.start:
            return False
        text = whole[: word_boundary_before(whole, fits)]
        self._room = room - self._scale.weigh(text)
        self.said.append(_said(placed, text))
        return True


def _said(placed: Placed, text: str) -> Said:
    message = placed.message
    return Said(message.role, placed.lines, text, len(message.content) - len(text), message.branch_label)
