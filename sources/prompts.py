"""The source `prompts`: named prompts with a system and a user part, found by any of their fields."""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from auth.context import RequestContext
from config.errors import NotFound
from config.settings import Settings
from sources.answering import meta_of
from sources.documents import Document, document_of, read_document
from sources.items import GetResponse, Loc, ResultItem, SearchResponse, uri_of
from sources.preferences import preferences_of
from sources.records import Hit, Page, Prompt
from sources.retrieval import make_plan
from sources.searching import (
    Narrowing,
    Question,
    SearchArguments,
    find_matches,
    place_in,
    read_query,
    read_question,
    result_item,
)
from sources.snippet import Highlighter
from sources.source import Entry, Matches, Reading, SourceResource, SourceTool, entry_page, number_of
from sources.storage.contract import Library

Field = Literal["name", "details", "system_prompt", "user_prompt", "author", "keywords"]


class PromptsSearch(SearchArguments, frozen=True, kw_only=True):
    fields: Annotated[tuple[Field, ...], Meta(description="Look in these only; default all.")] = ()


class PromptsGet(Reading, frozen=True, kw_only=True):
    prompt_id_or_name: Annotated[str | int, Meta(description="id of a hit, or the prompt's name.")]


class PromptsSource:
    name = "prompts"
    title = "Prompts"
    mime_type = "text/markdown"
    search_input = PromptsSearch
    resources: Sequence[SourceResource] = ()

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def tools(self) -> Sequence[SourceTool]:
        return (
            SourceTool(
                name="prompts_search",
                title="Search prompts",
                description=(
                    "Search the user's saved prompts. "
                    'Example: {"query": "code review", "fields": ["name", "keywords"]}'
                ),
                input=PromptsSearch,
                output=SearchResponse,
                run=self._run_search,
            ),
            SourceTool(
                name="prompts_get",
                title="Read a prompt",
                description=(
                    "Read a saved prompt by id or name: all of it unless retrieval says otherwise. "
                    'Example: {"prompt_id_or_name": "Code review"}'
                ),
                input=PromptsGet,
                output=GetResponse,
                run=self._run_get,
            ),
        )

    async def _run_search(self, context: RequestContext, library: Library, asked: PromptsSearch) -> SearchResponse:
        return (await self.search(context, library, asked)).response()

    async def search(self, context: RequestContext, library: Library, asked: PromptsSearch) -> Matches:
        query = read_query(asked.query, self._settings)
        narrowing = Narrowing(fields=asked.fields)
        question = read_question(self.name, asked, query, context, self._settings, narrowing)
        return await find_matches(library, library.prompts, question, _uri, _item)

    async def get(
        self, context: RequestContext, library: Library, identity: str | int, reading: Reading
    ) -> GetResponse:
        prompt = await find_prompt(library, identity)
        document = prompt_document(prompt)
        plan = make_plan(reading.retrieval, preferences_of(context.config), self._settings, "full")
        meta = meta_of(self.name, prompt, prompt.id, prompt.name, len(document.text), plan)
        return read_document(document, meta, plan, reading, self._settings)

    async def entries(self, context: RequestContext, library: Library, limit: int, offset: int) -> Page[Entry]:
        return entry_page(self.name, await library.prompts.list(limit, offset), lambda prompt: prompt.name)

    async def _run_get(self, context: RequestContext, library: Library, asked: PromptsGet) -> GetResponse:
        return await self.get(context, library, asked.prompt_id_or_name, asked)


async def find_prompt(library: Library, identity: str | int) -> Prompt:
    """By its number, or by its name, which may be a number too."""
    number = number_of(identity)
    if number is not None:
        try:
            return await library.prompts.get(number)
        except NotFound:
            if isinstance(identity, int):
                raise
    return await library.prompts.get_by_name(str(identity))


def prompt_document(prompt: Prompt) -> Document:
    fields = (
        ("details", prompt.details),
        ("system_prompt", prompt.system_prompt),
        ("user_prompt", prompt.user_prompt),
        ("author", prompt.author),
        ("keywords", ", ".join(prompt.tags)),
    )
    return document_of("name", prompt.name, fields)


def _uri(hit: Hit) -> str:
    return uri_of("prompts", hit.id)


def _item(hit: Hit, question: Question, highlighter: Highlighter) -> ResultItem:
    snippet = highlighter.snippet(hit.text, question.snippet_chars)
    loc = Loc(field=hit.field, approx_offset=place_in(snippet))
    return result_item("prompts", hit, question, _uri(hit), snippet, loc)
