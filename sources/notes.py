"""The source `notes`: texts with a title and keywords."""

from typing import Annotated

from msgspec import Meta

from sources.library_source import KindSource, ToolText
from sources.records import NOTE
from sources.search.arguments import SearchArguments
from sources.source import SourceGetArguments


class NotesSearch(SearchArguments, frozen=True, kw_only=True):
    keywords: Annotated[tuple[str, ...], Meta(description="Only notes with all of these.")] = ()


class NotesGet(SourceGetArguments, frozen=True, kw_only=True):
    note_id: Annotated[str | None, Meta(description="id of a hit.")] = None


class NotesSource(KindSource):
    kind = NOTE
    name = "notes"
    title = "Notes"
    search_input = NotesSearch
    get_input = NotesGet
    id_argument = "note_id"
    search_filter = ("tags", "keywords")
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
