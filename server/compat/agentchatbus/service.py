"""What happens on the message bus: who may speak, after which message, and what is kept of it."""

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
from server.compat.agentchatbus.agents import Agent, Agents, Clock, ReplyTokens
from server.compat.agentchatbus.errors import AgentRefused, OutOfStep, SeqMismatch
from server.compat.agentchatbus.requests import (
    HUMAN,
    InStep,
    MessagesRequest,
    OpenedThread,
    PostRequest,
    RegisterRequest,
    Registration,
    ReplyWindow,
    SearchRequest,
    StepRequest,
    ThreadRequest,
    Threads,
    ThreadsRequest,
)
from server.compat.agentchatbus.threads import (
    NAMESPACE,
    BusMessage,
    FoundMessageRows,
    bus_message_shape,
    bus_metadata,
    find_message_rows,
    thread_shape,
)
from server.rest.errors import Unprocessable, rename_fields
from sources.drafts import ConversationDraft, MessageDraft
from sources.records import Message
from sources.storage.contract import Chats, Libraries, MessageSearch

# A name may get a number, so that no two agents share one.
_NUMBER_CHARS = 10
# What storage calls otherwise than the bus does.
_FIELDS = {"title": "topic", "sender": "author"}


def build_message_bus(libraries: Libraries, settings: Settings, clock: Clock = time.time) -> "MessageBus":
    """`clock` returns the wall-clock time in seconds; it decides when reply tokens expire."""
    return MessageBus(libraries, settings, Agents(settings), ReplyTokens(settings, clock))


class MessageBus:
    """Registers agents, and opens, reads, searches and writes threads. Agents and reply tokens live in this process."""

    def __init__(self, libraries: Libraries, settings: Settings, agents: Agents, reply_tokens: ReplyTokens) -> None:
        self._libraries = libraries
        self._settings = settings
        self._agents = agents
        self._reply_tokens = reply_tokens

    async def search(self, context: RequestContext, given: SearchRequest) -> FoundMessageRows:
        asked = given.q if given.q is not None else given.query
        if asked is None:
            raise Unprocessable("q: required argument is missing", {"loc": ["query", "q"]})
        if not asked.strip():
            raise InvalidParams("Query parameter 'q' must not be empty")
        try:
            async with self._libraries.library(context) as library:
                return await find_message_rows(
                    library.chats,
                    asked.strip(),
                    given.thread_id,
                    given.limit,
                    self._settings,
                )
        except SourceTimeout as error:
            raise Unavailable("Database operation timeout") from error

    async def register(self, context: RequestContext, given: RegisterRequest) -> Registration:
        name = (given.display_name or "").strip() or f"{given.ide.strip()} ({given.model.strip()})"
        most = self._settings.title_max_chars - _NUMBER_CHARS
        if len(name) > most:
            raise InvalidParams(f"name: got {len(name)} characters, expected at most {most}")
        agent, token = self._agents.register(context.user_id, name)
        return Registration(
            agent_id=agent.id,
            name=agent.name,
            display_name=agent.name,
            alias_source="user" if given.display_name else "auto",
            token=token,
            capabilities=given.capabilities or (),
            skills=given.skills or (),
        )

    async def threads(self, context: RequestContext, given: ThreadsRequest) -> Threads:
        limit = clamp(given.limit, 1, self._settings.conversation_page_max)
        async with self._libraries.library(context) as library:
            page = await library.chats.list(limit, given.offset, namespace=NAMESPACE)
        threads = tuple(thread_shape(conversation) for conversation in page.rows)
        return Threads(threads=threads, total=page.total, has_more=given.offset + len(threads) < page.total)

    async def open_thread(self, context: RequestContext, given: ThreadRequest) -> OpenedThread:
        creator = self._verified(context, given.creator_agent_id, given.agent_token, "create thread")
        prompt = {"system_prompt": given.system_prompt} if given.system_prompt else {}
        thread_id = str(uuid4())
        step = self._step(context, thread_id, 0)  # before anything is written: there may be no room for it
        draft = ConversationDraft(
            uuid=thread_id,
            title=given.topic,
            namespace=NAMESPACE,
            metadata={**(given.metadata or {}), **prompt, "creator_agent_id": creator.id},
        )
        with rename_fields(_FIELDS):
            async with self._libraries.library(context) as library:
                await self._require_room(library.chats)
                made = await library.chats.create(draft)
        return OpenedThread(**_fields_of(thread_shape(made)), **_fields_of(step))

    async def sync(self, context: RequestContext, given: StepRequest) -> InStep:
        async with self._libraries.library(context) as library:
            await _require_thread(context, library.chats, given.thread_id)
            current = await library.chats.last_message_number(given.thread_id)
        return self._step(context, given.thread_id, current)

    async def messages(self, context: RequestContext, given: MessagesRequest) -> tuple[BusMessage, ...]:
        limit = clamp(given.limit, 1, self._settings.message_page_max)
        async with self._libraries.library(context) as library:
            offset = await _offset_after(library.chats, given.thread_id, given.after_seq)
            page = await library.chats.messages(given.thread_id, limit, offset)
        return tuple(bus_message_shape(message) for message in page.rows)

    async def post(self, context: RequestContext, given: PostRequest) -> BusMessage:
        async with self._libraries.library(context) as library:
            # An absent thread is told before anything else.
            await _require_thread(context, library.chats, given.thread_id)
            draft = await self._draft(context, library.chats, given)
            with self._in_step(context, given), rename_fields(_FIELDS):
                message = await self._append(context, library.chats, given, draft)
        return bus_message_shape(message)

    async def _draft(self, context: RequestContext, chats: Chats, given: PostRequest) -> MessageDraft:
        if given.role == "system" and given.author in ("", HUMAN):
            raise InvalidParams("role 'system' is not allowed for human messages")
        agent = self._author(context, given)
        await _require_parent(chats, given)
        more = {"mentions": given.mentions, "images": given.images}
        said = {**(given.metadata or {}), **{name: value for name, value in more.items() if value}}
        return MessageDraft(
            role=given.role,
            sender=agent.name if agent else given.author,
            content=given.content,
            parent_id=given.reply_to_msg_id,
            metadata=bus_metadata(said, given.priority, agent.id if agent else None),
        )

    async def _append(self, context: RequestContext, chats: Chats, given: PostRequest, draft: MessageDraft) -> Message:
        expected = given.expected_last_seq
        try:
            [message] = await chats.append(given.thread_id, [draft], expected_last_number=expected)
        except Conflict as error:
            current = (error.data or {}).get("last_number")
            if current is None or expected is None:
                raise
            missed = await self._since(chats, given.thread_id, expected)
            shown = [_fields_of(bus_message_shape(one)) for one in missed]
            told = {"expected_last_seq": expected, "current_seq": current, "new_messages": shown}
            raise SeqMismatch("SEQ_MISMATCH", "RE_READ_AND_RETRY", **told) from error
        return message

    async def _since(self, chats: Chats, thread_id: str, seq: int) -> list[Message]:
        """What was written after that, of much of it the newest."""
        search = MessageSearch(
            conversation_id=thread_id,
            limit=self._settings.message_page_max,
            deadline_ms=self._settings.search_deadline_ms,
        )
        found = await chats.find_messages(search)
        return sorted((hit.message for hit in found.hits if hit.message.number > seq), key=lambda one: one.number)

    def _author(self, context: RequestContext, given: PostRequest) -> Agent | None:
        if self._agents.find(context.user_id, given.author) is None:
            return None
        return self._verified(context, given.author, given.agent_token, "post")

    def _verified(self, context: RequestContext, agent_id: str, token: str | None, what: str) -> Agent:
        if not token:
            raise AgentRefused(f"X-Agent-Token header required to {what} as a registered agent")
        agent = self._agents.verify(context.user_id, agent_id, token)
        if agent is None:
            raise AgentRefused("Invalid agent token")
        return agent

    @contextmanager
    def _in_step(self, context: RequestContext, given: PostRequest) -> Iterator[None]:
        """Spends the reply token, if there is one, on what happens in the block; if that fails, it was not spent."""
        self._require_step(given)
        if given.reply_token:
            self._spend(context, given.thread_id, given.reply_token)
        is_written = False
        try:
            yield
            is_written = True
        finally:
            if given.reply_token and not is_written:
                self._reply_tokens.give_back(context.user_id, given.reply_token)

    def _require_step(self, given: PostRequest) -> None:
        named = {"expected_last_seq": given.expected_last_seq is not None, "reply_token": bool(given.reply_token)}
        missing = [name for name, is_there in named.items() if not is_there]
        if missing and self._settings.bus_sync_required:
            raise OutOfStep("MISSING_SYNC_FIELDS", missing_fields=missing)

    def _spend(self, context: RequestContext, thread_id: str, token: str) -> None:
        match self._reply_tokens.spend(context.user_id, thread_id, token):
            case "TOKEN_REPLAY", float(at):
                raise OutOfStep("TOKEN_REPLAY", consumed_at=_time(at))
            case "TOKEN_EXPIRED", float(at):
                raise OutOfStep("TOKEN_EXPIRED", expires_at=_time(at))
            case str(why), _:
                raise OutOfStep(why)

    def _step(self, context: RequestContext, thread_id: str, current_seq: int) -> InStep:
        token, expires_at = self._reply_tokens.issue(context.user_id, thread_id)
        window = ReplyWindow(expires_at=_time(expires_at))
        return InStep(current_seq=current_seq, reply_token=token, reply_window=window)

    async def _require_room(self, chats: Chats) -> None:
        most = self._settings.bus_thread_max
        if (await chats.list(1, 0, namespace=NAMESPACE)).total >= most:
            raise Conflict(f"there are {most} threads already; delete a conversation first")


async def _require_thread(context: RequestContext, chats: Chats, thread_id: str) -> None:
    """People may write to any of their conversations this way; an agent's key is for the bus, and so for threads."""
    conversation = await chats.get(thread_id)
    if context.is_agent and conversation.namespace != NAMESPACE:
        raise NotFound("conversation", thread_id)


async def _offset_after(chats: Chats, thread_id: str, seq: int) -> int:
    """How many messages of a thread have that number or a lower one: numbers rise with the place."""
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


async def _require_parent(chats: Chats, given: PostRequest) -> None:
    if given.reply_to_msg_id is None:
        return
    try:
        parent = await chats.get_message(given.reply_to_msg_id)
    except NotFound:
        parent = None
    if parent is None or parent.conversation_id != given.thread_id:
        raise InvalidParams(
            f"reply_to_msg_id: got {given.reply_to_msg_id[:60]!r}, expected the id of a message of this thread"
        )


def _time(seconds: float) -> str:
    return format_time_microseconds(datetime.fromtimestamp(seconds, UTC))


def _fields_of(value: Struct) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}
