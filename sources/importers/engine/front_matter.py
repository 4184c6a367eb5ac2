"""The YAML that people write above notes and into prompt files: strings, lists and maps.

A scalar stays a string (`no` is not a boolean, `1.10` not a number). Aliases are rejected, because they can expand a
kilobyte into a gigabyte.
"""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from config.errors import InvalidParams

# Longer blocks are not front matter but a text that starts with a horizontal rule.
FRONT_MATTER_MAX_CHARS = 1 << 16
_FENCED = re.compile(r"---[ \t]*\n(.*?)(?<=\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
# A value takes two bytes in a file and five hundred in memory.
_EVENTS_MAX = 200_000
# Produces only strings, lists and maps; the C implementation is used if available.
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_WORD_SEPARATOR = re.compile(r"[,\s]+")


def split_front_matter(text: str, depth_max: int) -> tuple[Mapping[str, Any], str]:
    """Returns the front matter and the remaining text. A block that is not a map stays part of the text."""
    block = _FENCED.match(text[:FRONT_MATTER_MAX_CHARS])
    if block is None:
        return {}, text
    try:
        value = parse_yaml(block[1], depth_max)
    except InvalidParams:
        return {}, text
    if not isinstance(value, Mapping):
        return ({}, text) if value is not None else ({}, text[block.end() :])
    return value, text[block.end() :]


def parse_yaml(text: str, depth_max: int) -> Any:
    """Parses a text with one YAML document; returns None if it is empty."""
    try:
        _require_safe(text, depth_max)
        return yaml.load(text, Loader=_LOADER)  # noqa: S506 - see _LOADER
    except yaml.YAMLError as error:
        raise InvalidParams(f"YAML is invalid: {_reason(error)}") from error
    except UnicodeEncodeError as error:
        raise InvalidParams("YAML contains an unpaired surrogate") from error


def _require_safe(text: str, depth_max: int) -> None:
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        if number > _EVENTS_MAX:
            raise InvalidParams(f"YAML has more than {_EVENTS_MAX} values")
        if isinstance(event, yaml.AliasEvent):
            raise InvalidParams("YAML aliases are not supported")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > depth_max:
            raise InvalidParams(f"YAML is nested more than {depth_max} levels deep")


def _reason(error: yaml.YAMLError) -> str:
    problem = str(getattr(error, "problem", None) or "unexpected content")[:80]
    mark = getattr(error, "problem_mark", None)
    return f"{problem} in line {mark.line + 1}" if mark is not None else problem


def stripped_text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def split_words(value: object) -> list[str]:
    """Returns tags or keywords from a list, or from a text that separates them with commas or spaces. A leading # is
    removed."""
    if isinstance(value, str):
        parts = value.split(",") if "," in value else _WORD_SEPARATOR.split(value)
    else:
        parts = [part for part in value if isinstance(part, str)] if isinstance(value, list) else []
    return [part.strip().removeprefix("#") for part in parts if part.strip().strip("#")]


def normalize_keys(fields: Mapping[Any, Any]) -> dict[str, Any]:
    """Normalizes field names for comparison: `System Prompt` becomes `system_prompt`."""
    return {re.sub(r"[\s-]+", "_", str(key).strip().lower()): value for key, value in fields.items()}
