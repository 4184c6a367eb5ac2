"""The caller's own prompts and characters as MCP prompts.

A name is `prompt_12_code_review` or `character_3_merlin`. Only the number identifies the item, so the name stays valid
when the item is renamed. MCP prompts have no system role, so the system part is the first user message.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct, structs

from aggregator.libraries import enter, split_library, with_library
from auth.context import READ, LibraryAccess
from config.errors import InvalidParams, NotFound
from server.protocol.call import Call
from server.protocol.catalog import McpPrompt, McpPromptArgument, PromptResult
from sources.items import uri_of
from sources.records import Character, ListPage, SavedPrompt
from sources.storage.contract import Libraries, Library
from sources.storage.shared_part import permitted_sources
from sources.text.chunking import fill_placeholders, join_paragraphs, prompt_arguments, run_text_work

_DESCRIPTION_MAX_CHARS = 300
_SLUG_MAX_CHARS = 40
# At most 18 digits, which every database can store.
_NAME = re.compile(r"([a-z]+)_(\d{1,18})(?:_.*)?", re.ASCII | re.DOTALL)
_MACRO = re.compile(r"\{\{\s*(char|user|original)\s*\}\}|<(char|bot|user)>", re.IGNORECASE)

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R", bound=Struct)


class NumberedCollection(Protocol[R_co]):
    """A collection whose ids are numbers."""

    async def get(self, number: int, /) -> R_co: ...
    async def list(self, limit: int, offset: int) -> "ListPage[Any]": ...


class CollectionPrompts(Generic[R]):
    """Offers each item of one of the caller's collections as a prompt."""

    scope = READ

    def __init__(
        self,
        kind: str,
        libraries: Libraries,
        collection: Callable[[Library], NumberedCollection[R]],
        to_prompt: Callable[[R], McpPrompt],
        access: LibraryAccess | None = None,
    ) -> None:
        self.name = f"{kind}s"
        self._access = access
        self._kind = kind
        self._libraries = libraries
        self._collection = collection
        self._to_prompt = to_prompt

    def within(self, access: LibraryAccess) -> "CollectionPrompts[R]":
        return CollectionPrompts(self._kind, self._libraries, self._collection, self._to_prompt, access)

    async def page(self, call: Call, offset: int, limit: int) -> tuple[Sequence[Mapping[str, Any]], bool]:
        context = call.context if self._access is None else call.context.within(self._access)
        permitted = permitted_sources(context)
        if permitted is not None and self.name not in permitted:
            return (), False
        async with self._libraries.library(context) as library:
            page = await self._collection(library).list(limit, offset)
        chars = sum(map(_text_chars, page.rows))
        listed = await run_text_work(chars, lambda: [self._labelled(row).as_listed() for row in page.rows])
        return listed, offset + len(page.rows) < page.total

    def _labelled(self, row: R) -> McpPrompt:
        prompt, access = self._to_prompt(row), self._access
        if access is None:
            return prompt
        title = f"{prompt.title} ({access.name})"
        return structs.replace(prompt, name=with_library(prompt.name, access.handle), title=title)

    async def find(self, call: Call, name: str) -> McpPrompt | None:
        # Only the number identifies the item, so that a name from an old list still works.
        plain, library_name = split_library(name)
        match = _NAME.fullmatch(plain)
        if match is None or match[1] != self._kind:
            return None
        uri, context = uri_of(self.name, int(match[2])), call.context
        try:
            if library_name is not None:
                context = enter(context, library_name, uri)
            async with self._libraries.library(context) as library:
                row = await self._collection(library).get(int(match[2]))
        except NotFound:
            return None
        prompt = await run_text_work(_text_chars(row), self._to_prompt, row)

        async def render(call: Call, arguments: Mapping[str, str]) -> PromptResult:
            result = await prompt.handler(call, arguments)
            # The item counts as read when the prompt is rendered, not when it is listed.
            context.record_read(uri)
            return result

        return structs.replace(prompt, handler=render)


def saved_prompts(libraries: Libraries, max_chars: int) -> CollectionPrompts[SavedPrompt]:
    return CollectionPrompts(
        "prompt", libraries, lambda library: library.prompts, lambda row: saved_prompt(row, max_chars)
    )


def character_prompts(libraries: Libraries, max_chars: int) -> CollectionPrompts[Character]:
    return CollectionPrompts(
        "character", libraries, lambda library: library.characters, lambda row: character_prompt(row, max_chars)
    )


def saved_prompt(stored: SavedPrompt, max_chars: int) -> McpPrompt:
    """Renders the system part, then the user part. Arguments are those declared or named by placeholders."""
    parameters = prompt_arguments(stored)

    async def render(call: Call, arguments: Mapping[str, str]) -> PromptResult:
        names = {parameter.name for parameter in parameters}
        values = {name: value for name, value in arguments.items() if name in names}
        parts = (stored.system_prompt, stored.user_prompt)
        texts = await run_text_work(
            _text_chars(stored), lambda: [fill_placeholders(text, values, max_chars) for text in parts]
        )
        messages = [_message("user", text) for text in texts if text.strip()]
        return PromptResult(messages or [_message("user", stored.details or stored.name)])

    return McpPrompt(
        name=_name("prompt", stored.id, stored.name),
        title=stored.name,
        description=_shortened(stored.details),
        arguments=tuple(
            McpPromptArgument(name=a.name, description=a.description, required=a.required) for a in parameters
        ),
        handler=render,
    )


def character_prompt(character: Character, max_chars: int) -> McpPrompt:
    """Renders a description of the character, then its greeting."""
    greetings = (character.first_message, *character.alternate_greetings)

    async def render(call: Call, arguments: Mapping[str, str]) -> PromptResult:
        number = arguments.get("greeting") or "0"
        if not (number.isascii() and number.isdigit() and len(number) <= 6 and int(number) < len(greetings)):
            raise InvalidParams(f"greeting: expected a number from 0 to {len(greetings) - 1}, got {number[:40]!r}")
        greeting = greetings[int(number)]
        user = arguments.get("user") or "User"

        def fill() -> PromptResult:
            messages = [_message("user", _fill_macros(_character_description(character), character, user, max_chars))]
            if greeting.strip():
                messages.append(_message("assistant", _fill_macros(greeting, character, user, max_chars)))
            return PromptResult(messages)

        return await run_text_work(_text_chars(character), fill)

    async def complete_number(call: Call, value: str, arguments: Mapping[str, str]) -> Sequence[str]:
        return [text for number in range(len(greetings)) if (text := str(number)).startswith(value)]

    which = f"Number of the greeting, 0 to {len(greetings) - 1}."
    return McpPrompt(
        name=_name("character", character.id, character.name),
        title=character.name,
        description=_shortened(character.description or character.personality),
        arguments=(
            McpPromptArgument(name="user", description="The name by which the character addresses you."),
            McpPromptArgument(name="greeting", description=which, completer=complete_number),
        ),
        handler=render,
    )


def _character_description(character: Character) -> str:
    """Joins the parts of a card that describe the role, in the order of the card specification."""
    name = character.nickname or character.name
    return join_paragraphs(
        (
            f"Play the role of {name} in this conversation.",
            character.system_prompt,
            character.description,
            f"Personality: {character.personality}" if character.personality else "",
            f"Scenario: {character.scenario}" if character.scenario else "",
            f"How {name} speaks:\n{character.message_example}" if character.message_example else "",
            character.post_history_instructions,
        )
    )


def _fill_macros(text: str, character: Character, user: str, max_chars: int) -> str:
    """Replaces the card's macros with names. `{{original}}`, the host's system prompt, is empty here."""
    names = {"char": character.nickname or character.name, "bot": character.nickname or character.name}
    names |= {"user": user, "original": ""}
    size = len(text) + len(_MACRO.findall(text)) * max(map(len, names.values()))
    if size > max_chars:
        raise InvalidParams(
            f"user: expected a name with which the prompt has at most {max_chars} characters, got up to {size}"
        )
    return _MACRO.sub(lambda match: names[(match[1] or match[2]).lower()], text)


def _text_chars(row: Struct) -> int:
    """Returns the length of all texts of a prompt or character."""
    return sum(len(value) for value in structs.astuple(row) if isinstance(value, str))


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": {"type": "text", "text": text}}


def _name(kind: str, number: int, title: str) -> str:
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "_", plain)[:_SLUG_MAX_CHARS].strip("_")
    return f"{kind}_{number}_{slug}" if slug else f"{kind}_{number}"


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _DESCRIPTION_MAX_CHARS else line[: _DESCRIPTION_MAX_CHARS - 1].rstrip() + "…"
