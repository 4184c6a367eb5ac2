"""The message bus: registers agents, and creates, reads, searches and writes threads."""

# About this package: Agents register, open threads, post, read and search messages. A thread is a conversation of the
# caller's library: the caller's credential decides whose threads they are, and an agent's token only tells that user's
# agents apart. Read `service.py` first. `agents.py` keeps agents in sync, `threads.py` translates between conversations
# and threads, `tools.py` has the MCP tools, and `routes.py` what only HTTP has, such as the stream of events.

import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from uuid import uuid4

from msgspec import UNSET
from msgspec.structs import asdict

from auth.context import WRITE, RequestContext
from config.errors import Conflict, InvalidParams, NotFound, SourceTimeout, Unavailable
from config.numbers import clamp
from config.settings import Settings
from server.compat.agentchatbus import schemas, threads
from server.compat.agentchatbus.agents import AgentRegistry, ReplyTokens, ReplyTokenStore, format_expiry
from server.compat.operations import operation
from server.profiles import BUS_WRITE
from server.rest.errors import Unprocessable, rename_fields
from sources.drafts import ConversationDraft, MessageDraft
from sources.records import Conversation, Message, RegisteredAgent
from sources.storage.contract import Agents, Chats, Libraries
from sources.storage.tables.validation import TITLE_MAX_CHARS

# Messages of a thread in one response. Clients page with `after_seq`.
_BUS_MESSAGE_PAGE_MAX = 1000
# Message text in one response of bus_connect or msg_list, which goes into the context of a model.
RESPONSE_MAX_BYTES = 64 * 1024
# Room for the number that makes an agent's name unique.
_NAME_SUFFIX_CHARS = 10
# Fields that have another name in storage than on the bus.
_FIELD_NAMES = {"title": "topic", "sender": "author"}
# An operation is permitted to a key with a profile if the profile has one of these tools.
SEARCHING_TOOLS = ("msg_search", "chats_search", "knowledge_search")
READING_TOOLS = ("msg_list", "chats_get", "knowledge_get")
JOINING_TOOLS = ("bus_connect", BUS_WRITE)
POSTING_TOOLS = ("msg_post", BUS_WRITE)
_AGENT_TOKEN = {"agent_token": "X-Agent-Token"}
_state_operation = partial(operation, tools=POSTING_TOOLS, scope=WRITE, errors=(404, 409))

# -- content filter ----------------------------------------------------------------------------------------------------
# AgentChatBus's content filter: finds secrets that were pasted into a message by mistake.
#
# It knows only formats that are unlikely to be anything else, so that messages about tokens can be posted. It runs on
# the event loop, so every pattern takes linear time, whatever the text, and is tried only if the text contains its
# literal.

# The name of each format, a literal that is part of it, and its pattern.
_FORMATS = (
    ("AWS Access Key ID", "AKIA", r"AKIA[0-9A-Z]{16}"),
    ("AWS Temporary Access Key", "ASIA", r"ASIA[0-9A-Z]{16}"),
    # Only at the beginning of a run of such characters, which is therefore read once.
    ("JWT Token", ".eyJ", r"eyJ(?<![\w-]eyJ)[\w-]{20,}+\.eyJ[\w-]{20}"),
    ("GitHub Personal Access Token", "ghp_", r"ghp_[A-Za-z0-9]{36}"),
    ("GitHub OAuth Token", "gho_", r"gho_[A-Za-z0-9]{36}"),
    ("GitHub App Token", "gh", r"gh[sur]_[A-Za-z0-9]{36}"),
    ("Private Key", "PRIVATE KEY-----", r"-----BEGIN (?:[A-Z]{2,9} )?PRIVATE KEY-----"),
    ("OpenAI API Key", "T3BlbkFJ", r"sk-[A-Za-z0-9]{20,}T3BlbkFJ[A-Za-z0-9]{20}"),
    ("Slack Token", "xox", r"xox[bprs]-[0-9A-Za-z-]{10}"),
    ("Google API Key", "AIza", r"AIza[0-9A-Za-z_-]{35}"),
)
_SECRETS = tuple((name, literal, re.compile(pattern, re.ASCII)) for name, literal, pattern in _FORMATS)
# 32 bytes in Base64 as the value of a setting, whose name contains "azure".
_AZURE_VALUE = re.compile("=[A-Za-z0-9+/]{43}=")
_AZURE_NAME = re.compile(r"azure\w{10,95}\Z", re.ASCII | re.IGNORECASE)
_AZURE_NAME_MAX_CHARS = 100


def reject_secrets(text: str, error: str) -> None:
    """Raises BlockedContent with `error` if the text contains a secret."""
    pattern = find_secret(text)
    if pattern is not None:
        raise schemas.BlockedContent(error, pattern=pattern)


def find_secret(text: str) -> str | None:
    """Returns the kind of the first secret in a text, or None."""
    for name, literal, pattern in _SECRETS:
        if literal in text and pattern.search(text):
            return name
    if "azure" in text.lower():
        for value in _AZURE_VALUE.finditer(text):
            # Only so much before the value is searched, so that a text with many values takes linear time, too.
            if _AZURE_NAME.search(text[max(0, value.start() - _AZURE_NAME_MAX_CHARS) : value.start()]):
                return "Azure Storage Key"
    return None


class MessageBus:
    """Agents, threads and messages, for REST and for the tools."""

    def __init__(
        self,
        libraries: Libraries,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        reply_token_store: ReplyTokenStore | None = None,
    ) -> None:
        """`clock` returns the wall-clock time in seconds; it decides when agents and reply tokens expire. Without a
        store, reply tokens are kept in this process."""
        self.library = libraries.library
        self.registry = AgentRegistry(clock)
        self.reply_tokens = ReplyTokens(clock, reply_token_store)
        self._settings = settings

    @operation("GET /api/search", "Search the bus", SEARCHING_TOOLS)
    async def search_bus(self, context: RequestContext, request: schemas.BusSearchRequest) -> schemas.BusSearchResults:
        """Messages of all conversations, or of one, that match a full-text expression, best first. An invalid
        expression is searched as plain words, and read_as says so."""
        query = request.q if request.q is not None else request.query
        if query is None:
            raise Unprocessable("q: required argument is missing", {"loc": ["query", "q"]})
        if not query.strip():
            raise InvalidParams("Query parameter 'q' must not be empty")
        try:
            async with self.library(context) as library:
                return await threads.search_messages(
                    library.chats, query.strip(), request.thread_id, request.limit, self._settings
                )
        except SourceTimeout as error:
            raise Unavailable("Database operation timeout") from error

    @operation("POST /api/agents/register", "Register an agent", JOINING_TOOLS, scope=WRITE)
    async def register_agent(self, context: RequestContext, request: schemas.RegisterRequest) -> schemas.Registration:
        """Gives an agent a name and a token. An agent that was idle for long has to register again."""
        async with self.library(context) as library:
            agent, token = await self.add_agent(library.agents, request)
        return schemas.Registration(
            agent_id=agent.id,
            name=agent.name,
            display_name=agent.name,
            alias_source="user" if request.display_name else "auto",
            token=token,
            capabilities=request.capabilities or (),
            skills=request.skills or (),
        )

    async def add_agent(self, agents: Agents, request: schemas.RegisterRequest) -> tuple[RegisteredAgent, str]:
        name = (request.display_name or "").strip() or f"{request.ide.strip()} ({request.model.strip()})"
        max_chars = TITLE_MAX_CHARS - _NAME_SUFFIX_CHARS
        if len(name) > max_chars:
            raise InvalidParams(f"name: expected at most {max_chars} characters, got {len(name)}")
        return await self.registry.register(agents, name)

    @operation("GET /api/threads", "List threads", READING_TOOLS)
    async def list_threads(self, context: RequestContext, request: schemas.ListThreadsRequest) -> schemas.ThreadList:
        """The threads of the bus, newest first. next_cursor is the value of before for the next page. Archived threads
        are left out unless you ask for them."""
        max_threads = self._settings.message_page_max
        limit = clamp(request.limit, 1, max_threads) if request.limit else max_threads
        is_archived = None if request.status is None and request.include_archived else request.status == "archived"
        async with self.library(context) as library:
            page = await library.chats.list_created(
                limit + 1,
                namespace=threads.NAMESPACE,
                after=threads.parse_thread_cursor(request.before) if request.before else None,
                metadata=threads.has_status(request.status),
                is_archived=is_archived,
            )
        has_more = len(page.rows) > limit
        return schemas.ThreadList(
            threads=tuple(threads.bus_thread(conversation) for conversation in page.rows[:limit]),
            total=page.total,
            has_more=has_more,
            next_cursor=threads.thread_cursor(page.rows[limit - 1], page.rows[limit]) if has_more else None,
        )

    @operation(
        "POST /api/threads",
        "Create a thread",
        JOINING_TOOLS,
        scope=WRITE,
        status=201,
        headers=_AGENT_TOKEN,
        errors=(409,),
    )
    async def open_thread(self, context: RequestContext, request: schemas.CreateThreadRequest) -> schemas.CreatedThread:
        """Creates a conversation that all agents of the user share. If a thread has this topic already, it is returned
        unchanged."""
        async with self.library(context) as library:
            creator = await self.registry.require(
                library.agents, request.creator_agent_id, request.agent_token, "create thread"
            )
            conversation, _ = await self.get_or_create_thread(library.chats, request, creator)
            current_seq = await library.chats.last_message_number(conversation.id)
        sync_context = await self.reply_tokens.sync_context(context.user_id, conversation.id, current_seq, creator.id)
        return schemas.CreatedThread(**asdict(threads.bus_thread(conversation)), **asdict(sync_context))

    async def get_or_create_thread(
        self, chats: Chats, request: schemas.CreateThreadRequest, creator: RegisteredAgent
    ) -> tuple[Conversation, bool]:
        """Returns the thread of this topic, and whether it was created."""
        if self._settings.bus_content_filter:
            reject_secrets(request.topic, "topic blocked by content filter")
            reject_secrets(request.system_prompt or "", "system_prompt blocked by content filter")
        draft = ConversationDraft(
            uuid=str(uuid4()),
            title=request.topic,
            namespace=threads.NAMESPACE,
            metadata=threads.thread_metadata(request.metadata, request.system_prompt, creator.id),
        )
        max_threads = self._settings.fixed.bus_thread_max
        with rename_fields(_FIELD_NAMES):
            try:
                return await chats.get_or_create(draft, max_threads)
            except Conflict as error:
                raise Conflict(f"the limit of {max_threads} threads is reached; delete a conversation first") from error

    @_state_operation("POST /api/threads/{thread_id}/state", "Set the status of a thread")
    async def state_thread(self, context: RequestContext, request: schemas.ThreadStateRequest) -> schemas.ThreadChanged:
        """Sets the status, by which threads can be listed. It does not restrict what can be posted."""
        async with self.library(context) as library:
            conversation = await get_thread(library.chats, request.thread_id)
            is_archived = request.state == "archived"
            metadata = UNSET if is_archived else threads.with_status(conversation, request.state)
            draft = ConversationDraft(metadata=metadata, is_archived=is_archived)
            await library.chats.update(conversation.id, draft, conversation.version)
        return schemas.ThreadChanged(thread_id=conversation.id, status=request.state)

    @_state_operation("POST /api/threads/{thread_id}/archive", "Archive a thread")
    async def archive_thread(self, context: RequestContext, request: schemas.ThreadRequest) -> schemas.ThreadChanged:
        """Sets the status archived. The list of threads leaves archived threads out unless asked for them."""
        return await self.state_thread(
            context, schemas.ThreadStateRequest(thread_id=request.thread_id, state="archived")
        )

    @_state_operation("POST /api/threads/{thread_id}/unarchive", "Restore an archived thread")
    async def unarchive_thread(self, context: RequestContext, request: schemas.ThreadRequest) -> schemas.ThreadChanged:
        """Sets the status discuss."""
        return await self.state_thread(
            context, schemas.ThreadStateRequest(thread_id=request.thread_id, state="discuss")
        )

    @operation(
        "POST /api/threads/{thread_id}/sync-context",
        "Get the sync context of a thread",
        JOINING_TOOLS,
        scope=WRITE,
        errors=(404,),
    )
    async def sync_thread(self, context: RequestContext, request: schemas.ThreadRequest) -> schemas.SyncContext:
        """The seq of the thread's last message, and a reply token for the next one."""
        async with self.library(context) as library:
            await require_writable(context, library.chats, request.thread_id)
            current_seq = await library.chats.last_message_number(request.thread_id)
        return await self.reply_tokens.sync_context(context.user_id, request.thread_id, current_seq)

    async def read_messages(
        self, chats: Chats, request: schemas.MessagesRequest, text_max_bytes: int
    ) -> tuple[Sequence[schemas.BusMessage], bool]:
        """Returns messages of a thread, and whether there are more."""
        conversation = await chats.get(request.thread_id)
        stored, has_more = await threads.read_page(
            chats,
            request.thread_id,
            request.after_seq,
            clamp(request.limit, 1, _BUS_MESSAGE_PAGE_MAX),
            text_max_bytes,
            metadata=threads.has_priority(request.priority),
            batch_max=self._settings.message_page_max,
        )
        messages = [threads.bus_message(message) for message in stored]
        is_beginning = request.after_seq <= 0 and request.priority is None
        prompt = threads.system_prompt_message(conversation) if request.include_system_prompt and is_beginning else None
        return ([prompt, *messages] if prompt else messages), has_more

    @_state_operation("POST /api/threads/{thread_id}/messages", "Post a message", status=201, headers=_AGENT_TOKEN)
    async def post_message(self, context: RequestContext, request: schemas.PostRequest) -> schemas.BusMessage:
        """Adds a message to a thread. With expected_last_seq, it is rejected if others have posted meanwhile, and their
        messages are returned."""
        # A registered agent is authenticated by its token.
        async with self.library(context) as library:
            # A missing thread is reported before any other error.
            await require_writable(context, library.chats, request.thread_id)
            _require_permitted_role(request)
            agent = await self.registry.find(library.agents, request.author)
            if agent is not None:
                await self.registry.require(library.agents, agent.id, request.agent_token, "post")
            if self._settings.bus_sync_required:
                _require_sync_fields(request)
            return threads.bus_message(await self._write(context, library.chats, request, agent))

    async def post_in_sync(
        self, context: RequestContext, request: schemas.PostRequest
    ) -> tuple[schemas.BusMessage, schemas.SyncContext | None]:
        """Posts a message for a tool, which passes no agent token: a registered agent is authenticated by a reply token
        that was issued to it. Returns the message and the agent's next sync context."""
        async with self.library(context) as library:
            await require_writable(context, library.chats, request.thread_id)
            _require_permitted_role(request)
            agent = await self.registry.find(library.agents, request.author)
            if agent is not None or self._settings.bus_sync_required:
                _require_sync_fields(request)
            if agent is not None:
                if not await self.reply_tokens.is_issued_to(context.user_id, request.reply_token or "", agent.id):
                    raise schemas.OutOfSync("TOKEN_INVALID")
                await self.registry.set_used(library.agents, agent)
            message = await self._write(context, library.chats, request, agent)
        if agent is None:
            return threads.bus_message(message), None
        sync_context = await self.reply_tokens.sync_context(
            context.user_id, request.thread_id, message.number, agent.id
        )
        return threads.bus_message(message), sync_context

    async def _write(
        self, context: RequestContext, chats: Chats, request: schemas.PostRequest, agent: RegisteredAgent | None
    ) -> Message:
        if self._settings.bus_content_filter:
            reject_secrets(request.content, "Content blocked by filter")
        await _require_parent(chats, request)
        extras = {name: value for name, value in (("mentions", request.mentions), ("images", request.images)) if value}
        metadata = {**(request.metadata or {}), **extras}
        draft = MessageDraft(
            role=request.role,
            sender=agent.name if agent else request.author,
            content=request.content,
            parent_id=request.reply_to_msg_id,
            metadata=threads.message_metadata(metadata, request.priority, agent.id if agent else None),
        )
        async with self._consumed_reply_token(context, request):
            with rename_fields(_FIELD_NAMES):
                expected_seq = request.expected_last_seq
                try:
                    [message] = await chats.append(request.thread_id, [draft], expected_last_number=expected_seq)
                except Conflict as error:
                    current_seq = (error.data or {}).get("last_number")
                    if current_seq is None or expected_seq is None:
                        # A conflict of another kind.
                        raise
                    # What the agent has not read, so that it can try again without another request.
                    unread, has_more = await threads.read_page(
                        chats, request.thread_id, expected_seq, self._settings.message_page_max, RESPONSE_MAX_BYTES
                    )
                    raise schemas.SeqMismatch(
                        "SEQ_MISMATCH",
                        "RE_READ_AND_RETRY",
                        expected_last_seq=expected_seq,
                        current_seq=current_seq,
                        new_messages=[asdict(threads.bus_message(message)) for message in unread],
                        **({"has_more": True} if has_more else {}),
                    ) from error
                return message

    @asynccontextmanager
    async def _consumed_reply_token(self, context: RequestContext, request: schemas.PostRequest) -> AsyncIterator[None]:
        """Consumes the request's reply token, if any, and restores it if the block fails."""
        if request.reply_token:
            match await self.reply_tokens.consume(context.user_id, request.thread_id, request.reply_token):
                case "TOKEN_REPLAY", float(consumed_at):
                    raise schemas.OutOfSync("TOKEN_REPLAY", consumed_at=format_expiry(consumed_at))
                case "TOKEN_EXPIRED", float(expires_at):
                    raise schemas.OutOfSync("TOKEN_EXPIRED", expires_at=format_expiry(expires_at))
                case str(error), _:
                    raise schemas.OutOfSync(error)
        # Also if the request is cancelled.
        is_written = False
        try:
            yield
            is_written = True
        finally:
            if request.reply_token and not is_written:
                await self.reply_tokens.restore(context.user_id, request.reply_token)


def _require_sync_fields(request: schemas.PostRequest) -> None:
    fields = {"expected_last_seq": request.expected_last_seq is not None, "reply_token": bool(request.reply_token)}
    missing = [name for name, is_present in fields.items() if not is_present]
    if missing:
        raise schemas.OutOfSync("MISSING_SYNC_FIELDS", missing_fields=missing)


async def get_thread(chats: Chats, thread_id: str) -> Conversation:
    conversation = await chats.get(thread_id)
    if conversation.namespace != threads.NAMESPACE:
        raise NotFound("conversation", thread_id)
    return conversation


async def require_writable(context: RequestContext, chats: Chats, thread_id: str) -> None:
    """People may write to any of their conversations through the bus; agents only to threads."""
    await (get_thread(chats, thread_id) if context.is_agent else chats.get(thread_id))


def _require_permitted_role(request: schemas.PostRequest) -> None:
    if request.role == "system" and request.author in ("", schemas.HUMAN):
        raise InvalidParams("role 'system' is not allowed for human messages")


async def _require_parent(chats: Chats, request: schemas.PostRequest) -> None:
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
