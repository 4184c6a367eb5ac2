"""Exchanges: what a user said with all that followed, up to what the user said next; and the lines they stand on."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from sources.records import Message

T = TypeVar("T")


class Lines(Struct, frozen=True):
    """From 1, both included."""

    start: int
    end: int


class Placed(Struct, frozen=True):
    """A message and where it stands."""

    message: Message
    lines: Lines


def group_turns(turns: Iterable[T], begins: Callable[[T], bool]) -> Iterator[tuple[T, ...]]:
    """Runs of turns, each from one that begins to the next; what comes before the first is a run of its own."""
    run: list[T] = []
    for turn in turns:
        if run and begins(turn):
            yield tuple(run)
            run = []
        run.append(turn)
    if run:
        yield tuple(run)


def exchange_until(messages: Sequence[Message]) -> Sequence[Message]:
    """Of messages in a row, those of the last exchange."""
    begin = next((n for n in range(len(messages) - 1, -1, -1) if messages[n].role == "user"), 0)
    return messages[begin:]


def lines_of(message: Message) -> Lines:
    """The lines that its session's file had it on; else its place in the conversation."""
    return _kept_lines(message) or Lines(message.position + 1, message.position + 1)


def has_kept_lines(message: Message) -> bool:
    return _kept_lines(message) is not None


def place(messages: Iterable[Message], after: Lines) -> Iterator[Placed]:
    """Messages with their lines, which never go back: what was appended to an imported session follows its last line.
    Messages that were one line of a file stay on one."""
    last = after
    for message in messages:
        kept = _kept_lines(message)
        if kept is None:
            start = end = max(message.position + 1, last.end + 1)
        else:
            start = max(kept.start, last.start)
            end = max(kept.end, start, last.end)
        last = Lines(start, end)
        yield Placed(message, last)


def _kept_lines(message: Message) -> Lines | None:
    start, end = _line(message.metadata.get("line_start")), _line(message.metadata.get("line_end"))
    if start is None:
        return None
    return Lines(start, max(start, end or start))


def _line(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
