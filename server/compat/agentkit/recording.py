"""Stores conversations that a client sends: creates them and appends messages, one or many at a time.

A write with an `Idempotency-Key` is executed once, however often it is sent.
"""

from collections.abc import Sequence
from contextlib import suppress

from msgspec import UNSET, Struct
from starlette.responses import Response

from aggregator.retrieval import Retriever
from aggregator.search import Aggregator
from auth.context import RequestContext
from config.errors import Conflict, InvalidParams, Unavailable
from config.paths import UserId
from config.settings import Settings
from server.compat.agentkit import schemas
from server.compat.agentkit.chat.passages import PassageFinder
from server.compat.agentkit.chat.relay import Upstream
from server.compat.agentkit.chat.routes import CompletionService
from server.compat.agentkit.chat.service import ChatService
from server.compat.agentkit.conversations import (
    ConversationChanges,
    ConversationService,
    NamespaceService,
    conversation_exporter,
    line_max_bytes,
)
from server.compat.agentkit.responses import (
    ConversationMessage,
    ConversationSummary,
    message_response,
    summary_response,
)
from server.compat.agentkit.schemas import ExportArchiveRequest
from server.operations.operation import UploadRequest
from server.rest.errors import rename_fields
from server.rest.requests import stream
from server.transports.client_connections import OpenStreams
from sources.drafts import ConversationDraft, MessageDraft
from sources.importers.engine.limits import UNPACKED_TIMES
from sources.importers.formats.conversation_archive.archive_import import ArchiveImportResult, import_archive
from sources.importers.formats.conversation_archive.reader import ArchiveLimits, ArchiveReader, require_allowed_id
from sources.records import Message
from sources.storage.contract import Chats, Libraries
from sources.text.chunking import title_from_messages

# -- archives ----------------------------------------------------------------------------------------------------------
# Exports all conversations of a user as a zip archive, and imports such an archive.

ZIP = "application/zip"
_DISPOSITION = {"Content-Disposition": 'attachment; filename="conversations.zip"'}
_RETRY_AFTER_S = 5.0


class ArchiveService:
    """Each user can run one import at a time."""

    def __init__(self, libraries: Libraries, open_streams: OpenStreams, settings: Settings) -> None:
        self._libraries = libraries
        self._open_streams = open_streams
        self._settings = settings
        self._importing: set[UserId] = set()

    async def export_all(self, context: RequestContext, request: ExportArchiveRequest) -> Response:
        if request.format != "json":
            raise InvalidParams("Invalid format. Supported: json")
        exporter = conversation_exporter(self._libraries, context, self._settings)
        context.record_read("chats://")  # all conversations
        return await stream(self._open_streams, context, exporter.as_archive(), ZIP, _DISPOSITION)

    async def import_all(self, context: RequestContext, uploaded: UploadRequest) -> ArchiveImportResult:
        if context.user_id in self._importing:
            raise Unavailable("another import of this user is running", _RETRY_AFTER_S)
        self._importing.add(context.user_id)
        try:
            settings = self._settings
            limits = ArchiveLimits(
                max_files=settings.import_max_conversations + 1,  # the manifest is a file too
                unpacked_max_bytes=UNPACKED_TIMES * settings.import_max_bytes,
                line_max_bytes=line_max_bytes(settings),
                whole_file_max_bytes=settings.fixed.import_file_max_bytes,
            )
            page_messages = min(settings.message_page_max, settings.batch_max_items)
            reader = ArchiveReader(uploaded.file, limits, page_messages)
            async with self._libraries.library(context) as library:
                return await import_archive(library.chats, reader, settings.fixed.import_problems_max)
        finally:
            self._importing.discard(context.user_id)


# Fields that have another name in storage than in this API.
_FIELD_NAMES = {"created_at": "timestamp", "tool": "tool_used", "uuid": "id"}
# How many are looked at to see whether a conversation without a title can have got one.
_FIRST_MESSAGES = 20


class RecordingService:
    def __init__(self, libraries: Libraries) -> None:
        self._libraries = libraries

    async def create(self, context: RequestContext, request: schemas.CreateConversationRequest) -> ConversationSummary:
        if request.id is not None:
            require_allowed_id(request.id)
        messages = [_message_draft(message) for message in request.messages]
        draft = ConversationDraft(
            title=title_from_messages(messages) if request.title is None else request.title,
            namespace=request.namespace or UNSET,
            session_id=request.session_id or UNSET,
            metadata=request.metadata,
            uuid=request.id or UNSET,
        )
        with rename_fields(_FIELD_NAMES):
            async with self._libraries.library(context) as library:
                conversation = await library.chats.create(draft, messages, idempotency_key=request.idempotency_key)
        return summary_response(conversation)

    async def add_message(self, context: RequestContext, request: schemas.AddMessageRequest) -> ConversationMessage:
        async with self._libraries.library(context) as library:
            [message] = await _append(library.chats, request.conversation_id, [request], request.idempotency_key)
        return message_response(message)

    async def add_messages(self, context: RequestContext, request: schemas.AddMessagesRequest) -> schemas.AddedMessages:
        async with self._libraries.library(context) as library:
            messages = await _append(library.chats, request.conversation_id, request.messages, request.idempotency_key)
        return schemas.AddedMessages(messages=tuple(map(message_response, messages)), total=len(messages))


async def _append(
    chats: Chats, conversation_id: str, messages: Sequence[schemas.RecordedMessage], idempotency_key: str | None
) -> Sequence[Message]:
    conversation = await chats.get(conversation_id)
    drafts = [_message_draft(message) for message in messages]
    needs_title = not conversation.title
    if needs_title:
        # Only if no message has been written yet from which a title can be made. Looks at the first messages only.
        first_messages = (await chats.messages(conversation_id, _FIRST_MESSAGES, 0)).rows
        needs_title = all(message.is_human_only for message in first_messages)
    with rename_fields(_FIELD_NAMES):
        stored = await chats.append(conversation_id, drafts, idempotency_key=idempotency_key)
    if needs_title and (title := title_from_messages(drafts)):
        with suppress(Conflict):  # another request has set a title meanwhile
            await chats.update(conversation_id, ConversationDraft(title=title), conversation.version)
    return stored


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


# -- services ----------------------------------------------------------------------------------------------------------
# Constructs the services behind AgentKit's API; `server.lifespan` calls this once.


class AgentKit(Struct, frozen=True, kw_only=True):
    conversations: ConversationService
    changes: ConversationChanges
    recording: RecordingService
    archives: ArchiveService
    namespaces: NamespaceService
    passages: PassageFinder
    chat: ChatService
    completions: CompletionService


def build_agentkit(
    settings: Settings, libraries: Libraries, aggregator: Aggregator, retriever: Retriever, open_streams: OpenStreams
) -> AgentKit:
    passages, upstream = PassageFinder(libraries, aggregator, retriever, settings), Upstream.from_settings(settings)
    return AgentKit(
        conversations=ConversationService(libraries, open_streams, settings),
        changes=ConversationChanges(libraries, open_streams, settings),
        recording=RecordingService(libraries),
        archives=ArchiveService(libraries, open_streams, settings),
        namespaces=NamespaceService(libraries),
        passages=passages,
        chat=ChatService(libraries, passages, upstream, settings),
        completions=CompletionService(libraries, open_streams, passages, upstream, settings),
    )
