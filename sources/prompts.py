"""The source `prompts`: named prompts with a system and a user part, searchable by any of their fields."""

from typing import Annotated, Literal

from msgspec import Meta

from auth.context import RequestContext
from config.errors import NotFound
from sources.item_ids import SourceGetArguments
from sources.items import GetResponse, Loc, request_defaults
from sources.library_source import LibrarySource, ToolText, field_snippet
from sources.reading.documents import Document, build_document, read_document
from sources.reading.responses import item_meta
from sources.reading.retrieval import plan_retrieval
from sources.records import Hit, ListPage, SavedPrompt
from sources.search.arguments import SearchArguments, SourceQuery, build_query
from sources.search.snippets import Highlighter, Snippet
from sources.source import GetArguments, ItemEntry, SourceHits, entry_page, numeric_id
from sources.storage.contract import Library
from sources.text.chunking import run_text_work
from sources.text.token_estimates import TokenScale

PromptField = Literal["name", "details", "system_prompt", "user_prompt", "author", "keywords"]


class PromptsSearch(SearchArguments, frozen=True, kw_only=True):
    fields: Annotated[tuple[PromptField, ...], Meta(description="Search only these; default all.")] = ()


class PromptsGet(SourceGetArguments, frozen=True, kw_only=True):
    prompt_id_or_name: Annotated[str | int | None, Meta(description="id of a hit, or the prompt's name.")] = None


class PromptsSource(LibrarySource):
    name = "prompts"
    title = "Prompts"
    mime_type = "text/markdown"
    search_input = PromptsSearch
    get_input = PromptsGet
    id_argument = "prompt_id_or_name"
    search_tool = ToolText(
        "Search prompts",
        'Search the user\'s saved prompts. Example: {"query": "code review", "fields": ["name", "keywords"]}',
    )
    get_tool = ToolText(
        "Read a prompt",
        "Read a saved prompt by id or name: all of it unless retrieval is set. "
        'Example: {"prompt_id_or_name": "Code review"}',
    )

    async def search(self, context: RequestContext, library: Library, args: PromptsSearch) -> SourceHits:
        query = build_query(self.name, args, context, self._settings, fields=args.fields)
        return await self.find_hits(library.prompts, query)

    def snippet_and_loc(self, hit: Hit, query: SourceQuery, highlighter: Highlighter) -> tuple[Snippet, Loc]:
        return field_snippet(hit, query, highlighter)

    def cost_tokens(self, hit: Hit, scale: TokenScale) -> int:
        return scale.estimate_tokens(build_document("name", hit.title, hit.fields.items()).text)

    async def get(
        self, context: RequestContext, library: Library, item_id: str | int, args: GetArguments
    ) -> GetResponse:
        prompt = await find_prompt(library, item_id)
        document = prompt_document(prompt)
        plan = plan_retrieval(args.retrieval, request_defaults(context.config), self._settings, "full")

        def read() -> GetResponse:
            meta = item_meta(self.name, prompt, prompt.id, prompt.name, plan.scale.estimate_tokens(document.text))
            return read_document(document, meta, plan, args, self._settings)

        return await run_text_work(len(document.text), read)

    async def list_items(
        self, context: RequestContext, library: Library, limit: int, offset: int
    ) -> ListPage[ItemEntry]:
        return entry_page(self.name, await library.prompts.list(limit, offset), lambda prompt: prompt.name)


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


def prompt_document(prompt: SavedPrompt) -> Document:
    """The fields in the order in which the hits of a search have them."""
    fields = (
        ("details", prompt.details),
        ("system_prompt", prompt.system_prompt),
        ("user_prompt", prompt.user_prompt),
        ("author", prompt.author),
        ("keywords", ", ".join(prompt.tags)),
    )
    return build_document("name", prompt.name, fields)
