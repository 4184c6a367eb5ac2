"""Exports conversations as streams of bytes: one as JSON or as a transcript, or all of them as an archive.

The library is held for one page at a time, so a slow reader keeps nothing open. The export contains what existed when
it reached the conversation; if messages are deleted in the meantime, the stream fails instead of ending early.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
from msgspec import Struct

from auth.context import RequestContext
from config.errors import Conflict, NotFound
from config.settings import Settings
from server.compat.agentkit.transcripts import TranscriptFormat, transcript_heading, transcript_message
from sources.importers.formats.conversation_archive.framing import end_line, head_line, message_lines
from sources.importers.formats.conversation_archive.schema import archived_conversation, archived_message
from sources.importers.formats.conversation_archive.writer import ArchiveWriter
from sources.records import Conversation, Message
from sources.storage.contract import Libraries

# The longest JSON escape of a character, `\u0000`.
_ESCAPE_MAX_BYTES = 6
# A message's fields besides its content: attachments, citations and metadata, and short texts.
_OBJECT_FIELDS = 3
_SHORT_FIELDS = 12
_IDS_PER_PAGE = 1_000


def line_max_bytes(settings: Settings) -> int:
    """Returns the length of the longest line that a message of the maximum size can produce in an archive."""
    short_chars = _SHORT_FIELDS * settings.title_max_chars
    return _ESCAPE_MAX_BYTES * (settings.item_max_chars + short_chars) + _OBJECT_FIELDS * settings.metadata_max_bytes


class ConversationExporter(Struct, frozen=True):
    """Exports one caller's conversations, page by page."""

    libraries: Libraries
    context: RequestContext
    page_messages: int
    line_max_bytes: int

    async def as_json(self, conversation: Conversation) -> AsyncIterator[bytes]:
        """Yields the documented object, with each message on its own line. It is the same as in an archive, so that a
        conversation can be imported again with everything it had."""
        yield head_line(archived_conversation(conversation))
        is_first = True
        async for page in self._pages(conversation):
            yield b"".join(message_lines(map(archived_message, page), is_first=is_first))
            is_first = False
        yield end_line()

    async def as_transcript(
        self, conversation: Conversation, transcript_format: TranscriptFormat
    ) -> AsyncIterator[bytes]:
        """Yields an object with the text as its `content`."""
        yield b'{"content":"'
        async for text in self._transcript(conversation, transcript_format):
            yield _json_string_body(text)
        yield b'","format":' + msgspec.json.encode(transcript_format) + b"}"

    async def as_text(self, conversation: Conversation, transcript_format: TranscriptFormat) -> AsyncIterator[bytes]:
        """Yields the text itself."""
        async for text in self._transcript(conversation, transcript_format):
            yield text.encode()

    async def _transcript(self, conversation: Conversation, transcript_format: TranscriptFormat) -> AsyncIterator[str]:
        yield transcript_heading(conversation, transcript_format)
        async for page in self._pages(conversation):
            yield "".join(transcript_message(message, transcript_format) for message in page)

    async def as_archive(self) -> AsyncIterator[bytes]:
        """Yields a zip of all conversations, ordered by id. Compression runs in a thread, one page at a time."""
        writer, after = ArchiveWriter(self.line_max_bytes), ""
        while ids := await self._ids(after):
            for conversation_id in ids:
                async for chunk in self._archive_entry(writer, conversation_id):
                    yield chunk
            after = ids[-1]
        await asyncio.to_thread(writer.finish, await self._namespaces())
        yield writer.take_output()

    async def _archive_entry(self, writer: ArchiveWriter, conversation_id: str) -> AsyncIterator[bytes]:
        try:
            conversation = await self._conversation(conversation_id)
        except NotFound:  # deleted since the ids were read
            return
        writer.begin(conversation)
        async for page in self._pages(conversation):
            await asyncio.to_thread(writer.add, page)
            if writer.has_output:
                yield writer.take_output()
        writer.end()

    async def _pages(self, conversation: Conversation) -> AsyncIterator[Sequence[Message]]:
        position, remaining = 0, conversation.message_count
        while remaining > 0:
            page = (await self._page(conversation.id, position))[:remaining]
            if not page:
                raise Conflict(
                    f"messages of conversation {conversation.id!r} were deleted during the export; try again"
                )
            yield page
            position, remaining = page[-1].position + 1, remaining - len(page)

    async def _page(self, conversation_id: str, position: int) -> Sequence[Message]:
        async with self.libraries.library(self.context) as library:
            # One message less is returned if the one at this position was deleted.
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


def _json_string_body(text: str) -> bytes:
    """Returns the text as JSON without the quotation marks."""
    return msgspec.json.encode(text)[1:-1]
