"""The source `prompts`: named prompts with a system and a user part, searchable by any of their fields."""

from typing import Annotated, Literal

from msgspec import Meta

from config.errors import NotFound
from sources.library_source import KindSource, ToolText
from sources.records import PROMPT, SavedPrompt
from sources.search.arguments import SearchArguments
from sources.source import SourceGetArguments, numeric_id
from sources.storage.contract import Library

PromptField = Literal["name", "details", "system_prompt", "user_prompt", "author", "keywords"]


class PromptsSearch(SearchArguments, frozen=True, kw_only=True):
    fields: Annotated[tuple[PromptField, ...], Meta(description="Search only these; default all.")] = ()


class PromptsGet(SourceGetArguments, frozen=True, kw_only=True):
    prompt_id_or_name: Annotated[str | int | None, Meta(description="id of a hit, or the prompt's name.")] = None


class PromptsSource(KindSource):
    kind = PROMPT
    name = "prompts"
    title = "Prompts"
    search_input = PromptsSearch
    get_input = PromptsGet
    id_argument = "prompt_id_or_name"
    search_filter = ("fields", "fields")
    search_tool = ToolText(
        "Search prompts",
        'Search the user\'s saved prompts. Example: {"query": "code review", "fields": ["name", "keywords"]}',
    )
    get_tool = ToolText(
        "Read a prompt",
        "Read a saved prompt by id or name: all of it unless retrieval is set. "
        'Example: {"prompt_id_or_name": "Code review"}',
    )

    async def find_item(self, library: Library, item_id: str | int) -> SavedPrompt:
        return await find_prompt(library, item_id)


async def find_prompt(library: Library, id_or_name: str | int) -> SavedPrompt:
    """Looks a prompt up by its id, then by its name, which may also be a number."""
    number = numeric_id(id_or_name)
    if number is not None:
        try:
            return await library.prompts.get(number)
        except NotFound:
            if isinstance(id_or_name, int):
                raise
    return await library.prompts.get_by_name(str(id_or_name))
