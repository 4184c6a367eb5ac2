"""Renders a conversation for people, as plain text or Markdown: a heading, then one block per message.

Every heading and block ends with a line end, so that they can be concatenated.
"""

from typing import Literal

from config.times import extend_to_microseconds
from sources.records import Conversation, Message

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
