"""Archived conversations and messages as drafts."""

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft
from sources.importers.formats.conversation_archive.schema import ArchivedConversation, ArchivedMessage

# Path segments of the conversations API. A conversation with such an id could not be requested.
RESERVED_IDS = frozenset(("search", "export", "import"))


def require_allowed_id(conversation_id: str) -> None:
    if conversation_id in RESERVED_IDS:
        raise InvalidParams(f"id: expected an id that is not part of a URL path, got {conversation_id!r}")


def conversation_draft(archived: ArchivedConversation) -> ConversationDraft:
    return ConversationDraft(
        title=archived.title,
        namespace=archived.namespace,
        session_id=archived.session_id,
        tags=archived.tags,
        is_pinned=archived.pinned,
        is_archived=archived.archived,
        metadata=archived.metadata,
        uuid=archived.id,
        created_at=archived.created_at,
        last_modified=archived.updated_at,
    )


def message_draft(archived: ArchivedMessage) -> MessageDraft:
    return MessageDraft(
        role=archived.role,
        sender=archived.sender,
        content=archived.content,
        model=archived.model,
        tool=archived.tool_used,
        attachments=archived.attachments,
        citations=archived.citations,
        metadata=archived.metadata,
        parent_id=archived.parent_id,
        is_canonical=archived.is_canonical,
        uuid=archived.id,
        created_at=archived.timestamp,
    )
