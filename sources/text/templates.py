"""Placeholders in a prompt's text: `{{name}}`, and `{name}` as many prompts have it. Pure.

A text may hold braces that mean something else (code, formulas), so what nobody fills in stays as it is written.
"""

import re
from collections.abc import Iterable, Mapping

from config.errors import InvalidParams
from sources.records import SavedPrompt, SavedPromptArgument

_PLACEHOLDER = re.compile(r"\{\{\s*([^\W\d]\w{0,63})\s*\}\}|\{([^\W\d]\w{0,63})\}")


def arguments_of(prompt: SavedPrompt) -> tuple[SavedPromptArgument, ...]:
    """The arguments a prompt declares; else those its placeholders name. A doubled brace is meant as a placeholder and
    has to be filled; a single one may be part of the text."""
    if prompt.arguments:
        return prompt.arguments
    required: dict[str, bool] = {}
    for found in _PLACEHOLDER.finditer(f"{prompt.system_prompt}\n{prompt.user_prompt}"):
        name = found[1] or found[2]
        required[name] = required.get(name, False) or found[1] is not None
    return tuple(SavedPromptArgument(name=name, required=needed) for name, needed in required.items())


def fill(text: str, values: Mapping[str, str], max_chars: int) -> str:
    """The text with its placeholders filled in. A value is never searched for placeholders itself."""

    def value_of(found: re.Match[str]) -> str:
        return values.get(found[1] or found[2], found[0])

    size = len(text) + sum(len(value_of(found)) - len(found[0]) for found in _PLACEHOLDER.finditer(text))
    if size > max_chars:
        raise InvalidParams(f"arguments: got values that make {size} characters, expected {max_chars} at most")
    return _PLACEHOLDER.sub(value_of, text)


def joined(parts: Iterable[str]) -> str:
    """Paragraphs of those parts that say something."""
    return "\n\n".join(part.strip() for part in parts if part.strip())
