"""The conversations API: list, read, rename, delete and search what was said. Its clients come from a system that had
one user; here everything is the caller's own, and a conversation of somebody else is not found."""

from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.responses import Response

from auth.context import RequestContext
from auth.principal import WRITE
from config.errors import InvalidParams
from config.numbers import clamp
from server.compat.agentkit.errors import CONVERSATION_ENVELOPE
from server.compat.agentkit.exporting import Exporter, line_max_bytes
from server.rest.errors import Unprocessable
from server.rest.operation import Operation
from server.rest.streams import stream
from server.runtime import Runtime
from sources.drafts import ConversationDraft
from sources.importers.formats.conversation_archive.shapes import (
    ConversationDetail,
    ConversationMessage,
    ConversationSummary,
    detail_shape,
    message_shape,
    summary_shape,
)
from sources.records import Conversation, Message
from sources.storage.contract import Chats, MessageSearch

LISTING_TOOLS = ("chats_search", "knowledge_search")
READING_TOOLS = ("chats_get", "knowledge_get")
SEARCHING_TOOLS = ("chats_search", "conversation_search", "knowledge_search")
# No tool writes conversations: a key that is bound to a few tools may not.
WRITING_TOOLS = ("conversations_write",)
DEFAULT_PAGE = 50
EXPORT_FORMATS = ("json", "txt", "md")
# The largest number that every client can read.
_COUNT_MAX = 2**53 - 1

Id = Annotated[str, Meta(description="id of a conversation.")]


class ListRequest(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(description="Conversations per page, moved into what is allowed.")] = DEFAULT_PAGE
    offset: Annotated[int, Meta(description="Conversations to pass over.")] = 0
    namespace: Annotated[str | None, Meta(description="Only conversations in this namespace.")] = None
    search: Annotated[str | None, Meta(description="Only those with this in their title, in any case, or id.")] = None


class DetailRequest(Struct, frozen=True, kw_only=True):
    conversation_id: Id
    messages_limit: Annotated[int | None, Meta(description="Messages to answer; default as many as allowed.")] = None
    messages_offset: Annotated[int, Meta(description="Messages to pass over; see next_messages_offset.")] = 0


class RenameRequest(Struct, frozen=True, kw_only=True):
    conversation_id: Id
    title: Annotated[str | None, Meta(description="The new title.")] = None


class DeleteRequest(Struct, frozen=True, kw_only=True):
    conversation_id: Id
    purge: Annotated[
        bool, Meta(description="Remove it from the files as well, also if it was deleted; it cannot be undone.")
    ] = False


class FindRequest(Struct, frozen=True, kw_only=True):
    query: Annotated[str, Meta(description="Text that a message holds, in any case. Empty: every message.")]
    conversation_id: Annotated[str | None, Meta(description="Only messages of this conversation.")] = None
    limit: Annotated[int, Meta(description="Messages, newest first; moved into what is allowed.")] = DEFAULT_PAGE


class ExportRequest(Struct, frozen=True, kw_only=True):
    conversation_id: Id
    format: Annotated[str, Meta(description="json, txt or md.")] = "json"


class ConversationList(Struct, frozen=True, kw_only=True):
    """`total` counts all that pass the filters; limit and offset are those that were applied."""

    conversations: tuple[ConversationSummary, ...]
    total: int
    limit: int
    offset: int


class Done(Struct, frozen=True, kw_only=True):
    success: bool = True
    conversation_id: str


class MessagesFound(Struct, frozen=True, kw_only=True):
    """`total` counts the messages of this answer; `is_complete` is false where older ones were not looked at yet."""

    messages: tuple[ConversationMessage, ...]
    total: int
    has_more: bool
    is_complete: bool


class ConversationExport(Struct, frozen=True, kw_only=True):
    """For txt and md `content` and `format`, for json the conversation."""

    content: str | UnsetType = UNSET
    format: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET
    updated_at: str | UnsetType = UNSET
    message_count: int | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET
    messages: tuple[ConversationMessage, ...] | UnsetType = UNSET


def conversation_operations(runtime: Runtime) -> list[Operation]:
    """The search stands before what takes any word in its place."""
    return [_list(runtime), _find(runtime), _read(runtime), _rename(runtime), _delete(runtime), _export(runtime)]


def conversation_operation(**given: Any) -> Operation:
    """With what the operations of this API have in common."""
    return Operation(error_format=CONVERSATION_ENVELOPE, input_error=Unprocessable, **given)


def exporter_for(runtime: Runtime, context: RequestContext) -> Exporter:
    settings = runtime.settings
    return Exporter(runtime.libraries, context, settings.chat_page_max, line_max_bytes(settings))


def _list(runtime: Runtime) -> Operation:
    async def run(context: RequestContext, given: ListRequest) -> ConversationList:
        limit = clamp(given.limit, 1, runtime.settings.conversation_page_max)
        offset = clamp(given.offset, 0, _COUNT_MAX)
        async with runtime.libraries.library(context) as library:
            page = await library.chats.list(limit, offset, namespace=given.namespace or None, search=given.search)
        rows = tuple(summary_shape(conversation) for conversation in page.rows)
        return ConversationList(conversations=rows, total=page.total, limit=limit, offset=offset)

    return conversation_operation(
        id="list_conversations",
        method="GET",
        path="/conversations",
        summary="List conversations",
        description="The user's conversations without their messages, those last changed first.",
        input=ListRequest,
        response=ConversationList,
        handler=run,
        tools=LISTING_TOOLS,
    )


def _find(runtime: Runtime) -> Operation:
    async def run(context: RequestContext, given: FindRequest) -> MessagesFound:
        limit = clamp(given.limit, 1, runtime.settings.conversation_found_max)
        search = MessageSearch(
            text=given.query or None,
            in_titles=False,
            conversation_id=given.conversation_id or None,
            limit=limit + 1,
            deadline_ms=runtime.settings.search_deadline_ms,
        )
        async with runtime.libraries.library(context) as library:
            found = await library.chats.find_messages(search)
        messages = tuple(message_shape(hit.message) for hit in found.hits[:limit])
        return MessagesFound(
            messages=messages,
            total=len(messages),
            has_more=len(found.hits) > limit,
            is_complete=found.is_complete,
        )

    return conversation_operation(
        id="search_messages",
        method="GET",
        path="/conversations/search/messages",
        summary="Search messages",
        description=(
            "Messages that hold a text as it stands, in any case, newest first. For questions in words of your own, "
            "ranked by how well they fit, use search_knowledge."
        ),
        input=FindRequest,
        response=MessagesFound,
        handler=run,
        tools=SEARCHING_TOOLS,
    )


def _read(runtime: Runtime) -> Operation:
    settings = runtime.settings

    async def run(context: RequestContext, given: DetailRequest) -> ConversationDetail:
        most = settings.conversation_messages_max
        limit = most if given.messages_limit is None else clamp(given.messages_limit, 1, most)
        offset = clamp(given.messages_offset, 0, _COUNT_MAX)
        async with runtime.libraries.library(context) as library:
            conversation = await library.chats.get(given.conversation_id)
            pages = _pages(library.chats, conversation, offset, settings.chat_page_max)
            messages = await _gather(pages, limit, settings.conversation_answer_max_bytes)
        end = offset + len(messages)
        return detail_shape(conversation, messages, end if end < conversation.message_count else UNSET)

    return conversation_operation(
        id="read_conversation",
        method="GET",
        path="/conversations/{conversation_id}",
        summary="Read a conversation",
        description=(
            "A conversation with all of its messages in their order, those beside the path too. Of a very long one the "
            "beginning, and "
            "next_messages_offset, with which the next part is asked for."
        ),
        input=DetailRequest,
        response=ConversationDetail,
        handler=run,
        tools=READING_TOOLS,
        error_statuses=frozenset((404,)),
    )


async def _pages(
    chats: Chats, conversation: Conversation, offset: int, rows: int
) -> AsyncIterator[tuple[Message, ...]]:
    page = (await chats.messages(conversation.id, rows, offset)).rows
    while page:
        yield page
        # By position, not by offset: a long conversation is not counted through again for every page.
        page = tuple(await chats.messages_around(conversation.id, page[-1].position + 1, 0, max(1, rows - 1)))


async def _gather(pages: AsyncIterator[tuple[Message, ...]], limit: int, max_bytes: int) -> tuple[Message, ...]:
    """As many as may be answered, but at least one if there is one."""
    taken: list[Message] = []
    left = max_bytes
    async for page in pages:
        for message in page:
            left -= len(message.content.encode())
            if len(taken) == limit or (left < 0 and taken):
                return tuple(taken)
            taken.append(message)
    return tuple(taken)


def _rename(runtime: Runtime) -> Operation:
    async def run(context: RequestContext, given: RenameRequest) -> Done:
        draft = ConversationDraft(title=UNSET if given.title is None else given.title)
        async with runtime.libraries.library(context) as library:
            await library.chats.update(given.conversation_id, draft)
        return Done(conversation_id=given.conversation_id)

    return conversation_operation(
        id="rename_conversation",
        method="PUT",
        path="/conversations/{conversation_id}",
        summary="Rename a conversation",
        description="Give a conversation another title. Without one it counts as changed and keeps its own.",
        input=RenameRequest,
        response=Done,
        handler=run,
        tools=WRITING_TOOLS,
        scope=WRITE,
        query=frozenset(("title",)),
        error_statuses=frozenset((404,)),
    )


def _delete(runtime: Runtime) -> Operation:
    async def run(context: RequestContext, given: DeleteRequest) -> Done:
        async with runtime.libraries.library(context) as library:
            remove = library.chats.purge if given.purge else library.chats.delete
            await remove(given.conversation_id)
        return Done(conversation_id=given.conversation_id)

    return conversation_operation(
        id="delete_conversation",
        method="DELETE",
        path="/conversations/{conversation_id}",
        summary="Delete a conversation",
        description="Delete a conversation with its messages: no list, search or tool finds them any more.",
        input=DeleteRequest,
        response=Done,
        handler=run,
        # What came in one import may go in one deletion.
        deadline_ms=round(runtime.settings.import_deadline_s * 1000),
        tools=WRITING_TOOLS,
        scope=WRITE,
        error_statuses=frozenset((404,)),
    )


def _export(runtime: Runtime) -> Operation:
    async def run(context: RequestContext, given: ExportRequest) -> Response:
        exporter = exporter_for(runtime, context)
        async with runtime.libraries.library(context) as library:
            conversation = await library.chats.get(given.conversation_id)
        match given.format:
            case "json":
                pieces = exporter.as_json(conversation)
            case "txt" | "md":
                pieces = exporter.as_transcript(conversation, given.format)
            case _:
                raise InvalidParams(f"Invalid format. Supported: {', '.join(EXPORT_FORMATS)}")
        return await stream(runtime, context, pieces, "application/json")

    return conversation_operation(
        id="export_conversation",
        method="POST",
        path="/conversations/{conversation_id}/export",
        summary="Export a conversation",
        description="A whole conversation, streamed: as JSON, or as text or Markdown in the value of content.",
        input=ExportRequest,
        response=ConversationExport,
        handler=run,
        tools=READING_TOOLS,
        query=frozenset(("format",)),
        error_statuses=frozenset((404,)),
    )
