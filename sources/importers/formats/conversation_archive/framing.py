"""The line format of a conversation: one JSON object with each message on a line of its own, so that it can be written
and read message by message."""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

MESSAGES_BEGIN = b',"messages":['
MESSAGES_END = b"]}"

_encode = msgspec.json.Encoder().encode


def head_line(conversation: Struct) -> bytes:
    """Returns the object up to its messages."""
    return _encode(conversation)[:-1] + MESSAGES_BEGIN


def message_lines(messages: Iterable[Struct], *, is_first: bool) -> Iterator[bytes]:
    """Yields the messages. Each starts with the end of the previous line, so that no comma follows the last one."""
    for message in messages:
        yield (b"\n" if is_first else b",\n") + _encode(message)
        is_first = False


def end_line() -> bytes:
    return b"\n" + MESSAGES_END + b"\n"
