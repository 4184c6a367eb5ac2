"""Default titles for conversations without one."""

from collections.abc import Iterable, Mapping

from sources.drafts import MessageDraft
from sources.records import is_human_only

_TITLE_CHARS = 50


def title_from_text(text: str) -> str:
    """Returns the beginning of a text, followed by `...` if it is cut."""
    return text if len(text) <= _TITLE_CHARS else f"{text[:_TITLE_CHARS]}..."


def title_from_messages(messages: Iterable[MessageDraft]) -> str:
    """Returns a title from the user's first message, or from the first message if the user wrote none. Agents read
    titles, so human-only messages are left out."""
    texts = [
        (message.role, message.content)
        for message in messages
        if isinstance(message.content, str) and not _is_human_only(message)
    ]
    user_texts = [content for role, content in texts if role == "user"]
    return title_from_text((user_texts or [content for _, content in texts] or [""])[0])


def _is_human_only(message: MessageDraft) -> bool:
    return isinstance(message.metadata, Mapping) and is_human_only(message.metadata)
