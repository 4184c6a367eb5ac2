"""The source `notes`: texts with a title and keywords."""

from typing import Annotated

from msgspec import Meta

from auth.context import RequestContext
from sources.items import GetResponse, Loc, ResultItem, uri_of
from sources.library_source import LibrarySource, Wording
from sources.preferences import preferences_of
from sources.reading.documents import Document, read_document
from sources.reading.responses import meta_of
from sources.reading.retrieval import make_plan
from sources.records import Hit, ListPage
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
from sources.source import Entry, Matches, Reading, entry_page
from sources.storage.contract import Library


class NotesSearch(SearchArguments, frozen=True, kw_only=True):
    keywords: Annotated[tuple[str, ...], Meta(description="Only notes with all of these.")] = ()


class NotesGet(Reading, frozen=True, kw_only=True):
    note_id: Annotated[str, Meta(description="id of a hit.")]


class NotesSource(LibrarySource):
    name = "notes"
    title = "Notes"
    mime_type = "text/markdown"
    search_input = NotesSearch
    get_input = NotesGet
    names_item = "note_id"
    searching = Wording(
        "Search notes",
        "Search the user's notes. Best hits first, each with a snippet and a loc for notes_get. "
        'Example: {"query": "kubernetes upgrade", "keywords": ["work"]}',
    )
    reading = Wording(
        "Read a note",
        "Read a note: a snippet, the passage at loc or query with its neighbours, or all of it. "
        'Example: {"note_id": "6f1c…", "query": "rollback", "retrieval": {"mode": "chunk"}}',
    )

    async def search(self, context: RequestContext, library: Library, asked: NotesSearch) -> Matches:
        query = read_query(asked.query, self._settings)
        narrowing = Narrowing(tags=asked.keywords)
        question = read_question(self.name, asked, query, context, self._settings, narrowing)
        return await find_matches(library.notes, question, _uri, _item)

    async def get(
        self, context: RequestContext, library: Library, identity: str | int, reading: Reading
    ) -> GetResponse:
        note = await library.notes.get(str(identity))
        plan = make_plan(reading.retrieval, preferences_of(context.config), self._settings)
        meta = meta_of(self.name, note, note.id, note.title, plan.scale.estimate_tokens(note.content))
        return read_document(Document(note.content), meta, plan, reading, self._settings)

    async def entries(self, context: RequestContext, library: Library, limit: int, offset: int) -> ListPage[Entry]:
        return entry_page(self.name, await library.notes.list(limit, offset), lambda note: note.title)


def _uri(hit: Hit) -> str:
    return uri_of("notes", hit.id)


def _item(hit: Hit, question: Question, highlighter: Highlighter) -> ResultItem:
    snippet = highlighter.snippet(hit.text, question.snippet_chars)
    loc = Loc(approx_offset=place_in(snippet))
    return result_item("notes", hit, question, _uri(hit), snippet, loc)
