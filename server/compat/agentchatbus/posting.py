"""Posts messages to threads: authenticates agents, checks that they are in sync, and rejects secrets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from auth.context import RequestContext
from config.errors import Conflict, InvalidParams, NotFound
from config.settings import Settings
from server.compat.agentchatbus.agents import AgentRegistry
from server.compat.agentchatbus.content_filter import reject_secrets
from server.compat.agentchatbus.errors import OutOfSync, SeqMismatch
from server.compat.agentchatbus.message_pages import MessagePageLimits, read_page
from server.compat.agentchatbus.reply_tokens import ReplyTokens, format_expiry
from server.compat.agentchatbus.schemas import HUMAN, BusMessage, PostRequest, SyncContext
from server.compat.agentchatbus.threads import NAMESPACE, bus_message, message_metadata, struct_fields
from server.rest.errors import rename_fields
from sources.drafts import MessageDraft
from sources.records import Conversation, Message, RegisteredAgent
from sources.storage.contract import Chats, Libraries

# Fields that have another name in storage than on the bus.
FIELD_NAMES = {"title": "topic", "sender": "author"}


class MessagePoster:
    def __init__(
        self, libraries: Libraries, settings: Settings, registry: AgentRegistry, reply_tokens: ReplyTokens
    ) -> None:
        self._libraries = libraries
        self._settings = settings
        self._registry = registry
        self._reply_tokens = reply_tokens
        self._unread_limits = MessagePageLimits(
            messages=settings.message_page_max,
            text_bytes=settings.bus_response_max_bytes,
            batch=settings.message_page_max,
        )

    async def post(self, context: RequestContext, request: PostRequest) -> BusMessage:
        """Posts a message for a REST client. A registered agent is authenticated by its token."""
        async with self._libraries.library(context) as library:
            # A missing thread is reported before any other error.
            await require_writable(context, library.chats, request.thread_id)
            _require_permitted_role(request)
            agent = await self._registry.find(library.agents, request.author)
            if agent is not None:
                await self._registry.require(library.agents, agent.id, request.agent_token, "post")
            if self._settings.bus_sync_required:
                _require_sync_fields(request)
            return bus_message(await self._write(context, library.chats, request, agent))

    async def post_in_sync(
        self, context: RequestContext, request: PostRequest
    ) -> tuple[BusMessage, SyncContext | None]:
        """Posts a message for a tool, which passes no agent token: a registered agent is authenticated by a reply token
        that was issued to it. Returns the message and the agent's next sync context."""
        async with self._libraries.library(context) as library:
            await require_writable(context, library.chats, request.thread_id)
            _require_permitted_role(request)
            agent = await self._registry.find(library.agents, request.author)
            if agent is not None or self._settings.bus_sync_required:
                _require_sync_fields(request)
            if agent is not None:
                if not await self._reply_tokens.is_issued_to(context.user_id, request.reply_token or "", agent.id):
                    raise OutOfSync("TOKEN_INVALID")
                await self._registry.set_used(library.agents, agent)
            message = await self._write(context, library.chats, request, agent)
        if agent is None:
            return bus_message(message), None
        sync_context = await self._reply_tokens.sync_context(
            context.user_id, request.thread_id, message.number, agent.id
        )
        return bus_message(message), sync_context

    async def _write(
        self, context: RequestContext, chats: Chats, request: PostRequest, agent: RegisteredAgent | None
    ) -> Message:
        if self._settings.bus_content_filter:
            reject_secrets(request.content, "Content blocked by filter")
        await _require_parent(chats, request)
        draft = _message_draft(request, agent)
        async with self._consumed_reply_token(context, request):
            with rename_fields(FIELD_NAMES):
                return await self._append(chats, request, draft)

    async def _append(self, chats: Chats, request: PostRequest, draft: MessageDraft) -> Message:
        expected_seq = request.expected_last_seq
        try:
            [message] = await chats.append(request.thread_id, [draft], expected_last_number=expected_seq)
        except Conflict as error:
            current_seq = (error.data or {}).get("last_number")
            if current_seq is None or expected_seq is None:
                raise
            unread = await read_page(chats, request.thread_id, expected_seq, None, self._unread_limits)
            raise SeqMismatch(
                "SEQ_MISMATCH",
                "RE_READ_AND_RETRY",
                expected_last_seq=expected_seq,
                current_seq=current_seq,
                new_messages=[struct_fields(bus_message(message)) for message in unread.messages],
                **({"has_more": True} if unread.has_more else {}),
            ) from error
        return message

    @asynccontextmanager
    async def _consumed_reply_token(self, context: RequestContext, request: PostRequest) -> AsyncIterator[None]:
        """Consumes the request's reply token, if any, and restores it if the block fails."""
        if request.reply_token:
            await self._consume(context, request.thread_id, request.reply_token)
        is_written = False
        try:
            yield
            is_written = True
        finally:
            if request.reply_token and not is_written:
                await self._reply_tokens.restore(context.user_id, request.reply_token)

    async def _consume(self, context: RequestContext, thread_id: str, token: str) -> None:
        match await self._reply_tokens.consume(context.user_id, thread_id, token):
            case "TOKEN_REPLAY", float(consumed_at):
                raise OutOfSync("TOKEN_REPLAY", consumed_at=format_expiry(consumed_at))
            case "TOKEN_EXPIRED", float(expires_at):
                raise OutOfSync("TOKEN_EXPIRED", expires_at=format_expiry(expires_at))
            case str(error), _:
                raise OutOfSync(error)


def _require_sync_fields(request: PostRequest) -> None:
    fields = {"expected_last_seq": request.expected_last_seq is not None, "reply_token": bool(request.reply_token)}
    missing = [name for name, is_present in fields.items() if not is_present]
    if missing:
        raise OutOfSync("MISSING_SYNC_FIELDS", missing_fields=missing)


async def get_thread(chats: Chats, thread_id: str) -> Conversation:
    conversation = await chats.get(thread_id)
    if conversation.namespace != NAMESPACE:
        raise NotFound("conversation", thread_id)
    return conversation


async def require_writable(context: RequestContext, chats: Chats, thread_id: str) -> None:
    """People may write to any of their conversations through the bus; agents only to threads."""
    await (get_thread(chats, thread_id) if context.is_agent else chats.get(thread_id))


def _require_permitted_role(request: PostRequest) -> None:
    if request.role == "system" and request.author in ("", HUMAN):
        raise InvalidParams("role 'system' is not allowed for human messages")


def _message_draft(request: PostRequest, agent: RegisteredAgent | None) -> MessageDraft:
    extras = {name: value for name, value in (("mentions", request.mentions), ("images", request.images)) if value}
    metadata = {**(request.metadata or {}), **extras}
    return MessageDraft(
        role=request.role,
        sender=agent.name if agent else request.author,
        content=request.content,
        parent_id=request.reply_to_msg_id,
        metadata=message_metadata(metadata, request.priority, agent.id if agent else None),
    )


async def _require_parent(chats: Chats, request: PostRequest) -> None:
    if request.reply_to_msg_id is None:
        return
    try:
        parent = await chats.get_message(request.reply_to_msg_id)
    except NotFound:
        parent = None
    if parent is None or parent.conversation_id != request.thread_id:
        raise InvalidParams(
            f"reply_to_msg_id: expected the id of a message of this thread, got {request.reply_to_msg_id[:60]!r}"
        )
