"""Conversations as streams of bytes: one of them as JSON or as a transcript, or all of them as an archive.

A library is in use for one page at a time: a caller who reads slowly keeps nothing open. What is written is what there
was when the conversation was begun; one that loses messages meanwhile ends the stream, because it would tell a lie.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
from msgspec import Struct

from auth.context import RequestContext
from config.errors import Conflict, NotFound
from config.settings import Settings
from server.compat.agentkit.transcripts import TRANSCRIPTS, TranscriptFormat
from sources.importers.formats.conversation_archive.archive import ArchiveWriter
from sources.importers.formats.conversation_archive.framing import end_line, head_line, message_lines
from sources.importers.formats.conversation_archive.shapes import message_shape, summary_shape
from sources.records import Conversation, Message
from sources.storage.contract import Libraries

# The longest escape of one character in JSON, `\u0000`.
_ESCAPED_BYTES = 6
# Of a message beside its content: attachments, citations and metadata, and short texts.
_OBJECTS = 3
_SHORT_TEXTS = 12
_IDS_PER_PAGE = 1_000


def line_max_bytes(settings: Settings) -> int:
    """The longest line that a message, as large as it may be, makes in an archive."""
    short = _SHORT_TEXTS * settings.title_max_chars
    return _ESCAPED_BYTES * (settings.item_max_chars + short) + _OBJECTS * settings.metadata_max_bytes


class Exporter(Struct, frozen=True):
    """One caller's conversations, page by page."""

    libraries: Libraries
    context: RequestContext
    page_messages: int
    line_max_bytes: int

    async def as_json(self, conversation: Conversation) -> AsyncIterator[bytes]:
        """The documented object, each message on a line of its own."""
        yield head_line(summary_shape(conversation))
        is_first = True
        async for page in self._pages(conversation):
            yield b"".join(message_lines(map(message_shape, page), is_first=is_first))
            is_first = False
        yield end_line()

    async def as_transcript(self, conversation: Conversation, form: TranscriptFormat) -> AsyncIterator[bytes]:
        """The text as the value of `content`."""
        transcript = TRANSCRIPTS[form]
        yield b'{"content":"' + _inside_a_text(transcript.head(conversation))
        async for page in self._pages(conversation):
            yield _inside_a_text("".join(map(transcript.turn, page)))
        yield b'","format":' + msgspec.json.encode(form) + b"}"

    async def as_archive(self) -> AsyncIterator[bytes]:
        """In the order of their ids. Packing is done on another thread, a page at a time."""
        writer, after = ArchiveWriter(self.line_max_bytes), ""
        while ids := await self._ids(after):
            for conversation_id in ids:
                async for piece in self._packed(writer, conversation_id):
                    yield piece
            after = ids[-1]
        await asyncio.to_thread(writer.finish, await self._namespaces())
        yield writer.taken()

    async def _packed(self, writer: ArchiveWriter, conversation_id: str) -> AsyncIterator[bytes]:
        try:
            conversation = await self._conversation(conversation_id)
        except NotFound:  # deleted since its id was read
            return
        writer.begin(conversation)
        async for page in self._pages(conversation):
            await asyncio.to_thread(writer.add, page)
            if writer.is_full:
                yield writer.taken()
        writer.end()

    async def _pages(self, conversation: Conversation) -> AsyncIterator[Sequence[Message]]:
        position, left = 0, conversation.message_count
        while left > 0:
            page = (await self._page(conversation.id, position))[:left]
            if not page:
                raise Conflict(f"conversation {conversation.id!r} lost messages while it was exported; ask again")
            yield page
            position, left = page[-1].position + 1, left - len(page)

    async def _page(self, conversation_id: str, position: int) -> Sequence[Message]:
        async with self.libraries.library(self.context) as library:
            # Where the message at a position was deleted, one less comes.
            return await library.chats.messages_around(conversation_id, position, 0, max(1, self.page_messages - 1))

    async def _conversation(self, conversation_id: str) -> Conversation:
        async with self.libraries.library(self.context) as library:
            return await library.chats.get(conversation_id)

    async def _ids(self, after: str) -> Sequence[str]:
        async with self.libraries.library(self.context) as library:
            return await library.chats.ids(after, _IDS_PER_PAGE)

    async def _namespaces(self) -> list[str]:
        async with self.libraries.library(self.context) as library:
            return [namespace.name for namespace in await library.chats.namespaces()]


def _inside_a_text(text: str) -> bytes:
    """As it stands between the quotation marks of a JSON text."""
    return msgspec.json.encode(text)[1:-1]
