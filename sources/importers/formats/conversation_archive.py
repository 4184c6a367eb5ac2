"""Reads archives of conversations as streams. Input is not trusted: sizes are counted while unpacking, and nothing is
extracted to disk.
"""

import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import IO, Any, TypeVar

import msgspec
from msgspec import Struct

from config.errors import InvalidParams, TooLarge
from config.times import extend_to_microseconds
from sources.drafts import ConversationDraft, MessageDraft
from sources.importers.engine.archives import ZIP_ERRORS, BoundedFile
from sources.importers.engine.events import FailedItem, ImportedConversation, SkippedItem
from sources.importers.engine.file_probe import is_json
from sources.importers.engine.importer import Events, FileImporter, FileProbe, InputFile
from sources.records import Conversation, Message

# -- framing -----------------------------------------------------------------------------------------------------------
# The line format of a conversation: one JSON object with each message on a line of its own, so that it can be written
# and read message by message.

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


# -- manifest ----------------------------------------------------------------------------------------------------------
# The manifest of an archive of conversations.

MANIFEST = "manifest.json"
MANIFEST_MAX_BYTES = 16 << 20
FORMAT = "florilegium-conversations"
VERSION = 1


S = TypeVar("S", bound=Struct)


class ArchiveManifest(Struct, frozen=True, kw_only=True):
    """The contents of an archive. It lists namespaces, because some may have no conversation."""

    format: str = FORMAT
    version: int = VERSION
    conversations: int = 0
    messages: int = 0
    namespaces: tuple[str, ...] = ()


def parse_manifest(data: bytes) -> ArchiveManifest:
    """Raises InvalidParams for another format or version."""
    try:
        manifest = msgspec.json.decode(data, type=ArchiveManifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise invalid_manifest() from error
    if manifest.format != FORMAT or manifest.version != VERSION:
        raise InvalidParams(
            f"{MANIFEST}: expected {FORMAT!r} version {VERSION}, got {manifest.format[:60]!r} version "
            f"{manifest.version}"
        )
    return manifest


def invalid_manifest() -> InvalidParams:
    return InvalidParams(f"{MANIFEST}: not the manifest of a conversation export")


# -- schema ------------------------------------------------------------------------------------------------------------
# Conversations and messages as archives store them.
#
# The fields are those of AgentKit's own exports, and some that only this server writes. Times have microseconds and an
# offset (`2026-11-15T08:30:00.000000+00:00`), as in AgentKit; stored times have milliseconds.


class ConversationSummary(Struct, frozen=True, kw_only=True):
    """A conversation without its messages. `session_id` is empty if it was created without one."""

    id: str
    session_id: str
    title: str
    namespace: str
    created_at: str
    updated_at: str
    message_count: int
    metadata: Mapping[str, Any] = {}
    pinned: bool = False
    archived: bool = False


class ArchivedConversation(ConversationSummary, frozen=True, kw_only=True):
    """AgentKit does not write `tags`, `pinned` and `archived`."""

    tags: tuple[str, ...] = ()


class ArchivedMessage(Struct, frozen=True, kw_only=True):
    """A message. AgentKit writes neither branches (`parent_id`, `is_canonical`) nor `sender` and `metadata`."""

    id: str
    conversation_id: str
    role: str
    content: str
    model: str | None = None
    tool_used: str | None = None
    attachments: tuple[Mapping[str, Any], ...] = ()
    citations: tuple[Mapping[str, Any], ...] = ()
    timestamp: str
    parent_id: str | None = None
    is_canonical: bool = True
    sender: str = ""
    metadata: Mapping[str, Any] = {}


# The fields whose names in records and drafts differ.
_CONVERSATION_NAMES = {
    "id": "uuid", "updated_at": "last_modified", "pinned": "is_pinned", "archived": "is_archived",
}  # fmt: skip
_MESSAGE_NAMES = {"id": "uuid", "tool_used": "tool", "timestamp": "created_at"}
_TIMES = ("created_at", "updated_at", "timestamp")


def conversation_summary(conversation: Conversation) -> ConversationSummary:
    return _archived(ConversationSummary, conversation, _CONVERSATION_NAMES)


def archived_conversation(conversation: Conversation) -> ArchivedConversation:
    return _archived(ArchivedConversation, conversation, _CONVERSATION_NAMES)


def archived_message(message: Message) -> ArchivedMessage:
    return _archived(ArchivedMessage, message, _MESSAGE_NAMES)


def conversation_draft(archived: ArchivedConversation) -> ConversationDraft:
    return _draft(ConversationDraft, archived, _CONVERSATION_NAMES)


def message_draft(archived: ArchivedMessage) -> MessageDraft:
    return _draft(MessageDraft, archived, _MESSAGE_NAMES)


def _archived(archived_type: type[S], record: Struct, names: Mapping[str, str]) -> S:
    fields = {name: getattr(record, names.get(name, name)) for name in archived_type.__struct_fields__}
    return archived_type(**fields | {name: extend_to_microseconds(fields[name]) for name in _TIMES if name in fields})


def _draft(draft_type: type[S], archived: Struct, names: Mapping[str, str]) -> S:
    fields = {names.get(name, name): getattr(archived, name) for name in archived.__struct_fields__}
    return draft_type(**{name: fields[name] for name in draft_type.__struct_fields__ if name in fields})


_NAME_CHARS = 200
_NOT_AN_EXPORT = "not a conversation as the export writes it"
_TOO_LARGE = "the file is too large to be read as a whole; expected one message per line, as the export writes it"


class ArchiveLimits(Struct, frozen=True):
    """`line_max_bytes` limits one message, and `whole_file_max_bytes` a file that is not written line by line."""

    max_files: int
    unpacked_max_bytes: int
    line_max_bytes: int
    whole_file_max_bytes: int


class ConversationPart(Struct, frozen=True):
    """Consecutive messages of an archived conversation; `first` is the index of the first one. A conversation without
    messages has one part."""

    entry: str
    conversation: ArchivedConversation
    first: int
    messages: tuple[ArchivedMessage, ...]


class UnreadableFile(Struct, frozen=True):
    """A file of an archive that is not a conversation, or cannot be read to its end."""

    entry: str
    reason: str


ArchivePart = ConversationPart | UnreadableFile


class ArchiveReader:
    """Reads an archive. Raises InvalidParams if the zip cannot be read; a file in it that cannot be read is yielded as
    `UnreadableFile`."""

    def __init__(self, file: IO[bytes], limits: ArchiveLimits, batch_messages: int) -> None:
        self._limits = limits
        self._files = ConversationFileReader(limits, batch_messages)
        try:
            # Bounded: the directory of a zip is read as a whole, and a small file can declare millions of entries.
            self._zip = zipfile.ZipFile(BoundedFile(file, limits.max_files))
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
            raise InvalidParams("archive: not a valid zip file") from error
        _require_at_most("files", len(self._zip.infolist()), limits.max_files)

    def manifest(self) -> ArchiveManifest:
        """Returns an empty manifest for an archive without one, which may have been made by hand."""
        if MANIFEST not in self._zip.NameToInfo:
            return ArchiveManifest()
        try:
            with self._zip.open(MANIFEST) as file:
                data = file.read(MANIFEST_MAX_BYTES)
        except ZIP_ERRORS as error:
            raise invalid_manifest() from error
        manifest = parse_manifest(data)
        _require_at_most("namespaces", len(manifest.namespaces), self._limits.max_files)
        return manifest

    def parts(self) -> Iterator[ArchivePart]:
        for entry in self._zip.infolist():
            if is_conversation_file(entry.filename):
                yield from self._files.read(entry.filename, partial(self._zip.open, entry))


class ConversationFileReader:
    """Reads JSON files of conversations, wherever they are. The limit on unpacked bytes applies to all of them
    together."""

    def __init__(self, limits: ArchiveLimits, batch_messages: int) -> None:
        self._limits = limits
        self._batch_messages = batch_messages
        self._unpacked_bytes = 0

    def read(self, name: str, open_file: Callable[[], AbstractContextManager[IO[bytes]]]) -> Iterator[ArchivePart]:
        entry = name[:_NAME_CHARS]
        try:
            with open_file() as file:
                head = self._read_line(file)
                if head.endswith(MESSAGES_BEGIN):
                    conversation = _decode_conversation(head.removesuffix(MESSAGES_BEGIN) + b"}")
                    messages = self._read_messages(file)
                else:
                    # Reads a file in another layout. It is decoded as a whole, so its size is limited.
                    rest = file.read(max(0, self._limits.whole_file_max_bytes - len(head)) + 1)
                    self._count_unpacked(rest)
                    if len(head) + len(rest) > self._limits.whole_file_max_bytes:
                        raise _NotReadable(_TOO_LARGE)
                    whole = _decode_whole(head + b"\n" + rest)
                    conversation, messages = whole, iter(whole.messages)
                first = 0
                while (batch := tuple(islice(messages, self._batch_messages))) or not first:
                    yield ConversationPart(entry, conversation, first, batch)
                    first += len(batch) or 1
        except _NotReadable as error:
            yield UnreadableFile(entry, str(error))
        except msgspec.ValidationError as error:
            yield UnreadableFile(entry, f"unexpected structure: {error}")
        except (msgspec.MsgspecError, UnicodeDecodeError):
            yield UnreadableFile(entry, _NOT_AN_EXPORT)
        except ZIP_ERRORS:
            yield UnreadableFile(entry, "the file is damaged or encrypted")

    def _read_messages(self, file: IO[bytes]) -> Iterator[ArchivedMessage]:
        """Reads the line format: one message per line."""
        while (line := self._read_line(file)) != MESSAGES_END:
            yield _decode_message(line.removesuffix(b","))
        # Data after the end means that the file is not what the export wrote.
        if self._read_line(file):
            raise _NotReadable(_NOT_AN_EXPORT)

    def _read_line(self, file: IO[bytes]) -> bytes:
        """Returns the next line without its end, or nothing at the end of the file."""
        line = file.readline(self._limits.line_max_bytes + 1)
        if len(line) > self._limits.line_max_bytes:
            raise TooLarge("a line of the archive", self._limits.line_max_bytes)
        self._count_unpacked(line)
        return line.rstrip(b"\r\n")

    def _count_unpacked(self, data: bytes) -> None:
        self._unpacked_bytes += len(data)
        if self._unpacked_bytes > self._limits.unpacked_max_bytes:
            raise TooLarge("the unpacked archive", self._limits.unpacked_max_bytes)


def is_conversation_file(name: str) -> bool:
    return name.endswith(".json") and name != MANIFEST


def _require_at_most(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise InvalidParams(f"archive: expected at most {limit} {what}, got {count}")


class _WholeConversation(ArchivedConversation, frozen=True, kw_only=True):
    messages: tuple[ArchivedMessage, ...]


class _NotReadable(Exception):
    """A file that is not as the export writes it; the message says why."""


_decode_conversation = msgspec.json.Decoder(ArchivedConversation).decode
_decode_whole = msgspec.json.Decoder(_WholeConversation).decode
_decode_message = msgspec.json.Decoder(ArchivedMessage).decode


# Path segments of the conversations API. A conversation with such an id could not be requested.
RESERVED_IDS = frozenset(("search", "export", "import"))


def require_allowed_id(conversation_id: str) -> None:
    if conversation_id in RESERVED_IDS:
        raise InvalidParams(f"id: expected an id that is not part of a URL path, got {conversation_id!r}")


# -- importer ----------------------------------------------------------------------------------------------------------
# Exports of the conversations API, from Florilegium or AgentKit: the zip of all conversations, or the JSON of one.
#
# The format is that of `POST /conversations/import`, but items are stored as in every import: an existing conversation
# is recognized by its id and updated where it changed.

_PART_MESSAGES = 500
# Bytes of a JSON line per character of a message: the longest escape, with room for the other fields.
_LINE_BYTES_PER_CHAR = 12
# Every library has this namespace, so it needs no conversation to be created.
_DEFAULT_NAMESPACE = "default"
_MARKS = tuple(re.compile(mark) for mark in (rb'"session_id"\s*:', rb'"namespace"\s*:\s*"', rb'"messages"\s*:\s*\['))


class ConversationsImporter(FileImporter):
    name = "conversations"
    title = "The conversations API: its zip, or the JSON of one conversation"
    suffixes = (".zip", ".json")
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        if MANIFEST in probe.names and FORMAT.encode() in probe.first_bytes(lambda name: name == MANIFEST):
            return 1.0
        head = probe.first_bytes(is_conversation_file)
        return 0.9 if is_json(head, *_MARKS) and head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{" else 0.0

    def read_file(self, file: InputFile) -> Events:
        limits = file.limits
        archive_limits = ArchiveLimits(
            max_files=limits.entries_max,
            unpacked_max_bytes=limits.unpacked_max_bytes,
            # A message of the maximum length must fit into its line.
            line_max_bytes=max(limits.line_max_bytes, limits.item_max_chars * _LINE_BYTES_PER_CHAR),
            whole_file_max_bytes=limits.line_max_bytes,
        )
        reader = ConversationFileReader(archive_limits, _PART_MESSAGES)
        if not file.is_zip:
            yield from _events(reader.read(file.name, file.open))
            return
        with file.open_archive() as archive:
            listed = frozenset[str]()
            if MANIFEST in archive.names:
                listed = frozenset(parse_manifest(archive.read(MANIFEST, MANIFEST_MAX_BYTES)).namespaces)
            used = {_DEFAULT_NAMESPACE}
            for name in archive.names:
                if name == MANIFEST:
                    continue
                if not is_conversation_file(name):
                    yield SkippedItem("file in the archive not containing a conversation")
                    continue
                try:
                    for event in _events(reader.read(name, partial(archive.open, name))):
                        if isinstance(event, ImportedConversation):
                            used.add(str(event.draft.namespace))
                        yield event
                except InvalidParams as error:
                    yield FailedItem(name, error.message)
            yield from (SkippedItem("namespace without conversations") for _ in listed - used)


def _events(parts: Iterator[ArchivePart]) -> Events:
    for part in parts:
        if not isinstance(part, ConversationPart):
            yield FailedItem(part.entry, part.reason)
            continue
        try:
            require_allowed_id(part.conversation.id)
        except InvalidParams as error:
            # Once for a conversation, whose other parts follow.
            if part.first == 0:
                yield FailedItem(part.entry, error.message)
            continue
        messages = tuple(map(message_draft, part.messages))
        yield ImportedConversation(conversation_draft(part.conversation), messages, continues=part.first > 0)
