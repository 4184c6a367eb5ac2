"""The conversations API of AgentKit: lists, searches, reads, changes, records, exports and imports conversations."""

# About this package: AgentKit had a single user. Here every operation works on the caller's own library only; another
# user's conversation is reported as not found. Each operation is declared at its handler: those of conversations and
# namespaces here, those of chats in the package `chat`. `schemas.py` has their inputs, results and errors.

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, Struct, structs
from starlette.responses import Response

from auth.context import WRITE, RequestContext
from config.errors import Conflict, InvalidParams, NotFound, Unavailable
from config.numbers import clamp
from config.paths import UserId
from config.settings import Settings
from server.compat.agentkit import schemas
from server.compat.agentkit.schemas import LISTING_TOOLS, READING_TOOLS, SEARCHING_TOOLS, WRITING_TOOLS
from server.import_jobs import IMPORT_DEADLINE_S
from server.operations.operation import CONFLICT, EVENT_STREAM, NOT_FOUND, NoArguments, Upload, UploadRequest, operation
from server.rest.errors import Unprocessable, rename_fields
from server.rest.forms import FormSpec
from server.rest.requests import KEEP_ALIVE, RETRY, ChangeWatch, stream
from server.runtime import Runtime
from sources.drafts import ConversationDraft, MessageDraft
from sources.importers.engine.limits import UNPACKED_TIMES
from sources.importers.formats import conversation_archive
from sources.importers.formats.archive_import import ArchiveImportResult, ArchiveWriter, import_archive
from sources.importers.formats.conversation_archive import ConversationSummary, conversation_summary
from sources.items import uri_of
from sources.records import Conversation, Message
from sources.storage.contract import DEFAULT_NAMESPACE, Chats, Libraries, MessageSearch
from sources.storage.tables.validation import TITLE_MAX_CHARS
from sources.text.chunking import title_from_messages

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
    settings: Settings

    async def as_json(self, conversation: Conversation) -> AsyncIterator[bytes]:
        """Yields the documented object, with each message on its own line. It is the same as in an archive, so that a
        conversation can be imported again with everything it had."""
        yield conversation_archive.head_line(conversation_archive.archived_conversation(conversation))
        is_first = True
        async for page in self._pages(conversation):
            yield b"".join(
                conversation_archive.message_lines(map(conversation_archive.archived_message, page), is_first=is_first)
            )
            is_first = False
        yield conversation_archive.end_line()

    async def as_transcript(
        self, conversation: Conversation, transcript_format: schemas.TranscriptFormat
    ) -> AsyncIterator[bytes]:
        """Yields an object with the text as its `content`."""
        yield b'{"content":"'
        async for text in self.as_text(conversation, transcript_format):
            # The text as JSON without the quotation marks.
            yield msgspec.json.encode(text)[1:-1]
        yield b'","format":' + msgspec.json.encode(transcript_format) + b"}"

    async def as_text(
        self, conversation: Conversation, transcript_format: schemas.TranscriptFormat
    ) -> AsyncIterator[str]:
        """Yields the text itself."""
        yield schemas.transcript_heading(conversation, transcript_format)
        async for page in self._pages(conversation):
            yield "".join(schemas.transcript_message(message, transcript_format) for message in page)

    async def as_archive(self) -> AsyncIterator[bytes]:
        """Yields a zip of all conversations, ordered by id. Compression runs in a thread, one page at a time."""
        writer, after = ArchiveWriter(line_max_bytes(self.settings)), ""
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
                after = max(1, self.settings.message_page_max - 1)
                page = (await library.chats.messages_around(conversation.id, position, 0, after))[:remaining]
            if not page:
                raise Conflict(
                    f"messages of conversation {conversation.id!r} were deleted during the export; try again"
                )
            yield page
            position, remaining = page[-1].position + 1, remaining - len(page)


# -- operations --------------------------------------------------------------------------------------------------------

ZIP = "application/zip"
DOWNLOAD_TYPES = {"json": "application/json", "txt": "text/plain", "md": "text/markdown"}
# The largest integer that every JSON client reads exactly.
_COUNT_MAX = 2**53 - 1
_IMPORT_RETRY_AFTER_S = 5.0
# Fields that have another name in storage than in this API.
_FIELD_NAMES = {"created_at": "timestamp", "tool": "tool_used", "uuid": "id"}
# How many are looked at to see whether a conversation without a title can have got one.
_FIRST_MESSAGES = 20
# AgentKit's clients send namespaces as a form; the rest of the API takes JSON.
_NAMESPACE_FORM = FormSpec(files=frozenset(), parts_max=10, accepts_json=True)
_NAMESPACE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
# A conversation can be as large as an import allows.
_IMPORT_DEADLINE_MS = round(IMPORT_DEADLINE_S * 1000)

# Users who import an archive in this process: each can run one import at a time.
_importing: set[UserId] = set()

_operation = partial(operation, source="chats", error_format=schemas.AGENTKIT_ERROR_FORMAT, input_error=Unprocessable)
_read_operation = partial(_operation, tools=READING_TOOLS, error_statuses=NOT_FOUND)
_write_operation = partial(_operation, tools=WRITING_TOOLS, scope=WRITE)
# A write with this header is executed once, however often it is sent.
_record_operation = partial(_write_operation, status=201, headers={"idempotency_key": "Idempotency-Key"})


@_operation("GET /conversations", "List conversations", tools=LISTING_TOOLS)
async def list_conversations(
    context: RequestContext, services: Runtime, request: schemas.ListConversationsRequest
) -> schemas.ConversationList:
    """The user's conversations without their messages, most recently changed first."""
    limit = clamp(request.limit, 1, services.settings.message_page_max)
    offset = clamp(request.offset, 0, _COUNT_MAX)
    async with services.libraries.library(context) as library:
        page = await library.chats.list(
            limit,
            offset,
            namespace=request.namespace or None,
            search=request.search,
            is_pinned=request.pinned,
            is_archived=request.archived,
        )
    conversations = tuple(map(conversation_summary, page.rows))
    return schemas.ConversationList(conversations=conversations, total=page.total, limit=limit, offset=offset)


@_operation("GET /conversations/search/messages", "Search messages", tools=SEARCHING_TOOLS)
async def search_messages(
    context: RequestContext, services: Runtime, request: schemas.SearchMessagesRequest
) -> schemas.MessageSearchResults:
    """Messages that contain a text, ignoring case, newest first. To rank messages by relevance, use
    search_knowledge."""
    limit = clamp(request.limit, 1, services.settings.message_page_max)
    search = MessageSearch(
        text=request.query or None,
        in_titles=False,
        conversation_id=request.conversation_id or None,
        limit=limit + 1,  # one more tells whether there are more
        deadline_ms=services.settings.search_deadline_ms,
    )
    async with services.libraries.library(context) as library:
        results = await library.chats.find_messages(search)
    messages = tuple(schemas.message_response(hit.message) for hit in results.hits[:limit])
    for message in messages:  # whole messages are delivered
        context.record_read(uri_of("chats", message.conversation_id, message.id))
    return schemas.MessageSearchResults(
        messages=messages, total=len(messages), has_more=len(results.hits) > limit, is_complete=results.is_complete
    )


@_read_operation("GET /conversations/{conversation_id}", "Read a conversation")
async def read_conversation(
    context: RequestContext, services: Runtime, request: schemas.ReadConversationRequest
) -> schemas.ConversationDetail:
    """A conversation with all of its messages in order, including alternate branches. For a very long conversation,
    the first messages and next_messages_offset, which requests the next part."""
    settings = services.settings
    max_messages = settings.fixed.conversation_messages_max
    limit = max_messages if request.messages_limit is None else clamp(request.messages_limit, 1, max_messages)
    offset = clamp(request.messages_offset, 0, _COUNT_MAX)
    async with services.libraries.library(context) as library:
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
    return schemas.ConversationDetail(
        **structs.asdict(conversation_summary(conversation)),
        messages=tuple(map(schemas.message_response, messages)),
        messages_offset=offset or UNSET,
        next_messages_offset=end if end < conversation.message_count else UNSET,
    )


@_read_operation(
    "POST /conversations/{conversation_id}/export",
    "Export a conversation",
    response=schemas.ConversationExport,
    query=frozenset(("format",)),
)
async def export_conversation(
    context: RequestContext, services: Runtime, request: schemas.ExportConversationRequest
) -> Response:
    """Streams a whole conversation: as JSON, or as text or Markdown in the field content."""
    exporter, conversation = await _exporter(context, services, request.conversation_id)
    match request.format:
        case "json":
            chunks = exporter.as_json(conversation)
        case "txt" | "md":
            chunks = exporter.as_transcript(conversation, request.format)
        case _:
            raise InvalidParams("Invalid format. Supported: json, txt, md")
    context.record_read(uri_of("chats", conversation.id))
    return await stream(services.open_streams, context, chunks, "application/json")


@_read_operation(
    "GET /conversations/{conversation_id}/download",
    "Download a conversation",
    response=tuple(DOWNLOAD_TYPES.values()),
)
async def download_conversation(
    context: RequestContext, services: Runtime, request: schemas.DownloadConversationRequest
) -> Response:
    """A whole conversation as a file, which browsers save as conversation-{id}.json, .txt or .md."""
    exporter, conversation = await _exporter(context, services, request.conversation_id)
    if request.format == "json":
        chunks = exporter.as_json(conversation)
    else:
        chunks = (text.encode() async for text in exporter.as_text(conversation, request.format))
    context.record_read(uri_of("chats", conversation.id))
    # An id needs no escaping, see `validation.uuid`.
    disposition = f'attachment; filename="conversation-{conversation.id}.{request.format}"'
    headers = {"Content-Disposition": disposition}
    return await stream(services.open_streams, context, chunks, DOWNLOAD_TYPES[request.format], headers)


@_operation(
    "GET /api/v1/conversations/events",
    "Follow the conversations",
    tools=LISTING_TOOLS,
    response=EVENT_STREAM,
    headers={"last_event_id": "Last-Event-ID"},
)
async def follow_conversations(
    context: RequestContext, services: Runtime, request: schemas.FollowConversationsRequest
) -> Response:
    """Server-sent events: `open` at once, and `changed` whenever a conversation or message may have changed. The
    events say no more: request again what you show. The stream ends after conversation_events_max_s; browsers
    reconnect."""

    async def events() -> AsyncIterator[bytes]:
        is_open = False
        watch = ChangeWatch(services.libraries, services.open_streams, services.settings)
        async for token in watch.tokens(context):
            if token is None:
                # Proxies close a connection on which nothing is sent.
                yield KEEP_ALIVE
                continue
            # A browser that reconnects says what it has seen. If that is no longer current, it missed a change.
            is_new = not is_open and request.last_event_id in (None, token)
            event = f"event: {'open' if is_new else 'changed'}\nid: {token}\ndata: {{}}\n\n".encode()
            yield event if is_open else RETRY + event
            is_open = True

    return await stream(services.open_streams, context, events(), EVENT_STREAM)


@_write_operation("PATCH /conversations/{conversation_id}", "Update a conversation", error_statuses=NOT_FOUND)
async def update_conversation(
    context: RequestContext, services: Runtime, request: schemas.UpdateConversationRequest
) -> ConversationSummary:
    """Renames a conversation, moves it to a namespace, pins or archives it. Pinning and archiving do not change its
    modification time. Searches find archived conversations too."""
    changes: dict[str, Any] = {
        "title": request.title,
        "namespace": request.namespace,
        "is_pinned": request.pinned,
        "is_archived": request.archived,
    }
    if all(value is None for value in changes.values()):
        raise InvalidParams("title, namespace, pinned, archived: expected at least one of them")
    draft = ConversationDraft(**{name: UNSET if value is None else value for name, value in changes.items()})
    async with services.libraries.library(context) as library:
        return conversation_summary(await library.chats.update(request.conversation_id, draft))


@_write_operation(
    "PUT /conversations/{conversation_id}",
    "Rename a conversation",
    query=frozenset(("title",)),
    error_statuses=NOT_FOUND,
)
async def rename_conversation(
    context: RequestContext, services: Runtime, request: schemas.RenameConversationRequest
) -> schemas.ConversationChanged:
    """Sets a conversation's title. Without a title, only its modification time changes."""
    draft = ConversationDraft(title=UNSET if request.title is None else request.title)
    async with services.libraries.library(context) as library:
        await library.chats.update(request.conversation_id, draft)
    return schemas.ConversationChanged(conversation_id=request.conversation_id)


@_write_operation(
    "DELETE /conversations/{conversation_id}",
    "Delete a conversation",
    deadline_ms=_IMPORT_DEADLINE_MS,
    error_statuses=NOT_FOUND,
)
async def delete_conversation(
    context: RequestContext, services: Runtime, request: schemas.DeleteConversationRequest
) -> schemas.ConversationChanged:
    """Deletes a conversation and its messages: they no longer appear in any list, search or tool."""
    async with services.libraries.library(context) as library:
        await (library.chats.purge if request.purge else library.chats.delete)(request.conversation_id)
    return schemas.ConversationChanged(conversation_id=request.conversation_id)


@_record_operation("POST /conversations", "Create a conversation", error_statuses=CONFLICT)
async def create_conversation(
    context: RequestContext, services: Runtime, request: schemas.CreateConversationRequest
) -> ConversationSummary:
    """Stores a new conversation with the messages it has so far. More can be added later."""
    if request.id is not None:
        conversation_archive.require_allowed_id(request.id)
    messages = [_message_draft(message) for message in request.messages]
    draft = ConversationDraft(
        title=title_from_messages(messages) if request.title is None else request.title,
        namespace=request.namespace or UNSET,
        session_id=request.session_id or UNSET,
        metadata=request.metadata,
        uuid=request.id or UNSET,
    )
    with rename_fields(_FIELD_NAMES):
        async with services.libraries.library(context) as library:
            conversation = await library.chats.create(draft, messages, idempotency_key=request.idempotency_key)
    return conversation_summary(conversation)


@_record_operation(
    "POST /conversations/{conversation_id}/messages", "Add a message", error_statuses=NOT_FOUND | CONFLICT
)
async def add_message(
    context: RequestContext, services: Runtime, request: schemas.AddMessageRequest
) -> schemas.ConversationMessage:
    """Appends a message to a conversation. If it has no title, the first message that is not human-only becomes its
    title."""
    [message] = await _append(context, services, request.conversation_id, [request], request.idempotency_key)
    return message


@_record_operation(
    "POST /conversations/{conversation_id}/messages/bulk", "Add many messages", error_statuses=NOT_FOUND | CONFLICT
)
async def add_messages(
    context: RequestContext, services: Runtime, request: schemas.AddMessagesRequest
) -> schemas.AddedMessages:
    """Appends messages to a conversation: all of them or none."""
    key = request.idempotency_key
    messages = await _append(context, services, request.conversation_id, request.messages, key)
    return schemas.AddedMessages(messages=messages, total=len(messages))


@_operation("GET /conversations/export", "Export all conversations", tools=LISTING_TOOLS, response=ZIP)
async def export_conversations(
    context: RequestContext, services: Runtime, request: schemas.ExportArchiveRequest
) -> Response:
    """Streams all of the user's conversations as a zip: one JSON file each, and a manifest. Unchanged conversations
    produce the same bytes."""
    if request.format != "json":
        raise InvalidParams("Invalid format. Supported: json")
    context.record_read("chats://")  # all conversations
    headers = {"Content-Disposition": 'attachment; filename="conversations.zip"'}
    exporter = ConversationExporter(services.libraries, context, services.settings)
    return await stream(services.open_streams, context, exporter.as_archive(), ZIP, headers)


@_write_operation(
    "POST /conversations/import",
    "Import conversations",
    input=NoArguments,
    deadline_ms=_IMPORT_DEADLINE_MS,
    make_fields=lambda services: {"upload": Upload(ZIP, services.settings.import_max_bytes)},
)
async def import_conversations(
    context: RequestContext, services: Runtime, uploaded: UploadRequest
) -> ArchiveImportResult:
    """Imports an archive from export_conversations, of this or another server. Existing conversations are not
    changed; repeating an interrupted import completes it."""
    if context.user_id in _importing:
        raise Unavailable("another import of this user is running", _IMPORT_RETRY_AFTER_S)
    _importing.add(context.user_id)
    try:
        settings = services.settings
        limits = conversation_archive.ArchiveLimits(
            max_files=settings.fixed.import_max_conversations + 1,  # the manifest is a file too
            unpacked_max_bytes=UNPACKED_TIMES * settings.import_max_bytes,
            line_max_bytes=line_max_bytes(settings),
            whole_file_max_bytes=settings.fixed.import_file_max_bytes,
        )
        page_messages = min(settings.message_page_max, settings.batch_max_items)
        archive = conversation_archive.ArchiveReader(uploaded.file, limits, page_messages)
        async with services.libraries.library(context) as library:
            return await import_archive(library.chats, archive, settings.fixed.import_problems_max)
    finally:
        _importing.discard(context.user_id)


async def _exporter(
    context: RequestContext, services: Runtime, conversation_id: str
) -> tuple[ConversationExporter, Conversation]:
    async with services.libraries.library(context) as library:
        conversation = await library.chats.get(conversation_id)
    return ConversationExporter(services.libraries, context, services.settings), conversation


async def _append(
    context: RequestContext,
    services: Runtime,
    conversation_id: str,
    messages: Sequence[schemas.RecordedMessage],
    idempotency_key: str | None,
) -> tuple[schemas.ConversationMessage, ...]:
    async with services.libraries.library(context) as library:
        chats = library.chats
        conversation = await chats.get(conversation_id)
        drafts = [_message_draft(message) for message in messages]
        needs_title = not conversation.title
        if needs_title:
            # Only if no message has been written yet from which a title can be made. Looks at the first ones only.
            first_messages = (await chats.messages(conversation_id, _FIRST_MESSAGES, 0)).rows
            needs_title = all(message.is_human_only for message in first_messages)
        with rename_fields(_FIELD_NAMES):
            stored = await chats.append(conversation_id, drafts, idempotency_key=idempotency_key)
        if needs_title and (title := title_from_messages(drafts)):
            with suppress(Conflict):  # another request has set a title meanwhile
                await chats.update(conversation_id, ConversationDraft(title=title), conversation.version)
    return tuple(map(schemas.message_response, stored))


# -- namespaces: they group conversations, and the default one cannot be deleted --


@_operation("GET /namespaces", "List namespaces", tools=LISTING_TOOLS)
async def list_namespaces(context: RequestContext, services: Runtime, _request: NoArguments) -> schemas.NamespaceList:
    """All namespaces by name, each with the number of its conversations."""
    async with services.libraries.library(context) as library:
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


@_write_operation("POST /namespaces", "Create a namespace", form=_NAMESPACE_FORM, error_statuses=CONFLICT)
async def create_namespace(
    context: RequestContext, services: Runtime, request: schemas.CreateNamespaceRequest
) -> schemas.NamespaceChanged:
    """Creates an empty namespace. A conversation in a new namespace creates it as well."""
    name = _valid_name("name", request.name)
    with _agentkit_wording(name):
        async with services.libraries.library(context) as library:
            await library.chats.create_namespace(name)
    return schemas.NamespaceChanged(message=f"Namespace '{name}' created successfully", namespace=name)


@_write_operation(
    "PUT /namespaces/{old_name}/rename", "Rename a namespace", form=_NAMESPACE_FORM, error_statuses=NOT_FOUND | CONFLICT
)
async def rename_namespace(
    context: RequestContext, services: Runtime, request: schemas.RenameNamespaceRequest
) -> schemas.NamespaceChanged:
    """Renames a namespace; its conversations stay in it."""
    old_name, new_name = request.old_name, _valid_name("new_name", request.new_name)
    if old_name == DEFAULT_NAMESPACE:
        raise InvalidParams("Cannot rename the default namespace")
    with _agentkit_wording(new_name):
        async with services.libraries.library(context) as library:
            await library.chats.rename_namespace(old_name, new_name)
    message = f"Namespace '{old_name}' renamed to '{new_name}' successfully"
    return schemas.NamespaceChanged(message=message, namespace=new_name, old_name=old_name, new_name=new_name)


@_write_operation("DELETE /namespaces/{namespace_name}", "Delete a namespace", error_statuses=NOT_FOUND)
async def delete_namespace(
    context: RequestContext, services: Runtime, request: schemas.DeleteNamespaceRequest
) -> schemas.NamespaceChanged:
    """Deletes a namespace. Its conversations are moved to the default namespace."""
    name = request.namespace_name
    if name == DEFAULT_NAMESPACE:
        raise InvalidParams("Cannot delete the default namespace")
    async with services.libraries.library(context) as library:
        moved = await library.chats.delete_namespace(name)
    return schemas.NamespaceChanged(message=f"Namespace '{name}' deleted successfully", namespace=name, moved=moved)


async def _read_messages(
    chats: Chats, conversation_id: str, offset: int, limit: int, settings: Settings
) -> Sequence[Message]:
    """Returns messages up to the limits of number and size, but at least one if there is any."""
    page_size, remaining_bytes = settings.message_page_max, settings.fixed.conversation_response_max_bytes
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


def _message_draft(message: schemas.RecordedMessage) -> MessageDraft:
    return MessageDraft(
        role=message.role,
        sender=message.sender or UNSET,
        content=message.content,
        model=message.model,
        tool=message.tool_used,
        attachments=message.attachments,
        citations=message.citations,
        metadata=message.metadata,
        created_at=message.timestamp or UNSET,
        uuid=message.id or UNSET,
    )


def _valid_name(field: str, name: str) -> str:
    """Returns the name without surrounding spaces."""
    stripped = name.strip()
    if not _NAMESPACE_NAME.match(stripped):
        raise InvalidParams(f"{field}: expected 1 to 64 letters, digits, underscores or hyphens, got {name[:80]!r}")
    return stripped


@contextmanager
def _agentkit_wording(name: str) -> Iterator[None]:
    """Clients compare the message of a conflict."""
    try:
        yield
    except Conflict as error:
        raise Conflict(f"Namespace '{name}' already exists") from error
