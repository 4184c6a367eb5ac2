"""Parses the `messages` of OpenAI's chat completions into turns that can be stored.

Parsing is lenient: whatever cannot be parsed is left out of the stored record but still relayed. Validating the request
is the upstream's job.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from config.numbers import replace_unstorable
from config.settings import Settings
from sources.records import Message

# OpenAI's roles and ours. `developer` and `function` are the newer and the older name of a role.
_ROLES = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
_NAME_MAX_CHARS = 500
_SHORT_NAME_MAX_CHARS = 100


class TurnLimits(Struct, frozen=True):
    """How much of a turn fits into a stored message."""

    content_max_chars: int
    metadata_max_bytes: int

    @classmethod
    def of(cls, settings: Settings) -> "TurnLimits":
        return cls(settings.item_max_chars, settings.metadata_max_bytes)


class ChatTurn(Struct, frozen=True, kw_only=True):
    """One message of a chat. `tool_call_id` names the call that a tool's turn responds to."""

    role: str
    content: str = ""
    name: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    tool_call_id: str = ""
    attachments: tuple[Mapping[str, Any], ...] = ()
    is_truncated: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.content or self.tool_calls or self.attachments)

    @property
    def fingerprint(self) -> tuple[str, ...]:
        """Identifies a turn that is sent again. Content is stripped because clients trim what they send back."""
        return (self.role, self.content.strip(), self.tool_call_id, *_call_ids(self.tool_calls))

    @property
    def metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        if self.tool_calls:
            metadata["tool_calls"] = list(self.tool_calls)
        if self.tool_call_id:
            metadata["tool_call_id"] = self.tool_call_id
        if self.is_truncated:
            metadata["is_shortened"] = True
        return metadata


def message_fingerprint(message: Message) -> tuple[str, ...]:
    """Returns the fingerprint of the turn that a stored message was created from."""
    calls, call_id = message.metadata.get("tool_calls"), message.metadata.get("tool_call_id")
    ids = _call_ids(call for call in calls if isinstance(call, dict)) if isinstance(calls, list) else ()
    return (message.role, message.content.strip(), call_id if isinstance(call_id, str) else "", *ids)


def parse_turns(messages: Any, limits: TurnLimits) -> tuple[ChatTurn, ...]:
    """Parses the `messages` of a request; unknown roles and empty turns are left out."""
    if not isinstance(messages, list):
        return ()
    turns = (parse_turn(message, limits) for message in messages if isinstance(message, dict))
    return tuple(turn for turn in turns if turn is not None and not turn.is_empty)


def parse_turn(message: Mapping[str, Any], limits: TurnLimits) -> ChatTurn | None:
    role = _ROLES.get(str(message.get("role")))
    if role is None:
        return None
    content = replace_unstorable(content_text(message.get("content")) or _string(message.get("refusal")))
    # The parts that are not text: their URL, never the bytes of a `data:` URL.
    attachments: list[Mapping[str, Any]] = []
    parts = message.get("content")
    for part in parts if isinstance(parts, list) else []:
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str) or kind in ("text", "refusal"):
            continue
        attachment: dict[str, Any] = {"type": replace_unstorable(kind)[:_SHORT_NAME_MAX_CHARS]}
        value = part.get(kind)
        url = _string(value.get("url")) if isinstance(value, dict) else _string(value)
        if url.startswith("data:"):
            attachment |= {"media_type": replace_unstorable(url[5:105].partition(";")[0]), "chars": len(url)}
        elif url:
            attachment["url"] = replace_unstorable(url[:_NAME_MAX_CHARS])
        attachments.append(attachment)
    return ChatTurn(
        role=role,
        content=content[: limits.content_max_chars],
        name=replace_unstorable(_string(message.get("name")))[:_NAME_MAX_CHARS],
        tool_calls=_tool_calls(message, limits.metadata_max_bytes),
        tool_call_id=replace_unstorable(_string(message.get("tool_call_id")))[:_NAME_MAX_CHARS],
        attachments=tuple(attachments),
        is_truncated=len(content) > limits.content_max_chars,
    )


def content_text(content: Any) -> str:
    """Returns the text of a message's content, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") or part.get("refusal") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def first_content(turns: Sequence[ChatTurn], role: str) -> str:
    return next((turn.content for turn in turns if turn.role == role), "")


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _call_ids(calls: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(str(call.get("id") or "") for call in calls)


def _tool_calls(message: Mapping[str, Any], limit_bytes: int) -> tuple[Mapping[str, Any], ...]:
    """Very long calls are reduced to their ids and names, so that the turn can still be stored and recognized."""
    value = message.get("tool_calls")
    calls = [call for call in value if isinstance(call, dict)] if isinstance(value, list) else []
    if isinstance(legacy := message.get("function_call"), dict):
        calls.append({"type": "function", "function": legacy})
    # Half of the metadata limit is reserved for the message's other metadata.
    if len(msgspec.json.encode(calls)) * 2 > limit_bytes:
        for index, call in enumerate(calls):
            function = call.get("function")
            name = replace_unstorable(_string(function.get("name")) if isinstance(function, dict) else "")
            call_id = replace_unstorable(_string(call.get("id")))[:_SHORT_NAME_MAX_CHARS]
            calls[index] = {"id": call_id, "function": {"name": name[:_SHORT_NAME_MAX_CHARS]}}
    return tuple(calls)


# -- completion parser -------------------------------------------------------------------------------------------------
# Parses the responses of an OpenAI-compatible API, whole or streamed, while their bytes are relayed unchanged.
#
# A part that cannot be parsed is missing from the stored record only; the client still receives it.

_LINE_END = re.compile(rb"\r\n|\n|\r")
_DONE = b"[DONE]"
# What the upstream sends is stored with the message, so that its names and numbers are limited.
_TOOL_NAME_MAX_CHARS = 200
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
        self.fragments: list[str] = []
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
            "content": "".join(self.fragments),
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
                        self.fragments.append(text)
                    for part in _objects(delta.get("tool_calls")):
                        # The parts of one call share an index; its name comes once, its arguments in fragments.
                        if not isinstance(index := part.get("index", 0), int):
                            continue
                        empty = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
                        call = self._tool_calls.setdefault(index, empty)
                        call["id"] = call["id"] or str(part.get("id") or "")
                        function = part.get("function")
                        function = function if isinstance(function, dict) else {}
                        for name in ("name", "arguments"):
                            if isinstance(fragment := function.get(name), str):
                                call["function"][name] += fragment
            elif isinstance(choice["index"], int):
                self._other_choices.add(choice["index"])


def _decode_object(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    yield from (entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else ()


def _name(value: Any) -> str | None:
    return replace_unstorable(value)[:_TOOL_NAME_MAX_CHARS] if isinstance(value, str) and value else None


def _usage_counts(value: Any) -> dict[str, Any]:
    """Returns the token counts; nested details are dropped."""
    if not isinstance(value, dict):
        return {}
    counts = (
        (replace_unstorable(str(name))[:_TOOL_NAME_MAX_CHARS], count)
        for name, count in value.items()
        if type(count) is int
    )
    return dict(list(counts)[:_USAGE_COUNTS_MAX])
