"""Answers calls that are repeated before the time that `Retry-After` named, at a fraction of the cost of other calls.

Under overload, clients that call again at once would otherwise take the time that the admitted calls need. A repeated
call has the same credential and the same tool, and gets the same result.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from cachetools import LRUCache
from msgspec import Struct
from starlette.types import Message, Receive, Scope, Send

from config.errors import retry_after_seconds
from server.protocol.call import RETRY_AFTER_KEY
from server.protocol.dispatcher import CallObserver
from server.protocol.messages import RequestId, result_message
from server.transports.headers import API_KEY, AUTHORIZATION, COOKIE, Headers
from server.transports.http_messages import send_json

# In the ASGI scope of a repeated call, which is not logged: the log line would cost more than the answer.
IS_REPEATED = "florilegium.is_repeated"
_ENTRIES_MAX = 10_000
# Every header that can decide who is calling, so that no caller gets the answer to another.
_CREDENTIALS = (AUTHORIZATION, API_KEY, COOKIE)
_Credential = tuple[bytes, ...]
# After this time a call is admitted as usual, because the queue may be empty.
_VALID_MAX_S = 0.5
_BODY_MAX_BYTES = 64 * 1024
# Answering repeated calls takes a small part of the server's time at most: beyond this rate, answers wait.
_ANSWERS_PER_S = 500.0
# So many are answered at once, in a few milliseconds: callers that were refused together return together.
_ANSWERS_AT_ONCE = 100
_ANSWER_WAIT_MAX_S = 1.0


class _ToolName(Struct, frozen=True):
    name: str = ""


class _ToolCall(Struct, frozen=True):
    """The parts of a call that its answer depends on."""

    method: str
    id: RequestId
    params: _ToolName


class _Refusal(Struct, frozen=True):
    until: float
    results: Mapping[str, Mapping[str, Any]]


_decode = msgspec.json.Decoder(_ToolCall).decode


class RepeatedRefusals:
    """The refusals that are still valid, by credential and tool."""

    def __init__(self, observer: CallObserver | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._observer = observer
        self._clock = clock
        self._refusals: LRUCache[_Credential, _Refusal] = LRUCache(_ENTRIES_MAX)
        self._next_answer_at = 0.0

    def remember(self, headers: Headers, tool: str, result: Mapping[str, Any], retry_after_s: float) -> None:
        """Keeps the result of a refused call until it may be repeated."""
        credential, now = tuple(headers.get_raw(name) for name in _CREDENTIALS), self._clock()
        before = self._refusals.get(credential)
        results = before.results if before is not None and before.until > now else {}
        self._refusals[credential] = _Refusal(now + min(retry_after_s, _VALID_MAX_S), {**results, tool: result})

    @property
    def is_empty(self) -> bool:
        return not self._refusals

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> Receive | None:
        """Answers the call if it was refused before; otherwise returns how to receive its body."""
        values = {name: value.strip(b" \t") for name, value in scope["headers"] if name in _CREDENTIALS}
        refusal = self._refusals.get(tuple(values.get(name, b"") for name in _CREDENTIALS))
        if refusal is None or refusal.until <= self._clock() or scope["method"] != "POST":
            return receive
        first = await receive()
        call = _read_call(first)
        if call is None or (result := refusal.results.get(call.params.name)) is None:
            # A function that receives the message that was already received, and then the rest.
            pending = [first]

            async def replay() -> Message:
                return pending.pop() if pending else await receive()

            return replay
        scope[IS_REPEATED], started_at = True, self._clock()
        self._next_answer_at = max(self._next_answer_at, started_at) + 1 / _ANSWERS_PER_S
        if (wait_s := self._next_answer_at - started_at - _ANSWERS_AT_ONCE / _ANSWERS_PER_S) > 0:
            await asyncio.sleep(min(wait_s, _ANSWER_WAIT_MAX_S))
        retry_after = b"%d" % retry_after_seconds(result["_meta"][RETRY_AFTER_KEY])
        await send_json(send, 200, result_message(call.id, result), [(b"retry-after", retry_after)])
        if self._observer is not None:
            self._observer.record_call("tools/call", call.params.name, "refused", self._clock() - started_at)
        return None


def _read_call(message: Message) -> _ToolCall | None:
    """Returns the tool call in a small body that arrived as a whole."""
    body = message.get("body", b"")
    if message.get("more_body") or len(body) > _BODY_MAX_BYTES:
        return None
    try:
        call = _decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return call if call.method == "tools/call" else None
