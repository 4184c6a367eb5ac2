"""YAML, as far as people write it above notes and into prompt files: texts, lists and maps, and nothing is guessed.

A scalar stays the text it is written as (`no` is no truth value, `1.10` no number). Anchors are refused: with them a
kilobyte can mean a gigabyte.
"""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from config.errors import InvalidParams

# What is longer is no front matter but a text that begins with a line.
FRONT_MATTER_MAX_CHARS = 1 << 16
_FENCED = re.compile(r"---[ \t]*\n(.*?)(?<=\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
# A value takes two bytes in a file and five hundred in memory.
_EVENTS_MAX = 200_000
# Makes texts, lists and maps, and nothing else; in C where the library was built with it.
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_BETWEEN_WORDS = re.compile(r"[,\s]+")


def split_front_matter(text: str, depth_max: int) -> tuple[Mapping[str, Any], str]:
    """The map above a text and the rest. What is no map stays part of the text, so nothing is lost with it."""
    found = _FENCED.match(text[:FRONT_MATTER_MAX_CHARS])
    if found is None:
        return {}, text
    try:
        value = read_yaml(found[1], depth_max)
    except InvalidParams:
        return {}, text
    if not isinstance(value, Mapping):
        return ({}, text) if value is not None else ({}, text[found.end() :])
    return value, text[found.end() :]


def read_yaml(text: str, depth_max: int) -> Any:
    """The one document of a YAML text; none where it is empty."""
    try:
        _require_plain(text, depth_max)
        return yaml.load(text, Loader=_LOADER)  # noqa: S506 - see there
    except yaml.YAMLError as error:
        raise InvalidParams(f"YAML: got {_reason(error)}, expected one document") from error
    except UnicodeEncodeError as error:
        raise InvalidParams("YAML: got half of a surrogate pair, expected text") from error


def _require_plain(text: str, depth_max: int) -> None:
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        if number > _EVENTS_MAX:
            raise InvalidParams(f"YAML: got more than {_EVENTS_MAX} values, expected fewer")
        if isinstance(event, yaml.AliasEvent):
            raise InvalidParams("YAML: got an alias, expected values that stand where they are used")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > depth_max:
            raise InvalidParams(f"YAML: got more than {depth_max} levels, expected at most {depth_max}")


def _reason(error: yaml.YAMLError) -> str:
    problem = str(getattr(error, "problem", None) or "something else")[:80]
    mark = getattr(error, "problem_mark", None)
    return f"{problem!r} in line {mark.line + 1}" if mark is not None else repr(problem)


def text_of(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def words_of(value: Any) -> list[str]:
    """Tags and the like: a list, or a text with commas or spaces between them; a leading # is not part of one."""
    if isinstance(value, str):
        parts = value.split(",") if "," in value else _BETWEEN_WORDS.split(value)
    else:
        parts = [part for part in value if isinstance(part, str)] if isinstance(value, list) else []
    return [part.strip().removeprefix("#") for part in parts if part.strip().strip("#")]


def lower_keys(value: Mapping[Any, Any]) -> dict[str, Any]:
    """By names as they are compared: `System Prompt` is `system_prompt`."""
    return {re.sub(r"[\s-]+", "_", str(key).strip().lower()): part for key, part in value.items()}
