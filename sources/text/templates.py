"""Placeholders in prompt texts: `{{name}}`, and `{name}` as many prompts write it.

Texts may contain braces that mean something else (code, formulas), so placeholders without a value stay as they are.
"""

import re
from collections.abc import Iterable, Mapping

from config.errors import InvalidParams
from sources.records import SavedPrompt, SavedPromptArgument

_PLACEHOLDER = re.compile(r"\{\{\s*([^\W\d]\w{0,63})\s*\}\}|\{([^\W\d]\w{0,63})\}")


def prompt_arguments(prompt: SavedPrompt) -> tuple[SavedPromptArgument, ...]:
    """Returns the arguments that a prompt declares, or else those that its placeholders name.

    Names in double braces are required. Names in single braces are optional, because these may be part of the text.
    """
    if prompt.arguments:
        return prompt.arguments
    required: dict[str, bool] = {}
    for placeholder in _PLACEHOLDER.finditer(f"{prompt.system_prompt}\n{prompt.user_prompt}"):
        name = placeholder[1] or placeholder[2]
        required[name] = required.get(name, False) or placeholder[1] is not None
    return tuple(SavedPromptArgument(name=name, required=is_required) for name, is_required in required.items())


def fill_placeholders(text: str, values: Mapping[str, str], max_chars: int) -> str:
    """Returns the text with its placeholders replaced. Values are inserted literally, placeholders in them included."""

    def value_for(placeholder: re.Match[str]) -> str:
        return values.get(placeholder[1] or placeholder[2], placeholder[0])

    size = len(text) + sum(len(value_for(match)) - len(match[0]) for match in _PLACEHOLDER.finditer(text))
    if size > max_chars:
        raise InvalidParams(f"arguments: expected at most {max_chars} characters in the filled prompt, got {size}")
    return _PLACEHOLDER.sub(value_for, text)


def join_paragraphs(parts: Iterable[str]) -> str:
    """Joins the parts that are not blank, separated by empty lines."""
    return "\n\n".join(part.strip() for part in parts if part.strip())
