"""Groups the messages of a conversation into exchanges, and assigns line numbers to them.

An exchange is a user message with everything that follows it, up to the next user message.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from sources.records import Message

T = TypeVar("T")


class LineRange(Struct, frozen=True):
    """Line numbers from 1, both inclusive."""

    start: int
    end: int


class NumberedMessage(Struct, frozen=True):
    """A message and its lines."""

    message: Message
    lines: LineRange


def group_turns(turns: Iterable[T], is_start: Callable[[T], bool]) -> Iterator[tuple[T, ...]]:
    """Splits turns into runs, each starting at a turn for which `is_start` is true. Turns before the first such turn
    form a run of their own."""
    run: list[T] = []
    for turn in turns:
        if run and is_start(turn):
            yield tuple(run)
            run = []
        run.append(turn)
    if run:
        yield tuple(run)


def last_exchange(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages from the last user message on; all of them if there is none."""
    start = next((n for n in range(len(messages) - 1, -1, -1) if messages[n].role == "user"), 0)
    return messages[start:]


def message_lines(message: Message) -> LineRange:
    """The message's lines in the imported session file; else the line given by its position in the conversation."""
    return _stored_lines(message) or LineRange(message.position + 1, message.position + 1)


def has_stored_lines(message: Message) -> bool:
    return _stored_lines(message) is not None


def number_messages(messages: Iterable[Message], after: LineRange) -> Iterator[NumberedMessage]:
    """Assigns lines that never decrease: messages appended to an imported session continue after its last line.
    Messages that share a line of the file keep sharing it."""
    last = after
    for message in messages:
        stored = _stored_lines(message)
        if stored is None:
            start = end = max(message.position + 1, last.end + 1)
        else:
            start = max(stored.start, last.start)
            end = max(stored.end, start, last.end)
        last = LineRange(start, end)
        yield NumberedMessage(message, last)


def _stored_lines(message: Message) -> LineRange | None:
    start, end = _line_number(message.metadata.get("line_start")), _line_number(message.metadata.get("line_end"))
    if start is None:
        return None
    return LineRange(start, max(start, end or start))


def _line_number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
