"""Conversations and messages as the conversations API returns them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from config.times import extend_to_microseconds
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
        int | UnsetType,
        Meta(description="Present only if more messages follow: pass it as messages_offset."),
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
