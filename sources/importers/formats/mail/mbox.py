"""Splits an mbox file into messages and groups these into threads, without holding the messages in memory."""

import re
from collections.abc import Iterator, Mapping
from typing import IO

from msgspec import Struct

from config.errors import InvalidParams
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.progress import ProgressCallback
from sources.importers.formats.mail.messages import mail_date, message_ids, split_labels

_LINE_BYTES = 1 << 16
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
    """Reads the file once, line by line."""
    entries: list[MboxEntry] = []
    start, headers, header_bytes = -1, bytearray(), 0
    is_header, follows_blank, is_line_start = False, True, True
    offset = 0
    while line := file.readline(_LINE_BYTES):
        if is_line_start and follows_blank and line.startswith(b"From "):
            if start >= 0:
                entries.append(_entry(start, offset, headers))
            if len(entries) >= _MESSAGES_MAX:
                raise InvalidParams(f"mbox has more than {_MESSAGES_MAX} messages")
            start, is_header = offset + len(line), True
            headers, header_bytes = bytearray(), 0
        elif is_header:
            header_bytes += len(line)
            is_header = bool(line.strip(b"\r\n")) and header_bytes <= _HEADER_MAX_BYTES
            headers += line if is_header else b""
        follows_blank = is_line_start and not line.strip(b"\r\n")
        is_line_start = line.endswith(b"\n")
        offset += len(line)
        progress(offset // 2)
    if start >= 0:
        entries.append(_entry(start, offset, headers))
    return entries


def group_threads(entries: list[MboxEntry]) -> dict[str, list[MboxEntry]]:
    """Groups messages by the first message of their thread, in the order in which the threads first occur. Messages of
    a thread are sorted by date."""
    threads_by_key = {entry.key: entry.thread for entry in entries}
    groups: dict[str, list[MboxEntry]] = {}
    for entry in entries:
        groups.setdefault(_root(entry.thread, threads_by_key), []).append(entry)
    for group in groups.values():
        group.sort(key=lambda entry: (entry.date, entry.start))
    return groups


def read_entry(file: IO[bytes], entry: MboxEntry, limits: ImportLimits) -> bytes:
    size = entry.end - entry.start
    if size > limits.line_max_bytes:
        raise InvalidParams(f"expected at most {limits.line_max_bytes} bytes, got {size}")
    file.seek(entry.start)
    return _QUOTED_FROM.sub(rb"\1", file.read(size))


def _root(thread: str, threads_by_key: Mapping[str, str]) -> str:
    """Follows replies to replies. Messages that refer to each other, which only damaged files contain, end it."""
    seen: set[str] = set()
    while thread not in seen and (parent := threads_by_key.get(thread, thread)) != thread:
        seen.add(thread)
        thread = parent
    return min(seen) if thread in seen else thread


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
