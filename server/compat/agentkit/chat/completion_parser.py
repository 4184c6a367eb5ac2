"""Parses the responses of an OpenAI-compatible API, whole or streamed, while their bytes are relayed unchanged.

A part that cannot be parsed is missing from the stored record only; the client still receives it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from config.text import replace_unstorable
from server.compat.agentkit.chat.turns import ChatTurn, TurnLimits, parse_turn

_LINE_END = re.compile(rb"\r\n|\n|\r")
_DONE = b"[DONE]"
# What the upstream sends is stored with the message, so that its names and numbers are limited.
_NAME_MAX_CHARS = 200
_USAGE_COUNTS_MAX = 20


class Completion(Struct, frozen=True, kw_only=True):
    """A model's answer."""

    turn: ChatTurn
    model: str | None = None
    finish_reason: str | None = None
    usage: Mapping[str, Any] = {}
    choice_count: int = 1
    is_complete: bool = True  # false if the stream ended before the upstream marked its end
    is_human_only: bool = False  # it quotes a human-only message

    @property
    def metadata(self) -> dict[str, Any]:
        metadata = self.turn.metadata
        if self.is_human_only:
            metadata["human_only"] = True
        if self.finish_reason:
            metadata["finish_reason"] = self.finish_reason
        if self.usage:
            metadata["usage"] = dict(self.usage)
        if self.choice_count > 1:
            metadata["choices"] = self.choice_count
        return metadata


def parse_completion(body: bytes, limits: TurnLimits) -> Completion | None:
    """Returns the first choice of a response that is not streamed, or None if it has no choice."""
    response = _decode_object(body)
    choices = response.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(message, dict):
        return None
    turn = parse_turn({**message, "role": "assistant"}, limits)
    assert turn is not None
    return Completion(
        turn=turn,
        model=_name(response.get("model")),
        finish_reason=_name(first.get("finish_reason")) if isinstance(first, dict) else None,
        usage=_usage_counts(response.get("usage")),
        choice_count=len(choices) if isinstance(choices, list) else 1,
    )


class CompletionStreamParser:
    """Assembles a streamed answer from its events. It stores at most `max_bytes` of the stream."""

    def __init__(self, limits: TurnLimits, max_bytes: int) -> None:
        self._limits = limits
        self._remaining_bytes = max_bytes
        self._partial_line = b""
        self._content: list[str] = []
        self._tool_calls: dict[int, dict[str, Any]] = {}
        self._model: str | None = None
        self._finish_reason: str | None = None
        self._usage: dict[str, Any] = {}
        self._other_choices: set[int] = set()
        self.is_done = False

    @property
    def is_truncated(self) -> bool:
        return self._remaining_bytes < 0

    def feed(self, data: bytes) -> None:
        # The client gets the rest as well; only the record is truncated.
        self._remaining_bytes -= len(data)
        if self.is_truncated:
            # Keep looking for the end marker, even across two reads: a very long answer is not an interrupted one.
            window = self._partial_line[-len(_DONE) :] + data
            self.is_done = self.is_done or _DONE in window
            self._partial_line = window[-len(_DONE) :]
            return
        *lines, self._partial_line = _LINE_END.split(self._partial_line + data)
        for line in lines:
            self._parse_line(line)

    def completion(self) -> Completion:
        """Returns the answer so far, including a last line that no line end terminated."""
        self._parse_line(self._partial_line)
        self._partial_line = b""
        message = {
            "role": "assistant",
            "content": "".join(self._content),
            "tool_calls": [self._tool_calls[index] for index in sorted(self._tool_calls)],
        }
        turn = parse_turn(message, self._limits)
        assert turn is not None
        return Completion(
            turn=msgspec.structs.replace(turn, is_truncated=turn.is_truncated or self.is_truncated),
            model=self._model,
            finish_reason=self._finish_reason,
            usage=self._usage,
            choice_count=1 + len(self._other_choices),
            is_complete=self.is_done or self._finish_reason is not None,
        )

    def _parse_line(self, line: bytes) -> None:
        """In this protocol every event is a single `data:` line."""
        if not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if data == _DONE:
            self.is_done = True
            return
        event = _decode_object(data)
        self._model = self._model or _name(event.get("model"))
        self._usage = _usage_counts(event.get("usage")) or self._usage
        for choice in _objects(event.get("choices")):
            if choice.get("index", 0) == 0:
                self._finish_reason = _name(choice.get("finish_reason")) or self._finish_reason
                delta = choice.get("delta")
                if isinstance(delta, dict):
                    # A refusal is an answer, too.
                    text = delta.get("content") or delta.get("refusal")
                    if isinstance(text, str):
                        self._content.append(text)
                    for call in _objects(delta.get("tool_calls")):
                        self._add_tool_call(call)
            elif isinstance(choice["index"], int):
                self._other_choices.add(choice["index"])

    def _add_tool_call(self, part: Mapping[str, Any]) -> None:
        """The parts of one call share an index; its name comes once, its arguments in fragments."""
        index = part.get("index", 0)
        if not isinstance(index, int):
            return
        call = self._tool_calls.setdefault(
            index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        )
        call["id"] = call["id"] or str(part.get("id") or "")
        function = part.get("function")
        if isinstance(function, dict):
            for name in ("name", "arguments"):
                if isinstance(fragment := function.get(name), str):
                    call["function"][name] += fragment


def _decode_object(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    yield from (entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else ()


def _name(value: Any) -> str | None:
    return replace_unstorable(value)[:_NAME_MAX_CHARS] if isinstance(value, str) and value else None


def _usage_counts(value: Any) -> dict[str, Any]:
    """Returns the token counts; nested details are dropped."""
    if not isinstance(value, dict):
        return {}
    counts = (
        (replace_unstorable(str(name))[:_NAME_MAX_CHARS], count) for name, count in value.items() if type(count) is int
    )
    return dict(list(counts)[:_USAGE_COUNTS_MAX])
