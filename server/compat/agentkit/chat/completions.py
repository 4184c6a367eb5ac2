"""OpenAI's chat completions, relayed to the operator's upstream and kept as conversations of the caller.

What is relayed is relayed untouched, both ways. Without an upstream the answer is made of the caller's own library. The
caller's credential ends here.
"""

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from loguru import logger
from msgspec import Meta, Struct
from starlette.responses import JSONResponse, Response

from auth.context import RequestContext
from auth.principal import READ, WRITE
from config.errors import FlorilegiumError, InvalidParams
from config.settings import Settings
from config.text import replace_unstorable
from config.times import format_time
from server.compat.agentkit.chat.completion_stream import Completion
from server.compat.agentkit.chat.errors import CompletionRefusal, problem_body
from server.compat.agentkit.chat.extractive import completion_body, completion_events, extractive_completion
from server.compat.agentkit.chat.passages import EXTRACTIVE, Passages
from server.compat.agentkit.chat.relay import Relay, RelayLimits, relayed_reply
from server.compat.agentkit.chat.turns import Turn, TurnLimits, last_said, read_turns
from server.compat.agentkit.chat.upstream import Upstream
from server.compat.agentkit.chat.wording import citations
from server.compat.agentkit.recorder import Recorder, Talk, find_conversation
from server.protocol.messages import decode
from server.rest.errors import ErrorFormat
from server.rest.operation import Operation, Upload, UploadRequest
from server.runtime import Runtime

COMPLETION_ENVELOPE = ErrorFormat(CompletionRefusal, lambda error, _path: problem_body(error))
JSON = "application/json"
EVENTS = "text/event-stream"
SEARCH_TOOL = "knowledge_search"
# No tool chats: a key that is bound to a few tools may not.
CHAT_TOOLS = ("chat",)
_NAME_MAX_CHARS = 200
_MESSAGE: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "role": {"type": "string", "enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": {"description": "A text, or parts of which some are text."},
    },
    "required": ["role"],
}
_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "description": "A request of OpenAI's chat completions. All of it is passed on.",
    "properties": {
        "model": {"type": "string", "description": "A model of the upstream."},
        "messages": {"type": "array", "items": _MESSAGE, "description": "The conversation so far."},
        "stream": {"type": "boolean", "description": "Answer as a stream of events."},
        "metadata": {"type": "object", "description": "conversation_id or session_id in it name the conversation."},
    },
    "required": ["messages"],
    "additionalProperties": True,
}


class CompletionHeaders(Struct, frozen=True, kw_only=True):
    """What a client may say beside the body, which is OpenAI's."""

    conversation_id: Annotated[
        str | None, Meta(description="The conversation: the id of one, or any name of your own.")
    ] = None
    session_id: Annotated[str | None, Meta(description="The same, under the name that other clients use.")] = None
    idempotency_key: Annotated[
        str | None, Meta(description="A name for this turn; sent again under it, it is stored once.")
    ] = None


class NoInput(Struct, frozen=True, kw_only=True):
    """Nothing is needed."""


class Asked(Struct, frozen=True, kw_only=True):
    """A request as it came, and what of it is kept."""

    body: bytes
    turns: tuple[Turn, ...]
    is_stream: bool
    name: str | None
    idempotency_key: str | None
    asked_at: str

    def talk(self, completion: Completion, **told: Any) -> Talk:
        return Talk(
            name=self.name,
            turns=self.turns,
            completion=completion,
            asked_at=self.asked_at,
            idempotency_key=self.idempotency_key,
            **told,
        )


def completion_operations(runtime: Runtime) -> list[Operation]:
    return [_complete(runtime), _models(runtime)]


def passages_of(runtime: Runtime) -> Passages:
    knowledge = runtime.knowledge
    return Passages(runtime.libraries, knowledge.aggregator, knowledge.retriever, runtime.settings)


def turn_limits(settings: Settings) -> TurnLimits:
    return TurnLimits(settings.item_max_chars, settings.metadata_max_bytes)


def turn_deadline_ms(settings: Settings) -> int:
    """The relay ends a turn by itself; this is for what it does afterwards."""
    return round(settings.chat_turn_max_s * 1000) + settings.call_deadline_ms


def _complete(runtime: Runtime) -> Operation:
    settings = runtime.settings
    upstream, chat = Upstream.of(settings), _Completions(runtime)

    async def run(context: RequestContext, uploaded: UploadRequest) -> Response:
        asked = read_request(await asyncio.to_thread(uploaded.file.read), uploaded.args, turn_limits(settings))
        if upstream is None:
            return await chat.extract(context, asked)
        return await chat.relay(context, asked, upstream)

    return Operation(
        id="create_chat_completion",
        method="POST",
        path="/v1/chat/completions",
        summary="Complete a chat",
        description=(
            "OpenAI's chat completions: passed on to the upstream that the operator has set, whose answer is passed "
            "back, and kept as a turn of a conversation. Without an upstream, passages of the user's own library."
        ),
        input=CompletionHeaders,
        response=(JSON, EVENTS),
        handler=run,
        tools=CHAT_TOOLS,
        scope=WRITE,
        headers={
            "conversation_id": "X-Conversation-Id",
            "session_id": "X-Session-Id",
            "idempotency_key": "Idempotency-Key",
        },
        upload=Upload(JSON, settings.body_max_bytes, _SCHEMA),
        deadline_ms=turn_deadline_ms(settings),
        error_statuses=frozenset((502, 504)),
        error_format=COMPLETION_ENVELOPE,
    )


def _models(runtime: Runtime) -> Operation:
    settings = runtime.settings
    upstream = Upstream.of(settings)

    async def run(_context: RequestContext, _given: NoInput) -> Response:
        if upstream is None:
            model = {"id": EXTRACTIVE, "object": "model", "created": 0, "owned_by": "florilegium"}
            return JSONResponse({"object": "list", "data": [model]})
        async with upstream.ask("GET", "/models") as reply:
            return await relayed_reply(reply, settings.chat_answer_max_bytes)

    return Operation(
        id="list_models",
        method="GET",
        path="/v1/models",
        summary="List models",
        description="The models of the upstream; without one the model `extractive` alone.",
        input=NoInput,
        response=JSON,
        handler=run,
        tools=CHAT_TOOLS,
        scope=READ,
        error_statuses=frozenset((502, 504)),
        error_format=COMPLETION_ENVELOPE,
    )


class _Completions:
    def __init__(self, runtime: Runtime) -> None:
        settings = runtime.settings
        self._runtime = runtime
        self._passages = passages_of(runtime)
        self._recorder = Recorder(settings.chat_retry_s, settings.batch_max_items)
        self._limits = RelayLimits(settings.chat_turn_max_s, settings.chat_answer_max_bytes, turn_limits(settings))

    async def relay(self, context: RequestContext, asked: Asked, upstream: Upstream) -> Response:
        async def keep(completion: Completion, cut_by: str | None) -> str | None:
            return await self._keep(context, asked.talk(completion, cut=cut_by))

        headers = {"Accept": EVENTS if asked.is_stream else JSON}
        if asked.idempotency_key:
            headers["Idempotency-Key"] = asked.idempotency_key
        relay = Relay(upstream, self._runtime.open_streams, self._limits, keep)
        return await relay.answer(context.principal, asked.body, headers)

    async def extract(self, context: RequestContext, asked: Asked) -> Response:
        context.principal.require_scope(READ)
        question = last_said(asked.turns, "user")
        if not question.strip():
            raise InvalidParams("messages: got none of the role user with a text, expected one")
        gathered = await self._passages.gather(context, question, await self._conversation_id(context, asked))
        completion = extractive_completion(gathered, question)
        told = {"tool": SEARCH_TOOL, "citations": citations(gathered.passages)}
        conversation_id = await self._keep(context, asked.talk(completion, **told))
        headers = {} if conversation_id is None else {"X-Conversation-Id": conversation_id}
        write = completion_events if asked.is_stream else completion_body
        body = write(completion, gathered, int(time.time()))
        return Response(body, 200, headers, EVENTS if asked.is_stream else JSON)

    async def _conversation_id(self, context: RequestContext, asked: Asked) -> str | None:
        """Of the conversation so far, if there is one: what was said in it is known to who asks."""
        async with self._runtime.libraries.library(context) as library:
            found = await find_conversation(library.chats, asked.talk(Completion(turn=Turn(role="assistant"))))
        return None if found is None else found.id

    async def _keep(self, context: RequestContext, talk: Talk) -> str | None:
        """An answer that was paid for reaches its client also where it cannot be stored; the operator is told."""
        if not talk.spoken:
            return None
        try:
            async with self._runtime.libraries.library(context) as library:
                return await self._recorder.record(library.chats, talk)
        except FlorilegiumError as error:
            logger.warning("a turn of a chat was not stored: {}", type(error).__name__)
            return None


def read_request(body: bytes, given: CompletionHeaders, limits: TurnLimits) -> Asked:
    """Only what is kept is read; whether the rest is right is for the upstream to say."""
    request = decode(body)
    if not isinstance(request, dict):
        raise InvalidParams("the body: got JSON that is no object, expected an object")
    return Asked(
        body=body,
        turns=read_turns(request.get("messages"), limits),
        is_stream=request.get("stream") is True,
        name=_name(given, request.get("metadata")),
        idempotency_key=_printable(given.idempotency_key),
        asked_at=format_time(datetime.now(UTC)),
    )


def _name(given: CompletionHeaders, metadata: Any) -> str | None:
    told = metadata if isinstance(metadata, dict) else {}
    named = (given.conversation_id, given.session_id, told.get("conversation_id"), told.get("session_id"))
    return next((replace_unstorable(name)[:_NAME_MAX_CHARS] for name in named if isinstance(name, str) and name), None)


def _printable(key: str | None) -> str | None:
    """It is sent on as a header."""
    if key is None or (key.isascii() and key.isprintable() and len(key) <= _NAME_MAX_CHARS):
        return key or None
    raise InvalidParams(f"Idempotency-Key: got {key[:60]!r}, expected at most {_NAME_MAX_CHARS} characters of ASCII")
