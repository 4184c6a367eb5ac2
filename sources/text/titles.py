"""Default titles for conversations without one."""

from collections.abc import Iterable

from sources.drafts import MessageDraft

_TITLE_CHARS = 50


def title_from_text(text: str) -> str:
    """Returns the beginning of a text, followed by `...` if it is cut."""
    return text if len(text) <= _TITLE_CHARS else f"{text[:_TITLE_CHARS]}..."


def title_from_messages(messages: Iterable[MessageDraft]) -> str:
    """Returns a title from the user's first message, or from the first message if the user wrote none."""
    texts = [(message.role, message.content) for message in messages if isinstance(message.content, str)]
    user_texts = [content for role, content in texts if role == "user"]
    return title_from_text((user_texts or [content for _, content in texts] or [""])[0])
