"""Chats as an assistant may read them: messages for people only are found and counted, but what they say is hidden.

It stands between the engine and everything that answers, so that no tool, resource or route has to think of it.
"""

from collections.abc import Sequence
from typing import Any, cast

from msgspec.structs import replace

from sources.drafts import MessageDraft
from sources.records import ExactHits, Hit, HitPage, ListPage, Message, MessageHits
from sources.storage.contract import Chats, ExactSearch, MessageSearch, Search

# Clients of the message bus know it by these words.
HIDDEN = "[human-only content hidden]"


def for_agents(chats: Chats) -> Chats:
    return cast("Chats", _ForAgents(chats))


class _ForAgents:
    """Every method that gives messages stands here; the others are those of the chats themselves."""

    def __init__(self, chats: Chats) -> None:
        self._chats = chats

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chats, name)

    async def search(self, search: Search) -> HitPage:
        found = await self._chats.search(search)
        return replace(found, hits=tuple(_hit(hit) if hit.is_human_only else hit for hit in found.hits))

    async def messages_with(self, search: MessageSearch) -> MessageHits:
        found = await self._chats.messages_with(search)
        hits = [replace(hit, message=_message(hit.message)) if hit.message.is_human_only else hit for hit in found.hits]
        return replace(found, hits=tuple(hits))

    async def match_messages(self, search: ExactSearch) -> ExactHits:
        found = await self._chats.match_messages(search)
        hits = [
            replace(hit, message=_message(hit.message), snippet=HIDDEN) if hit.message.is_human_only else hit
            for hit in found.hits
        ]
        return replace(found, hits=tuple(hits))

    async def get_message(self, message_id: str) -> Message:
        return _message(await self._chats.get_message(message_id))

    async def messages(self, conversation_id: str, limit: int, offset: int) -> ListPage[Message]:
        page = await self._chats.messages(conversation_id, limit, offset)
        return replace(page, rows=tuple(map(_message, page.rows)))

    async def around(self, conversation_id: str, position: int, before: int, after: int) -> Sequence[Message]:
        return [*map(_message, await self._chats.around(conversation_id, position, before, after))]

    async def append(self, *arguments: Any, **options: Any) -> Sequence[Message]:
        return [*map(_message, await self._chats.append(*arguments, **options))]

    async def update_message(
        self, message_id: str, draft: MessageDraft, expected_version: int | None = None
    ) -> Message:
        return _message(await self._chats.update_message(message_id, draft, expected_version))


def _message(message: Message) -> Message:
    return replace(message, content=HIDDEN, attachments=(), citations=()) if message.is_human_only else message


def _hit(hit: Hit) -> Hit:
    return replace(hit, text=HIDDEN)
