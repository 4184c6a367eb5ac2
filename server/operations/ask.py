"""Asks a question about a library, and gets an answer with citations."""

from collections.abc import AsyncIterator
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from auth.context import WRITE, RequestContext
from auth.model_endpoints import ModelEndpoint, ModelEndpoints
from config.errors import InvalidParams
from config.public_http import OutgoingRequestError, PublicFetch, origin_of
from config.settings import is_loopback
from server.asking.model import MODEL_MAX_S, is_trusted
from server.asking.service import Answer, AnswerEvent, AskRequest, answer_question, collect_answer
from server.operations.operation import (
    EVENT_STREAM,
    NOT_FOUND,
    CommandBinding,
    NoArguments,
    StreamedFile,
    account_operation,
    operation,
)
from server.services import Services

# No MCP tool answers questions, which is what the assistant is for: a key that is restricted to a profile may not ask.
_TOOLS = ("ask",)
# The time of the model, and of the search and storing around it.
_DEADLINE_MS = round(MODEL_MAX_S * 1000) + 30_000


@operation(
    "POST /api/v1/ask",
    tools=_TOOLS,
    needs_all_sources=True,
    error_statuses=NOT_FOUND,
    deadline_ms=_DEADLINE_MS,
    commands=(CommandBinding(name="ask", arguments=("question",), text="{answer}"),),
)
async def ask(context: RequestContext, services: Services, request: AskRequest) -> Answer:
    """Ask a question

    Answers a question from the user's own library: sentences, each with the passages that it cites. The question and
    its answer are kept as a conversation in the namespace ask; pass its conversation_id with the next question.
    """
    return await collect_answer(answer_question(context, services, request))


@operation(
    "POST /api/v1/ask/stream", tools=_TOOLS, needs_all_sources=True, error_statuses=NOT_FOUND, response=EVENT_STREAM
)
async def stream_answer(context: RequestContext, services: Services, request: AskRequest) -> StreamedFile:
    """Ask a question, and read the answer as it is made

    The same as ask, as server-sent events: `FoundCitations`, an `AnswerSentence` for every sentence, and `AnswerEnd`.
    If the language model fails, the passages are sent again, with sentences quoted from them.
    """
    return StreamedFile(_events(answer_question(context, services, request)), EVENT_STREAM)


async def _events(events: AsyncIterator[AnswerEvent]) -> AsyncIterator[bytes]:
    async for event in events:
        yield b"event: %s\ndata: %s\n\n" % (type(event).__name__.encode(), msgspec.json.encode(event))


# -- the language model ------------------------------------------------------------------------------------------------

_TEXT_MAX_CHARS = 2_000
_CHECK_TIMEOUT_S = 10.0


class ModelSettings(Struct, frozen=True, kw_only=True):
    """The language model that answers the user's questions. `chosen_by` is `user`, `operator`, or `nobody`: then
    passages are quoted. The key itself is never shown."""

    url: str
    model: str
    has_key: bool
    chosen_by: str


class ModelChoice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: Annotated[str, Meta(description="Base URL of an OpenAI-compatible API, such as https://api.openai.com/v1.")]
    model: Annotated[str, Meta(description="Name of the model there.")] = ""
    key: Annotated[
        str | None, Meta(description="API key there. Without it, the earlier one is kept if the host is the same.")
    ] = None


@account_operation("GET /api/v1/ask/model")
async def get_ask_model(context: RequestContext, services: Services, _request: NoArguments) -> ModelSettings:
    """Show the language model of your questions

    The address and the name of the model, without its key.
    """
    own = await ModelEndpoints(services.registry.database).get(context.user_id)
    if own is not None:
        return ModelSettings(url=own.url, model=own.model, has_key=bool(own.key), chosen_by="user")
    settings = services.settings
    # The address of the operator's model is nobody else's business.
    chosen_by = "operator" if settings.chat_upstream_url else "nobody"
    return ModelSettings(url="", model=settings.chat_upstream_model, has_key=False, chosen_by=chosen_by)


@account_operation("PUT /api/v1/ask/model", caller="unrestricted", scope=WRITE)
async def set_ask_model(context: RequestContext, services: Services, request: ModelChoice) -> ModelSettings:
    """Choose a language model for your questions

    Any OpenAI-compatible API at a public https address. Questions and the passages that are found for them are sent
    there. The key is stored by the server, and is not part of exports.
    """
    url, stored = request.url.strip().rstrip("/"), ModelEndpoints(services.registry.database)
    for name, text in (("url", url), ("model", request.model), ("key", request.key or "")):
        # The value is not repeated, because it may be the key in the wrong field.
        if len(text) > _TEXT_MAX_CHARS or not text.isprintable():
            raise InvalidParams(f"{name}: expected at most {_TEXT_MAX_CHARS} printable characters")
    if not (request.key or "").isascii():
        raise InvalidParams("key: expected ASCII characters, as a header has them")
    if "?" in url or "#" in url:
        raise InvalidParams("url: expected an address without a query")
    try:
        origin = origin_of(url)
        if not is_trusted(services):
            await PublicFetch(_CHECK_TIMEOUT_S, 0).check(url)
    except OutgoingRequestError as error:
        raise InvalidParams(f"url: {error.reason}") from error
    earlier, key = await stored.get(context.user_id), request.key
    if key and origin.startswith("http://") and not is_loopback(urlsplit(url).hostname or ""):
        raise InvalidParams("url: expected https or a loopback address with a key, which anyone could read on its way")
    if key is None:
        # Otherwise someone who finds an open browser could have the key sent elsewhere.
        key = earlier.key if earlier is not None and origin_of(earlier.url) == origin else ""
    await stored.set(context.user_id, ModelEndpoint(url=url, model=request.model.strip(), key=key))
    services.audit.record("model.set", context.user_id, client=context.client_id, target=origin)
    return await get_ask_model.handler(context, services, NoArguments())  # type: ignore[no-any-return]


@account_operation("DELETE /api/v1/ask/model", caller="unrestricted", scope=WRITE)
async def remove_ask_model(context: RequestContext, services: Services, _request: NoArguments) -> ModelSettings:
    """Remove the language model of your questions

    Deletes its address and key. Questions are then answered by the model of the operator, or by quoted passages.
    """
    await ModelEndpoints(services.registry.database).remove(context.user_id)
    services.audit.record("model.remove", context.user_id, client=context.client_id)
    return await get_ask_model.handler(context, services, NoArguments())  # type: ignore[no-any-return]
