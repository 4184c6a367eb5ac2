"""The language model that writes an answer: any OpenAI-compatible API, as the operator or the user chose.

Passages are quoted data: they are fenced by a mark that no author could have known, and the model is told that nothing
in them is an instruction. What it writes is treated as hostile anyway: it is text, its citations are checked against
the passages, and time and size are limited. Neither keys nor texts are logged.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack

import msgspec
from loguru import logger
from msgspec import Struct, structs

from auth.context import RequestContext
from auth.model_endpoints import ModelEndpoint, ModelEndpoints
from config.public_http import IncomingResponse, OutgoingRequestError, PublicFetch, open_response
from config.settings import Settings
from server.asking.evidence import CHARS_PER_TOKEN, Evidence
from server.compat.agentkit.chat.passages import QUOTED_DATA, fenced, new_mark
from server.compat.agentkit.chat.turns import Completion, CompletionStreamParser, TurnLimits, parse_completion
from server.services import Services
from server.version import VERSION

# An answer, from the request to its last word. Models on a small machine need a minute.
MODEL_MAX_S = 180.0
# About 4,000 tokens; the instructions ask for 200 words.
ANSWER_MAX_CHARS = 16_000
# With the envelope of each word, which is larger than the word.
_RESPONSE_MAX_BYTES = 4 * 1024 * 1024
# Earlier turns of the conversation that the model gets.
_HISTORY_MAX_CHARS = 6_000
_RULES = """\
Answer the question of the user's last message from the numbered passages in it, which are from the user's own library.
- Use only what the passages say. If they do not answer the question, say so in one sentence.
- End every sentence with the numbers of the passages that say so, in brackets: [1] or [2][3]. Use no other numbers.
- Write plain sentences in the language of the question, at most 200 words, without headings, lists or HTML."""


class ModelFailed(Exception):
    """The model did not answer. The reason is for its user, and says nothing about the network behind this server."""


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens as the model's server counted them, or an estimate by the number of characters."""

    prompt_tokens: int
    completion_tokens: int
    is_estimated: bool


def is_trusted(services: Services) -> bool:
    """The only user of a server without sign-in is its operator, whose models often run on the same machine. Addresses
    of other users must be public."""
    return not services.settings.is_auth_configured


async def find_endpoint(context: RequestContext, services: Services) -> ModelEndpoint | None:
    """Returns the model of a user: their own, or the one of the operator."""
    own = await ModelEndpoints(services.registry.database).get(context.user_id)
    if own is not None:
        return structs.replace(own, is_trusted=is_trusted(services))
    settings = services.settings
    if not settings.chat_upstream_url:
        return None
    return ModelEndpoint(
        url=settings.chat_upstream_url,
        model=settings.chat_upstream_model,
        key=settings.chat_upstream_key,
        is_trusted=True,
    )


def build_messages(
    question: str, evidence: Sequence[Evidence], history: Sequence[Mapping[str, str]]
) -> list[Mapping[str, str]]:
    """Returns the messages for the model: rules, the end of the conversation, and passages with the question."""
    recent: list[Mapping[str, str]] = []
    room = _HISTORY_MAX_CHARS
    for message in reversed(history):
        room -= len(message["content"])
        if room < 0:
            break
        recent.insert(0, message)
    mark = new_mark()
    quotes = [fenced(mark, f"[{number}] {one.title}", one.text) for number, one in enumerate(evidence, 1)]
    content = "\n\n".join([*quotes, f"Question: {question}"])
    rules = f"{_RULES}\n- {QUOTED_DATA.format(mark=mark)}"
    return [{"role": "system", "content": rules}, *recent, {"role": "user", "content": content}]


class ModelStream:
    """One answer. After its fragments were read, `completion` is what is known of the whole, and `is_cut` says whether
    it is incomplete: the model's server broke off, or wrote more than an answer may have."""

    def __init__(self, endpoint: ModelEndpoint, settings: Settings, messages: Sequence[Mapping[str, str]]) -> None:
        self._endpoint = endpoint
        self._messages = messages
        self._timeout_s = settings.chat_upstream_timeout_s
        self._deadline = asyncio.get_running_loop().time() + MODEL_MAX_S
        self._limits = TurnLimits.of(settings)
        self.is_cut = False
        self.completion: Completion | None = None

    async def fragments(self) -> AsyncIterator[str]:
        """Yields the answer as it arrives. Raises ModelFailed. The connection is closed when the caller stops
        reading."""
        body: dict[str, object] = {"messages": self._messages, "stream": True}
        if self._endpoint.model:
            body["model"] = self._endpoint.model
        # No time limit may span a `yield`: it would end what the caller does meanwhile.
        try:
            async with AsyncExitStack() as stack:
                response = await self._open(stack, {**body, "stream_options": {"include_usage": True}})
                if response.status in (400, 422):
                    # Some servers do not know how to count tokens in a stream, and refuse the request.
                    await stack.aclose()
                    response = await self._open(stack, body)
                _require_success(response.status)
                if response.headers.get("content-type", "").startswith("text/event-stream"):
                    async for fragment in self._read_stream(response.body):
                        yield fragment
                else:
                    async with asyncio.timeout_at(self._deadline):
                        whole = await response.read(_RESPONSE_MAX_BYTES)
                    self.completion = parse_completion(whole, self._limits)
                    if self.completion is None:
                        raise ModelFailed("did not answer like an OpenAI-compatible API")
                    self.is_cut = len(self.completion.turn.content) > ANSWER_MAX_CHARS
                    yield self.completion.turn.content[:ANSWER_MAX_CHARS]
        except OutgoingRequestError as error:
            if self._endpoint.is_trusted:
                # The operator needs the reason; its user must not learn about the network behind the server.
                logger.warning("The language model {}", error)
            raise ModelFailed(error.reason) from error
        except TimeoutError as error:
            raise ModelFailed(f"took longer than {MODEL_MAX_S:g} s") from error

    async def _open(self, stack: AsyncExitStack, body: Mapping[str, object]) -> IncomingResponse:
        url, encoded = f"{self._endpoint.url}/chat/completions", msgspec.json.encode(body)
        headers = {
            "User-Agent": f"florilegium/{VERSION}",
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            **({"Authorization": f"Bearer {self._endpoint.key}"} if self._endpoint.key else {}),
        }
        if self._endpoint.is_trusted:
            opened = open_response("POST", url, headers=headers, body=encoded, timeout_s=self._timeout_s)
        else:
            opened = PublicFetch(self._timeout_s, _RESPONSE_MAX_BYTES).post(url, headers, encoded)
        async with asyncio.timeout_at(self._deadline):
            return await stack.enter_async_context(opened)

    async def _read_stream(self, body: AsyncIterator[bytes]) -> AsyncIterator[str]:
        parser = CompletionStreamParser(self._limits, _RESPONSE_MAX_BYTES)
        count = chars = 0
        while not (parser.is_done or self.is_cut):
            async with asyncio.timeout_at(self._deadline):
                chunk = await anext(body, None)
            if chunk is None:
                break
            parser.feed(chunk)
            text = "".join(parser.fragments[count:])
            count, chars = len(parser.fragments), chars + len(text)
            # An endless answer, or an endless stream without one.
            self.is_cut = chars > ANSWER_MAX_CHARS or parser.is_truncated
            if text:
                yield text
        self.completion = parser.completion()
        self.is_cut = self.is_cut or not self.completion.is_complete
        if rest := "".join(parser.fragments[count:]):
            yield rest


def _require_success(status: int) -> None:
    match status:
        case 200:
            return
        case 401 | 403:
            raise ModelFailed("refused the key")
        case 404:
            raise ModelFailed("does not know the address or the name of the model")
        case 429:
            raise ModelFailed("is over its limit; try again later")
        case _:
            raise ModelFailed(f"responded with status {status}")


def usage_of(completion: Completion | None, messages: Sequence[Mapping[str, str]], text: str) -> Usage:
    counts = completion.usage if completion is not None else {}
    prompt, written = counts.get("prompt_tokens"), counts.get("completion_tokens")
    if isinstance(prompt, int) and isinstance(written, int):
        return Usage(prompt_tokens=prompt, completion_tokens=written, is_estimated=False)
    sent = sum(len(message["content"]) for message in messages)
    return Usage(
        prompt_tokens=sent // CHARS_PER_TOKEN, completion_tokens=len(text) // CHARS_PER_TOKEN + 1, is_estimated=True
    )
