"""Conversations that a client keeps here: begun, and continued message by message or many at once.

A write that carries an `Idempotency-Key` happens once, however often it is sent.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct

from auth.context import RequestContext
from auth.principal import WRITE
from config.errors import Conflict, InvalidParams
from server.compat.agentkit.conversations import WRITING_TOOLS, Id, conversation_operation
from server.rest.errors import rename_fields
from server.rest.operation import Operation
from server.runtime import Runtime
from sources.drafts import ConversationDraft, MessageDraft
from sources.importers.formats.conversation_archive.drafts import RESERVED_IDS
from sources.importers.formats.conversation_archive.shapes import (
    ConversationMessage,
    ConversationSummary,
    message_shape,
    summary_shape,
)
from sources.records import Message, Role
from sources.storage.contract import Chats
from sources.text.titles import title_from_messages

Objects = tuple[Mapping[str, Any], ...]
IdempotencyKey = Annotated[
    str | None, Meta(description="A name for this write; sent again under it, nothing is written twice.")
]
_IDEMPOTENCY = {"idempotency_key": "Idempotency-Key"}
# What storage calls otherwise than this API does.
_FIELDS = {"created_at": "timestamp", "tool": "tool_used", "uuid": "id"}


class NewMessage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to be kept."""

    role: Annotated[Role, Meta(description="Who speaks.")]
    content: Annotated[str, Meta(description="What is said.")]
    model: Annotated[str | None, Meta(description="The model that wrote it.")] = None
    tool_used: Annotated[str | None, Meta(description="The tool that it came from.")] = None
    attachments: Annotated[Objects, Meta(description="Objects about files.")] = ()
    citations: Annotated[Objects, Meta(description="Objects about sources.")] = ()
    metadata: Annotated[Mapping[str, Any], Meta(description="Anything else, as an object.")] = {}
    timestamp: Annotated[str | None, Meta(description="When it was said, ISO 8601; default now.")] = None
    id: Annotated[str | None, Meta(description="An id of your own; default a new one.")] = None


class AppendRequest(NewMessage, frozen=True, kw_only=True, forbid_unknown_fields=True):
    conversation_id: Id
    idempotency_key: IdempotencyKey = None


class BulkRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    conversation_id: Id
    messages: Annotated[tuple[NewMessage, ...], Meta(description="In the order in which they were said.")]
    idempotency_key: IdempotencyKey = None


class CreateRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    session_id: Annotated[str | None, Meta(description="The client's session; no two conversations share one.")] = None
    title: Annotated[str | None, Meta(description="Default the beginning of the first message.")] = None
    namespace: Annotated[str | None, Meta(description="Default `default`.")] = None
    metadata: Annotated[Mapping[str, Any], Meta(description="Anything else, as an object.")] = {}
    messages: Annotated[tuple[NewMessage, ...], Meta(description="What was said already.")] = ()
    id: Annotated[str | None, Meta(description="An id of your own; default a new one.")] = None
    idempotency_key: IdempotencyKey = None


class MessagesRecorded(Struct, frozen=True, kw_only=True):
    messages: tuple[ConversationMessage, ...]
    total: int


def recording_operations(runtime: Runtime) -> list[Operation]:
    return [_create(runtime), _append(runtime), _append_many(runtime)]


def _create(runtime: Runtime) -> Operation:
    async def run(context: RequestContext, given: CreateRequest) -> ConversationSummary:
        if given.id in RESERVED_IDS:
            raise InvalidParams(f"id: got {given.id!r}, expected another: it is part of an address")
        messages = [_draft(message) for message in given.messages]
        draft = ConversationDraft(
            title=title_from_messages(messages) if given.title is None else given.title,
            namespace=given.namespace or UNSET,
            session_id=given.session_id or UNSET,
            metadata=given.metadata,
            uuid=given.id or UNSET,
        )
        with rename_fields(_FIELDS):
            async with runtime.libraries.library(context) as library:
                made = await library.chats.create(draft, messages, idempotency_key=given.idempotency_key)
        return summary_shape(made)

    return conversation_operation(
        id="create_conversation",
        method="POST",
        path="/conversations",
        summary="Begin a conversation",
        description="Keep a new conversation, with the messages it has so far. Further ones are added to it.",
        input=CreateRequest,
        response=ConversationSummary,
        handler=run,
        tools=WRITING_TOOLS,
        scope=WRITE,
        status=201,
        headers=_IDEMPOTENCY,
        error_statuses=frozenset((409,)),
    )


def _append(runtime: Runtime) -> Operation:
    async def run(context: RequestContext, given: AppendRequest) -> ConversationMessage:
        async with runtime.libraries.library(context) as library:
            [message] = await _record(library.chats, given.conversation_id, [given], given.idempotency_key)
        return message_shape(message)

    return conversation_operation(
        id="add_message",
        method="POST",
        path="/conversations/{conversation_id}/messages",
        summary="Add a message",
        description="Add a message at the end of a conversation. The first one names a conversation without a title.",
        input=AppendRequest,
        response=ConversationMessage,
        handler=run,
        tools=WRITING_TOOLS,
        scope=WRITE,
        status=201,
        headers=_IDEMPOTENCY,
        error_statuses=frozenset((404, 409)),
    )


def _append_many(runtime: Runtime) -> Operation:
    async def run(context: RequestContext, given: BulkRequest) -> MessagesRecorded:
        async with runtime.libraries.library(context) as library:
            added = await _record(library.chats, given.conversation_id, given.messages, given.idempotency_key)
        return MessagesRecorded(messages=tuple(map(message_shape, added)), total=len(added))

    return conversation_operation(
        id="add_messages",
        method="POST",
        path="/conversations/{conversation_id}/messages/bulk",
        summary="Add many messages",
        description="Add messages at the end of a conversation: all of them, or none.",
        input=BulkRequest,
        response=MessagesRecorded,
        handler=run,
        tools=WRITING_TOOLS,
        scope=WRITE,
        status=201,
        headers=_IDEMPOTENCY,
        error_statuses=frozenset((404, 409)),
    )


async def _record(
    chats: Chats, conversation_id: str, messages: Sequence[NewMessage], key: str | None
) -> Sequence[Message]:
    conversation = await chats.get(conversation_id)
    drafts = [_draft(message) for message in messages]
    with rename_fields(_FIELDS):
        added = await chats.append(conversation_id, drafts, idempotency_key=key)
    if not conversation.title and not conversation.message_count:
        with suppress(Conflict):  # somebody has named it meanwhile
            title = ConversationDraft(title=title_from_messages(drafts))
            await chats.update(conversation_id, title, conversation.version)
    return added


def _draft(message: NewMessage) -> MessageDraft:
    return MessageDraft(
        role=message.role,
        content=message.content,
        model=message.model,
        tool=message.tool_used,
        attachments=message.attachments,
        citations=message.citations,
        metadata=message.metadata,
        created_at=message.timestamp or UNSET,
        uuid=message.id or UNSET,
    )
