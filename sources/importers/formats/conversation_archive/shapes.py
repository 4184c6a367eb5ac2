"""Conversations and messages as the conversations API shows them. Times are written with microseconds and an offset
(`2026-11-15T08:30:00.000000+00:00`); ours are whole milliseconds."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from sources.records import Conversation, Message


class ConversationMessage(Struct, frozen=True, kw_only=True):
    """One message. `tool_used` is the tool that an answer came from, where one is known. `is_canonical` is false for
    what is beside the path: an answer that was regenerated and what followed it. `parent_id` is the message that this
    one answers, where that was told."""

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
    """A conversation without its messages. `session_id` is empty where it began without one."""

    id: str
    session_id: str
    title: str
    namespace: str
    created_at: str
    updated_at: str
    message_count: int
    metadata: Mapping[str, Any] = {}


class ConversationDetail(ConversationSummary, frozen=True, kw_only=True):
    """A conversation with its messages in their order: what is beside the path is among them."""

    messages: tuple[ConversationMessage, ...]
    next_messages_offset: Annotated[
        int | UnsetType,
        Meta(description="There only if messages are left: pass as messages_offset."),
    ] = UNSET


def zoned(time: str) -> str:
    """A stored time, `…T08:30:00.000Z`, in the form of the conversations API."""
    return f"{time.removesuffix('Z')}000+00:00"


def message_shape(message: Message) -> ConversationMessage:
    return ConversationMessage(
        id=message.id,
        conversation_id=message.conversation_id,
        role=message.role,
        content=message.content,
        model=message.model,
        tool_used=message.tool,
        attachments=message.attachments,
        citations=message.citations,
        timestamp=zoned(message.created_at),
        parent_id=message.parent_id,
        is_canonical=message.is_canonical,
    )


def summary_shape(conversation: Conversation) -> ConversationSummary:
    return ConversationSummary(**_summary(conversation))


def detail_shape(
    conversation: Conversation, messages: tuple[Message, ...], next_offset: int | UnsetType
) -> ConversationDetail:
    return ConversationDetail(
        **_summary(conversation),
        messages=tuple(message_shape(message) for message in messages),
        next_messages_offset=next_offset,
    )


def _summary(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "session_id": conversation.session_id,
        "title": conversation.title,
        "namespace": conversation.namespace,
        "created_at": zoned(conversation.created_at),
        "updated_at": zoned(conversation.last_modified),
        "message_count": conversation.message_count,
        "metadata": conversation.metadata,
    }
