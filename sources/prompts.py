"""The source `prompts`: named prompts with a system and a user part, found by any of their fields."""

from typing import Annotated, Literal

from msgspec import Meta

from auth.context import RequestContext
from config.errors import NotFound
from sources.items import GetResponse, Loc, ResultItem, uri_of
from sources.library_source import LibrarySource, Wording
from sources.preferences import preferences_of
from sources.reading.documents import Document, document_of, read_document
from sources.reading.responses import meta_of
from sources.reading.retrieval import make_plan
from sources.records import Hit, ListPage, SavedPrompt
from sources.search.arguments import (
    Narrowing,
    Question,
    SearchArguments,
    find_matches,
    place_in,
    read_query,
    read_question,
    result_item,
)
from sources.search.snippets import Highlighter
from sources.source import Entry, Matches, Reading, entry_page, number_of
from sources.storage.contract import Library

Field = Literal["name", "details", "system_prompt", "user_prompt", "author", "keywords"]


class PromptsSearch(SearchArguments, frozen=True, kw_only=True):
    fields: Annotated[tuple[Field, ...], Meta(description="Look in these only; default all.")] = ()


class PromptsGet(Reading, frozen=True, kw_only=True):
    prompt_id_or_name: Annotated[str | int, Meta(description="id of a hit, or the prompt's name.")]


class PromptsSource(LibrarySource):
    name = "prompts"
    title = "Prompts"
    mime_type = "text/markdown"
    search_input = PromptsSearch
    get_input = PromptsGet
    names_item = "prompt_id_or_name"
    searching = Wording(
        "Search prompts",
        'Search the user\'s saved prompts. Example: {"query": "code review", "fields": ["name", "keywords"]}',
    )
    reading = Wording(
        "Read a prompt",
        "Read a saved prompt by id or name: all of it unless retrieval says otherwise. "
        'Example: {"prompt_id_or_name": "Code review"}',
    )

    async def search(self, context: RequestContext, library: Library, asked: PromptsSearch) -> Matches:
        query = read_query(asked.query, self._settings)
        narrowing = Narrowing(fields=asked.fields)
        question = read_question(self.name, asked, query, context, self._settings, narrowing)
        return await find_matches(library.prompts, question, _uri, _item)

    async def get(
        self, context: RequestContext, library: Library, identity: str | int, reading: Reading
    ) -> GetResponse:
        prompt = await find_prompt(library, identity)
        document = prompt_document(prompt)
        plan = make_plan(reading.retrieval, preferences_of(context.config), self._settings, "full")
        meta = meta_of(self.name, prompt, prompt.id, prompt.name, plan.scale.estimate_tokens(document.text))
        return read_document(document, meta, plan, reading, self._settings)

    async def entries(self, context: RequestContext, library: Library, limit: int, offset: int) -> ListPage[Entry]:
        return entry_page(self.name, await library.prompts.list(limit, offset), lambda prompt: prompt.name)


async def find_prompt(library: Library, identity: str | int) -> SavedPrompt:
    """By its number, or by its name, which may be a number too."""
    number = number_of(identity)
    if number is not None:
        try:
            return await library.prompts.get(number)
        except NotFound:
            if isinstance(identity, int):
                raise
    return await library.prompts.get_by_name(str(identity))


def prompt_document(prompt: SavedPrompt) -> Document:
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
