"""The chat operations: AgentKit's `POST /chat` and OpenAI's chat completions.

Both are answered by the upstream model that the operator configured; without one, the answer is passages of the
caller's own library. Either way each turn is stored in a conversation. The caller's credential is never passed on.
"""

# About this package: read `service.py` first. `relay.py` passes a request to the upstream and its response back,
# `turns.py` reads what is stored of both, and `recorder.py` stores it. `passages.py` finds what answers are made of.

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256

import msgspec
from loguru import logger
from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import JSONResponse, Response

from aggregator.retrieval import Retriever
from aggregator.search import Aggregator
from auth.context import READ, WRITE, RequestContext
from config.errors import Conflict, FlorilegiumError, InvalidParams, NotFound
from config.numbers import replace_unstorable
from config.settings import Settings
from config.times import format_time
from server.compat.agentkit.chat import passages, relay, schemas
from server.compat.agentkit.chat.recorder import CompletedTurn, TurnRecorder, find_conversation
from server.compat.agentkit.chat.turns import ChatTurn, Completion, TurnLimits, last_content, parse_turns
from server.compat.operations import operation
from server.operations.operation import NoArguments, Upload, UploadRequest
from server.protocol.messages import decode
from server.rest.forms import FormSpec
from server.transports.client_connections import OpenStreams
from sources.drafts import ConversationDraft, MessageDraft
from sources.storage.contract import Chats, Libraries
from sources.text.chunking import title_from_text

# The `tool_used` of all answers.
SEARCH_TOOL = "knowledge_search"
_VIA = {"via": "chat"}
# Clients repeat a turn whose response was lost within minutes; the same words later are a new turn.
_CHAT_RETRY_WINDOW_S = 300.0
# The media types of whole and streamed answers.
JSON = "application/json"
EVENTS = "text/event-stream"
_NAME_MAX_CHARS = 200
# The form's own fields, and some unknown ones.
_FORM_FIELDS_MAX = 32


def _turn_deadline_ms(settings: Settings) -> int:
    """The relay itself ends a turn after `chat_turn_max_s`; the rest is for storing it afterwards."""
    return round(settings.fixed.chat_turn_max_s * 1000) + settings.call_deadline_ms


# No MCP tool chats, so a key that is restricted to a profile may not. Bad gateway, gateway timeout: see `UpstreamError`
# and `UpstreamTimeout`.
_chat_operation = partial(operation, tools=("chat",), errors=(502, 504))


class _UpstreamModel(Struct, frozen=True):
    id: str


class _UpstreamModels(Struct, frozen=True):
    data: tuple[_UpstreamModel, ...]


class CompletionRequest(Struct, frozen=True, kw_only=True):
    """The request body as it was received, and the parts of it that are stored."""

    body: bytes
    is_stream: bool
    turn: CompletedTurn  # with an empty answer


class ChatService:
    def __init__(
        self,
        settings: Settings,
        libraries: Libraries,
        aggregator: Aggregator,
        retriever: Retriever,
        open_streams: OpenStreams,
    ) -> None:
        self.passages = passages.PassageFinder(libraries, aggregator, retriever, settings)
        self._libraries = libraries
        self._open_streams = open_streams
        self._upstream = relay.Upstream.from_settings(settings)
        self._settings = settings
        self._limits = TurnLimits(settings.item_max_chars, settings.metadata_max_bytes)
        self._recorder = TurnRecorder(_CHAT_RETRY_WINDOW_S, settings.batch_max_items)

    @_chat_operation(
        "POST /chat",
        "Chat with the library",
        scope=WRITE,
        form=FormSpec(frozenset(("files",)), schemas.CHAT_FILES_MAX + _FORM_FIELDS_MAX),
        schema=schemas.chat_schema(),
        from_settings=lambda settings: {"deadline_ms": _turn_deadline_ms(settings)},
    )
    async def chat(self, context: RequestContext, request: schemas.ChatRequest) -> schemas.ChatAnswer:
        """Answers a message from the user's own library and stores both in the session's conversation. If no model is
        configured, the answer is the best passages, word for word."""
        context.principal.require_scope(READ)
        (history, files), requested_at = schemas.parse_chat_request(request), format_time(datetime.now(UTC))
        # Passages for a model must not contain messages that are hidden from agents.
        reader = context if self._upstream is None else replace(context, is_agent=True)
        session_conversation = None
        async with self._libraries.library(context) as library:
            with suppress(NotFound):  # the first message of a session
                session_conversation = (await library.chats.get_by_session(request.session_id)).id
        results = await self.passages.find(reader, request.message, session_conversation)
        if self._upstream is None:
            completion = passages.extractive_completion(results.passages, request.message)
        else:
            messages = [
                {"role": "system", "content": passages.instructions(results.passages, files)},
                *history,
                {"role": "user", "content": request.message},
            ]
            model, max_bytes = self._settings.chat_upstream_model, self._settings.fixed.chat_response_max_bytes
            completion = await relay.ask_upstream(
                self._upstream, model or request.model, messages, self._limits, max_bytes
            )
        question = MessageDraft(
            role="user",
            content=replace_unstorable(request.message),
            attachments=[
                {
                    "filename": text.name,
                    "media_type": replace_unstorable(file.media_type),
                    "size_bytes": len(file.content),
                    **({"is_shortened": True} if text.is_truncated else {}),
                }
                for file, text in zip(request.files, files, strict=True)
            ],
            metadata=_VIA,
            created_at=requested_at,
        )
        answer = MessageDraft(
            role="assistant",
            content=completion.turn.content,
            model=completion.model,
            tool=SEARCH_TOOL,
            citations=passages.citations(results.passages),
            metadata=completion.metadata | _VIA,
        )
        conversation_id = await self._store_chat(context, request, (question, answer))
        quoted = passages.passages_text(results.passages) or None
        notices = [
            *([passages.NO_WEB_SEARCH] if request.search_mode in ("web", "hybrid") else []),
            *([passages.FILES_IGNORED] if files and completion.model == passages.EXTRACTIVE else []),
            *([passages.NOT_STORED] if conversation_id is None else []),
        ]
        return schemas.ChatAnswer(
            answer=completion.turn.content,
            tool_used=SEARCH_TOOL,
            tool_output=quoted,
            model=completion.model,
            context="\n\n".join([*([quoted] if quoted else []), *(file.text for file in files)]) or None,
            summary=passages.summary(results.passages, results.failed_sources),
            citations=passages.citations(results.passages),
            conversation_id=conversation_id,
            notice=" ".join(notices) or None,
        )

    async def _store_chat(
        self, context: RequestContext, request: schemas.ChatRequest, drafts: Sequence[MessageDraft]
    ) -> str | None:
        """Returns None if the turn cannot be stored: the client receives its answer anyway, with a notice."""
        try:
            async with self._libraries.library(context) as library:
                # Appends to the session's conversation, or creates it. Two first messages may arrive at once.
                draft = ConversationDraft(
                    title=title_from_text(replace_unstorable(request.message)),
                    namespace=request.namespace,
                    session_id=request.session_id,
                    # It begins with the question, and not when the answer is complete.
                    created_at=drafts[0].created_at,
                )
                with suppress(NotFound):
                    return await _append_to_session(library.chats, request.session_id, drafts)
                try:
                    return (await library.chats.create(draft, drafts)).id
                except Conflict:
                    # The other one has created it.
                    return await _append_to_session(library.chats, request.session_id, drafts)
        except FlorilegiumError as error:
            logger.warning("a chat turn was not stored: {}", type(error).__name__)
            return None

    @_chat_operation("GET /models", "List the models for chats")
    async def list_available_models(self, _context: RequestContext, _request: NoArguments) -> schemas.AvailableModels:
        """The models that `chat` can use, and the default one. Without an upstream, only `extractive`."""
        if self._upstream is None:
            return schemas.AvailableModels(available_models=(passages.EXTRACTIVE,), default_model=passages.EXTRACTIVE)
        async with self._upstream.request("GET", "/models") as response:
            relay.require_relayable(response)
            body = await response.read(self._settings.fixed.chat_response_max_bytes)
        try:
            names = tuple(model.id for model in msgspec.json.decode(body, type=_UpstreamModels).data)
        except msgspec.MsgspecError:
            raise relay.UpstreamError("the upstream's response contains no list of models") from None
        default = self._settings.chat_upstream_model or next(iter(names), "")
        return schemas.AvailableModels(available_models=names, default_model=default)

    # -- OpenAI's API --

    @_chat_operation(
        "POST /v1/chat/completions",
        "Complete a chat",
        scope=WRITE,
        input=schemas.CompletionHeaders,
        response=(JSON, EVENTS),
        headers={
            "conversation_id": "X-Conversation-Id",
            "session_id": "X-Session-Id",
            "idempotency_key": "Idempotency-Key",
        },
        **schemas.COMPLETION_ERRORS,
        from_settings=lambda settings: {
            "upload": Upload(JSON, settings.body_max_bytes, schemas.COMPLETION_SCHEMA),
            "deadline_ms": _turn_deadline_ms(settings),
        },
    )
    async def create_chat_completion(self, context: RequestContext, uploaded: UploadRequest) -> Response:
        """OpenAI's chat completions: relayed to the upstream that the operator configured, and stored as a turn of a
        conversation. Without an upstream, the answer is passages of the user's own library."""
        body = await asyncio.to_thread(uploaded.file.read)
        request = parse_completion_request(body, uploaded.args, self._limits)
        if self._upstream is None:
            return await self._extract(context, request)

        async def store(completion: Completion, cut_by: str | None) -> str | None:
            return await self._store(context, replace(request.turn, completion=completion, cut_by=cut_by))

        headers = {"Accept": EVENTS if request.is_stream else JSON}
        if request.turn.idempotency_key:
            # All users share the operator's account at the upstream, which would answer one user with the response to
            # another who sent the same key.
            headers["Idempotency-Key"] = (
                f"florilegium-{sha256(f'{context.user_id} {request.turn.idempotency_key}'.encode()).hexdigest()}"
            )
        completion = relay.CompletionRelay(self._upstream, self._open_streams, self._limits, self._settings, store)
        return await completion.respond(context.principal, request.body, headers)

    @_chat_operation("GET /v1/models", "List models", response=JSON, **schemas.COMPLETION_ERRORS)
    async def list_models(self, _context: RequestContext, _request: NoArguments) -> Response:
        """The models of the upstream. Without an upstream, only the model `extractive`."""
        if self._upstream is None:
            model = {"id": passages.EXTRACTIVE, "object": "model", "created": 0, "owned_by": "florilegium"}
            return JSONResponse({"object": "list", "data": [model]})
        async with self._upstream.request("GET", "/models") as response:
            return await relay.relay_whole_response(response, self._settings.fixed.chat_response_max_bytes)

    async def _extract(self, context: RequestContext, request: CompletionRequest) -> Response:
        context.principal.require_scope(READ)
        question = last_content(request.turn.turns, "user")
        if not question.strip():
            raise InvalidParams("messages: expected a message with role user and a text, got none")
        # The id of the conversation that the request continues, or None if it starts a new one.
        async with self._libraries.library(context) as library:
            conversation = await find_conversation(library.chats, request.turn)
        conversation_id = None if conversation is None else conversation.id
        found = (await self.passages.find(context, question, conversation_id)).passages
        completion = passages.extractive_completion(found, question)
        turn = replace(request.turn, completion=completion, tool=SEARCH_TOOL, citations=passages.citations(found))
        stored_id = await self._store(context, turn)
        headers = {} if stored_id is None else {"X-Conversation-Id": stored_id}
        if request.is_stream:
            return Response(passages.completion_events(completion, found, int(time.time())), 200, headers, EVENTS)
        return Response(passages.completion_body(completion, found, int(time.time())), 200, headers, JSON)

    async def _store(self, context: RequestContext, turn: CompletedTurn) -> str | None:
        """Logs a failure instead of raising it: an answer that was paid for must reach its client."""
        if not turn.dialogue:
            return None
        try:
            async with self._libraries.library(context) as library:
                return await self._recorder.record(library.chats, turn)
        except FlorilegiumError as error:
            logger.warning("a chat turn was not stored: {}", type(error).__name__)
            return None


def parse_completion_request(body: bytes, headers: schemas.CompletionHeaders, limits: TurnLimits) -> CompletionRequest:
    """Reads only the parts that are stored; the upstream validates the rest."""
    request = decode(body)
    if not isinstance(request, dict):
        raise InvalidParams("body: expected a JSON object, got another JSON value")
    key = headers.idempotency_key or ""
    # It is sent to the upstream as a header and stored.
    if not (key.isascii() and key.isprintable() and len(key) <= _NAME_MAX_CHARS):
        raise InvalidParams(
            f"Idempotency-Key: expected at most {_NAME_MAX_CHARS} printable ASCII characters, got {key[:60]!r}"
        )
    metadata = request.get("metadata")
    fields = metadata if isinstance(metadata, dict) else {}
    # The first name counts. Clients that cannot set headers put it into the metadata.
    names = (headers.conversation_id, headers.session_id, fields.get("conversation_id"), fields.get("session_id"))
    name = next((name for name in names if isinstance(name, str) and name), None)
    turn = CompletedTurn(
        conversation_name=None if name is None else replace_unstorable(name)[:_NAME_MAX_CHARS],
        turns=parse_turns(request.get("messages"), limits),
        completion=Completion(turn=ChatTurn(role="assistant")),
        requested_at=format_time(datetime.now(UTC)),
        idempotency_key=key or None,
    )
    return CompletionRequest(body=body, is_stream=request.get("stream") is True, turn=turn)


async def _append_to_session(chats: Chats, session_id: str, drafts: Sequence[MessageDraft]) -> str:
    conversation = await chats.get_by_session(session_id)
    await chats.append(conversation.id, drafts)
    return conversation.id
