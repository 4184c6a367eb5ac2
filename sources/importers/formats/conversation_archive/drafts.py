"""Takes an archive's conversations into a library. It can be repeated: what is there stays as it is, and a conversation
that an earlier attempt left unfinished is continued.
"""

import asyncio
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import asdict

from config.errors import Conflict, InvalidParams, NotFound
from sources.drafts import ConversationDraft, MessageDraft
from sources.importers.formats.conversation_archive.archive import (
    MANIFEST,
    ArchivedConversation,
    ArchivedMessage,
    ArchiveReader,
    Manifest,
    Part,
    Passage,
)
from sources.storage.contract import Chats

# Paths of the conversations API; a conversation of that name could not be asked for.
RESERVED_IDS = frozenset(("search", "export", "import"))


class ArchiveProblem(Struct, frozen=True):
    """A conversation of an archive that was not taken, or not to its end."""

    entry: str
    message: str


class ArchiveImportResult(Struct, frozen=True, kw_only=True):
    """What became of an archive. `kept` are conversations that were there before; of many problems the first are told,
    and all are counted."""

    created: int
    continued: int
    kept: int
    failed: int
    messages: int
    namespaces: int
    problems: tuple[ArchiveProblem, ...]


class _Tally(Struct):
    created: int = 0
    continued: int = 0
    kept: int = 0
    failed: int = 0
    messages: int = 0
    namespaces: int = 0


async def import_archive(chats: Chats, reader: ArchiveReader, problems_max: int) -> ArchiveImportResult:
    """The zip is read on other threads: unpacking takes its time."""
    manifest = await asyncio.to_thread(reader.manifest)
    intake = _Intake(chats, problems_max)
    parts = reader.parts()
    while (part := await asyncio.to_thread(_next, parts)) is not None:
        await intake.take(part)
    await intake.take_namespaces(manifest)
    return intake.result()


def _next(parts: Iterator[Part]) -> Part | None:
    return next(parts, None)


class _Stored(Struct):
    """The conversation that is being taken: how many messages the library holds, whether it held them before, and
    whether those of the archive still fit."""

    count: int = 0
    was_there: bool = False
    is_open: bool = True


class _Intake:
    def __init__(self, chats: Chats, problems_max: int) -> None:
        self._chats = chats
        self._problems_max = problems_max
        self._stored = _Stored()
        self._tally = _Tally()
        self._problems: list[ArchiveProblem] = []

    def result(self) -> ArchiveImportResult:
        return ArchiveImportResult(**asdict(self._tally), problems=tuple(self._problems))

    async def take(self, part: Part) -> None:
        if not isinstance(part, Passage):
            self._fail(part.entry, part.reason)
            return
        try:
            if part.first == 0:
                await self._begin(part)
            else:
                await self._go_on(part)
        except (Conflict, InvalidParams) as error:
            self._fail(part.entry, error.message)

    async def take_namespaces(self, manifest: Manifest) -> None:
        """Those that no conversation is in."""
        known = {one.name for one in await self._chats.namespaces()}
        for name in manifest.namespaces:
            if name in known:
                continue
            try:
                await self._chats.create_namespace(name)
                self._tally.namespaces += 1
            except (Conflict, InvalidParams) as error:
                self._fail(MANIFEST, error.message)

    async def _begin(self, passage: Passage) -> None:
        self._stored = _Stored()
        if passage.conversation.id in RESERVED_IDS:
            raise InvalidParams(f"id: got {passage.conversation.id!r}, expected another: it is part of an address")
        try:
            await self._create(passage)
        except Conflict as conflict:
            if not await self._meet(passage, conflict):
                await self._create(passage)

    async def _create(self, passage: Passage) -> None:
        await self._chats.create(conversation_draft(passage.conversation), list(map(message_draft, passage.messages)))
        self._stored.count = len(passage.messages)
        self._tally.created += 1
        self._tally.messages += len(passage.messages)

    async def _meet(self, passage: Passage, conflict: Conflict) -> bool:
        """Whether the library has the conversation. What was deleted keeps its id until it is purged."""
        try:
            held = await self._chats.get(passage.conversation.id)
        except NotFound:
            try:
                await self._chats.purge(passage.conversation.id)
            except NotFound:
                raise conflict from None
            return False
        self._tally.kept += 1
        self._stored = _Stored(held.message_count, was_there=True)
        await self._go_on(passage)
        return True

    async def _go_on(self, passage: Passage) -> None:
        """Adds what the library lacks, if what it holds is how the archived conversation begins."""
        stored = self._stored
        held = stored.count - passage.first
        if not stored.is_open or held > len(passage.messages):
            return
        if held > 0 and not await self._ends_with(passage.conversation.id, passage.messages[held - 1]):
            stored.is_open = False
        elif missing := passage.messages[held:]:
            await self._chats.append(passage.conversation.id, list(map(message_draft, missing)))
            self._count(len(missing))

    async def _ends_with(self, conversation_id: str, message: ArchivedMessage) -> bool:
        page = await self._chats.messages(conversation_id, 1, self._stored.count - 1)
        return [held.id for held in page.rows] == [message.id]

    def _count(self, messages: int) -> None:
        self._tally.messages += messages
        self._stored.count += messages
        if self._stored.was_there:
            self._stored.was_there = False
            self._tally.kept -= 1
            self._tally.continued += 1

    def _fail(self, entry: str, message: str) -> None:
        self._stored.is_open = False
        self._tally.failed += 1
        if len(self._problems) < self._problems_max:
            self._problems.append(ArchiveProblem(entry, message))


def conversation_draft(archived: ArchivedConversation) -> ConversationDraft:
    return ConversationDraft(
        title=archived.title,
        namespace=archived.namespace,
        session_id=archived.session_id,
        tags=archived.tags,
        metadata=archived.metadata,
        uuid=archived.id,
        created_at=archived.created_at,
        last_modified=archived.updated_at,
    )


def message_draft(archived: ArchivedMessage) -> MessageDraft:
    return MessageDraft(
        role=archived.role,
        sender=archived.sender,
        content=archived.content,
        model=archived.model,
        tool=archived.tool_used,
        attachments=archived.attachments,
        citations=archived.citations,
        metadata=archived.metadata,
        parent_id=archived.parent_id,
        is_canonical=archived.is_canonical,
        uuid=archived.id,
        created_at=archived.timestamp,
    )
