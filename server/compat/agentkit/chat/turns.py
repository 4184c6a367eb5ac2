"""Turns of a conversation as OpenAI's chat completions write them, read leniently: what cannot be read is left out of
the record, never refused. It judges nothing that an upstream will judge.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from config.text import replace_unstorable
from sources.records import Message

_ROLES = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
_PLACE_MAX_CHARS = 500


class TurnLimits(Struct, frozen=True):
    """How much of a turn a row can hold."""

    content_max_chars: int
    metadata_max_bytes: int


class Turn(Struct, frozen=True, kw_only=True):
    """One thing said. `calls` are the tool calls of an assistant, `answers` is the call that a tool's turn answers."""

    role: str
    content: str = ""
    name: str = ""
    calls: tuple[Mapping[str, Any], ...] = ()
    answers: str = ""
    attachments: tuple[Mapping[str, Any], ...] = ()
    is_shortened: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.content or self.calls or self.attachments)

    @property
    def fingerprint(self) -> tuple[str, ...]:
        """By which a turn is known again. Clients trim what they send back."""
        return (self.role, self.content.strip(), self.answers, *_ids(self.calls))

    @property
    def metadata(self) -> dict[str, Any]:
        told: dict[str, Any] = {}
        if self.calls:
            told["tool_calls"] = list(self.calls)
        if self.answers:
            told["tool_call_id"] = self.answers
        if self.is_shortened:
            told["is_shortened"] = True
        return told


def fingerprint_of(message: Message) -> tuple[str, ...]:
    """Of a stored turn, equal to that of the turn it was made from."""
    calls, answers = message.metadata.get("tool_calls"), message.metadata.get("tool_call_id")
    ids = _ids(call for call in calls if isinstance(call, dict)) if isinstance(calls, list) else ()
    return (message.role, message.content.strip(), answers if isinstance(answers, str) else "", *ids)


def read_turns(messages: Any, limits: TurnLimits) -> tuple[Turn, ...]:
    """The turns in `messages` of a request."""
    if not isinstance(messages, list):
        return ()
    read = (read_turn(message, limits) for message in messages if isinstance(message, dict))
    return tuple(turn for turn in read if turn is not None and not turn.is_empty)


def read_turn(message: Mapping[str, Any], limits: TurnLimits) -> Turn | None:
    role = _ROLES.get(str(message.get("role")))
    if role is None:
        return None
    said = text_of(message.get("content")) or _text(message.get("refusal"))
    content = replace_unstorable(said)
    return Turn(
        role=role,
        content=content[: limits.content_max_chars],
        name=replace_unstorable(_text(message.get("name")))[:_PLACE_MAX_CHARS],
        calls=_calls(message, limits.metadata_max_bytes),
        answers=replace_unstorable(_text(message.get("tool_call_id")))[:_PLACE_MAX_CHARS],
        attachments=_attachments(message.get("content")),
        is_shortened=len(content) > limits.content_max_chars,
    )


def text_of(content: Any) -> str:
    """A content may be text, or parts of which some are."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") or part.get("refusal") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def last_said(turns: Sequence[Turn], role: str) -> str:
    return next((turn.content for turn in reversed(turns) if turn.role == role), "")


def first_said(turns: Sequence[Turn], role: str) -> str:
    return next((turn.content for turn in turns if turn.role == role), "")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _ids(calls: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(str(call.get("id") or "") for call in calls)


def _calls(message: Mapping[str, Any], limit_bytes: int) -> tuple[Mapping[str, Any], ...]:
    """The tool calls; of very long ones the names, so that the turn can still be stored and known again."""
    listed = message.get("tool_calls")
    calls = [call for call in listed if isinstance(call, dict)] if isinstance(listed, list) else []
    if isinstance(legacy := message.get("function_call"), dict):
        calls.append({"type": "function", "function": legacy})
    # Half of the room is for what else is told of a message.
    if len(msgspec.json.encode(calls)) * 2 > limit_bytes:
        calls = [_named_only(call) for call in calls]
    return tuple(calls)


def _named_only(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    name = _text(function.get("name")) if isinstance(function, dict) else ""
    return {"id": replace_unstorable(_text(call.get("id")))[:100], "function": {"name": replace_unstorable(name)[:100]}}


def _attachments(content: Any) -> tuple[Mapping[str, Any], ...]:
    """Parts that are not text: where they are, never the bytes of a `data:` address."""
    parts = content if isinstance(content, list) else []
    kinds = [(part, part.get("type")) for part in parts if isinstance(part, dict)]
    return tuple(
        _attachment(part, kind) for part, kind in kinds if isinstance(kind, str) and kind not in ("text", "refusal")
    )


def _attachment(part: Mapping[str, Any], kind: str) -> dict[str, Any]:
    told: dict[str, Any] = {"type": replace_unstorable(kind)[:100]}
    held = part.get(kind)
    url = _text(held.get("url")) if isinstance(held, dict) else _text(held)
    if url.startswith("data:"):
        return told | {"media_type": replace_unstorable(url[5:105].partition(";")[0]), "chars": len(url)}
    return told | ({"url": replace_unstorable(url[:_PLACE_MAX_CHARS])} if url else {})
