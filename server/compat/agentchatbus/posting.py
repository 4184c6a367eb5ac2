"""Posts messages to threads: authenticates agents, checks that they are in sync, and rejects secrets."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from auth.context import RequestContext
from config.errors import Conflict, InvalidParams, NotFound
from config.settings import Settings
from server.compat.agentchatbus import threads
from server.compat.agentchatbus.agents import ReplyTokens, format_expiry
from server.compat.agentchatbus.errors import BlockedContent, OutOfSync, SeqMismatch
from server.compat.agentchatbus.schemas import HUMAN, BusMessage, PostRequest, SyncContext
from server.rest.errors import rename_fields
from sources.drafts import MessageDraft
from sources.records import Conversation, Message, RegisteredAgent
from sources.storage.contract import Chats, Libraries

# Message text in one response of bus_connect or msg_list, which goes into the context of a model.
RESPONSE_MAX_BYTES = 64 * 1024

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
        raise BlockedContent(error, pattern=pattern)


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


# Fields that have another name in storage than on the bus.
FIELD_NAMES = {"title": "topic", "sender": "author"}


class MessagePoster:
    def __init__(
        self, libraries: Libraries, settings: Settings, registry: threads.AgentRegistry, reply_tokens: ReplyTokens
    ) -> None:
        self._libraries = libraries
        self._settings = settings
        self._registry = registry
        self._reply_tokens = reply_tokens

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
            return threads.bus_message(await self._write(context, library.chats, request, agent))

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
            return threads.bus_message(message), None
        sync_context = await self._reply_tokens.sync_context(
            context.user_id, request.thread_id, message.number, agent.id
        )
        return threads.bus_message(message), sync_context

    async def _write(
        self, context: RequestContext, chats: Chats, request: PostRequest, agent: RegisteredAgent | None
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
            with rename_fields(FIELD_NAMES):
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
                    raise SeqMismatch(
                        "SEQ_MISMATCH",
                        "RE_READ_AND_RETRY",
                        expected_last_seq=expected_seq,
                        current_seq=current_seq,
                        new_messages=[threads.struct_fields(threads.bus_message(message)) for message in unread],
                        **({"has_more": True} if has_more else {}),
                    ) from error
                return message

    @asynccontextmanager
    async def _consumed_reply_token(self, context: RequestContext, request: PostRequest) -> AsyncIterator[None]:
        """Consumes the request's reply token, if any, and restores it if the block fails."""
        if request.reply_token:
            match await self._reply_tokens.consume(context.user_id, request.thread_id, request.reply_token):
                case "TOKEN_REPLAY", float(consumed_at):
                    raise OutOfSync("TOKEN_REPLAY", consumed_at=format_expiry(consumed_at))
                case "TOKEN_EXPIRED", float(expires_at):
                    raise OutOfSync("TOKEN_EXPIRED", expires_at=format_expiry(expires_at))
                case str(error), _:
                    raise OutOfSync(error)
        # Also if the request is cancelled.
        is_written = False
        try:
            yield
            is_written = True
        finally:
            if request.reply_token and not is_written:
                await self._reply_tokens.restore(context.user_id, request.reply_token)


def _require_sync_fields(request: PostRequest) -> None:
    fields = {"expected_last_seq": request.expected_last_seq is not None, "reply_token": bool(request.reply_token)}
    missing = [name for name, is_present in fields.items() if not is_present]
    if missing:
        raise OutOfSync("MISSING_SYNC_FIELDS", missing_fields=missing)


async def get_thread(chats: Chats, thread_id: str) -> Conversation:
    conversation = await chats.get(thread_id)
    if conversation.namespace != threads.NAMESPACE:
        raise NotFound("conversation", thread_id)
    return conversation


async def require_writable(context: RequestContext, chats: Chats, thread_id: str) -> None:
    """People may write to any of their conversations through the bus; agents only to threads."""
    await (get_thread(chats, thread_id) if context.is_agent else chats.get(thread_id))


def _require_permitted_role(request: PostRequest) -> None:
    if request.role == "system" and request.author in ("", HUMAN):
        raise InvalidParams("role 'system' is not allowed for human messages")


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


# -- message blocks ----------------------------------------------------------------------------------------------------
# Renders messages as the content blocks of `msg_list`: a header, the text, and images.

ContentBlock = Mapping[str, Any]
_DATA_URL = "data:"
_DEFAULT_IMAGE_TYPE = "image/png"


def text_block(text: str) -> ContentBlock:
    return {"type": "text", "text": text}


def message_blocks(messages: Sequence[BusMessage], *, include_attachments: bool) -> list[ContentBlock]:
    blocks: list[ContentBlock] = []
    for message in messages:
        blocks.append(text_block(f"[{message.seq}] {message.author_name} ({message.role}) {message.created_at}"))
        if message.content:
            blocks.append(text_block(message.content))
        if include_attachments and message.metadata:
            # AgentChatBus's clients store images under one of three names, singly or as a list.
            metadata = msgspec.json.decode(message.metadata, type=dict[str, Any])
            stored: Any = next((metadata[one] for one in ("attachments", "images", "image") if metadata.get(one)), [])
            attachments = stored if isinstance(stored, list) else [stored]
            blocks += filter(None, map(_image_block, attachments))
    return blocks


def _image_block(attachment: Any) -> ContentBlock | None:
    """Returns an image with its data, or the address of an image as text; None for other attachments."""
    if not isinstance(attachment, Mapping):
        return None
    data = _first_text(attachment, "data", "base64", "b64", "data_url")
    media_type = _first_text(attachment, "mimeType", "mime_type")
    if data.startswith(_DATA_URL):
        header, _, data = data.partition(",")
        media_type = media_type or header.removeprefix(_DATA_URL).partition(";")[0]
    is_image = _first_text(attachment, "type", "kind").lower() in ("", "image") if not media_type else True
    if not is_image or not (media_type or _DEFAULT_IMAGE_TYPE).startswith("image/"):
        return None
    if data:
        return {"type": "image", "data": data, "mimeType": media_type or _DEFAULT_IMAGE_TYPE}
    url = _first_text(attachment, "url", "src")
    return text_block(f"[image] {url}") if url else None


def _first_text(attachment: Mapping[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := attachment.get(name), str) and value), "")
