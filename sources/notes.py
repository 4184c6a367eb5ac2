"""The source `notes`: texts with a title and keywords."""

from typing import Annotated

from msgspec import Meta

from auth.context import RequestContext
from sources.item_ids import SourceGetArguments
from sources.items import GetResponse, Loc, request_defaults
from sources.library_source import LibrarySource, ToolText
from sources.reading.documents import Document, read_document
from sources.reading.responses import item_meta
from sources.reading.retrieval import plan_retrieval
from sources.records import Hit, ListPage
from sources.search.arguments import SearchArguments, SourceQuery, build_query, first_match_offset
from sources.search.snippets import Highlighter, Snippet
from sources.source import GetArguments, ItemEntry, SourceHits, entry_page
from sources.storage.contract import Library
from sources.text.chunking import run_text_work
from sources.text.token_estimates import TokenScale


class NotesSearch(SearchArguments, frozen=True, kw_only=True):
    keywords: Annotated[tuple[str, ...], Meta(description="Only notes with all of these.")] = ()


class NotesGet(SourceGetArguments, frozen=True, kw_only=True):
    note_id: Annotated[str | None, Meta(description="id of a hit.")] = None


class NotesSource(LibrarySource):
    name = "notes"
    title = "Notes"
    mime_type = "text/markdown"
    search_input = NotesSearch
    get_input = NotesGet
    id_argument = "note_id"
    search_tool = ToolText(
        "Search notes",
        "Search the user's notes. Best hits first, each with a snippet and a loc for notes_get. "
        'Example: {"query": "kubernetes upgrade", "keywords": ["work"]}',
    )
    get_tool = ToolText(
        "Read a note",
        "Read a note: a snippet, the passage at loc or query with its neighbours, or all of it. "
        'Example: {"note_id": "6f1c…", "query": "rollback", "retrieval": {"mode": "chunk"}}',
    )

    async def search(self, context: RequestContext, library: Library, args: NotesSearch) -> SourceHits:
        query = build_query(self.name, args, context, self._settings, tags=args.keywords)
        return await self.find_hits(library.notes, query)

    def snippet_and_loc(self, hit: Hit, query: SourceQuery, highlighter: Highlighter) -> tuple[Snippet, Loc]:
        snippet = highlighter.snippet(hit.text, query.snippet_chars, hit.passage)
        return snippet, Loc(approx_offset=first_match_offset(snippet))

    def cost_tokens(self, hit: Hit, scale: TokenScale) -> int:
        return scale.estimate_tokens(hit.text) if hit.item_chars else 0  # the text of an empty note is its title

    async def get(
        self, context: RequestContext, library: Library, item_id: str | int, args: GetArguments
    ) -> GetResponse:
        note = await library.notes.get(str(item_id))
        plan = plan_retrieval(args.retrieval, request_defaults(context.config), self._settings)

        def read() -> GetResponse:
            meta = item_meta(self.name, note, note.id, note.title, plan.scale.estimate_tokens(note.content))
            return read_document(Document(note.content), meta, plan, args, self._settings)

        return await run_text_work(len(note.content), read)

    async def list_items(
        self, context: RequestContext, library: Library, limit: int, offset: int
    ) -> ListPage[ItemEntry]:
        return entry_page(self.name, await library.notes.list(limit, offset), lambda note: note.title)
