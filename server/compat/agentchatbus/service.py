"""The message bus: registers agents, and creates, reads, searches and writes threads."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from msgspec import Struct

from auth.context import RequestContext
from config.errors import Conflict, InvalidParams, NotFound, SourceTimeout, Unavailable
from config.numbers import clamp
from config.settings import Settings
from config.times import format_time_microseconds
from server.compat.agentchatbus.agents import Agent, AgentRegistry, Clock, ReplyTokens
from server.compat.agentchatbus.errors import InvalidAgentToken, OutOfSync, SeqMismatch
from server.compat.agentchatbus.schemas import (
    HUMAN,
    BusMessage,
    BusSearchRequest,
    BusSearchResults,
    CreatedThread,
    CreateThreadRequest,
    ListThreadsRequest,
    MessagesRequest,
    PostRequest,
    RegisterRequest,
    Registration,
    ReplyWindow,
    SyncContext,
    SyncRequest,
    ThreadList,
)
from server.compat.agentchatbus.search import search_messages
from server.compat.agentchatbus.threads import NAMESPACE, bus_message, bus_thread, stored_metadata
from server.rest.errors import Unprocessable, rename_fields
from sources.drafts import ConversationDraft, MessageDraft
from sources.records import Message
from sources.storage.contract import Chats, Libraries, MessageSearch

# Room for the number that makes an agent's name unique.
_NAME_SUFFIX_CHARS = 10
# Fields that have another name in storage than on the bus.
_FIELD_NAMES = {"title": "topic", "sender": "author"}


def build_message_bus(libraries: Libraries, settings: Settings, clock: Clock = time.time) -> "MessageBus":
    """`clock` returns the wall-clock time in seconds; it decides when reply tokens expire."""
    return MessageBus(libraries, settings, AgentRegistry(settings), ReplyTokens(settings, clock))


class MessageBus:
    def __init__(
        self, libraries: Libraries, settings: Settings, agents: AgentRegistry, reply_tokens: ReplyTokens
    ) -> None:
        self._libraries = libraries
        self._settings = settings
        self._agents = agents
        self._reply_tokens = reply_tokens

    async def search(self, context: RequestContext, request: BusSearchRequest) -> BusSearchResults:
        query = request.q if request.q is not None else request.query
        if query is None:
            raise Unprocessable("q: required argument is missing", {"loc": ["query", "q"]})
        if not query.strip():
            raise InvalidParams("Query parameter 'q' must not be empty")
        try:
            async with self._libraries.library(context) as library:
                return await search_messages(
                    library.chats, query.strip(), request.thread_id, request.limit, self._settings
                )
        except SourceTimeout as error:
            raise Unavailable("Database operation timeout") from error

    async def register(self, context: RequestContext, request: RegisterRequest) -> Registration:
        name = (request.display_name or "").strip() or f"{request.ide.strip()} ({request.model.strip()})"
        max_chars = self._settings.title_max_chars - _NAME_SUFFIX_CHARS
        if len(name) > max_chars:
            raise InvalidParams(f"name: expected at most {max_chars} characters, got {len(name)}")
        agent, token = self._agents.register(context.user_id, name)
        return Registration(
            agent_id=agent.id,
            name=agent.name,
            display_name=agent.name,
            alias_source="user" if request.display_name else "auto",
            token=token,
            capabilities=request.capabilities or (),
            skills=request.skills or (),
        )

    async def list_threads(self, context: RequestContext, request: ListThreadsRequest) -> ThreadList:
        limit = clamp(request.limit, 1, self._settings.conversation_page_max)
        async with self._libraries.library(context) as library:
            page = await library.chats.list(limit, request.offset, namespace=NAMESPACE)
        threads = tuple(bus_thread(conversation) for conversation in page.rows)
        return ThreadList(threads=threads, total=page.total, has_more=request.offset + len(threads) < page.total)

    async def create_thread(self, context: RequestContext, request: CreateThreadRequest) -> CreatedThread:
        creator = self._verify_agent(context, request.creator_agent_id, request.agent_token, "create thread")
        system_prompt = {"system_prompt": request.system_prompt} if request.system_prompt else {}
        thread_id = str(uuid4())
        # Issued before anything is written, because the limit of reply tokens may be reached.
        sync_context = self._sync_context(context, thread_id, 0)
        draft = ConversationDraft(
            uuid=thread_id,
            title=request.topic,
            namespace=NAMESPACE,
            metadata={**(request.metadata or {}), **system_prompt, "creator_agent_id": creator.id},
        )
        with rename_fields(_FIELD_NAMES):
            async with self._libraries.library(context) as library:
                await self._require_below_thread_limit(library.chats)
                conversation = await library.chats.create(draft)
        return CreatedThread(**_fields(bus_thread(conversation)), **_fields(sync_context))

    async def sync(self, context: RequestContext, request: SyncRequest) -> SyncContext:
        async with self._libraries.library(context) as library:
            await _require_thread(context, library.chats, request.thread_id)
            current_seq = await library.chats.last_message_number(request.thread_id)
        return self._sync_context(context, request.thread_id, current_seq)

    async def read_messages(self, context: RequestContext, request: MessagesRequest) -> tuple[BusMessage, ...]:
        limit = clamp(request.limit, 1, self._settings.message_page_max)
        async with self._libraries.library(context) as library:
            offset = await _offset_after(library.chats, request.thread_id, request.after_seq)
            page = await library.chats.messages(request.thread_id, limit, offset)
        return tuple(bus_message(message) for message in page.rows)

    async def post(self, context: RequestContext, request: PostRequest) -> BusMessage:
        async with self._libraries.library(context) as library:
            # A missing thread is reported before any other error.
            await _require_thread(context, library.chats, request.thread_id)
            draft = await self._draft(context, library.chats, request)
            with self._consumed_reply_token(context, request), rename_fields(_FIELD_NAMES):
                message = await self._append(library.chats, request, draft)
        return bus_message(message)

    async def _draft(self, context: RequestContext, chats: Chats, request: PostRequest) -> MessageDraft:
        if request.role == "system" and request.author in ("", HUMAN):
            raise InvalidParams("role 'system' is not allowed for human messages")
        agent = self._author(context, request)
        await _require_parent(chats, request)
        extras = {name: value for name, value in (("mentions", request.mentions), ("images", request.images)) if value}
        return MessageDraft(
            role=request.role,
            sender=agent.name if agent else request.author,
            content=request.content,
            parent_id=request.reply_to_msg_id,
            metadata=stored_metadata(
                {**(request.metadata or {}), **extras}, request.priority, agent.id if agent else None
            ),
        )

    async def _append(self, chats: Chats, request: PostRequest, draft: MessageDraft) -> Message:
        expected_seq = request.expected_last_seq
        try:
            [message] = await chats.append(request.thread_id, [draft], expected_last_number=expected_seq)
        except Conflict as error:
            current_seq = (error.data or {}).get("last_number")
            if current_seq is None or expected_seq is None:
                raise
            new_messages = await self._messages_after(chats, request.thread_id, expected_seq)
            raise SeqMismatch(
                "SEQ_MISMATCH",
                "RE_READ_AND_RETRY",
                expected_last_seq=expected_seq,
                current_seq=current_seq,
                new_messages=[_fields(bus_message(message)) for message in new_messages],
            ) from error
        return message

    async def _messages_after(self, chats: Chats, thread_id: str, seq: int) -> list[Message]:
        """Returns the messages after `seq`, or only the newest of them if there are too many."""
        search = MessageSearch(
            conversation_id=thread_id,
            limit=self._settings.message_page_max,
            deadline_ms=self._settings.search_deadline_ms,
        )
        results = await chats.find_messages(search)
        messages = [hit.message for hit in results.hits if hit.message.number > seq]
        return sorted(messages, key=lambda message: message.number)

    def _author(self, context: RequestContext, request: PostRequest) -> Agent | None:
        """Returns the registered agent that posts, or None for any other author."""
        if self._agents.find(context.user_id, request.author) is None:
            return None
        return self._verify_agent(context, request.author, request.agent_token, "post")

    def _verify_agent(self, context: RequestContext, agent_id: str, token: str | None, action: str) -> Agent:
        if not token:
            raise InvalidAgentToken(f"X-Agent-Token header required to {action} as a registered agent")
        agent = self._agents.verify(context.user_id, agent_id, token)
        if agent is None:
            raise InvalidAgentToken("Invalid agent token")
        return agent

    @contextmanager
    def _consumed_reply_token(self, context: RequestContext, request: PostRequest) -> Iterator[None]:
        """Consumes the request's reply token, if any, and restores it if the block fails."""
        self._require_sync_fields(request)
        if request.reply_token:
            self._consume(context, request.thread_id, request.reply_token)
        is_written = False
        try:
            yield
            is_written = True
        finally:
            if request.reply_token and not is_written:
                self._reply_tokens.restore(context.user_id, request.reply_token)

    def _require_sync_fields(self, request: PostRequest) -> None:
        fields = {"expected_last_seq": request.expected_last_seq is not None, "reply_token": bool(request.reply_token)}
        missing = [name for name, is_present in fields.items() if not is_present]
        if missing and self._settings.bus_sync_required:
            raise OutOfSync("MISSING_SYNC_FIELDS", missing_fields=missing)

    def _consume(self, context: RequestContext, thread_id: str, token: str) -> None:
        match self._reply_tokens.consume(context.user_id, thread_id, token):
            case "TOKEN_REPLAY", float(consumed_at):
                raise OutOfSync("TOKEN_REPLAY", consumed_at=_format_timestamp(consumed_at))
            case "TOKEN_EXPIRED", float(expires_at):
                raise OutOfSync("TOKEN_EXPIRED", expires_at=_format_timestamp(expires_at))
            case str(error), _:
                raise OutOfSync(error)

    def _sync_context(self, context: RequestContext, thread_id: str, current_seq: int) -> SyncContext:
        token, expires_at = self._reply_tokens.issue(context.user_id, thread_id)
        window = ReplyWindow(expires_at=_format_timestamp(expires_at))
        return SyncContext(current_seq=current_seq, reply_token=token, reply_window=window)

    async def _require_below_thread_limit(self, chats: Chats) -> None:
        max_threads = self._settings.bus_thread_max
        if (await chats.list(1, 0, namespace=NAMESPACE)).total >= max_threads:
            raise Conflict(f"the limit of {max_threads} threads is reached; delete a conversation first")


async def _require_thread(context: RequestContext, chats: Chats, thread_id: str) -> None:
    """People may write to any of their conversations through the bus; agents only to threads."""
    conversation = await chats.get(thread_id)
    if context.is_agent and conversation.namespace != NAMESPACE:
        raise NotFound("conversation", thread_id)


async def _offset_after(chats: Chats, thread_id: str, seq: int) -> int:
    """Counts the thread's messages up to `seq` by bisection: numbers increase with the position."""
    if seq <= 0:
        return 0
    low, high = 0, (await chats.messages(thread_id, 1, 0)).total
    while low < high:
        middle = (low + high) // 2
        rows = (await chats.messages(thread_id, 1, middle)).rows
        if rows and rows[0].number <= seq:
            low = middle + 1
        else:
            high = middle
    return low


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


def _format_timestamp(seconds: float) -> str:
    return format_time_microseconds(datetime.fromtimestamp(seconds, UTC))


def _fields(value: Struct) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}
