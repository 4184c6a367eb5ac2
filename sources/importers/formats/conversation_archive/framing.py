"""A conversation as one JSON object that is written, and can be read, message by message: each stands on a line."""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

MESSAGES_BEGIN = b',"messages":['
MESSAGES_END = b"]}"

_encode = msgspec.json.Encoder().encode


def head_line(conversation: Struct) -> bytes:
    """The object up to its messages."""
    return _encode(conversation)[:-1] + MESSAGES_BEGIN


def message_lines(messages: Iterable[Struct], *, is_first: bool) -> Iterator[bytes]:
    """Each begins with the end of the line before it, so that no comma stands after the last."""
    for message in messages:
        yield (b"\n" if is_first else b",\n") + _encode(message)
        is_first = False


def end_line() -> bytes:
    return b"\n" + MESSAGES_END + b"\n"
