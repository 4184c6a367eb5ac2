"""Imports an archive of conversations into a library. It can be repeated: existing conversations stay as they are, and
one that an earlier attempt left incomplete is continued.
"""

import asyncio
import io
import zipfile
from collections.abc import Iterable
from typing import IO, Any

import msgspec
from msgspec import Struct

from config.errors import Conflict, InvalidParams, NotFound
from sources.importers.formats import conversation_archive
from sources.records import Conversation, Message
from sources.storage.collections.chats import Chats


class ArchiveProblem(Struct, frozen=True):
    """A conversation that was not imported, or not completely."""

    entry: str
    message: str


class ArchiveImportResult(Struct, frozen=True, kw_only=True):
    """The result of importing an archive. `kept` conversations existed before. `problems` holds the first failures;
    `failed` counts all of them."""

    created: int
    continued: int
    kept: int
    failed: int
    messages: int
    namespaces: int
    problems: tuple[ArchiveProblem, ...]


async def import_archive(
    chats: Chats, reader: conversation_archive.ArchiveReader, problems_max: int
) -> ArchiveImportResult:
    """Reads the zip in worker threads, because unpacking takes time."""
    manifest = await asyncio.to_thread(reader.manifest)
    importing = _ArchiveImport(chats, problems_max)
    parts = reader.parts()
    # One part at a time, so that memory does not depend on the size of the archive.
    while (part := await asyncio.to_thread(next, parts, None)) is not None:
        await importing.add_part(part)
    await importing.add_namespaces(manifest)
    return importing.result()


class _StoredConversation(Struct):
    """The current conversation in the library: how many messages it has, whether it existed before the import, and
    whether further messages of the archive can be appended."""

    count: int = 0
    existed: bool = False
    is_open: bool = True


class _ArchiveImport:
    def __init__(self, chats: Chats, problems_max: int) -> None:
        self._chats = chats
        self._problems_max = problems_max
        self._stored = _StoredConversation()
        self._counts = dict.fromkeys(("created", "continued", "kept", "failed", "messages", "namespaces"), 0)
        self._problems: list[ArchiveProblem] = []

    def result(self) -> ArchiveImportResult:
        return ArchiveImportResult(**self._counts, problems=tuple(self._problems))

    async def add_part(self, part: conversation_archive.ArchivePart) -> None:
        if not isinstance(part, conversation_archive.ConversationPart):
            self._fail(part.entry, part.reason)
            return
        try:
            if part.first == 0:
                self._stored = _StoredConversation()
                conversation_archive.require_allowed_id(part.conversation.id)
                try:
                    await self._create(part)
                except Conflict as conflict:
                    # The id was freed, so that the second attempt can succeed.
                    if not await self._continue_existing(part, conflict):
                        await self._create(part)
            else:
                await self._append_missing(part)
        except (Conflict, InvalidParams) as error:
            self._fail(part.entry, error.message)

    async def add_namespaces(self, manifest: conversation_archive.ArchiveManifest) -> None:
        """Creates the namespaces that have no conversation."""
        # Last, because conversations create the namespaces that they are in.
        existing = {namespace.name for namespace in await self._chats.namespaces()}
        for name in manifest.namespaces:
            if name in existing:
                continue
            try:
                await self._chats.create_namespace(name)
                self._counts["namespaces"] += 1
            except (Conflict, InvalidParams) as error:
                self._fail(conversation_archive.MANIFEST, error.message)

    async def _create(self, part: conversation_archive.ConversationPart) -> None:
        await self._chats.create(
            conversation_archive.conversation_draft(part.conversation),
            list(map(conversation_archive.message_draft, part.messages)),
        )
        self._stored.count = len(part.messages)
        self._counts["created"] += 1
        self._counts["messages"] += len(part.messages)

    async def _continue_existing(self, part: conversation_archive.ConversationPart, conflict: Conflict) -> bool:
        """Continues the conversation that has this id. If that one is deleted, purges it, so that the id can be used
        again, and returns False."""
        try:
            existing = await self._chats.get(part.conversation.id)
        except NotFound:
            try:
                await self._chats.purge(part.conversation.id)
            except NotFound:
                raise conflict from None
            return False
        self._counts["kept"] += 1
        self._stored = _StoredConversation(existing.message_count, existed=True)
        await self._append_missing(part)
        return True

    async def _append_missing(self, part: conversation_archive.ConversationPart) -> None:
        """Appends the messages that the library lacks, if those that it has are the first ones of the archived
        conversation."""
        stored = self._stored
        overlap = stored.count - part.first
        if not stored.is_open or overlap > len(part.messages):
            return
        is_same = True
        if overlap > 0:
            page = await self._chats.messages(part.conversation.id, 1, stored.count - 1)
            is_same = [message.id for message in page.rows] == [part.messages[overlap - 1].id]
        # The library has another message at this position, so nothing is appended.
        if not is_same:
            stored.is_open = False
        elif missing := part.messages[overlap:]:
            await self._chats.append(part.conversation.id, list(map(conversation_archive.message_draft, missing)))
            messages = len(missing)
            self._counts["messages"] += messages
            self._stored.count += messages
            if self._stored.existed:
                self._stored.existed = False
                self._counts["kept"] -= 1
                self._counts["continued"] += 1

    def _fail(self, entry: str, message: str) -> None:
        self._stored.is_open = False
        self._counts["failed"] += 1
        if len(self._problems) < self._problems_max:
            self._problems.append(ArchiveProblem(entry, message))


# -- writer ------------------------------------------------------------------------------------------------------------
# Writes conversations into a zip: one JSON file for each, and a manifest. The output is a stream, and the same
# conversations always give the same bytes.

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
        self._file.write(conversation_archive.head_line(conversation_archive.archived_conversation(conversation)))
        self._conversations += 1
        self._is_empty = True

    def add(self, messages: Iterable[Message]) -> None:
        assert self._file is not None
        for line in conversation_archive.message_lines(
            map(conversation_archive.archived_message, messages), is_first=self._is_empty
        ):
            self._file.write(line)
            self._messages += 1
            self._is_empty = False

    def end(self) -> None:
        assert self._file is not None
        self._file.write(conversation_archive.end_line())
        self._file.close()

    def finish(self, namespaces: Iterable[str]) -> None:
        manifest = conversation_archive.ArchiveManifest(
            conversations=self._conversations, messages=self._messages, namespaces=tuple(sorted(namespaces))
        )
        self._zip.writestr(_zip_entry(conversation_archive.MANIFEST), msgspec.json.encode(manifest) + b"\n")
        self._zip.close()

    @property
    def has_output(self) -> bool:
        """Whether there is enough output to be worth sending."""
        return len(self._sink.data) >= _CHUNK_BYTES

    def take_output(self) -> bytes:
        output = bytes(self._sink.data)
        self._sink.data.clear()
        return output


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
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, part: Any) -> int:
        self.data += part
        return len(part)
