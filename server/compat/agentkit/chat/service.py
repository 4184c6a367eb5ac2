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
from msgspec import Struct, structs
from starlette.responses import JSONResponse, Response

from auth.context import READ, WRITE, RequestContext
from config.errors import Conflict, FlorilegiumError, InvalidParams, NotFound
from config.numbers import replace_unstorable
from config.settings import Settings
from config.times import format_time
from server.compat.agentkit.chat import passages, relay, schemas
from server.compat.agentkit.chat.recorder import CompletedTurn, TurnRecorder, find_conversation
from server.compat.agentkit.chat.turns import ChatTurn, Completion, TurnLimits, parse_turns
from server.compat.agentkit.schemas import AGENTKIT_ERROR_FORMAT
from server.operations.operation import NoArguments, Upload, UploadRequest, operation
from server.protocol.messages import decode
from server.rest.errors import Unprocessable
from server.rest.forms import FormSpec
from server.runtime import Runtime
from sources.drafts import ConversationDraft, MessageDraft
from sources.storage.collections.chats import Chats
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
_chat_operation = partial(
    operation,
    tools=("chat",),
    source="chats",
    error_statuses=frozenset((502, 504)),
    error_format=AGENTKIT_ERROR_FORMAT,
    input_error=Unprocessable,
)


class _UpstreamModel(Struct, frozen=True):
    id: str


class _UpstreamModels(Struct, frozen=True):
    data: tuple[_UpstreamModel, ...]


@_chat_operation(
    "POST /chat",
    "Chat with the library",
    scope=WRITE,
    form=FormSpec(frozenset(("files",)), schemas.CHAT_FILES_MAX + _FORM_FIELDS_MAX),
    schema=schemas.chat_schema(),
    make_fields=lambda services: {"deadline_ms": _turn_deadline_ms(services.settings)},
)
async def chat(context: RequestContext, services: Runtime, request: schemas.ChatRequest) -> schemas.ChatAnswer:
    """Answers a message from the user's own library and stores both in the session's conversation. If no model is
    configured, the answer is the best passages, word for word."""
    context.principal.require_scope(READ)
    (history, files), requested_at = schemas.parse_chat_request(request), format_time(datetime.now(UTC))
    settings, upstream = services.settings, relay.Upstream.from_settings(services.settings)
    # Passages for a model must not contain messages that are hidden from agents.
    reader = context if upstream is None else structs.replace(context, is_agent=True)
    session_conversation = None
    async with services.libraries.library(context) as library:
        with suppress(NotFound):  # the first message of a session
            session_conversation = (await library.chats.get_by_session(request.session_id)).id
    results = await passages.find_passages(services, reader, request.message, session_conversation)
    if upstream is None:
        completion = passages.extractive_completion(results.passages, request.message)
    else:
        messages = [
            {"role": "system", "content": passages.instructions(results.passages, files)},
            *history,
            {"role": "user", "content": request.message},
        ]
        model, max_bytes = settings.chat_upstream_model or request.model, settings.fixed.chat_response_max_bytes
        completion = await relay.ask_upstream(upstream, model, messages, TurnLimits.of(settings), max_bytes)
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
    conversation_id, problem = await _store_chat(context, services, request, (question, answer))
    quoted = passages.passages_text(results.passages) or None
    notices = [
        *([passages.NO_WEB_SEARCH] if request.search_mode in ("web", "hybrid") else []),
        *([passages.FILES_IGNORED] if files and completion.model == passages.EXTRACTIVE else []),
        *([f"This turn was not stored: {problem}."] if problem else []),
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
    context: RequestContext, services: Runtime, request: schemas.ChatRequest, drafts: Sequence[MessageDraft]
) -> tuple[str | None, str]:
    """Returns the id of the conversation, or why the turn cannot be stored: the client receives its answer anyway."""
    try:
        async with services.libraries.library(context) as library:
            # Appends to the session's conversation, or creates it. Two first messages may arrive at once.
            draft = ConversationDraft(
                title=title_from_text(replace_unstorable(request.message)),
                namespace=request.namespace,
                session_id=request.session_id,
                # It begins with the question, and not when the answer is complete.
                created_at=drafts[0].created_at,
            )
            with suppress(NotFound):
                return await _append_to_session(library.chats, request.session_id, drafts), ""
            try:
                return (await library.chats.create(draft, drafts)).id, ""
            except Conflict:
                # The other one has created it.
                return await _append_to_session(library.chats, request.session_id, drafts), ""
    except FlorilegiumError as error:
        logger.warning("a chat turn was not stored: {}", type(error).__name__)
        return None, error.message


@_chat_operation("GET /models", "List the models for chats")
async def list_available_models(
    _context: RequestContext, services: Runtime, _request: NoArguments
) -> schemas.AvailableModels:
    """The models that `chat` can use, and the default one. Without an upstream, only `extractive`."""
    settings, upstream = services.settings, relay.Upstream.from_settings(services.settings)
    if upstream is None:
        return schemas.AvailableModels(available_models=(passages.EXTRACTIVE,), default_model=passages.EXTRACTIVE)
    async with upstream.request("GET", "/models") as response:
        relay.require_relayable(response)
        body = await response.read(settings.fixed.chat_response_max_bytes)
    try:
        names = tuple(model.id for model in msgspec.json.decode(body, type=_UpstreamModels).data)
    except msgspec.MsgspecError:
        raise relay.UpstreamError("the upstream's response contains no list of models") from None
    default = settings.chat_upstream_model or next(iter(names), "")
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
    make_fields=lambda services: {
        "upload": Upload(JSON, services.settings.body_max_bytes, schemas.COMPLETION_SCHEMA),
        "deadline_ms": _turn_deadline_ms(services.settings),
    },
)
async def create_chat_completion(context: RequestContext, services: Runtime, uploaded: UploadRequest) -> Response:
    """OpenAI's chat completions: relayed to the upstream that the operator configured, and stored as a turn of a
    conversation. Without an upstream, the answer is passages of the user's own library."""
    body = await asyncio.to_thread(uploaded.file.read)
    settings, upstream = services.settings, relay.Upstream.from_settings(services.settings)
    limits = TurnLimits.of(settings)
    turn, is_stream = parse_completion_request(body, uploaded.args, limits)
    if upstream is None:
        return await _extract(context, services, turn, is_stream=is_stream)

    async def store(completion: Completion, cut_by: str | None) -> str | None:
        return await _store(context, services, structs.replace(turn, completion=completion, cut_by=cut_by))

    headers = {"Accept": EVENTS if is_stream else JSON}
    if turn.idempotency_key:
        # All users share the operator's account at the upstream, which would answer one user with the response to
        # another who sent the same key.
        key = sha256(f"{context.user_id} {turn.idempotency_key}".encode()).hexdigest()
        headers["Idempotency-Key"] = f"florilegium-{key}"
    completion = relay.CompletionRelay(upstream, services.open_streams, limits, settings, store)
    return await completion.respond(context.principal, body, headers)


@_chat_operation("GET /v1/models", "List models", response=JSON, **schemas.COMPLETION_ERRORS)
async def list_models(_context: RequestContext, services: Runtime, _request: NoArguments) -> Response:
    """The models of the upstream. Without an upstream, only the model `extractive`."""
    settings, upstream = services.settings, relay.Upstream.from_settings(services.settings)
    if upstream is None:
        model = {"id": passages.EXTRACTIVE, "object": "model", "created": 0, "owned_by": "florilegium"}
        return JSONResponse({"object": "list", "data": [model]})
    async with upstream.request("GET", "/models") as response:
        return await relay.relay_whole_response(response, settings.fixed.chat_response_max_bytes)


async def _extract(context: RequestContext, services: Runtime, turn: CompletedTurn, *, is_stream: bool) -> Response:
    context.principal.require_scope(READ)
    question = next((one.content for one in reversed(turn.turns) if one.role == "user"), "")
    if not question.strip():
        raise InvalidParams("messages: expected a message with role user and a text, got none")
    # The conversation that the request continues, or None if it starts a new one.
    async with services.libraries.library(context) as library:
        conversation = await find_conversation(library.chats, turn)
    conversation_id = None if conversation is None else conversation.id
    found = (await passages.find_passages(services, context, question, conversation_id)).passages
    completion = passages.extractive_completion(found, question)
    turn = structs.replace(turn, completion=completion, tool=SEARCH_TOOL, citations=passages.citations(found))
    stored_id = await _store(context, services, turn)
    headers = {} if stored_id is None else {"X-Conversation-Id": stored_id}
    render, media_type = (passages.completion_events, EVENTS) if is_stream else (passages.completion_body, JSON)
    return Response(render(completion, found, int(time.time())), 200, headers, media_type)


async def _store(context: RequestContext, services: Runtime, turn: CompletedTurn) -> str | None:
    """Logs a failure instead of raising it: an answer that was paid for must reach its client."""
    if not turn.dialogue:
        return None
    try:
        async with services.libraries.library(context) as library:
            recorder = TurnRecorder(_CHAT_RETRY_WINDOW_S, services.settings.batch_max_items)
            return await recorder.record(library.chats, turn)
    except FlorilegiumError as error:
        logger.warning("a chat turn was not stored: {}", type(error).__name__)
        return None


def parse_completion_request(
    body: bytes, headers: schemas.CompletionHeaders, limits: TurnLimits
) -> tuple[CompletedTurn, bool]:
    """Returns the turn without its answer, and whether the client wants a stream. Reads only the parts that are stored;
    the upstream validates the rest."""
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
    return turn, request.get("stream") is True


async def _append_to_session(chats: Chats, session_id: str, drafts: Sequence[MessageDraft]) -> str:
    conversation = await chats.get_by_session(session_id)
    await chats.append(conversation.id, drafts)
    return conversation.id
