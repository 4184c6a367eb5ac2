"""Reads the messages of one conversation for a page: a part of it, with the words of a query marked."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET

from config.settings import Settings
from server.compat.agentkit.responses import ConversationDetail, ConversationMessage
from server.compat.agentkit.schemas import ReadConversationRequest
from server.console.item_sections import ItemSection
from server.console.markdown import TextRange, render_markdown
from server.console.viewer import LibraryPage, Viewer
from server.rest.operation import Operation
from sources.query import Term
from sources.records import is_human_only
from sources.search.arguments import read_query
from sources.search.snippets import Highlighter
from sources.text.text_work import run_text_work

# A browser shows this many at once. Most conversations are shorter.
MESSAGES_MAX = 300
_MATCHES_MAX = 500


class ConversationReader:
    def __init__(self, page: LibraryPage, read: Operation, settings: Settings) -> None:
        self._page = page
        self._read = read
        self._settings = settings

    async def read(
        self, viewer: Viewer, conversation_id: str, *, start: int = 0, message_id: str = "", query: str = ""
    ) -> Mapping[str, Any]:
        """Returns the values of the template: the part that begins with the message number `start`, or that contains a
        message."""
        request = ReadConversationRequest(
            conversation_id=conversation_id,
            messages_limit=MESSAGES_MAX,
            messages_offset=start,
            message_id=message_id or None,
        )
        conversation: ConversationDetail = await self._page.run(viewer, self._read, request)
        terms = read_query(query, self._settings).terms if query else ()
        messages = conversation.messages
        sections = await run_text_work(sum(len(one.content) for one in messages), message_sections, messages, terms)
        return {
            "conversation": conversation,
            "messages": list(zip(sections, [message.seq for message in messages], strict=True)),
            "parts": _parts(conversation),
        }


def message_sections(messages: Sequence[ConversationMessage], terms: Sequence[Term]) -> list[ItemSection]:
    highlighter = Highlighter(tuple(terms)) if terms else None
    return [_section(message, highlighter) for message in messages]


def _section(message: ConversationMessage, highlighter: Highlighter | None) -> ItemSection:
    ranges = highlighter.ranges(message.content)[:_MATCHES_MAX] if highlighter is not None else []
    return ItemSection(
        html=render_markdown(message.content, [TextRange(*one) for one in ranges]),
        kind="message",
        fragment=message.id,
        speaker=message.sender or message.role,
        role=message.role,
        time=message.timestamp,
        model=message.model or "",
        tool=message.tool_used or "",
        is_alternate=not message.is_canonical,
        is_human_only=is_human_only(message.metadata),
    )


def _parts(conversation: ConversationDetail) -> Mapping[str, int]:
    """Returns where the other parts of a long conversation begin, by the text of the link."""
    offset = conversation.messages_offset or 0
    parts: dict[str, int] = {}
    if offset:
        parts |= {"First messages": 0, "Earlier messages": max(0, offset - MESSAGES_MAX)}
    if conversation.next_messages_offset is not UNSET:
        parts["Later messages"] = conversation.next_messages_offset
        parts["Latest messages"] = max(0, conversation.message_count - MESSAGES_MAX)
    return parts
