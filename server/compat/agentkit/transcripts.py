"""One conversation as a file for people, plain text or Markdown, piece by piece: its head, then each message."""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from sources.importers.formats.conversation_archive.shapes import zoned
from sources.records import Conversation, Message

TranscriptFormat = Literal["txt", "md"]

_RULE = "=" * 50


class Transcript(Struct, frozen=True):
    """How a conversation is written down. Each piece ends its last line."""

    head: Callable[[Conversation], str]
    turn: Callable[[Message], str]


def _text_head(conversation: Conversation) -> str:
    return (
        f"Conversation: {conversation.title}\nCreated: {zoned(conversation.created_at)}\n"
        f"Namespace: {conversation.namespace}\n{_RULE}\n"
    )


def _text_turn(message: Message) -> str:
    model = f"  (Model: {message.model})\n" if message.model else ""
    return f"\n{message.role.upper()}{message.branch_label}: {message.content}\n{model}"


def _markdown_head(conversation: Conversation) -> str:
    return (
        f"# {conversation.title}\n\n**Created:** {zoned(conversation.created_at)}\n"
        f"**Namespace:** {conversation.namespace}\n**Messages:** {conversation.message_count}\n\n---\n"
    )


def _markdown_turn(message: Message) -> str:
    speaker = "👤 User" if message.role == "user" else "🤖 Assistant"
    model = f"*Model: {message.model}*\n" if message.model else ""
    return f"\n### {speaker}{message.branch_label}\n{model}\n{message.content}\n"


TRANSCRIPTS: dict[TranscriptFormat, Transcript] = {
    "txt": Transcript(_text_head, _text_turn),
    "md": Transcript(_markdown_head, _markdown_turn),
}
