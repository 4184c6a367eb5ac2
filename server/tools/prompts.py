"""The caller's own prompts and characters as MCP prompts.

A name is `prompt_12_code_review` or `character_3_merlin`: the number alone decides, so that it stays valid when the
item is renamed, and the rest is for people. MCP knows no system role, so what sets the scene is a first user message.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from auth.principal import READ
from config.errors import InvalidParams, NotFound
from server.protocol.call import Call
from server.protocol.catalog import Completer, McpPrompt, McpPromptArgument, PromptResult
from sources.records import Character, ListPage, SavedPrompt
from sources.storage.contract import Libraries, Library
from sources.text.templates import fill_placeholders, join_paragraphs, prompt_arguments

_DESCRIPTION_MAX_CHARS = 300
_SLUG_MAX_CHARS = 40
# A number every engine can keep.
_NAME = re.compile(r"([a-z]+)_(\d{1,18})(?:_.*)?", re.ASCII | re.DOTALL)
_MACRO = re.compile(r"\{\{\s*(char|user|original)\s*\}\}|<(char|bot|user)>", re.IGNORECASE)

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class Shelf(Protocol[R_co]):
    """A collection whose items have numbers."""

    async def get(self, number: int, /) -> R_co: ...
    async def list(self, limit: int, offset: int) -> "ListPage[Any]": ...


class OwnPrompts(Generic[R]):
    """The items of one collection of the caller's, each as a prompt."""

    scope = READ

    def __init__(
        self,
        kind: str,
        libraries: Libraries,
        shelf: Callable[[Library], Shelf[R]],
        make: Callable[[R], McpPrompt],
    ) -> None:
        self._kind = kind
        self._libraries = libraries
        self._shelf = shelf
        self._make = make

    async def page(self, call: Call, offset: int, limit: int) -> tuple[Sequence[Mapping[str, Any]], bool]:
        async with self._libraries.library(call.context) as library:
            page = await self._shelf(library).list(limit, offset)
        return [self._make(row).as_listed() for row in page.rows], offset + len(page.rows) < page.total

    async def find(self, call: Call, name: str) -> McpPrompt | None:
        found = _NAME.fullmatch(name)
        if found is None or found[1] != self._kind:
            return None
        try:
            async with self._libraries.library(call.context) as library:
                return self._make(await self._shelf(library).get(int(found[2])))
        except NotFound:
            return None


def saved_prompts(libraries: Libraries, max_chars: int) -> OwnPrompts[SavedPrompt]:
    return OwnPrompts("prompt", libraries, lambda library: library.prompts, lambda row: saved_prompt(row, max_chars))


def characters(libraries: Libraries, max_chars: int) -> OwnPrompts[Character]:
    return OwnPrompts(
        "character", libraries, lambda library: library.characters, lambda row: character_prompt(row, max_chars)
    )


def saved_prompt(stored: SavedPrompt, max_chars: int) -> McpPrompt:
    """Its system part, then its user part, with the arguments it declares or its placeholders name."""

    async def get(call: Call, given: Mapping[str, str]) -> PromptResult:
        names = {argument.name for argument in arguments}
        values = {name: value for name, value in given.items() if name in names}
        texts = [fill_placeholders(text, values, max_chars) for text in (stored.system_prompt, stored.user_prompt)]
        messages = [_message("user", text) for text in texts if text.strip()]
        return PromptResult(messages or [_message("user", stored.details or stored.name)])

    arguments = prompt_arguments(stored)
    return McpPrompt(
        name=_name("prompt", stored.id, stored.name),
        title=stored.name,
        description=_shortened(stored.details),
        arguments=tuple(
            McpPromptArgument(name=a.name, description=a.description, required=a.required) for a in arguments
        ),
        get=get,
    )


def character_prompt(character: Character, max_chars: int) -> McpPrompt:
    """Who the character is, then its greeting."""
    greetings = (character.first_message, *character.alternate_greetings)

    async def get(call: Call, given: Mapping[str, str]) -> PromptResult:
        greeting = greetings[_choice(given.get("greeting") or "0", len(greetings))]
        user = given.get("user") or "User"
        messages = [_message("user", _spoken(_scene(character), character, user, max_chars))]
        if greeting.strip():
            messages.append(_message("assistant", _spoken(greeting, character, user, max_chars)))
        return PromptResult(messages)

    which = f"Which greeting, 0 to {len(greetings) - 1}."
    return McpPrompt(
        name=_name("character", character.id, character.name),
        title=character.name,
        description=_shortened(character.description or character.personality),
        arguments=(
            McpPromptArgument(name="user", description="What the character calls you."),
            McpPromptArgument(name="greeting", description=which, complete=_numbers_below(len(greetings))),
        ),
        get=get,
    )


def _scene(character: Character) -> str:
    """The parts of a card that tell a model who to be, in the order of the card's specification."""
    name = character.nickname or character.name
    return join_paragraphs(
        (
            f"Take the part of {name} in this conversation.",
            character.system_prompt,
            character.description,
            f"Personality: {character.personality}" if character.personality else "",
            f"Scenario: {character.scenario}" if character.scenario else "",
            f"How {name} speaks:\n{character.message_example}" if character.message_example else "",
            character.post_history_instructions,
        )
    )


def _spoken(text: str, character: Character, user: str, max_chars: int) -> str:
    """Names in place of the card's macros. `{{original}}` stands for a host's own system prompt, and we have none."""
    names = {"char": character.nickname or character.name, "bot": character.nickname or character.name}
    names |= {"user": user, "original": ""}
    size = len(text) + len(_MACRO.findall(text)) * max(map(len, names.values()))
    if size > max_chars:
        raise InvalidParams(f"user: got a name that could make {size} characters, expected {max_chars} at most")
    return _MACRO.sub(lambda found: names[(found[1] or found[2]).lower()], text)


def _choice(text: str, count: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and int(text) < count):
        raise InvalidParams(f"greeting: got {text[:40]!r}, expected a number from 0 to {count - 1}")
    return int(text)


def _numbers_below(count: int) -> Completer:
    async def complete(call: Call, value: str, given: Mapping[str, str]) -> Sequence[str]:
        return [text for number in range(count) if (text := str(number)).startswith(value)]

    return complete


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": {"type": "text", "text": text}}


def _name(kind: str, number: int, title: str) -> str:
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "_", plain)[:_SLUG_MAX_CHARS].strip("_")
    return f"{kind}_{number}_{slug}" if slug else f"{kind}_{number}"


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _DESCRIPTION_MAX_CHARS else line[: _DESCRIPTION_MAX_CHARS - 1].rstrip() + "…"
