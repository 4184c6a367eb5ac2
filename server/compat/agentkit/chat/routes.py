"""The chat operations: AgentKit's `POST /chat` and OpenAI's chat completions."""

import asyncio
import time
from datetime import UTC, datetime
from hashlib import sha256

import msgspec
from loguru import logger
from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import JSONResponse, Response

from auth.context import READ, WRITE, RequestContext
from config.errors import FlorilegiumError, InvalidParams
from config.numbers import replace_unstorable
from config.settings import Settings
from config.times import format_time
from server.compat.agentkit.chat import schemas
from server.compat.agentkit.chat.passages import (
    EXTRACTIVE,
    PassageFinder,
    citations,
    completion_body,
    completion_events,
    extractive_completion,
)
from server.compat.agentkit.chat.recorder import CompletedTurn, TurnRecorder, find_conversation
from server.compat.agentkit.chat.relay import (
    CompletionRelay,
    RelayLimits,
    Upstream,
    UpstreamError,
    relay_whole_response,
    require_relayable,
)
from server.compat.agentkit.chat.schemas import AvailableModels, CompletionHeaders, ModelsRequest, turn_limits
from server.compat.agentkit.chat.service import SEARCH_TOOL, ChatService
from server.compat.agentkit.chat.turns import ChatTurn, Completion, TurnLimits, last_content, parse_turns
from server.compat.agentkit.responses import agentkit_operation
from server.operations.operation import Operation, Upload, UploadRequest, service_operation
from server.protocol.messages import decode
from server.rest.forms import FormSpec
from server.transports.client_connections import OpenStreams
from sources.storage.contract import Libraries

# -- completions -------------------------------------------------------------------------------------------------------
# OpenAI's chat completions: relayed unchanged to the operator's upstream and stored as conversations of the caller.
#
# Without an upstream the answer is made of passages of the caller's own library. The caller's credential is never
# passed on.

# Clients repeat a turn whose response was lost within minutes; the same words later are a new turn.
_CHAT_RETRY_WINDOW_S = 300.0

# The media types of whole and streamed answers.
JSON = "application/json"
EVENTS = "text/event-stream"
_NAME_MAX_CHARS = 200


class _UpstreamModel(Struct, frozen=True):
    id: str


class _UpstreamModels(Struct, frozen=True):
    data: tuple[_UpstreamModel, ...]


_decode_models = msgspec.json.Decoder(_UpstreamModels).decode


class CompletionRequest(Struct, frozen=True, kw_only=True):
    """The request body as it was received, and the parts of it that are stored."""

    body: bytes
    is_stream: bool
    turn: CompletedTurn  # with an empty answer


class CompletionService:
    def __init__(
        self,
        libraries: Libraries,
        open_streams: OpenStreams,
        finder: PassageFinder,
        upstream: Upstream | None,
        settings: Settings,
    ) -> None:
        self._libraries = libraries
        self._open_streams = open_streams
        self._finder = finder
        self._upstream = upstream
        self._settings = settings
        self._recorder = TurnRecorder(_CHAT_RETRY_WINDOW_S, settings.batch_max_items)
        self._limits = RelayLimits(
            settings.fixed.chat_turn_max_s, settings.fixed.chat_response_max_bytes, turn_limits(settings)
        )

    async def complete(self, context: RequestContext, uploaded: UploadRequest) -> Response:
        body = await asyncio.to_thread(uploaded.file.read)
        request = parse_completion_request(body, uploaded.args, self._limits.turns)
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
        relay = CompletionRelay(self._upstream, self._open_streams, self._limits, store)
        return await relay.respond(context.principal, request.body, headers)

    async def models(self, _context: RequestContext, _request: ModelsRequest) -> Response:
        if self._upstream is None:
            model = {"id": EXTRACTIVE, "object": "model", "created": 0, "owned_by": "florilegium"}
            return JSONResponse({"object": "list", "data": [model]})
        async with self._upstream.request("GET", "/models") as response:
            return await relay_whole_response(response, self._settings.fixed.chat_response_max_bytes)

    async def available_models(self, _context: RequestContext, _request: ModelsRequest) -> AvailableModels:
        """Returns the same models in AgentKit's shape."""
        if self._upstream is None:
            return AvailableModels(available_models=(EXTRACTIVE,), default_model=EXTRACTIVE)
        async with self._upstream.request("GET", "/models") as response:
            require_relayable(response)
            body = await response.read(self._settings.fixed.chat_response_max_bytes)
        try:
            names = tuple(model.id for model in _decode_models(body).data)
        except msgspec.MsgspecError:
            raise UpstreamError("the upstream's response contains no list of models") from None
        default = self._settings.chat_upstream_model or next(iter(names), "")
        return AvailableModels(available_models=names, default_model=default)

    async def _extract(self, context: RequestContext, request: CompletionRequest) -> Response:
        context.principal.require_scope(READ)
        question = last_content(request.turn.turns, "user")
        if not question.strip():
            raise InvalidParams("messages: expected a message with role user and a text, got none")
        # The id of the conversation that the request continues, or None if it starts a new one.
        async with self._libraries.library(context) as library:
            conversation = await find_conversation(library.chats, request.turn)
        conversation_id = None if conversation is None else conversation.id
        found = (await self._finder.find(context, question, conversation_id)).passages
        completion = extractive_completion(found, question)
        turn = replace(request.turn, completion=completion, tool=SEARCH_TOOL, citations=citations(found))
        stored_id = await self._store(context, turn)
        headers = {} if stored_id is None else {"X-Conversation-Id": stored_id}
        if request.is_stream:
            return Response(completion_events(completion, found, int(time.time())), 200, headers, EVENTS)
        return Response(completion_body(completion, found, int(time.time())), 200, headers, JSON)

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


def parse_completion_request(body: bytes, headers: CompletionHeaders, limits: TurnLimits) -> CompletionRequest:
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


# No MCP tool chats, so a key that is restricted to a profile may not.
CHAT_TOOLS = ("chat",)
# The form's own fields, and some unknown ones.
_FORM_FIELDS_MAX = 32
# Bad gateway, gateway timeout: see `UpstreamError` and `UpstreamTimeout`.
_UPSTREAM_FAILURES = frozenset((502, 504))


def chat_operations(chat: ChatService, completions: CompletionService, settings: Settings) -> list[Operation]:
    return [
        agentkit_operation(
            id="chat",
            method="POST",
            path="/chat",
            summary="Chat with the library",
            description=(
                "Answers a message from the user's own library and stores both in the session's conversation. If no "
                "model is configured, the answer is the best passages, word for word."
            ),
            input=schemas.ChatRequest,
            response=schemas.ChatAnswer,
            handler=chat.answer,
            tools=CHAT_TOOLS,
            scope=WRITE,
            form=FormSpec(frozenset(("files",)), schemas.CHAT_FILES_MAX + _FORM_FIELDS_MAX),
            schema=schemas.chat_schema(),
            deadline_ms=schemas.turn_deadline_ms(settings),
            error_statuses=_UPSTREAM_FAILURES,
        ),
        agentkit_operation(
            id="list_available_models",
            method="GET",
            path="/models",
            summary="List the models for chats",
            description="The models that `chat` can use, and the default one. Without an upstream, only `extractive`.",
            input=schemas.ModelsRequest,
            response=schemas.AvailableModels,
            handler=completions.available_models,
            tools=CHAT_TOOLS,
            scope=READ,
            error_statuses=_UPSTREAM_FAILURES,
        ),
        service_operation(
            id="create_chat_completion",
            method="POST",
            path="/v1/chat/completions",
            summary="Complete a chat",
            description=(
                "OpenAI's chat completions: relayed to the upstream that the operator configured, and stored as a turn "
                "of a conversation. Without an upstream, the answer is passages of the user's own library."
            ),
            input=schemas.CompletionHeaders,
            response=(JSON, EVENTS),
            handler=completions.complete,
            tools=CHAT_TOOLS,
            scope=WRITE,
            source="chats",
            headers={
                "conversation_id": "X-Conversation-Id",
                "session_id": "X-Session-Id",
                "idempotency_key": "Idempotency-Key",
            },
            upload=Upload(JSON, settings.body_max_bytes, schemas.COMPLETION_SCHEMA),
            deadline_ms=schemas.turn_deadline_ms(settings),
            error_statuses=_UPSTREAM_FAILURES,
            error_format=schemas.COMPLETION_ERROR_FORMAT,
        ),
        service_operation(
            id="list_models",
            method="GET",
            path="/v1/models",
            summary="List models",
            description="The models of the upstream. Without an upstream, only the model `extractive`.",
            input=schemas.ModelsRequest,
            response=JSON,
            handler=completions.models,
            tools=CHAT_TOOLS,
            scope=READ,
            source="chats",
            error_statuses=_UPSTREAM_FAILURES,
            error_format=schemas.COMPLETION_ERROR_FORMAT,
        ),
    ]
