"""Parses the `messages` of OpenAI's chat completions into turns that can be stored.

Parsing is lenient: whatever cannot be parsed is left out of the stored record but still relayed. Validating the request
is the upstream's job.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from config.text import replace_unstorable
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
    return ChatTurn(
        role=role,
        content=content[: limits.content_max_chars],
        name=replace_unstorable(_string(message.get("name")))[:_NAME_MAX_CHARS],
        tool_calls=_tool_calls(message, limits.metadata_max_bytes),
        tool_call_id=replace_unstorable(_string(message.get("tool_call_id")))[:_NAME_MAX_CHARS],
        attachments=_attachments(message.get("content")),
        is_truncated=len(content) > limits.content_max_chars,
    )


def content_text(content: Any) -> str:
    """Returns the text of a message's content, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") or part.get("refusal") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def last_content(turns: Sequence[ChatTurn], role: str) -> str:
    return next((turn.content for turn in reversed(turns) if turn.role == role), "")


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


def _attachments(content: Any) -> tuple[Mapping[str, Any], ...]:
    """Returns the parts that are not text: their URL, never the bytes of a `data:` URL."""
    attachments: list[Mapping[str, Any]] = []
    for part in content if isinstance(content, list) else []:
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
    return tuple(attachments)
