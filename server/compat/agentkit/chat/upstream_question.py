"""A question put to the upstream by this server itself, with the passages it found: one request, one whole answer."""

import secrets
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from config.errors import RateLimited
from server.compat.agentkit.chat.completion_stream import Completion, read_completion
from server.compat.agentkit.chat.passages import Passage
from server.compat.agentkit.chat.reply import Reply, UpstreamFailed
from server.compat.agentkit.chat.turns import TurnLimits
from server.compat.agentkit.chat.upstream import Upstream
from server.compat.agentkit.chat.wording import TextFile, instructions

_MARK_BYTES = 8
_RETRY_AFTER_S = 5.0


class Question(Struct, frozen=True, kw_only=True):
    message: str
    model: str
    history: Sequence[Mapping[str, str]]
    passages: Sequence[Passage]
    files: Sequence[TextFile]


async def ask_upstream(upstream: Upstream, question: Question, limits: TurnLimits, max_bytes: int) -> Completion:
    messages = [
        {"role": "system", "content": instructions(question.passages, question.files, _new_mark())},
        *question.history,
        {"role": "user", "content": question.message},
    ]
    body = msgspec.json.encode({"model": question.model, "messages": messages})
    async with upstream.ask("POST", "/chat/completions", body, {"Accept": "application/json"}) as reply:
        _require_answer(reply)
        completion = read_completion(await reply.read(max_bytes), limits)
    if completion is None:
        raise UpstreamFailed("the upstream answered, but with no completion")
    return completion


def _new_mark() -> str:
    return f"data-{secrets.token_hex(_MARK_BYTES)}"


def _require_answer(reply: Reply) -> None:
    if reply.status == 429:
        told = reply.headers.get("retry-after", "")
        raise RateLimited("the upstream", float(told) if told.isdigit() else _RETRY_AFTER_S)
    if reply.status != 200:
        raise UpstreamFailed(f"the upstream answered {reply.status}")
