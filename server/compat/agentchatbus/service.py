"""The message bus: registers agents, and creates, reads and writes threads, for REST and for the tools."""

# About this package: Agents register, open threads, post, read and search messages. A thread is a conversation of the
# caller's library: the caller's credential decides whose threads they are, and an agent's token only tells that user's
# agents apart. Read `service.py` first. `agents.py` keeps agents in sync, `threads.py` translates between conversations
# and threads, `tools.py` has the MCP tools, and `routes.py` the REST operations.

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from uuid import uuid4

from msgspec.structs import asdict

from auth.context import RequestContext
from config.errors import Conflict, InvalidParams, NotFound
from config.numbers import clamp
from config.settings import Settings
from server.compat.agentchatbus import schemas, threads
from server.compat.agentchatbus.agents import AgentRegistry, ReplyTokens, ReplyTokenStore, format_expiry
from server.rest.errors import rename_fields
from sources.drafts import ConversationDraft, MessageDraft
from sources.records import Conversation, Message, RegisteredAgent
from sources.storage.collections.chats import Chats
from sources.storage.collections.items import Agents
from sources.storage.contract import Libraries
from sources.storage.tables.validation import TITLE_MAX_CHARS

# Messages of a thread in one response. Clients page with `after_seq`.
_BUS_MESSAGE_PAGE_MAX = 1000
# Message text in one response of bus_connect or msg_list, which goes into the context of a model.
RESPONSE_MAX_BYTES = 64 * 1024
# Room for the number that makes an agent's name unique.
_NAME_SUFFIX_CHARS = 10
# Fields that have another name in storage than on the bus.
_FIELD_NAMES = {"title": "topic", "sender": "author"}
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

    async def add_agent(self, agents: Agents, request: schemas.RegisterRequest) -> tuple[RegisteredAgent, str]:
        name = (request.display_name or "").strip() or f"{request.ide.strip()} ({request.model.strip()})"
        max_chars = TITLE_MAX_CHARS - _NAME_SUFFIX_CHARS
        if len(name) > max_chars:
            raise InvalidParams(f"name: expected at most {max_chars} characters, got {len(name)}")
        return await self.registry.register(agents, name)

    async def get_or_create_thread(
        self, chats: Chats, request: schemas.CreateThreadRequest, creator: RegisteredAgent
    ) -> tuple[Conversation, bool]:
        """Returns the thread of this topic, and whether it was created."""
        if self._settings.bus_content_filter:
            reject_secrets(request.topic, "topic blocked by content filter")
            reject_secrets(request.system_prompt or "", "system_prompt blocked by content filter")
        metadata = threads.without_bus_fields(request.metadata or {})
        if request.system_prompt:
            metadata[threads.SYSTEM_PROMPT_KEY] = request.system_prompt
        metadata[threads.CREATOR_KEY] = creator.id
        draft = ConversationDraft(
            uuid=str(uuid4()), title=request.topic, namespace=threads.NAMESPACE, metadata=metadata
        )
        max_threads = self._settings.fixed.bus_thread_max
        with rename_fields(_FIELD_NAMES):
            try:
                return await chats.get_or_create(draft, max_threads)
            except Conflict as error:
                raise Conflict(f"the limit of {max_threads} threads is reached; delete a conversation first") from error

    async def read_messages(
        self, chats: Chats, request: schemas.MessagesRequest, text_max_bytes: int
    ) -> tuple[Sequence[schemas.BusMessage], bool]:
        """Returns messages of a thread, and whether there are more."""
        conversation, priority = await chats.get(request.thread_id), None
        if request.priority:
            priority = threads.bus_field_filter("priority", request.priority, threads.NORMAL)
        stored, has_more = await threads.read_page(
            chats,
            request.thread_id,
            request.after_seq,
            clamp(request.limit, 1, _BUS_MESSAGE_PAGE_MAX),
            text_max_bytes,
            metadata=priority,
            batch_max=self._settings.message_page_max,
        )
        messages = [threads.bus_message(message) for message in stored]
        is_beginning = request.after_seq <= 0 and request.priority is None
        prompt = threads.system_prompt_message(conversation) if request.include_system_prompt and is_beginning else None
        return ([prompt, *messages] if prompt else messages), has_more

    async def post(
        self, context: RequestContext, request: schemas.PostRequest, *, needs_agent_token: bool
    ) -> tuple[schemas.BusMessage, RegisteredAgent | None]:
        """Posts a message and returns it with its author, if that is a registered agent. Over REST, an agent is
        authenticated by its token. A tool passes none: there it is a reply token that was issued to the agent, so that
        an agent must always be in sync."""
        async with self.library(context) as library:
            # A missing thread is reported before any other error.
            await require_writable(context, library.chats, request.thread_id)
            if request.role == "system" and request.author in ("", schemas.HUMAN):
                raise InvalidParams("role 'system' is not allowed for human messages")
            agent = await self.registry.find(library.agents, request.author)
            if agent is not None and needs_agent_token:
                await self.registry.require(library.agents, agent.id, request.agent_token, "post")
            if self._settings.bus_sync_required or (agent is not None and not needs_agent_token):
                missing = ["expected_last_seq"] if request.expected_last_seq is None else []
                missing += [] if request.reply_token else ["reply_token"]
                if missing:
                    raise schemas.OutOfSync("MISSING_SYNC_FIELDS", missing_fields=missing)
            if agent is not None and not needs_agent_token:
                if not await self.reply_tokens.is_issued_to(context.user_id, request.reply_token or "", agent.id):
                    raise schemas.OutOfSync("TOKEN_INVALID")
                await self.registry.set_used(library.agents, agent)
            return threads.bus_message(await self._write(context, library.chats, request, agent)), agent

    async def _write(
        self, context: RequestContext, chats: Chats, request: schemas.PostRequest, agent: RegisteredAgent | None
    ) -> Message:
        if self._settings.bus_content_filter:
            reject_secrets(request.content, "Content blocked by filter")
        if (parent_id := request.reply_to_msg_id) is not None:
            parent = None
            with suppress(NotFound):
                parent = await chats.get_message(parent_id)
            if parent is None or parent.conversation_id != request.thread_id:
                expected = "expected the id of a message of this thread"
                raise InvalidParams(f"reply_to_msg_id: {expected}, got {parent_id[:60]!r}")
        extras = {name: value for name, value in (("mentions", request.mentions), ("images", request.images)) if value}
        metadata = {**(request.metadata or {}), **extras}
        draft = MessageDraft(
            role=request.role,
            sender=agent.name if agent else request.author,
            content=request.content,
            parent_id=request.reply_to_msg_id,
            metadata=threads.message_metadata(metadata, request.priority, agent.id if agent else None),
        )
        user_id, token, expected_seq = context.user_id, request.reply_token, request.expected_last_seq
        if token:
            match await self.reply_tokens.consume(user_id, request.thread_id, token):
                case "TOKEN_REPLAY", float(consumed_at):
                    raise schemas.OutOfSync("TOKEN_REPLAY", consumed_at=format_expiry(consumed_at))
                case "TOKEN_EXPIRED", float(expires_at):
                    raise schemas.OutOfSync("TOKEN_EXPIRED", expires_at=format_expiry(expires_at))
                case str(error), _:
                    raise schemas.OutOfSync(error)
        try:
            with rename_fields(_FIELD_NAMES):
                [message] = await chats.append(request.thread_id, [draft], expected_last_number=expected_seq)
        except BaseException as error:
            if token:  # it can be used again, also if the request was cancelled
                await self.reply_tokens.restore(user_id, token)
            current_seq = (error.data or {}).get("last_number") if isinstance(error, Conflict) else None
            if current_seq is None or expected_seq is None:
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


async def get_thread(chats: Chats, thread_id: str) -> Conversation:
    conversation = await chats.get(thread_id)
    if conversation.namespace != threads.NAMESPACE:
        raise NotFound("conversation", thread_id)
    return conversation


async def require_writable(context: RequestContext, chats: Chats, thread_id: str) -> None:
    """People may write to any of their conversations through the bus; agents only to threads."""
    await (get_thread(chats, thread_id) if context.is_agent else chats.get(thread_id))
