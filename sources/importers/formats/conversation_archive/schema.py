"""Conversations and messages as the conversations API returns them, and as archives store them.

Times are written with microseconds and an offset (`2026-11-15T08:30:00.000000+00:00`); stored times have milliseconds.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from sources.records import Conversation, Message


class ConversationMessage(Struct, frozen=True, kw_only=True):
    """A message. `tool_used` is the tool that produced an answer, if known. `is_canonical` is false on alternate
    branches, such as a regenerated answer and what followed it. `parent_id` is the message that this one answers, if
    known."""

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


class ConversationDetail(ConversationSummary, frozen=True, kw_only=True):
    """A conversation with its messages in order, including alternate branches."""

    messages: tuple[ConversationMessage, ...]
    next_messages_offset: Annotated[
        int | UnsetType,
        Meta(description="Present only if more messages follow: pass it as messages_offset."),
    ] = UNSET


class ArchivedConversation(ConversationSummary, frozen=True, kw_only=True):
    """A conversation in an archive, with fields that the API does not return."""

    tags: tuple[str, ...] = ()


class ArchivedMessage(ConversationMessage, frozen=True, kw_only=True):
    """A message in an archive, with fields that the API does not return."""

    sender: str = ""
    metadata: Mapping[str, Any] = {}


def api_time(time: str) -> str:
    """Converts a stored time, `…T08:30:00.000Z`, to the form of the conversations API."""
    return f"{time.removesuffix('Z')}000+00:00"


def api_message(message: Message) -> ConversationMessage:
    return ConversationMessage(**_message_fields(message))


def api_summary(conversation: Conversation) -> ConversationSummary:
    return ConversationSummary(**_summary_fields(conversation))


def api_detail(
    conversation: Conversation, messages: tuple[Message, ...], next_offset: int | UnsetType
) -> ConversationDetail:
    return ConversationDetail(
        **_summary_fields(conversation),
        messages=tuple(api_message(message) for message in messages),
        next_messages_offset=next_offset,
    )


def archived_conversation(conversation: Conversation) -> ArchivedConversation:
    return ArchivedConversation(**_summary_fields(conversation), tags=conversation.tags)


def archived_message(message: Message) -> ArchivedMessage:
    return ArchivedMessage(**_message_fields(message), sender=message.sender, metadata=message.metadata)


def _message_fields(message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "conversation_id": message.conversation_id,
        "role": message.role,
        "content": message.content,
        "model": message.model,
        "tool_used": message.tool,
        "attachments": message.attachments,
        "citations": message.citations,
        "timestamp": api_time(message.created_at),
        "parent_id": message.parent_id,
        "is_canonical": message.is_canonical,
    }


def _summary_fields(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "session_id": conversation.session_id,
        "title": conversation.title,
        "namespace": conversation.namespace,
        "created_at": api_time(conversation.created_at),
        "updated_at": api_time(conversation.last_modified),
        "message_count": conversation.message_count,
        "metadata": conversation.metadata,
    }
