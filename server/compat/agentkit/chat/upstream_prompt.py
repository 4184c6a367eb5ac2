"""Asks the upstream a question together with the passages that this server found: one request, one whole answer."""

import secrets
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from config.errors import RateLimited
from server.compat.agentkit.chat.completion_parser import Completion, parse_completion
from server.compat.agentkit.chat.passages import ChatPassage
from server.compat.agentkit.chat.turns import TurnLimits
from server.compat.agentkit.chat.upstream import Upstream
from server.compat.agentkit.chat.upstream_response import UpstreamError, UpstreamResponse
from server.compat.agentkit.chat.wording import AttachedText, instructions

_MARK_BYTES = 8
_RETRY_AFTER_S = 5.0


class UpstreamPrompt(Struct, frozen=True, kw_only=True):
    message: str
    model: str
    history: Sequence[Mapping[str, str]]
    passages: Sequence[ChatPassage]
    files: Sequence[AttachedText]


async def ask_upstream(upstream: Upstream, prompt: UpstreamPrompt, limits: TurnLimits, max_bytes: int) -> Completion:
    mark = f"data-{secrets.token_hex(_MARK_BYTES)}"
    messages = [
        {"role": "system", "content": instructions(prompt.passages, prompt.files, mark)},
        *prompt.history,
        {"role": "user", "content": prompt.message},
    ]
    body = msgspec.json.encode({"model": prompt.model, "messages": messages})
    async with upstream.request("POST", "/chat/completions", body, {"Accept": "application/json"}) as response:
        _require_success(response)
        completion = parse_completion(await response.read(max_bytes), limits)
    if completion is None:
        raise UpstreamError("the upstream's response contains no completion")
    return completion


def _require_success(response: UpstreamResponse) -> None:
    if response.status == 429:
        retry_after = response.headers.get("retry-after", "")
        raise RateLimited("the upstream", float(retry_after) if retry_after.isdigit() else _RETRY_AFTER_S)
    if response.status != 200:
        raise UpstreamError(f"the upstream responded with status {response.status}")
