"""Lists, searches, reads, renames, deletes and exports the caller's conversations."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from starlette.responses import Response

from auth.context import RequestContext
from config.errors import Conflict, InvalidParams, NotFound
from config.numbers import clamp
from config.settings import Settings
from server.compat.agentkit import schemas
from server.compat.agentkit.responses import (
    ConversationDetail,
    ConversationSummary,
    TranscriptFormat,
    detail_response,
    message_response,
    summary_response,
    transcript_heading,
    transcript_message,
)
from server.operations.operation import EVENT_STREAM
from server.rest.requests import KEEP_ALIVE, RETRY, ChangeWatch, stream
from server.transports.client_connections import OpenStreams
from sources.drafts import ConversationDraft
from sources.importers.formats.conversation_archive import reader
from sources.importers.formats.conversation_archive.archive_import import ArchiveWriter
from sources.items import uri_of
from sources.records import Conversation, Message
from sources.storage.contract import DEFAULT_NAMESPACE, Chats, Libraries, MessageSearch
from sources.storage.tables.validation import TITLE_MAX_CHARS

# -- export ------------------------------------------------------------------------------------------------------------
# Exports conversations as streams of bytes: one as JSON or as a transcript, or all of them as an archive.
#
# The library is held for one page at a time, so a slow reader keeps nothing open. The export contains what existed
# when it reached the conversation; if messages are deleted in the meantime, the stream fails instead of ending early.

# The longest JSON escape of a character, `\u0000`.
_ESCAPE_MAX_BYTES = 6
# A message's fields besides its content: attachments, citations and metadata, and short texts.
_OBJECT_FIELDS = 3
_SHORT_FIELDS = 12
# Ids are short, so that a page of them is larger than one of messages.
_IDS_PER_PAGE = 1_000


def line_max_bytes(settings: Settings) -> int:
    """Returns the length of the longest line that a message of the maximum size can produce in an archive."""
    short_chars = _SHORT_FIELDS * TITLE_MAX_CHARS
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
        yield reader.head_line(reader.archived_conversation(conversation))
        is_first = True
        async for page in self._pages(conversation):
            yield b"".join(reader.message_lines(map(reader.archived_message, page), is_first=is_first))
            is_first = False
        yield reader.end_line()

    async def as_transcript(
        self, conversation: Conversation, transcript_format: TranscriptFormat
    ) -> AsyncIterator[bytes]:
        """Yields an object with the text as its `content`."""
        yield b'{"content":"'
        async for text in self._transcript(conversation, transcript_format):
            # The text as JSON without the quotation marks.
            yield msgspec.json.encode(text)[1:-1]
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
        while True:
            async with self.libraries.library(self.context) as library:
                ids = await library.chats.ids(after, _IDS_PER_PAGE)
            if not ids:
                break
            for conversation_id in ids:
                try:
                    async with self.libraries.library(self.context) as library:
                        conversation = await library.chats.get(conversation_id)
                except NotFound:  # deleted since the ids were read
                    continue
                writer.begin(conversation)
                async for page in self._pages(conversation):
                    await asyncio.to_thread(writer.add, page)
                    if writer.has_output:
                        yield writer.take_output()
                writer.end()
            after = ids[-1]
        async with self.libraries.library(self.context) as library:
            namespaces = [namespace.name for namespace in await library.chats.namespaces()]
        await asyncio.to_thread(writer.finish, namespaces)
        yield writer.take_output()

    async def _pages(self, conversation: Conversation) -> AsyncIterator[Sequence[Message]]:
        position, remaining = 0, conversation.message_count
        while remaining > 0:
            async with self.libraries.library(self.context) as library:
                # One message less is returned if the one at this position was deleted.
                after = max(1, self.page_messages - 1)
                page = (await library.chats.messages_around(conversation.id, position, 0, after))[:remaining]
            if not page:
                raise Conflict(
                    f"messages of conversation {conversation.id!r} were deleted during the export; try again"
                )
            yield page
            position, remaining = page[-1].position + 1, remaining - len(page)


EXPORT_FORMATS = ("json", "txt", "md")
DOWNLOAD_TYPES = {"json": "application/json", "txt": "text/plain", "md": "text/markdown"}
# The largest integer that every JSON client reads exactly.
_COUNT_MAX = 2**53 - 1


class ConversationService:
    def __init__(self, libraries: Libraries, open_streams: OpenStreams, settings: Settings) -> None:
        self._libraries = libraries
        self._open_streams = open_streams
        self._settings = settings

    async def list(
        self, context: RequestContext, request: schemas.ListConversationsRequest
    ) -> schemas.ConversationList:
        limit = clamp(request.limit, 1, self._settings.message_page_max)
        offset = clamp(request.offset, 0, _COUNT_MAX)
        async with self._libraries.library(context) as library:
            page = await library.chats.list(
                limit,
                offset,
                namespace=request.namespace or None,
                search=request.search,
                is_pinned=request.pinned,
                is_archived=request.archived,
            )
        conversations = tuple(summary_response(conversation) for conversation in page.rows)
        return schemas.ConversationList(conversations=conversations, total=page.total, limit=limit, offset=offset)

    async def search_messages(
        self, context: RequestContext, request: schemas.SearchMessagesRequest
    ) -> schemas.MessageSearchResults:
        limit = clamp(request.limit, 1, self._settings.message_page_max)
        search = MessageSearch(
            text=request.query or None,
            in_titles=False,
            conversation_id=request.conversation_id or None,
            limit=limit + 1,  # one more tells whether there are more
            deadline_ms=self._settings.search_deadline_ms,
        )
        async with self._libraries.library(context) as library:
            results = await library.chats.find_messages(search)
        messages = tuple(message_response(hit.message) for hit in results.hits[:limit])
        for hit in results.hits[:limit]:  # whole messages are delivered
            context.record_read(uri_of("chats", hit.message.conversation_id, hit.message.id))
        return schemas.MessageSearchResults(
            messages=messages, total=len(messages), has_more=len(results.hits) > limit, is_complete=results.is_complete
        )

    async def read(self, context: RequestContext, request: schemas.ReadConversationRequest) -> ConversationDetail:
        settings = self._settings
        max_messages = settings.fixed.conversation_messages_max
        limit = max_messages if request.messages_limit is None else clamp(request.messages_limit, 1, max_messages)
        offset = clamp(request.messages_offset, 0, _COUNT_MAX)
        async with self._libraries.library(context) as library:
            conversation = await library.chats.get(request.conversation_id)
            if request.message_id is not None:
                # The offset of a part with a message in its middle.
                message = await library.chats.get_message(request.message_id)
                if message.conversation_id != conversation.id:
                    raise NotFound("message", request.message_id)
                offset = max(0, await library.chats.count_before(request.message_id) - limit // 2)
            messages = await _read_messages(library.chats, conversation.id, offset, limit, settings)
        context.record_read(uri_of("chats", conversation.id))
        end = offset + len(messages)
        return detail_response(conversation, messages, offset, end if end < conversation.message_count else UNSET)

    async def rename(
        self, context: RequestContext, request: schemas.RenameConversationRequest
    ) -> schemas.ConversationChanged:
        draft = ConversationDraft(title=UNSET if request.title is None else request.title)
        async with self._libraries.library(context) as library:
            await library.chats.update(request.conversation_id, draft)
        return schemas.ConversationChanged(conversation_id=request.conversation_id)

    async def update(self, context: RequestContext, request: schemas.UpdateConversationRequest) -> ConversationSummary:
        changes: dict[str, Any] = {
            "title": request.title,
            "namespace": request.namespace,
            "is_pinned": request.pinned,
            "is_archived": request.archived,
        }
        if all(value is None for value in changes.values()):
            raise InvalidParams("title, namespace, pinned, archived: expected at least one of them")
        draft = ConversationDraft(**{name: UNSET if value is None else value for name, value in changes.items()})
        async with self._libraries.library(context) as library:
            return summary_response(await library.chats.update(request.conversation_id, draft))

    async def delete(
        self, context: RequestContext, request: schemas.DeleteConversationRequest
    ) -> schemas.ConversationChanged:
        async with self._libraries.library(context) as library:
            if request.purge:
                await library.chats.purge(request.conversation_id)
            else:
                await library.chats.delete(request.conversation_id)
        return schemas.ConversationChanged(conversation_id=request.conversation_id)

    async def export(self, context: RequestContext, request: schemas.ExportConversationRequest) -> Response:
        exporter = conversation_exporter(self._libraries, context, self._settings)
        async with self._libraries.library(context) as library:
            conversation = await library.chats.get(request.conversation_id)
        match request.format:
            case "json":
                chunks = exporter.as_json(conversation)
            case "txt" | "md":
                chunks = exporter.as_transcript(conversation, request.format)
            case _:
                raise InvalidParams(f"Invalid format. Supported: {', '.join(EXPORT_FORMATS)}")
        context.record_read(uri_of("chats", conversation.id))
        return await stream(self._open_streams, context, chunks, "application/json")

    async def download(self, context: RequestContext, request: schemas.DownloadConversationRequest) -> Response:
        exporter = conversation_exporter(self._libraries, context, self._settings)
        async with self._libraries.library(context) as library:
            conversation = await library.chats.get(request.conversation_id)
        if request.format == "json":
            chunks = exporter.as_json(conversation)
        else:
            chunks = exporter.as_text(conversation, request.format)
        context.record_read(uri_of("chats", conversation.id))
        # An id needs no escaping, see `validation.uuid`.
        disposition = f'attachment; filename="conversation-{conversation.id}.{request.format}"'
        headers = {"Content-Disposition": disposition}
        return await stream(self._open_streams, context, chunks, DOWNLOAD_TYPES[request.format], headers)


def conversation_exporter(libraries: Libraries, context: RequestContext, settings: Settings) -> ConversationExporter:
    return ConversationExporter(libraries, context, settings.message_page_max, line_max_bytes(settings))


async def _read_messages(
    chats: Chats, conversation_id: str, offset: int, limit: int, settings: Settings
) -> Sequence[Message]:
    """Returns messages up to the limits of number and size, but at least one if there is any."""
    page_size, remaining_bytes = settings.message_page_max, settings.conversation_response_max_bytes
    messages: list[Message] = []
    page: Sequence[Message] = (await chats.messages(conversation_id, page_size, offset)).rows
    while page:
        for message in page:
            remaining_bytes -= len(message.content.encode())
            if len(messages) == limit or (remaining_bytes < 0 and messages):
                return messages
            messages.append(message)
        # By position, not by offset: an offset would be counted through again for every page.
        page = await chats.messages_around(conversation_id, page[-1].position + 1, 0, max(1, page_size - 1))
    return messages


# -- namespaces --------------------------------------------------------------------------------------------------------
# Lists, creates, renames and deletes the namespaces that group conversations. The default one cannot be deleted.

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class NamespaceService:
    def __init__(self, libraries: Libraries) -> None:
        self._libraries = libraries

    async def list(self, context: RequestContext, _request: schemas.ListNamespacesRequest) -> schemas.NamespaceList:
        async with self._libraries.library(context) as library:
            namespaces = await library.chats.namespaces()
        summaries = tuple(
            schemas.NamespaceSummary(
                name=namespace.name,
                conversation_count=namespace.conversations,
                is_default=namespace.name == DEFAULT_NAMESPACE,
            )
            for namespace in namespaces
        )
        return schemas.NamespaceList(namespaces=summaries, total=len(summaries))

    async def create(
        self, context: RequestContext, request: schemas.CreateNamespaceRequest
    ) -> schemas.NamespaceChanged:
        name = _valid_name("name", request.name)
        with _agentkit_wording(name):
            async with self._libraries.library(context) as library:
                await library.chats.create_namespace(name)
        return schemas.NamespaceChanged(message=f"Namespace '{name}' created successfully", namespace=name)

    async def rename(
        self, context: RequestContext, request: schemas.RenameNamespaceRequest
    ) -> schemas.NamespaceChanged:
        old_name, new_name = request.old_name, _valid_name("new_name", request.new_name)
        if old_name == DEFAULT_NAMESPACE:
            raise InvalidParams("Cannot rename the default namespace")
        with _agentkit_wording(new_name):
            async with self._libraries.library(context) as library:
                await library.chats.rename_namespace(old_name, new_name)
        message = f"Namespace '{old_name}' renamed to '{new_name}' successfully"
        return schemas.NamespaceChanged(message=message, namespace=new_name, old_name=old_name, new_name=new_name)

    async def delete(
        self, context: RequestContext, request: schemas.DeleteNamespaceRequest
    ) -> schemas.NamespaceChanged:
        name = request.namespace_name
        if name == DEFAULT_NAMESPACE:
            raise InvalidParams("Cannot delete the default namespace")
        async with self._libraries.library(context) as library:
            moved = await library.chats.delete_namespace(name)
        return schemas.NamespaceChanged(message=f"Namespace '{name}' deleted successfully", namespace=name, moved=moved)


def _valid_name(field: str, name: str) -> str:
    """Returns the name without surrounding spaces."""
    stripped = name.strip()
    if not _NAME.match(stripped):
        raise InvalidParams(f"{field}: expected 1 to 64 letters, digits, underscores or hyphens, got {name[:80]!r}")
    return stripped


@contextmanager
def _agentkit_wording(name: str) -> Iterator[None]:
    """Clients compare the message of a conflict."""
    try:
        yield
    except Conflict as error:
        raise Conflict(f"Namespace '{name}' already exists") from error


# -- changes -----------------------------------------------------------------------------------------------------------
# Tells a page that shows conversations when to request them again.


class ConversationChanges:
    def __init__(self, libraries: Libraries, open_streams: OpenStreams, settings: Settings) -> None:
        self._open_streams = open_streams
        self._watch = ChangeWatch(libraries, open_streams, settings)

    async def follow(self, context: RequestContext, request: schemas.FollowConversationsRequest) -> Response:
        return await stream(self._open_streams, context, self._events(context, request.last_event_id), EVENT_STREAM)

    async def _events(self, context: RequestContext, last_token: str | None) -> AsyncIterator[bytes]:
        is_open = False
        async for token in self._watch.tokens(context):
            if token is None:
                # Proxies close a connection on which nothing is sent.
                yield KEEP_ALIVE
            elif is_open:
                yield _event("changed", token)
            else:
                # A browser that reconnects says what it has seen. If that is no longer current, it missed a change.
                is_open = True
                yield RETRY + _event("open" if last_token in (None, token) else "changed", token)


def _event(name: str, token: str) -> bytes:
    return f"event: {name}\nid: {token}\ndata: {{}}\n\n".encode()
