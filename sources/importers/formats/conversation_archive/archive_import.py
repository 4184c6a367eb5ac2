"""Imports an archive of conversations into a library. It can be repeated: existing conversations stay as they are, and
one that an earlier attempt left incomplete is continued."""

import asyncio

from msgspec import Struct

from config.errors import Conflict, InvalidParams, NotFound
from sources.importers.formats.conversation_archive.reader import (
    MANIFEST,
    ArchiveManifest,
    ArchivePart,
    ArchiveReader,
    ConversationPart,
    conversation_draft,
    message_draft,
    require_allowed_id,
)
from sources.storage.contract import Chats


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


async def import_archive(chats: Chats, reader: ArchiveReader, problems_max: int) -> ArchiveImportResult:
    """Reads the zip in worker threads, because unpacking takes time."""
    manifest = await asyncio.to_thread(reader.manifest)
    importing = _ArchiveImport(chats, problems_max)
    parts = reader.parts()
    # One part at a time, so that memory does not depend on the size of the archive.
    while (part := await asyncio.to_thread(next, parts, None)) is not None:
        await importing.add_part(part)
    await importing.add_namespaces(manifest)
    return importing.result()


_COUNTS = ("created", "continued", "kept", "failed", "messages", "namespaces")


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
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._problems: list[ArchiveProblem] = []

    def result(self) -> ArchiveImportResult:
        return ArchiveImportResult(**self._counts, problems=tuple(self._problems))

    async def add_part(self, part: ArchivePart) -> None:
        if not isinstance(part, ConversationPart):
            self._fail(part.entry, part.reason)
            return
        try:
            if part.first == 0:
                self._stored = _StoredConversation()
                require_allowed_id(part.conversation.id)
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

    async def add_namespaces(self, manifest: ArchiveManifest) -> None:
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
                self._fail(MANIFEST, error.message)

    async def _create(self, part: ConversationPart) -> None:
        await self._chats.create(conversation_draft(part.conversation), list(map(message_draft, part.messages)))
        self._stored.count = len(part.messages)
        self._counts["created"] += 1
        self._counts["messages"] += len(part.messages)

    async def _continue_existing(self, part: ConversationPart, conflict: Conflict) -> bool:
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

    async def _append_missing(self, part: ConversationPart) -> None:
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
            await self._chats.append(part.conversation.id, list(map(message_draft, missing)))
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
