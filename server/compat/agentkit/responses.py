"""Conversations and messages as the conversations API returns them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from config.errors import FlorilegiumError, NotFound
from config.logging import current_request_id
from config.times import extend_to_microseconds, format_time_microseconds
from server.middleware import ErrorFormat, FieldError, field_errors, retry_after
from server.operations.operation import Operation, service_operation
from server.rest.errors import Unprocessable
from sources.records import Conversation, Message


class ConversationMessage(Struct, frozen=True, kw_only=True):
    """A message. `tool_used` is the tool that produced an answer, if known. `is_canonical` is false on alternate
    branches, such as a regenerated answer and what followed it. `parent_id` is the message that this one answers, if
    known. `metadata` can mark the message as human-only, so keep it when you copy a message. `seq` is its number on the
    message bus."""

    id: str
    conversation_id: str
    role: str
    content: str
    model: str | None = None
    tool_used: str | None = None
    attachments: tuple[Mapping[str, Any], ...] = ()
    citations: tuple[Mapping[str, Any], ...] = ()
    timestamp: str
    parent_id: str | None = None
    is_canonical: bool = True
    sender: str = ""
    metadata: Mapping[str, Any] = {}
    seq: int | UnsetType = UNSET


class ConversationSummary(Struct, frozen=True, kw_only=True):
    """A conversation without its messages. `session_id` is empty if it was created without one."""

    id: str
    session_id: str
    title: str
    namespace: str
    created_at: str
    updated_at: str
    message_count: int
    metadata: Mapping[str, Any] = {}
    pinned: bool = False
    archived: bool = False


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
    return ConversationMessage(
        id=message.id,
        conversation_id=message.conversation_id,
        role=message.role,
        content=message.content,
        model=message.model,
        tool_used=message.tool,
        attachments=message.attachments,
        citations=message.citations,
        timestamp=extend_to_microseconds(message.created_at),
        parent_id=message.parent_id,
        is_canonical=message.is_canonical,
        sender=message.sender,
        metadata=message.metadata,
        seq=message.number,
    )


def summary_response(conversation: Conversation) -> ConversationSummary:
    return ConversationSummary(**_summary_fields(conversation))


def detail_response(
    conversation: Conversation, messages: Sequence[Message], offset: int, next_offset: int | UnsetType
) -> ConversationDetail:
    return ConversationDetail(
        **_summary_fields(conversation),
        messages=tuple(message_response(message) for message in messages),
        messages_offset=offset or UNSET,
        next_messages_offset=next_offset,
    )


def _summary_fields(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "session_id": conversation.session_id,
        "title": conversation.title,
        "namespace": conversation.namespace,
        "created_at": extend_to_microseconds(conversation.created_at),
        "updated_at": extend_to_microseconds(conversation.last_modified),
        "message_count": conversation.message_count,
        "metadata": conversation.metadata,
        "pinned": conversation.is_pinned,
        "archived": conversation.is_archived,
    }


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


# -- operations --------------------------------------------------------------------------------------------------------
# What the operations of the conversations API have in common.

# An operation is permitted to a key with a profile if the profile has one of these tools, which return the same.
LISTING_TOOLS = ("chats_search", "knowledge_search")
READING_TOOLS = ("chats_get", "knowledge_get")
SEARCHING_TOOLS = ("chats_search", "conversation_search", "knowledge_search")
# No MCP tool writes conversations, so a key that is restricted to a profile may not.
WRITING_TOOLS = ("conversations_write",)


def agentkit_operation(**fields: Any) -> Operation:
    """Creates an operation on conversations, with AgentKit's error format."""
    return service_operation(error_format=AGENTKIT_ERROR_FORMAT, input_error=Unprocessable, source="chats", **fields)


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
