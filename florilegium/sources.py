"""Make items searchable. The name of a source is also the scheme of its URIs and the beginning of its tools' names.

For a declared kind, subclass `KindSource`: it searches by words and by meaning, reads in every retrieval mode and lists
items. A subclass only has to name the kind and a title:

    class Recipes(KindSource):
        kind = RECIPE
        title = "Recipes"

A source whose items are elsewhere implements `Source` (`sources.source` lists what each member does). `build_query`,
`Highlighter`, `plan_retrieval`, `read_document` and `hits_from_response` help with that.

The code of a source runs on a thread of its own, with an event loop of its own: if it blocks or fails, no other source
is affected. It keeps no state of a user: each call receives the request context and the library of the caller.
"""

from auth.context import RequestContext
from config.settings import Settings
from sources.items import GetResponse, Loc, ResultItem, SearchResponse, uri_of
from sources.library_source import KindGet, KindSearch, KindSource, LibrarySource, ToolText
from sources.reading.documents import Document, build_document, item_meta, read_document
from sources.reading.retrieval import plan_retrieval
from sources.records import ListPage
from sources.search.arguments import SearchArguments, build_query
from sources.search.snippets import Highlighter
from sources.source import (
    GetArguments,
    ItemEntry,
    RankedHit,
    Source,
    SourceGetArguments,
    SourceHits,
    SourceResource,
    SourceTool,
    hits_from_response,
    search_response,
)
from sources.storage.contract import Library

__all__ = [
    "Document",
    "GetArguments",
    "GetResponse",
    "Highlighter",
    "ItemEntry",
    "KindGet",
    "KindSearch",
    "KindSource",
    "Library",
    "LibrarySource",
    "ListPage",
    "Loc",
    "RankedHit",
    "RequestContext",
    "ResultItem",
    "SearchArguments",
    "SearchResponse",
    "Settings",
    "Source",
    "SourceGetArguments",
    "SourceHits",
    "SourceResource",
    "SourceTool",
    "ToolText",
    "build_document",
    "build_query",
    "hits_from_response",
    "item_meta",
    "plan_retrieval",
    "read_document",
    "search_response",
    "uri_of",
]
