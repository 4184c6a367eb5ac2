"""All of a user's conversations as a zip: one JSON file for each, and a manifest. The same conversations make the same
bytes, whenever and from wherever they are written.

Both ways it is streamed, and what is read is distrusted: sizes are counted as they unpack, and nothing is extracted.
"""

import io
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import IO, Any

import msgspec
from msgspec import Struct

from config.errors import InvalidParams, TooLarge
from sources.importers.formats.conversation_archive.framing import (
    MESSAGES_BEGIN,
    MESSAGES_END,
    end_line,
    head_line,
    message_lines,
)
from sources.importers.formats.conversation_archive.shapes import (
    ConversationMessage,
    ConversationSummary,
    message_shape,
    summary_shape,
)
from sources.records import Conversation, Message

MANIFEST = "manifest.json"
FORMAT = "florilegium-conversations"
VERSION = 1
_FOLDER = "conversations/"
# The first moment a zip can name: when a file was written would make two exports differ.
_NO_TIME = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
_PRIVATE_FILE = 0o600 << 16
_ZIP64_BYTES = zipfile.ZIP64_LIMIT
# Of an entry in the directory of a zip: 46 bytes and its name, with room for what other programs add.
_DIRECTORY_ENTRY_BYTES = 512
# No directory is so small that a limit on it should refuse an archive of a few files.
_DIRECTORY_MIN_BYTES = 1 << 16
_PIECE_BYTES = 1 << 16
MANIFEST_MAX_BYTES = 16 << 20
_NAME_CHARS = 200


class ArchivedConversation(ConversationSummary, frozen=True, kw_only=True):
    tags: tuple[str, ...] = ()


class ArchivedMessage(ConversationMessage, frozen=True, kw_only=True):
    """With what the conversations API does not show."""

    sender: str = ""
    metadata: Mapping[str, Any] = {}


class _WholeConversation(ArchivedConversation, frozen=True, kw_only=True):
    messages: tuple[ArchivedMessage, ...]


class Manifest(Struct, frozen=True, kw_only=True):
    """What is in an archive. Namespaces are named here because one may have no conversation."""

    format: str = FORMAT
    version: int = VERSION
    conversations: int = 0
    messages: int = 0
    namespaces: tuple[str, ...] = ()


class ArchiveLimits(Struct, frozen=True):
    """How much of an archive is read: its files, their bytes unpacked, the bytes of one message, and of a file that
    cannot be read message by message."""

    max_files: int
    unpacked_max_bytes: int
    line_max_bytes: int
    whole_file_max_bytes: int


class Passage(Struct, frozen=True):
    """Some messages of an archived conversation, in order; `first` is the place of the first of them. A conversation
    without any has one passage."""

    entry: str
    conversation: ArchivedConversation
    first: int
    messages: tuple[ArchivedMessage, ...]


class Unreadable(Struct, frozen=True):
    """A file of an archive that is no conversation, or not to its end."""

    entry: str
    reason: str


Part = Passage | Unreadable


def archived_conversation(conversation: Conversation) -> ArchivedConversation:
    return ArchivedConversation(**_fields(summary_shape(conversation)), tags=conversation.tags)


def archived_message(message: Message) -> ArchivedMessage:
    return ArchivedMessage(
        **_fields(message_shape(message)),
        sender=message.sender,
        metadata=message.metadata,
    )


def _fields(shape: Struct) -> dict[str, Any]:
    return {name: getattr(shape, name) for name in shape.__struct_fields__}


# Writing


class ArchiveWriter:
    """Takes one conversation after the other; `taken` gives the bytes that are ready to be sent."""

    def __init__(self, line_max_bytes: int) -> None:
        self._line_max_bytes = line_max_bytes
        self._sink = _Sink()
        self._zip = zipfile.ZipFile(self._sink, "w", zipfile.ZIP_DEFLATED)
        self._file: IO[bytes] | None = None
        self._conversations = 0
        self._messages = 0

    def begin(self, conversation: Conversation) -> None:
        # Whoever reads a stream must be told at the beginning of a file whether its sizes will need 64 bits.
        is_large = conversation.message_count * self._line_max_bytes >= _ZIP64_BYTES
        self._file = self._zip.open(_entry(f"{_FOLDER}{conversation.id}.json"), "w", force_zip64=is_large)
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
        manifest = Manifest(
            conversations=self._conversations, messages=self._messages, namespaces=tuple(sorted(namespaces))
        )
        self._zip.writestr(_entry(MANIFEST), msgspec.json.encode(manifest) + b"\n")
        self._zip.close()

    @property
    def is_full(self) -> bool:
        """Whether there is enough to be worth sending."""
        return self._sink.size >= _PIECE_BYTES

    def taken(self) -> bytes:
        return self._sink.taken()


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _NO_TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = _UNIX
    entry.external_attr = _PRIVATE_FILE
    return entry


class _Sink(io.RawIOBase):
    """Where the zip is written to: a stream, which cannot be gone back in."""

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

    def taken(self) -> bytes:
        parts, self._parts, self.size = self._parts, [], 0
        return b"".join(parts)


# Reading


class ArchiveReader:
    """An archive in a file. A zip that cannot be read at all is refused; a file in it that cannot is told."""

    def __init__(self, file: IO[bytes], limits: ArchiveLimits, batch_messages: int) -> None:
        self._limits = limits
        self._files = ConversationFiles(limits, batch_messages)
        directory_bytes = max(_DIRECTORY_MIN_BYTES, limits.max_files * _DIRECTORY_ENTRY_BYTES)
        try:
            self._zip = zipfile.ZipFile(_Bounded(file, directory_bytes))
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
            raise InvalidParams("the archive: got something else, expected a zip made by the export") from error
        _require_at_most("files", len(self._zip.infolist()), limits.max_files)

    def manifest(self) -> Manifest:
        """An archive that somebody put together may have none."""
        if MANIFEST not in self._zip.NameToInfo:
            return Manifest()
        try:
            with self._zip.open(MANIFEST) as file:
                data = file.read(MANIFEST_MAX_BYTES)
        except _BROKEN as error:
            raise _no_manifest() from error
        manifest = read_manifest(data)
        _require_at_most("namespaces", len(manifest.namespaces), self._limits.max_files)
        return manifest

    def parts(self) -> Iterator[Part]:
        for entry in self._zip.infolist():
            if is_conversation_file(entry.filename):
                yield from self._files.parts(entry.filename, partial(self._zip.open, entry))


class ConversationFiles:
    """Reads the JSON of one conversation after the other, wherever it stands; what they unpack to is counted in all."""

    def __init__(self, limits: ArchiveLimits, batch_messages: int) -> None:
        self._limits = limits
        self._batch_messages = batch_messages
        self._unpacked_bytes = 0

    def parts(self, name: str, opening: Callable[[], AbstractContextManager[IO[bytes]]]) -> Iterator[Part]:
        try:
            with opening() as file:
                yield from self._passages(name[:_NAME_CHARS], file)
        except (*_BROKEN, msgspec.MsgspecError, UnicodeDecodeError, _NotAnExport, _TooLong) as error:
            yield Unreadable(name[:_NAME_CHARS], _reason(error))

    def _passages(self, name: str, file: IO[bytes]) -> Iterator[Passage]:
        head = self._line(file)
        if head.endswith(MESSAGES_BEGIN):
            conversation = _read_conversation(head.removesuffix(MESSAGES_BEGIN) + b"}")
            messages = self._messages(file)
        else:
            whole = _read_whole(self._whole(head, file))
            conversation, messages = whole, iter(whole.messages)
        first = 0
        while (batch := tuple(islice(messages, self._batch_messages))) or not first:
            yield Passage(name, conversation, first, batch)
            first += len(batch) or 1

    def _messages(self, file: IO[bytes]) -> Iterator[ArchivedMessage]:
        """Written by the export: a message is a line."""
        while (line := self._line(file)) != MESSAGES_END:
            yield _read_message(line.removesuffix(b","))
        if self._line(file):
            raise _NotAnExport

    def _whole(self, head: bytes, file: IO[bytes]) -> bytes:
        """Written by somebody else: it has to be read whole, so it has to be small."""
        rest = file.read(max(0, self._limits.whole_file_max_bytes - len(head)) + 1)
        self._count(rest)
        if len(head) + len(rest) > self._limits.whole_file_max_bytes:
            raise _TooLong
        return head + b"\n" + rest

    def _line(self, file: IO[bytes]) -> bytes:
        """The next line, counted; nothing at the end."""
        line = file.readline(self._limits.line_max_bytes + 1)
        if len(line) > self._limits.line_max_bytes:
            raise TooLarge("a line of the archive", self._limits.line_max_bytes)
        self._count(line)
        return line.rstrip(b"\r\n")

    def _count(self, unpacked: bytes) -> None:
        self._unpacked_bytes += len(unpacked)
        if self._unpacked_bytes > self._limits.unpacked_max_bytes:
            raise TooLarge("the archive, unpacked,", self._limits.unpacked_max_bytes)


def is_conversation_file(name: str) -> bool:
    return name.endswith(".json") and name != MANIFEST


def read_manifest(data: bytes) -> Manifest:
    """InvalidParams for one that is not ours, or of another version."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _no_manifest() from error
    if manifest.format != FORMAT or manifest.version != VERSION:
        raise InvalidParams(
            f"{MANIFEST}: got {manifest.format[:60]!r} version {manifest.version}, expected {FORMAT!r} "
            f"version {VERSION}"
        )
    return manifest


def _no_manifest() -> InvalidParams:
    return InvalidParams(f"{MANIFEST}: got something else, expected that of an export")


def _require_at_most(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise InvalidParams(f"the archive: got {count} {what}, expected at most {limit}")


class _NotAnExport(Exception):
    """The file does not end where a conversation does."""


class _TooLong(Exception):
    """The file would have to be read whole, and is too large for that."""


_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, OSError)
_read_conversation = msgspec.json.Decoder(ArchivedConversation).decode
_read_whole = msgspec.json.Decoder(_WholeConversation).decode
_read_message = msgspec.json.Decoder(ArchivedMessage).decode


def _reason(error: Exception) -> str:
    if isinstance(error, msgspec.ValidationError):
        return f"got another shape, expected that of an export: {error}"
    if isinstance(error, _NotAnExport | msgspec.MsgspecError | UnicodeDecodeError):
        return "got something else, expected a conversation as the export writes it"
    if isinstance(error, _TooLong):
        return "got a large file in another form, expected each message on a line, as the export writes it"
    return "got a damaged or encrypted file, expected one that can be unpacked"


class _Bounded:
    """A file of which no more is read at once than its directory may take: the rest is read in small parts."""

    def __init__(self, file: IO[bytes], max_bytes: int) -> None:
        self._file = file
        self._max_bytes = max_bytes

    def read(self, size: int = -1) -> bytes:
        if size > self._max_bytes:
            raise TooLarge("the archive's list of files", self._max_bytes)
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """Not ours to close."""
