"""Turns of an agent's session, whichever agent: what was said, the tools that were called and what they answered, and
how that reads as the text of a message."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from sources.importers.formats.chatgpt_content import json_text

_NAMELESS = "tool"


class Call(Struct, frozen=True):
    """`key` is what the answer names it by."""

    key: str
    name: str
    arguments: Mapping[str, Any] = {}
    # As it came, where it is no object with names.
    text: str = ""


class Result(Struct, frozen=True):
    key: str
    text: str
    is_error: bool = False
    tool: str = ""


class Turn(Struct, frozen=True, kw_only=True):
    """`key` is unique in the session. Turns that follow one another and have the same `joins` are one. `is_summary`:
    the program wrote it; `is_aside`: it belongs to a task that ran beside the session."""

    role: str
    key: str
    text: str = ""
    time: str | None = None
    model: str = ""
    calls: Sequence[Call] = ()
    results: Sequence[Result] = ()
    joins: str = ""
    is_summary: bool = False
    is_aside: bool = False
    about: Mapping[str, Any] = {}

    @property
    def begins(self) -> bool:
        """Whether it is something that a user says, with which an exchange begins."""
        return self.role == "user" and not self.is_summary and not self.is_aside and bool(self.text.strip())


def merged(first: Turn, second: Turn) -> Turn:
    return replace(
        first,
        text="\n\n".join(filter(None, (first.text, second.text))),
        calls=(*first.calls, *second.calls),
        results=(*first.results, *second.results),
        about={**first.about, **second.about},
    )


def named(turn: Turn, tools: Mapping[str, str]) -> Turn:
    """With the names of the tools that answered, which only their calls tell."""
    if not turn.results:
        return turn
    results = [replace(one, tool=one.tool or tools.get(one.key, _NAMELESS)) for one in turn.results]
    return replace(turn, results=tuple(results))


def content_of(turn: Turn) -> str:
    """A turn as a message: what was said, then what was done."""
    parts = (turn.text, *map(_called, turn.calls), *map(_answered, turn.results))
    return "\n\n".join(part for part in parts if part.strip())


def _called(call: Call) -> str:
    lines = [f"{name}: {_value(value)}" for name, value in call.arguments.items()]
    return "\n".join((f"[{call.name}]", *lines, *([call.text] if call.text else [])))


def _answered(result: Result) -> str:
    kind = "error" if result.is_error else "result"
    return f"[{result.tool or _NAMELESS}: {kind}]\n{result.text}".rstrip()


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json_text(value)
    except (msgspec.MsgspecError, ValueError, UnicodeEncodeError):
        return ""
