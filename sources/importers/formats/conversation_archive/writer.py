"""Writes conversations into a zip: one JSON file for each, and a manifest. The output is a stream, and the same
conversations always give the same bytes."""

import io
import zipfile
from collections.abc import Iterable
from typing import IO, Any

import msgspec

from sources.importers.formats.conversation_archive.reader import (
    MANIFEST,
    ArchiveManifest,
    archived_conversation,
    archived_message,
    end_line,
    head_line,
    message_lines,
)
from sources.records import Conversation, Message

_FOLDER = "conversations/"
# The earliest time a zip can store. The actual time would make two exports differ.
_NO_TIME = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
_PRIVATE_FILE = 0o600 << 16
_CHUNK_BYTES = 1 << 16


class ArchiveWriter:
    """Call `begin`, `add` and `end` for each conversation, then `finish`. `take_output` returns the bytes written since
    the last call."""

    def __init__(self, line_max_bytes: int) -> None:
        self._line_max_bytes = line_max_bytes
        self._sink = _OutputBuffer()
        self._zip = zipfile.ZipFile(self._sink, "w", zipfile.ZIP_DEFLATED)
        self._file: IO[bytes] | None = None
        self._conversations = 0
        self._messages = 0
        self._is_empty = True

    def begin(self, conversation: Conversation) -> None:
        # In a stream, the header of a file must say in advance whether its sizes will need 64 bits.
        is_large = conversation.message_count * self._line_max_bytes >= zipfile.ZIP64_LIMIT
        self._file = self._zip.open(_zip_entry(f"{_FOLDER}{conversation.id}.json"), "w", force_zip64=is_large)
        self._file.write(head_line(archived_conversation(conversation)))
        self._conversations += 1
        self._is_empty = True

    def add(self, messages: Iterable[Message]) -> None:
        assert self._file is not None
        for line in message_lines(map(archived_message, messages), is_first=self._is_empty):
            self._file.write(line)
            self._messages += 1
            self._is_empty = False

    def end(self) -> None:
        assert self._file is not None
        self._file.write(end_line())
        self._file.close()

    def finish(self, namespaces: Iterable[str]) -> None:
        manifest = ArchiveManifest(
            conversations=self._conversations, messages=self._messages, namespaces=tuple(sorted(namespaces))
        )
        self._zip.writestr(_zip_entry(MANIFEST), msgspec.json.encode(manifest) + b"\n")
        self._zip.close()

    @property
    def has_output(self) -> bool:
        """Whether there is enough output to be worth sending."""
        return self._sink.size >= _CHUNK_BYTES

    def take_output(self) -> bytes:
        return self._sink.take()


def _zip_entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _NO_TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    # Set so that the bytes do not depend on the system, and unpacked files are private.
    entry.create_system = _UNIX
    entry.external_attr = _PRIVATE_FILE
    return entry


class _OutputBuffer(io.RawIOBase):
    """Collects what `zipfile` writes. It is not seekable, because the output is sent as a stream."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, part: Any) -> int:
        self._parts.append(bytes(part))
        self.size += len(part)
        return len(part)

    def take(self) -> bytes:
        parts, self._parts, self.size = self._parts, [], 0
        return b"".join(parts)
