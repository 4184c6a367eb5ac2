"""Conversations and messages as archives store them.

The fields are those of AgentKit's own exports, and some that only this server writes. Times have microseconds and an
offset (`2026-11-15T08:30:00.000000+00:00`), as in AgentKit; stored times have milliseconds.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from config.times import extend_to_microseconds
from sources.records import Conversation, Message


class ArchivedConversation(Struct, frozen=True, kw_only=True):
    """A conversation without its messages. AgentKit does not write `tags`, `pinned` and `archived`."""

    id: str
    session_id: str
    title: str
    namespace: str
    created_at: str
    updated_at: str
    message_count: int
    metadata: Mapping[str, Any] = {}
    tags: tuple[str, ...] = ()
    pinned: bool = False
    archived: bool = False


class ArchivedMessage(Struct, frozen=True, kw_only=True):
    """A message. AgentKit writes neither branches (`parent_id`, `is_canonical`) nor `sender` and `metadata`."""

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


def archived_conversation(conversation: Conversation) -> ArchivedConversation:
    return ArchivedConversation(
        id=conversation.id,
        session_id=conversation.session_id,
        title=conversation.title,
        namespace=conversation.namespace,
        created_at=extend_to_microseconds(conversation.created_at),
        updated_at=extend_to_microseconds(conversation.last_modified),
        message_count=conversation.message_count,
        metadata=conversation.metadata,
        tags=conversation.tags,
        pinned=conversation.is_pinned,
        archived=conversation.is_archived,
    )


def archived_message(message: Message) -> ArchivedMessage:
    return ArchivedMessage(
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
    )
