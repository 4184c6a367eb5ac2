"""Splits an mbox file into messages and groups these into threads, without holding the messages in memory."""

import re
from collections.abc import Iterator, Mapping
from io import SEEK_END
from itertools import islice
from typing import IO

from msgspec import Struct

from config.errors import InvalidParams
from sources.importers.engine.files import skip_line
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.progress import ProgressCallback
from sources.importers.formats.mail.messages import mail_date, message_ids, split_labels

_BLOCK_BYTES = 1 << 20
_FROM = re.compile(rb"\nFrom ")
# The ends of lines before a blank line and its end, without the newline that `_FROM` starts with.
_BLANK_LINES = (b"\n", b"\n\r", b"\n\r\r")
# The longest of these, and all but the last byte of `_FROM`.
_KEPT_BYTES = 8
_HEADER_MAX_BYTES = 1 << 16
_MESSAGES_MAX = 1_000_000
_HEADERS = frozenset([b"message-id", b"references", b"in-reply-to", b"date", b"x-gmail-labels"])
_QUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)
_UNWANTED_LABELS = frozenset(["Spam", "Trash"])


class MboxEntry(Struct, frozen=True):
    """Where a message is in the file, and what its thread is found by. `thread` is the first message that it refers to,
    or the message itself."""

    start: int
    end: int
    key: str
    thread: str
    date: str
    is_unwanted: bool


def index_mbox(file: IO[bytes], progress: ProgressCallback) -> list[MboxEntry]:
    """Reads the file in large blocks, because it has far more lines than messages."""
    starts = list(islice(_message_starts(file, progress), _MESSAGES_MAX + 1))
    if len(starts) > _MESSAGES_MAX:
        raise InvalidParams(f"mbox has more than {_MESSAGES_MAX} messages")
    ends = [*starts[1:], file.seek(0, SEEK_END)]
    return [_entry_at(file, start, end) for start, end in zip(starts, ends, strict=True)]


def _message_starts(file: IO[bytes], progress: ProgressCallback) -> Iterator[int]:
    """Yields the offset of every line that starts with "From " and is the first one or follows a blank line."""
    # Starts with a blank line before the file, so that its first line is found as any other.
    block, offset = b"\n\n", -2
    while data := file.read(_BLOCK_BYTES):
        block += data
        done = max(0, len(block) - _KEPT_BYTES)
        for match in _FROM.finditer(block):
            if block.endswith(_BLANK_LINES, 0, match.start()):
                yield offset + match.start() + 1
            done = max(done, match.end())
        offset += done
        block = block[done:]
        progress((offset + len(block)) // 2)


def _entry_at(file: IO[bytes], start: int, end: int) -> MboxEntry:
    """Returns the message after the line at `start`, which belongs to the file and not to the message."""
    file.seek(start)
    first = start + skip_line(file)
    headers = bytearray()
    while len(headers) <= _HEADER_MAX_BYTES and (line := file.readline(_HEADER_MAX_BYTES)).strip(b"\r\n"):
        headers += line
    return _entry(first, end, headers)


def group_threads(entries: list[MboxEntry]) -> dict[str, list[MboxEntry]]:
    """Groups messages by the first message of their thread, in the order in which the threads first occur. Messages of
    a thread are sorted by date."""
    threads_by_key = {entry.key: entry.thread for entry in entries}
    groups: dict[str, list[MboxEntry]] = {}
    roots: dict[str, str] = {}
    for entry in entries:
        groups.setdefault(_root(entry.thread, threads_by_key, roots), []).append(entry)
    for group in groups.values():
        group.sort(key=lambda entry: (entry.date, entry.start))
    return groups


def read_entry(file: IO[bytes], entry: MboxEntry, limits: ImportLimits) -> bytes:
    size = entry.end - entry.start
    if size > limits.line_max_bytes:
        raise InvalidParams(f"expected at most {limits.line_max_bytes} bytes, got {size}")
    file.seek(entry.start)
    return _QUOTED_FROM.sub(rb"\1", file.read(size))


def _root(thread: str, threads_by_key: Mapping[str, str], roots: dict[str, str]) -> str:
    """Follows replies to replies, and remembers the result for each of them in `roots`. Messages that refer to each
    other, which only damaged files contain, end it."""
    seen: set[str] = set()
    while thread not in roots and thread not in seen and (parent := threads_by_key.get(thread, thread)) != thread:
        seen.add(thread)
        thread = parent
    root = min(seen) if thread in seen else roots.get(thread, thread)
    roots |= dict.fromkeys(seen, root)
    return root


def _entry(start: int, end: int, headers: bytearray) -> MboxEntry:
    fields = dict(_fields(bytes(headers)))
    own = message_ids(fields.get(b"message-id", ""))
    key = own[0] if own else f"{start}"
    references = message_ids(fields.get(b"references", "")) or message_ids(fields.get(b"in-reply-to", ""))
    labels = split_labels(fields.get(b"x-gmail-labels", ""))
    return MboxEntry(
        start=start,
        end=end,
        key=key,
        thread=references[0] if references else key,
        date=mail_date(fields.get(b"date", "")) or "",
        is_unwanted=not _UNWANTED_LABELS.isdisjoint(labels),
    )


def _fields(headers: bytes) -> Iterator[tuple[bytes, str]]:
    """Yields the headers that threads are built from, unfolded."""
    unfolded = headers.replace(b"\r\n", b"\n").replace(b"\n ", b" ").replace(b"\n\t", b" ")
    for line in unfolded.split(b"\n"):
        name, colon, value = line.partition(b":")
        if colon and name.lower() in _HEADERS:
            yield name.lower(), value.strip().decode("utf-8", "replace")
