"""Inputs, results and errors of the conversations API, except chat."""

from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from config.errors import FlorilegiumError, NotFound
from config.logging import current_request_id
from config.times import extend_to_microseconds, format_time_microseconds
from server.error_responses import ErrorFormat, FieldError, field_errors, retry_after
from server.rest.errors import Unprocessable
from sources.importers.formats.conversation_archive import ArchivedMessage, ConversationSummary, archived_message
from sources.records import Conversation, Message, Role

# An operation is permitted to a key with a profile if the profile has one of these tools, which return the same.
LISTING_TOOLS = ("chats_search", "knowledge_search")
READING_TOOLS = ("chats_get", "knowledge_get")
SEARCHING_TOOLS = ("chats_search", "conversation_search", "knowledge_search")
# No MCP tool writes conversations, so a key that is restricted to a profile may not.
WRITING_TOOLS = ("conversations_write",)

DEFAULT_PAGE = 50

ConversationId = Annotated[str, Meta(description="Id of a conversation.")]
JsonObjects = tuple[Mapping[str, Any], ...]
IdempotencyKey = Annotated[
    str | None, Meta(description="Identifies this write: a retry with the same key writes nothing.")
]
NamespaceName = Annotated[str, Meta(description="Name of a namespace.")]
NewNamespaceName = Annotated[str, Meta(description="1 to 64 letters, digits, underscores or hyphens.")]


class ConversationMessage(ArchivedMessage, frozen=True, kw_only=True):
    """A message. `tool_used` is the tool that produced an answer, if known. `is_canonical` is false on alternate
    branches, such as a regenerated answer and what followed it. `parent_id` is the message that this one answers, if
    known. `metadata` can mark the message as human-only, so keep it when you copy a message. `seq` is its number on the
    message bus."""

    seq: int | UnsetType = UNSET


class ConversationDetail(ConversationSummary, frozen=True, kw_only=True):
    """A conversation with its messages in order, including alternate branches."""

    messages: tuple[ConversationMessage, ...]
    messages_offset: Annotated[
        int | UnsetType, Meta(description="Present only if there are messages before the first one: their number.")
    ] = UNSET
    next_messages_offset: Annotated[
        int | UnsetType, Meta(description="Present only if more messages follow: pass it as messages_offset.")
    ] = UNSET


def message_response(message: Message) -> ConversationMessage:
    return ConversationMessage(**structs.asdict(archived_message(message)), seq=message.number)


class ListConversationsRequest(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(description="Conversations per page, clamped to the allowed range.")] = DEFAULT_PAGE
    offset: Annotated[int, Meta(description="Conversations to skip.")] = 0
    namespace: Annotated[str | None, Meta(description="Only conversations in this namespace.")] = None
    search: Annotated[
        str | None, Meta(description="Only conversations whose title (ignoring case) or id contains this.")
    ] = None
    pinned: Annotated[bool | None, Meta(description="true: only pinned ones; false: only the others.")] = None
    archived: Annotated[bool | None, Meta(description="true: only archived ones; false: only the others.")] = None


class ReadConversationRequest(Struct, frozen=True, kw_only=True):
    conversation_id: ConversationId
    messages_limit: Annotated[int | None, Meta(description="Messages to return; default: as many as allowed.")] = None
    messages_offset: Annotated[int, Meta(description="Messages to skip; see next_messages_offset.")] = 0
    message_id: Annotated[
        str | None, Meta(description="Id of a message: the part of the conversation around it, instead of an offset.")
    ] = None


class RenameConversationRequest(Struct, frozen=True, kw_only=True):
    conversation_id: ConversationId
    title: Annotated[str | None, Meta(description="The new title.")] = None


class UpdateConversationRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    conversation_id: ConversationId
    title: Annotated[str | None, Meta(description="The new title.")] = None
    namespace: Annotated[str | None, Meta(description="The namespace to move it to.")] = None
    pinned: Annotated[bool | None, Meta(description="Whether it is kept at the top of the list.")] = None
    archived: Annotated[bool | None, Meta(description="Whether the list of people leaves it out.")] = None


class DownloadConversationRequest(Struct, frozen=True, kw_only=True):
    conversation_id: ConversationId
    format: Annotated[Literal["json", "txt", "md"], Meta(description="The format of the file.")] = "json"


class FollowConversationsRequest(Struct, frozen=True, kw_only=True):
    last_event_id: Annotated[
        str | None, Meta(description="The id of the last event that was received, which browsers send.")
    ] = None


class DeleteConversationRequest(Struct, frozen=True, kw_only=True):
    conversation_id: ConversationId
    purge: Annotated[
        bool, Meta(description="Also remove it from disk, even if it is already deleted. This cannot be undone.")
    ] = False


class SearchMessagesRequest(Struct, frozen=True, kw_only=True):
    query: Annotated[str, Meta(description="Text that a message contains, ignoring case. Empty: every message.")]
    conversation_id: Annotated[str | None, Meta(description="Only messages of this conversation.")] = None
    limit: Annotated[int, Meta(description="Messages to return, clamped to the allowed range.")] = DEFAULT_PAGE


class ExportConversationRequest(Struct, frozen=True, kw_only=True):
    conversation_id: ConversationId
    format: Annotated[str, Meta(description="json, txt or md.")] = "json"


class ConversationList(Struct, frozen=True, kw_only=True):
    """`total` counts all conversations that pass the filters; limit and offset are those that were applied."""

    conversations: tuple[ConversationSummary, ...]
    total: int
    limit: int
    offset: int


class ConversationChanged(Struct, frozen=True, kw_only=True):
    success: bool = True
    conversation_id: str


class MessageSearchResults(Struct, frozen=True, kw_only=True):
    """`total` counts the messages in this response; `is_complete` is false if older ones were not searched yet."""

    messages: tuple[ConversationMessage, ...]
    total: int
    has_more: bool
    is_complete: bool


class ConversationExport(Struct, frozen=True, kw_only=True):
    """`content` and `format` for txt and md; the fields of the conversation for json."""

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
    tags: tuple[str, ...] | UnsetType = UNSET
    messages: tuple[ConversationMessage, ...] | UnsetType = UNSET


class RecordedMessage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to store."""

    role: Annotated[Role, Meta(description="The author's role.")]
    sender: Annotated[str | None, Meta(description="The author's name; default: the role.")] = None
    content: Annotated[str, Meta(description="The text of the message.")]
    model: Annotated[str | None, Meta(description="The model that wrote it.")] = None
    tool_used: Annotated[str | None, Meta(description="The tool that it came from.")] = None
    attachments: Annotated[JsonObjects, Meta(description="Objects that describe files.")] = ()
    citations: Annotated[JsonObjects, Meta(description="Objects that describe sources.")] = ()
    metadata: Annotated[Mapping[str, Any], Meta(description="Any other data, as an object.")] = {}
    timestamp: Annotated[str | None, Meta(description="When it was written, ISO 8601; default: now.")] = None
    id: Annotated[str | None, Meta(description="An id of your choice; default: a new one.")] = None


class AddMessageRequest(RecordedMessage, frozen=True, kw_only=True, forbid_unknown_fields=True):
    conversation_id: ConversationId
    idempotency_key: IdempotencyKey = None


class AddMessagesRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    conversation_id: ConversationId
    messages: Annotated[tuple[RecordedMessage, ...], Meta(description="The messages in order.")]
    idempotency_key: IdempotencyKey = None


class CreateConversationRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    session_id: Annotated[
        str | None, Meta(description="The client's session. No two conversations can have the same one.")
    ] = None
    title: Annotated[
        str | None, Meta(description="Default: the beginning of the first message that is not human-only.")
    ] = None
    namespace: Annotated[str | None, Meta(description="Default: `default`.")] = None
    metadata: Annotated[Mapping[str, Any], Meta(description="Any other data, as an object.")] = {}
    messages: Annotated[tuple[RecordedMessage, ...], Meta(description="The messages so far.")] = ()
    id: Annotated[str | None, Meta(description="An id of your choice; default: a new one.")] = None
    idempotency_key: IdempotencyKey = None


class AddedMessages(Struct, frozen=True, kw_only=True):
    messages: tuple[ConversationMessage, ...]
    total: int


class ExportArchiveRequest(Struct, frozen=True, kw_only=True):
    format: Annotated[str, Meta(description="json: the format of the files in the zip.")] = "json"


class DeleteNamespaceRequest(Struct, frozen=True, kw_only=True):
    namespace_name: NamespaceName


class CreateNamespaceRequest(Struct, frozen=True, kw_only=True):
    name: NewNamespaceName


class RenameNamespaceRequest(Struct, frozen=True, kw_only=True):
    old_name: NamespaceName
    new_name: NewNamespaceName


class NamespaceSummary(Struct, frozen=True, kw_only=True):
    """`document_count` is always 0: only conversations have namespaces here."""

    name: str
    document_count: int = 0
    conversation_count: int
    is_default: bool


class NamespaceList(Struct, frozen=True, kw_only=True):
    namespaces: tuple[NamespaceSummary, ...]
    total: int


class NamespaceChanged(Struct, frozen=True, kw_only=True):
    """`old_name` and `new_name` are set for a renamed namespace. `moved` is the number of conversations that were moved
    to the default namespace."""

    status: str = "success"
    message: str
    namespace: str
    old_name: str | UnsetType = UNSET
    new_name: str | UnsetType = UNSET
    moved: int | UnsetType = UNSET


# -- errors ------------------------------------------------------------------------------------------------------------
# Error responses of the conversations API: AgentKit's envelope, plus `detail` for clients that expect FastAPI's.
#
# Messages are our own sentences, except where clients may compare them ("Conversation not found"; those of namespaces
# are in `namespaces`).

# AgentKit's codes. Other statuses have the name of the status.
_CODES = {
    400: "VALIDATION_ERROR",
    422: "VALIDATION_ERROR",
    404: "NOT_FOUND",
    409: "CONFLICT",
    413: "FILE_TOO_LARGE",
    415: "UNSUPPORTED_FORMAT",
    429: "RATE_LIMIT_EXCEEDED",
    500: "INTERNAL_ERROR",
}
_NOT_FOUND = {"conversation": "Conversation not found", "namespace": "Namespace '{identity}' not found"}


class AgentKitErrorDetails(Struct, frozen=True):
    status_code: int
    path: str


class AgentKitError(Struct, frozen=True):
    """`retry_after` is in seconds; null if a retry does not help."""

    code: str
    message: str
    details: AgentKitErrorDetails
    timestamp: str
    retry_after: int | None


class AgentKitErrorBody(Struct, frozen=True, kw_only=True):
    """The body of an error response. `detail` is a list if the input is invalid (422)."""

    success: bool = False
    error: AgentKitError
    request_id: str
    detail: str | tuple[FieldError, ...]


def _error_body(error: FlorilegiumError, path: str) -> Mapping[str, Any]:
    message = error.message
    if isinstance(error, NotFound) and error.kind in _NOT_FOUND:
        message = _NOT_FOUND[error.kind].format(identity=error.identity)
    body = AgentKitErrorBody(
        error=AgentKitError(
            code=_CODES.get(error.status) or HTTPStatus(error.status).name,
            message=message,
            details=AgentKitErrorDetails(error.status, path),
            timestamp=format_time_microseconds(datetime.now(UTC)),
            retry_after=retry_after(error),
        ),
        request_id=current_request_id(),
        detail=field_errors(error) if isinstance(error, Unprocessable) else message,
    )
    builtins: dict[str, Any] = msgspec.to_builtins(body)
    return builtins


AGENTKIT_ERROR_FORMAT = ErrorFormat(AgentKitErrorBody, _error_body)


# -- transcripts -------------------------------------------------------------------------------------------------------
# Renders a conversation for people, as plain text or Markdown: a heading, then one block per message.
#
# Every heading and block ends with a line end, so that they can be concatenated.

TranscriptFormat = Literal["txt", "md"]

_RULE = "=" * 50


def transcript_heading(conversation: Conversation, transcript_format: TranscriptFormat) -> str:
    if transcript_format == "txt":
        return (
            f"Conversation: {conversation.title}\nCreated: {extend_to_microseconds(conversation.created_at)}\n"
            f"Namespace: {conversation.namespace}\n{_RULE}\n"
        )
    return (
        f"# {conversation.title}\n\n**Created:** {extend_to_microseconds(conversation.created_at)}\n"
        f"**Namespace:** {conversation.namespace}\n**Messages:** {conversation.message_count}\n\n---\n"
    )


def transcript_message(message: Message, transcript_format: TranscriptFormat) -> str:
    if transcript_format == "txt":
        model = f"  (Model: {message.model})\n" if message.model else ""
        return f"\n{message.role.upper()}{message.labels}: {message.content}\n{model}"
    speaker = "👤 User" if message.role == "user" else "🤖 Assistant"
    model = f"*Model: {message.model}*\n" if message.model else ""
    return f"\n### {speaker}{message.labels}\n{model}\n{message.content}\n"
