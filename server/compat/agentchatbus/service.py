"""The message bus: registers agents, and creates, reads, searches and writes threads."""

# About this package: Agents register, open threads, post, read and search messages. A thread is a conversation of the
# caller's library: the caller's credential decides whose threads they are, and an agent's token only tells that user's
# agents apart. Read `service.py` first, then `posting.py`, which keeps agents in sync. `threads.py` translates between
# conversations and threads; `routes.py` and `tools.py` declare the operations; `events.py` is the stream that replaces
# polling.

import time
from collections.abc import Callable, Sequence
from uuid import uuid4

from msgspec import UNSET

from auth.context import RequestContext
from config.errors import Conflict, InvalidParams, SourceTimeout, Unavailable
from config.numbers import clamp
from config.settings import Settings
from server.compat.agentchatbus import schemas, threads
from server.compat.agentchatbus.agents import ReplyTokens, ReplyTokenStore
from server.compat.agentchatbus.posting import FIELD_NAMES, MessagePoster, get_thread, reject_secrets, require_writable
from server.rest.errors import Unprocessable, rename_fields
from sources.drafts import ConversationDraft
from sources.records import Conversation, RegisteredAgent
from sources.storage.contract import Agents, Chats, Libraries
from sources.storage.tables.validation import TITLE_MAX_CHARS

# Messages of a thread in one response. Clients page with `after_seq`.
_BUS_MESSAGE_PAGE_MAX = 1000

# Room for the number that makes an agent's name unique.
_NAME_SUFFIX_CHARS = 10


def build_message_bus(
    libraries: Libraries,
    settings: Settings,
    clock: Callable[[], float] = time.time,
    reply_token_store: ReplyTokenStore | None = None,
) -> "MessageBus":
    """`clock` returns the wall-clock time in seconds; it decides when agents and reply tokens expire. Without a store,
    reply tokens are kept in this process."""
    reply_tokens = ReplyTokens(clock, reply_token_store)
    return MessageBus(libraries, settings, threads.AgentRegistry(clock), reply_tokens)


class MessageBus:
    """Agents and threads, for REST and for the tools. `posting` writes their messages."""

    def __init__(
        self, libraries: Libraries, settings: Settings, registry: threads.AgentRegistry, reply_tokens: ReplyTokens
    ) -> None:
        self.library = libraries.library
        self.registry = registry
        self.reply_tokens = reply_tokens
        self.posting = MessagePoster(libraries, settings, registry, reply_tokens)
        self._settings = settings

    async def search(self, context: RequestContext, request: schemas.BusSearchRequest) -> schemas.BusSearchResults:
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

    # Agents

    async def register(self, context: RequestContext, request: schemas.RegisterRequest) -> schemas.Registration:
        async with self.library(context) as library:
            agent, token = await self.register_agent(library.agents, request)
        return schemas.Registration(
            agent_id=agent.id,
            name=agent.name,
            display_name=agent.name,
            alias_source="user" if request.display_name else "auto",
            token=token,
            capabilities=request.capabilities or (),
            skills=request.skills or (),
        )

    async def register_agent(self, agents: Agents, request: schemas.RegisterRequest) -> tuple[RegisteredAgent, str]:
        name = (request.display_name or "").strip() or f"{request.ide.strip()} ({request.model.strip()})"
        max_chars = TITLE_MAX_CHARS - _NAME_SUFFIX_CHARS
        if len(name) > max_chars:
            raise InvalidParams(f"name: expected at most {max_chars} characters, got {len(name)}")
        return await self.registry.register(agents, name)

    # Threads

    async def list_threads(self, context: RequestContext, request: schemas.ListThreadsRequest) -> schemas.ThreadList:
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

    async def create_thread(
        self, context: RequestContext, request: schemas.CreateThreadRequest
    ) -> schemas.CreatedThread:
        async with self.library(context) as library:
            creator = await self.registry.require(
                library.agents, request.creator_agent_id, request.agent_token, "create thread"
            )
            conversation, _ = await self.open_thread(library.chats, request, creator)
            current_seq = await library.chats.last_message_number(conversation.id)
        sync_context = await self.reply_tokens.sync_context(context.user_id, conversation.id, current_seq, creator.id)
        return schemas.CreatedThread(
            **threads.struct_fields(threads.bus_thread(conversation)), **threads.struct_fields(sync_context)
        )

    async def open_thread(
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
        max_threads = self._settings.bus_thread_max
        with rename_fields(FIELD_NAMES):
            try:
                return await chats.get_or_create(draft, max_threads)
            except Conflict as error:
                raise Conflict(f"the limit of {max_threads} threads is reached; delete a conversation first") from error

    async def set_state(self, context: RequestContext, request: schemas.ThreadStateRequest) -> schemas.ThreadChanged:
        async with self.library(context) as library:
            conversation = await get_thread(library.chats, request.thread_id)
            is_archived = request.state == "archived"
            metadata = UNSET if is_archived else threads.with_status(conversation, request.state)
            draft = ConversationDraft(metadata=metadata, is_archived=is_archived)
            await library.chats.update(conversation.id, draft, conversation.version)
        return schemas.ThreadChanged(thread_id=conversation.id, status=request.state)

    async def archive(self, context: RequestContext, request: schemas.ArchiveThreadRequest) -> schemas.ThreadChanged:
        return await self.set_state(context, schemas.ThreadStateRequest(thread_id=request.thread_id, state="archived"))

    async def unarchive(self, context: RequestContext, request: schemas.ArchiveThreadRequest) -> schemas.ThreadChanged:
        return await self.set_state(context, schemas.ThreadStateRequest(thread_id=request.thread_id, state="discuss"))

    async def sync(self, context: RequestContext, request: schemas.SyncRequest) -> schemas.SyncContext:
        async with self.library(context) as library:
            await require_writable(context, library.chats, request.thread_id)
            current_seq = await library.chats.last_message_number(request.thread_id)
        return await self.reply_tokens.sync_context(context.user_id, request.thread_id, current_seq)

    # Messages

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
