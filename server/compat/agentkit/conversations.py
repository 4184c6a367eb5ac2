"""Lists, searches, reads, renames, deletes and exports the caller's conversations."""

from collections.abc import AsyncIterator
from typing import Any

from msgspec import UNSET
from starlette.responses import Response

from auth.context import RequestContext
from config.errors import InvalidParams, NotFound
from config.numbers import clamp
from config.settings import Settings
from server.compat.agentkit.export import ConversationExporter, line_max_bytes
from server.compat.agentkit.responses import (
    ConversationDetail,
    ConversationSummary,
    detail_response,
    message_response,
    summary_response,
)
from server.compat.agentkit.schemas import (
    ConversationChanged,
    ConversationList,
    DeleteConversationRequest,
    DownloadConversationRequest,
    ExportConversationRequest,
    ListConversationsRequest,
    MessageSearchResults,
    ReadConversationRequest,
    RenameConversationRequest,
    SearchMessagesRequest,
    UpdateConversationRequest,
)
from server.rest.streams import stream
from server.transports.open_streams import OpenStreams
from sources.drafts import ConversationDraft
from sources.items import uri_of
from sources.records import Conversation, Message
from sources.storage.contract import Chats, Libraries, MessageSearch

EXPORT_FORMATS = ("json", "txt", "md")
DOWNLOAD_TYPES = {"json": "application/json", "txt": "text/plain", "md": "text/markdown"}
# The largest integer that every JSON client reads exactly.
_COUNT_MAX = 2**53 - 1


class ConversationService:
    def __init__(self, libraries: Libraries, open_streams: OpenStreams, settings: Settings) -> None:
        self._libraries = libraries
        self._open_streams = open_streams
        self._settings = settings

    async def list(self, context: RequestContext, request: ListConversationsRequest) -> ConversationList:
        limit = clamp(request.limit, 1, self._settings.conversation_page_max)
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
        return ConversationList(conversations=conversations, total=page.total, limit=limit, offset=offset)

    async def search_messages(self, context: RequestContext, request: SearchMessagesRequest) -> MessageSearchResults:
        limit = clamp(request.limit, 1, self._settings.conversation_hits_max)
        search = MessageSearch(
            text=request.query or None,
            in_titles=False,
            conversation_id=request.conversation_id or None,
            limit=limit + 1,
            deadline_ms=self._settings.search_deadline_ms,
        )
        async with self._libraries.library(context) as library:
            results = await library.chats.find_messages(search)
        messages = tuple(message_response(hit.message) for hit in results.hits[:limit])
        for hit in results.hits[:limit]:  # whole messages are delivered
            context.record_read(uri_of("chats", hit.message.conversation_id, hit.message.id))
        return MessageSearchResults(
            messages=messages,
            total=len(messages),
            has_more=len(results.hits) > limit,
            is_complete=results.is_complete,
        )

    async def read(self, context: RequestContext, request: ReadConversationRequest) -> ConversationDetail:
        settings = self._settings
        max_messages = settings.conversation_messages_max
        limit = max_messages if request.messages_limit is None else clamp(request.messages_limit, 1, max_messages)
        offset = clamp(request.messages_offset, 0, _COUNT_MAX)
        async with self._libraries.library(context) as library:
            conversation = await library.chats.get(request.conversation_id)
            if request.message_id is not None:
                offset = await _offset_around(library.chats, conversation, request.message_id, limit)
            pages = _message_pages(library.chats, conversation, offset, settings.message_page_max)
            messages = await _take_messages(pages, limit, settings.conversation_response_max_bytes)
        context.record_read(uri_of("chats", conversation.id))
        end = offset + len(messages)
        return detail_response(conversation, messages, offset, end if end < conversation.message_count else UNSET)

    async def rename(self, context: RequestContext, request: RenameConversationRequest) -> ConversationChanged:
        draft = ConversationDraft(title=UNSET if request.title is None else request.title)
        async with self._libraries.library(context) as library:
            await library.chats.update(request.conversation_id, draft)
        return ConversationChanged(conversation_id=request.conversation_id)

    async def update(self, context: RequestContext, request: UpdateConversationRequest) -> ConversationSummary:
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

    async def delete(self, context: RequestContext, request: DeleteConversationRequest) -> ConversationChanged:
        async with self._libraries.library(context) as library:
            if request.purge:
                await library.chats.purge(request.conversation_id)
            else:
                await library.chats.delete(request.conversation_id)
        return ConversationChanged(conversation_id=request.conversation_id)

    async def export(self, context: RequestContext, request: ExportConversationRequest) -> Response:
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

    async def download(self, context: RequestContext, request: DownloadConversationRequest) -> Response:
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


async def _offset_around(chats: Chats, conversation: Conversation, message_id: str, limit: int) -> int:
    """Returns the offset of a part with a message in its middle."""
    message = await chats.get_message(message_id)
    if message.conversation_id != conversation.id:
        raise NotFound("message", message_id)
    return max(0, await chats.count_before(message_id) - limit // 2)


async def _message_pages(
    chats: Chats, conversation: Conversation, offset: int, page_size: int
) -> AsyncIterator[tuple[Message, ...]]:
    page = (await chats.messages(conversation.id, page_size, offset)).rows
    while page:
        yield page
        # By position, not by offset: an offset would be counted through again for every page.
        page = tuple(await chats.messages_around(conversation.id, page[-1].position + 1, 0, max(1, page_size - 1)))


async def _take_messages(pages: AsyncIterator[tuple[Message, ...]], limit: int, max_bytes: int) -> tuple[Message, ...]:
    """Takes messages up to both limits, but at least one if there is any."""
    messages: list[Message] = []
    remaining_bytes = max_bytes
    async for page in pages:
        for message in page:
            remaining_bytes -= len(message.content.encode())
            if len(messages) == limit or (remaining_bytes < 0 and messages):
                return tuple(messages)
            messages.append(message)
    return tuple(messages)
