"""What a conversation is called that nobody named."""

from collections.abc import Iterable

from sources.drafts import MessageDraft

_TITLE_CHARS = 50


def title_from(text: str) -> str:
    """The beginning of its first message, with `...` where that goes on."""
    return text if len(text) <= _TITLE_CHARS else f"{text[:_TITLE_CHARS]}..."


def title_of_turns(messages: Iterable[MessageDraft]) -> str:
    """By what the user says first; by the first message where the user says nothing."""
    said = [(message.role, message.content) for message in messages if isinstance(message.content, str)]
    by_user = [content for role, content in said if role == "user"]
    return title_from((by_user or [content for _, content in said] or [""])[0])
