"""Answers of an OpenAI-compatible API, whole or as a stream of events, read while their bytes pass by.

What is relayed is not touched. A part that cannot be read is missing in the record, and only there.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from config.text import replace_unstorable
from server.compat.agentkit.chat.turns import Turn, TurnLimits, read_turn

_LINE_END = re.compile(rb"\r\n|\n|\r")
_DONE = b"[DONE]"
_NAME_MAX_CHARS = 200
_NUMBERS_MAX = 20


class Completion(Struct, frozen=True, kw_only=True):
    """What was answered. `is_whole` is false where it broke off before it was said to be at its end."""

    turn: Turn
    model: str | None = None
    finish_reason: str | None = None
    usage: Mapping[str, Any] = {}
    choices: int = 1
    is_whole: bool = True

    @property
    def metadata(self) -> dict[str, Any]:
        told = self.turn.metadata
        if self.finish_reason:
            told["finish_reason"] = self.finish_reason
        if self.usage:
            told["usage"] = dict(self.usage)
        if self.choices > 1:
            told["choices"] = self.choices
        return told


def read_completion(body: bytes, limits: TurnLimits) -> Completion | None:
    """The first choice of a whole answer; nothing where there is none."""
    answer = _object(body)
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(message, dict):
        return None
    turn = read_turn({**message, "role": "assistant"}, limits)
    assert turn is not None
    return Completion(
        turn=turn,
        model=_name(answer.get("model")),
        finish_reason=_name(first.get("finish_reason")) if isinstance(first, dict) else None,
        usage=_numbers(answer.get("usage")),
        choices=len(choices) if isinstance(choices, list) else 1,
    )


class EventReader:
    """Puts a streamed answer together. It keeps no more than `max_bytes` of it."""

    def __init__(self, limits: TurnLimits, max_bytes: int) -> None:
        self._limits = limits
        self._room = max_bytes
        self._rest = b""
        self._content: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._model: str | None = None
        self._finish_reason: str | None = None
        self._usage: dict[str, Any] = {}
        self._others: set[int] = set()
        self.is_done = False

    @property
    def is_shortened(self) -> bool:
        return self._room < 0

    def feed(self, piece: bytes) -> None:
        self._room -= len(piece)
        if self.is_shortened:
            # The end is still looked for, also between two pieces: a very long answer is not one that broke off.
            seen = self._rest[-len(_DONE) :] + piece
            self.is_done = self.is_done or _DONE in seen
            self._rest = seen[-len(_DONE) :]
            return
        *lines, self._rest = _LINE_END.split(self._rest + piece)
        for line in lines:
            self._take(line)

    def completion(self) -> Completion:
        """What has come until now, the last line included if nothing ended it."""
        self._take(self._rest)
        self._rest = b""
        message = {
            "role": "assistant",
            "content": "".join(self._content),
            "tool_calls": [self._calls[index] for index in sorted(self._calls)],
        }
        turn = read_turn(message, self._limits)
        assert turn is not None
        return Completion(
            turn=msgspec.structs.replace(turn, is_shortened=turn.is_shortened or self.is_shortened),
            model=self._model,
            finish_reason=self._finish_reason,
            usage=self._usage,
            choices=1 + len(self._others),
            is_whole=self.is_done or self._finish_reason is not None,
        )

    def _take(self, line: bytes) -> None:
        """Every event of this protocol is one line of data."""
        if not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if data == _DONE:
            self.is_done = True
            return
        event = _object(data)
        self._model = self._model or _name(event.get("model"))
        self._usage = _numbers(event.get("usage")) or self._usage
        for choice in _objects(event.get("choices")):
            if choice.get("index", 0) == 0:
                self._take_choice(choice)
            elif isinstance(choice["index"], int):
                self._others.add(choice["index"])

    def _take_choice(self, choice: Mapping[str, Any]) -> None:
        self._finish_reason = _name(choice.get("finish_reason")) or self._finish_reason
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return
        said = delta.get("content") or delta.get("refusal")
        if isinstance(said, str):
            self._content.append(said)
        for call in _objects(delta.get("tool_calls")):
            self._take_call(call)

    def _take_call(self, part: Mapping[str, Any]) -> None:
        """The parts of a call have one index; its name comes once, its arguments bit by bit."""
        index = part.get("index", 0)
        if not isinstance(index, int):
            return
        call = self._calls.setdefault(index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        call["id"] = call["id"] or str(part.get("id") or "")
        function = part.get("function")
        if isinstance(function, dict):
            for name in ("name", "arguments"):
                if isinstance(said := function.get(name), str):
                    call["function"][name] += said


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    yield from (one for one in value if isinstance(one, dict)) if isinstance(value, list) else ()


def _name(value: Any) -> str | None:
    return replace_unstorable(value)[:_NAME_MAX_CHARS] if isinstance(value, str) and value else None


def _numbers(value: Any) -> dict[str, Any]:
    """Counts of tokens; of what stands deeper, nothing."""
    if not isinstance(value, dict):
        return {}
    counts = (
        (replace_unstorable(str(name))[:_NAME_MAX_CHARS], count) for name, count in value.items() if type(count) is int
    )
    return dict(list(counts)[:_NUMBERS_MAX])
