"""Turns of an agent session in a form common to all agents: text, tool calls and tool results, and how they are written
as the content of a message."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from sources.importers.engine.values import to_json

_UNKNOWN_TOOL = "tool"


class AgentToolCall(Struct, frozen=True):
    """`key` links the call to its result. `text` holds arguments that are not an object."""

    key: str
    name: str
    arguments: Mapping[str, Any] = {}
    text: str = ""


class AgentToolResult(Struct, frozen=True):
    key: str
    text: str
    is_error: bool = False
    tool: str = ""


class AgentTurn(Struct, frozen=True, kw_only=True):
    """`key` is unique in the session. Consecutive turns with the same `merge_key` are parts of one turn. `is_summary`
    marks text that the program wrote; `is_sidechain` a task that ran in parallel to the session."""

    role: str
    key: str
    text: str = ""
    time: str | None = None
    model: str = ""
    calls: Sequence[AgentToolCall] = ()
    results: Sequence[AgentToolResult] = ()
    merge_key: str = ""
    is_summary: bool = False
    is_sidechain: bool = False
    metadata: Mapping[str, Any] = {}

    @property
    def starts_exchange(self) -> bool:
        """An exchange starts with a user's text."""
        return self.role == "user" and not self.is_summary and not self.is_sidechain and bool(self.text.strip())


def merge_turns(first: AgentTurn, second: AgentTurn) -> AgentTurn:
    return replace(
        first,
        text="\n\n".join(filter(None, (first.text, second.text))),
        calls=(*first.calls, *second.calls),
        results=(*first.results, *second.results),
        metadata={**first.metadata, **second.metadata},
    )


def with_tool_names(turn: AgentTurn, tools: Mapping[str, str]) -> AgentTurn:
    """Adds the names of tools to their results. `tools` has the names by the key of the call."""
    if not turn.results:
        return turn
    results = [replace(result, tool=result.tool or tools.get(result.key, _UNKNOWN_TOOL)) for result in turn.results]
    return replace(turn, results=tuple(results))


def turn_content(turn: AgentTurn) -> str:
    """Returns the content of the message: text, tool calls, tool results."""
    parts = (turn.text, *map(_call_text, turn.calls), *map(_result_text, turn.results))
    return "\n\n".join(part for part in parts if part.strip())


def _call_text(call: AgentToolCall) -> str:
    lines = [f"{name}: {_argument_text(value)}" for name, value in call.arguments.items()]
    return "\n".join((f"[{call.name}]", *lines, *([call.text] if call.text else [])))


def _result_text(result: AgentToolResult) -> str:
    kind = "error" if result.is_error else "result"
    return f"[{result.tool or _UNKNOWN_TOOL}: {kind}]\n{result.text}".rstrip()


def _argument_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return to_json(value)
    except (msgspec.MsgspecError, ValueError, UnicodeEncodeError):
        return ""
