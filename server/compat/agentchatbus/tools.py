"""The MCP tools of the bus: `bus_connect`, `msg_post`, `msg_list` and `msg_search`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, structs

from auth.context import WRITE
from config.errors import InvalidParams, NotFound, SourceTimeout
from config.settings import Settings
from server.compat.agentchatbus import schemas
from server.compat.agentchatbus.schemas import DetailedBusError, InvalidAgentToken
from server.compat.agentchatbus.service import RESPONSE_MAX_BYTES, MessageBus, get_thread
from server.compat.agentchatbus.threads import bus_thread, creator_id, match_fields, match_messages
from server.operations.operation import from_record
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Hints, Tool, ToolResult
from server.protocol.messages import encode
from sources.items import uri_of

Handler = Callable[[Call, Any], Awaitable[Any]]

# AgentChatBus returns this as a normal result, not as a failed call.
_EMPTY_QUERY = {"error": "query must not be empty"}
# The names that AgentChatBus's tools give to the errors of its REST API.
_SYNC_ERRORS = {
    "MISSING_SYNC_FIELDS": "MissingSyncFieldsError",
    "SEQ_MISMATCH": "SeqMismatchError",
    "TOKEN_INVALID": "ReplyTokenInvalidError",
    "TOKEN_EXPIRED": "ReplyTokenExpiredError",
    "TOKEN_REPLAY": "ReplyTokenReplayError",
}
# The fields of a message in the JSON of `msg_list`, besides its id.
_LISTED_FIELDS = (
    *("author", "author_id", "author_name", "role", "content", "seq", "created_at", "metadata", "reply_to_msg_id"),
    "priority",
)
_WRITES = Hints(read_only_hint=False, idempotent_hint=False)


def add_agentchatbus_tools(catalog: Catalog, bus: MessageBus, settings: Settings) -> None:
    for tool in AgentChatBusTools(bus, settings).tools():
        catalog.add_tool(tool)


def _with_bus_errors(handler: Handler) -> Handler:
    """Returns errors as objects with `error`, as AgentChatBus's agents expect them."""

    async def call_handler(call: Call, arguments: Any) -> Any:
        try:
            return await handler(call, arguments)
        except schemas.OutOfSync as error:
            # Says how to recover with the tools: a mismatch is resolved by reading, any other error by a new reply
            # token.
            data = dict(error.data or {})
            code = data["error"]
            action = "READ_NEW_MESSAGES_THEN_RETRY" if code == "SEQ_MISMATCH" else "CALL_BUS_CONNECT_THEN_RETRY"
            problem = {**data, "error": _SYNC_ERRORS[code], "detail": code, "action": action}
        except DetailedBusError as error:
            problem = dict(error.data or {})
        except InvalidAgentToken as error:
            problem = {"error": error.message}
        except NotFound:
            problem = {"error": schemas.THREAD_NOT_FOUND}
        except InvalidParams as error:
            problem = {"error": "INVALID_ARGUMENT", "detail": error.message}
        return ToolResult([text_block(encode(problem).decode())], problem, is_error=True)

    return call_handler


class AgentChatBusTools:
    """The handlers of the tools, and their declarations."""

    def __init__(self, bus: MessageBus, settings: Settings) -> None:
        self._bus = bus
        self._settings = settings

    async def bus_connect(self, call: Call, arguments: schemas.BusConnect) -> schemas.BusConnection:
        if not arguments.thread_id and not (arguments.thread_name or "").strip():
            raise DetailedBusError("thread_name is required")
        async with self._bus.library(call.context) as library:
            # A missing thread is reported before an agent is registered.
            existing = await get_thread(library.chats, arguments.thread_id) if arguments.thread_id else None
            # An agent is resumed by its id and token. With only one of them the caller would become another agent
            # unnoticed, so that is an error.
            if arguments.agent_id is None and arguments.token is None:
                registration = schemas.RegisterRequest(
                    ide=arguments.ide, model=arguments.model, display_name=arguments.display_name
                )
                agent, token = await self._bus.add_agent(library.agents, registration)
            else:
                agent_id, token = arguments.agent_id or "", arguments.token or ""
                resumed = await self._bus.registry.verify(library.agents, agent_id, token)
                if resumed is None:
                    problem = "agent_id and token do not belong to a registered agent"
                    raise InvalidAgentToken(f"Failed to resume agent: {problem}")
                agent = resumed
            if existing is not None:
                conversation, is_created = existing, False
            else:
                new = schemas.CreateThreadRequest(
                    topic=arguments.thread_name or "", creator_agent_id=agent.id, system_prompt=arguments.system_prompt
                )
                conversation, is_created = await self._bus.get_or_create_thread(library.chats, new, agent)
            # The agent that created a thread, if it is still registered.
            creator = creator_id(conversation)
            administrator = await self._bus.registry.find(library.agents, creator) if creator else None
            request = schemas.MessagesRequest(
                thread_id=conversation.id,
                after_seq=arguments.after_seq,
                limit=schemas.TOOL_MESSAGES_LIMIT,
                include_system_prompt=True,
            )
            messages, has_more = await self._bus.read_messages(library.chats, request, RESPONSE_MAX_BYTES)
            current_seq = await library.chats.last_message_number(conversation.id)
        call.context.record_read(uri_of("chats", conversation.id))
        sync_context = await self._bus.reply_tokens.sync_context(
            call.context.user_id, conversation.id, current_seq, agent.id
        )
        is_administrator = administrator is not None and administrator.id == agent.id
        role = _ADMINISTRATOR if is_administrator else _PARTICIPANT
        if administrator is not None and not is_administrator:
            role = f"{role} Its administrator, {administrator.name} (@{administrator.id}), assigns the tasks."
        connected_agent = schemas.ConnectedAgent(
            agent_id=agent.id, name=agent.name, token=token, is_administrator=is_administrator, role_assignment=role
        )
        thread = bus_thread(conversation)
        connected_thread = schemas.ConnectedThread(
            thread_id=thread.id,
            topic=thread.topic,
            status=thread.status,
            created=is_created,
            system_prompt=(thread.system_prompt or UNSET) if is_created else UNSET,
            administrator=(
                schemas.ThreadAdministrator(agent_id=administrator.id, name=administrator.name)
                if administrator
                else UNSET
            ),
        )
        return schemas.BusConnection(
            agent=connected_agent,
            thread=connected_thread,
            messages=tuple(from_record(schemas.ThreadMessage, one, author=one.author_name) for one in messages),
            has_more=has_more,
            **structs.asdict(sync_context),
        )

    async def msg_post(self, call: Call, arguments: schemas.MsgPost) -> schemas.PostedMessage:
        request = schemas.PostRequest(**structs.asdict(arguments))
        message, agent = await self._bus.post(call.context, request, needs_agent_token=False)
        sync_context = None
        if agent is not None:
            sync_context = await self._bus.reply_tokens.sync_context(
                call.context.user_id, arguments.thread_id, message.seq, agent.id
            )
        return schemas.PostedMessage(
            msg_id=message.id,
            seq=message.seq,
            reply_to_msg_id=message.reply_to_msg_id,
            priority=message.priority,
            **(structs.asdict(sync_context) if sync_context else {}),
        )

    async def msg_list(self, call: Call, arguments: schemas.MsgList) -> ToolResult:
        request = from_record(schemas.MessagesRequest, arguments)
        async with self._bus.library(call.context) as library:
            messages, has_more = await self._bus.read_messages(library.chats, request, RESPONSE_MAX_BYTES)
        call.context.record_read(uri_of("chats", arguments.thread_id))
        note = (
            [text_block(f"(more messages follow: call msg_list with after_seq {messages[-1].seq})")] if has_more else []
        )
        if arguments.return_format == "blocks":
            return ToolResult([*message_blocks(messages, include_attachments=arguments.include_attachments), *note])
        rows = [
            {"msg_id": message.id} | {name: getattr(message, name) for name in _LISTED_FIELDS} for message in messages
        ]
        return ToolResult([text_block(encode(rows).decode()), *note], {"messages": rows, "has_more": has_more})

    async def msg_search(self, call: Call, arguments: schemas.MsgSearch) -> schemas.MsgSearchResults | ToolResult:
        query = arguments.query.strip()
        if not query:
            return ToolResult([text_block(encode(_EMPTY_QUERY).decode())], _EMPTY_QUERY)
        try:
            async with self._bus.library(call.context) as library:
                hits, remarks = await match_messages(
                    library.chats, query, arguments.thread_id, arguments.limit, self._settings
                )
        except SourceTimeout as error:
            hits, remarks = (), {"note": f"the search timed out: {error.message}"}
        rows = tuple(schemas.MessageMatch(**match_fields(hit)) for hit in hits)
        return schemas.MsgSearchResults(results=rows, total=len(rows), query=query, **remarks)

    def tools(self) -> tuple[Tool, ...]:
        return (
            Tool(
                name="bus_connect",
                source="chats",
                title="Join a thread",
                description=(
                    "Join a thread that the user's agents share, by its topic; a missing thread is created. Registers "
                    "you as an agent, or resumes you by agent_id and token: store both. Returns the messages, and "
                    "current_seq and reply_token for your next msg_post. "
                    'Example: {"thread_name": "Release plan", "ide": "Cursor", "model": "gpt"}'
                ),
                input=schemas.BusConnect,
                output=schemas.BusConnection,
                scope=WRITE,
                hints=_WRITES,
                handler=_with_bus_errors(self.bus_connect),
            ),
            Tool(
                name="msg_post",
                source="chats",
                title="Post a message",
                description=(
                    "Post a message to a thread. A registered agent passes the current_seq and reply_token of its last "
                    "bus_connect or msg_post; if others have posted since, the message is rejected and theirs are "
                    "returned: read them, then post again with the new current_seq. Messages with secrets are "
                    "rejected. "
                    'Example: {"thread_id": "…", "author": "…", "content": "Done.", "expected_last_seq": 7, '
                    '"reply_token": "…"}'
                ),
                input=schemas.MsgPost,
                output=schemas.PostedMessage,
                scope=WRITE,
                hints=_WRITES,
                handler=_with_bus_errors(self.msg_post),
            ),
            Tool(
                name="msg_list",
                source="chats",
                title="Read a thread",
                description=(
                    "Read the messages of a thread in order, after after_seq. A last block says if there are more. "
                    'Example: {"thread_id": "…", "after_seq": 7}'
                ),
                input=schemas.MsgList,
                handler=_with_bus_errors(self.msg_list),
            ),
            Tool(
                name="msg_search",
                source="chats",
                title="Search messages",
                description=(
                    "Search the messages of all threads, or of one, with a full-text expression; every word must "
                    "match. Best match first, each with a snippet in which matches are marked. An invalid expression "
                    "is searched as plain words, and read_as says so. "
                    'Example: {"query": "\\"angular signals\\" OR consens*", "limit": 10}'
                ),
                input=schemas.MsgSearch,
                output=schemas.MsgSearchResults,
                handler=self.msg_search,
            ),
        )


# AgentChatBus's agents look for the words in capitals.
_ADMINISTRATOR = "You are the ADMINISTRATOR of this thread: you coordinate it and assign its tasks."
_PARTICIPANT = "You are a PARTICIPANT in this thread."


ContentBlock = Mapping[str, Any]
_DATA_URL = "data:"
_DEFAULT_IMAGE_TYPE = "image/png"


def text_block(text: str) -> ContentBlock:
    return {"type": "text", "text": text}


def message_blocks(messages: Sequence[schemas.BusMessage], *, include_attachments: bool) -> list[ContentBlock]:
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
