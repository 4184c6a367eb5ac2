"""Conversations as an agent may read them: human-only messages are listed, but their content is hidden.

The storage engine leaves human-only messages out of every search of an agent. This wrapper hides their content where a
conversation is read. It sits between the engine and everything that produces responses, so no tool, resource or route
has to check for human-only messages itself. Each method of the protocol is written out, without `__getattr__`: a new
method of the protocol is a type error until it is added here.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from sources.drafts import ConversationDraft, MessageDraft, ThreadDraft, ThreadUpsertResult
from sources.records import Conversation, ExactHits, HitPage, ListPage, Message, MessageHits, Namespace
from sources.storage import contract

# AgentChatBus clients match on this text.
HIDDEN = "[human-only content hidden]"


def redact_for_agents(chats: contract.Chats) -> contract.Chats:
    return RedactedChats(chats)


class RedactedChats:
    """Implements `Chats`. Methods that return messages redact them; the others only forward the call."""

    def __init__(self, chats: contract.Chats) -> None:
        self._chats = chats

    # Methods that return messages

    async def get_message(self, message_id: str) -> Message:
        return _redact(await self._chats.get_message(message_id))

    async def messages(self, conversation_id: str, limit: int, offset: int) -> ListPage[Message]:
        page = await self._chats.messages(conversation_id, limit, offset)
        return replace(page, rows=tuple(map(_redact, page.rows)))

    async def messages_after(
        self, conversation_id: str, number: int, limit: int, metadata: contract.MetadataFilter | None = None
    ) -> Sequence[Message]:
        messages = await self._chats.messages_after(conversation_id, number, limit, metadata)
        return [_redact(message) for message in messages]

    async def messages_around(self, conversation_id: str, position: int, before: int, after: int) -> Sequence[Message]:
        messages = await self._chats.messages_around(conversation_id, position, before, after)
        return [_redact(message) for message in messages]

    async def append(
        self,
        conversation_id: str,
        messages: Sequence[MessageDraft],
        *,
        idempotency_key: str | None = None,
        expected_last_number: int | None = None,
    ) -> Sequence[Message]:
        appended = await self._chats.append(
            conversation_id, messages, idempotency_key=idempotency_key, expected_last_number=expected_last_number
        )
        return [_redact(message) for message in appended]

    async def update_message(
        self, message_id: str, draft: MessageDraft, expected_version: int | None = None
    ) -> Message:
        return _redact(await self._chats.update_message(message_id, draft, expected_version))

    # Searches, which return no human-only message

    async def search(self, search: contract.Search) -> HitPage:
        return await self._chats.search(search)

    async def find_messages(self, search: contract.MessageSearch) -> MessageHits:
        return await self._chats.find_messages(search)

    async def match_messages(self, search: contract.ExactSearch) -> ExactHits:
        return await self._chats.match_messages(search)

    # Methods that return no message

    async def get(self, item_id: str) -> Conversation:
        return await self._chats.get(item_id)

    async def get_by_session(self, session_id: str) -> Conversation:
        return await self._chats.get_by_session(session_id)

    async def list(
        self,
        limit: int,
        offset: int,
        *,
        namespace: str | None = None,
        search: str | None = None,
        is_pinned: bool | None = None,
        is_archived: bool | None = None,
    ) -> ListPage[Conversation]:
        return await self._chats.list(
            limit, offset, namespace=namespace, search=search, is_pinned=is_pinned, is_archived=is_archived
        )

    async def browse(self, where: contract.ItemFilter, limit: int, offset: int) -> ListPage[Conversation]:
        return await self._chats.browse(where, limit, offset)

    async def tags(self, limit: int) -> Sequence[contract.TagCount]:
        return await self._chats.tags(limit)

    async def created_counts(self, unit: Literal["month", "day"], within: str = "") -> Mapping[str, int]:
        return await self._chats.created_counts(unit, within)

    async def words(self) -> int:
        return await self._chats.words()

    async def matching_ids(self, where: contract.ItemFilter, after: int, limit: int) -> Sequence[tuple[int, str | int]]:
        return await self._chats.matching_ids(where, after, limit)

    async def change_many(
        self, changes: Sequence[contract.ItemChange], undo: str = "", *, is_atomic: bool = False
    ) -> contract.ChangeResult:
        return await self._chats.change_many(changes, undo, is_atomic=is_atomic)

    async def undo(self, undo: str) -> contract.ChangeResult | None:
        return await self._chats.undo(undo)

    async def namespace_counts(self, conversation_ids: Sequence[str]) -> Mapping[str, int]:
        return await self._chats.namespace_counts(conversation_ids)

    async def restore(self, item_id: str) -> Conversation:
        return await self._chats.restore(item_id)

    async def list_created(
        self,
        limit: int,
        *,
        namespace: str,
        after: contract.CreationPosition | None = None,
        metadata: contract.MetadataFilter | None = None,
        is_archived: bool | None = None,
    ) -> ListPage[Conversation]:
        return await self._chats.list_created(
            limit, namespace=namespace, after=after, metadata=metadata, is_archived=is_archived
        )

    async def change_token(self) -> str:
        return await self._chats.change_token()

    async def count_before(self, message_id: str) -> int:
        return await self._chats.count_before(message_id)

    async def ids(self, after: str, limit: int) -> Sequence[str]:
        return await self._chats.ids(after, limit)

    async def last_message_number(self, conversation_id: str) -> int:
        return await self._chats.last_message_number(conversation_id)

    async def namespaces(self) -> Sequence[Namespace]:
        return await self._chats.namespaces()

    async def create_namespace(self, name: str) -> Namespace:
        return await self._chats.create_namespace(name)

    async def rename_namespace(self, name: str, new_name: str) -> Namespace:
        return await self._chats.rename_namespace(name, new_name)

    async def delete_namespace(self, name: str) -> int:
        return await self._chats.delete_namespace(name)

    async def create(
        self,
        draft: ConversationDraft,
        messages: Sequence[MessageDraft] = (),
        *,
        idempotency_key: str | None = None,
    ) -> Conversation:
        return await self._chats.create(draft, messages, idempotency_key=idempotency_key)

    async def get_or_create(self, draft: ConversationDraft, namespace_max: int) -> tuple[Conversation, bool]:
        return await self._chats.get_or_create(draft, namespace_max)

    async def upsert_many(
        self, threads: Sequence[ThreadDraft], *, keeps_edits: bool = False
    ) -> Sequence[ThreadUpsertResult]:
        return await self._chats.upsert_many(threads, keeps_edits=keeps_edits)

    async def withdraw_many(self, uuids: Sequence[str], *, keeps_edits: bool = True) -> Sequence[str]:
        return await self._chats.withdraw_many(uuids, keeps_edits=keeps_edits)

    async def withdraw_messages(
        self, uuids: Sequence[str], *, outside: Sequence[str] = (), keeps_edits: bool = True
    ) -> Sequence[str]:
        return await self._chats.withdraw_messages(uuids, outside=outside, keeps_edits=keeps_edits)

    async def update(
        self,
        item_id: str,
        draft: ConversationDraft,
        expected_version: int | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> Conversation:
        return await self._chats.update(item_id, draft, expected_version, idempotency_key=idempotency_key)

    async def delete(
        self, item_id: str, expected_version: int | None = None, *, idempotency_key: str | None = None
    ) -> None:
        await self._chats.delete(item_id, expected_version, idempotency_key=idempotency_key)

    async def delete_message(self, message_id: str, expected_version: int | None = None) -> None:
        await self._chats.delete_message(message_id, expected_version)

    async def purge(self, item_id: str) -> None:
        await self._chats.purge(item_id)


def _redact(message: Message) -> Message:
    if not message.is_human_only:
        return message
    # The line numbers of an imported session stay: transcripts are read by them.
    lines = {name: value for name in ("line_start", "line_end") if isinstance(value := message.metadata.get(name), int)}
    metadata = {"human_only": True, **lines}
    return replace(message, content=HIDDEN, attachments=(), citations=(), content_hash="", metadata=metadata)
