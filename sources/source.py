"""The source protocol: one kind of knowledge in a library, with its search, items, tools and resources.

How to add a source
-------------------
1. Write one module with a class that implements `Source`. If the items are in the caller's library, subclass
   `sources.library_source.LibrarySource`, which implements most of it; its `NotesSource` is the shortest example.
2. Register it: add the class to `sources.registry.SOURCES`. From another distribution, declare an entry point in the
   group `florilegium.sources` that names a callable taking the `Settings` and returning the source.

What a source provides
----------------------
- `name`: a lower-case letter and up to 15 lower-case letters or digits. It is the `source` of its results, the prefix
  of its tool names and the scheme of its URIs. `title` is its name for people, `mime_type` the type of an item's text.
- `search_input`: a Struct with the fields `query`, `limit`, `offset` and `snippet_length`, all but `query` with
  defaults. Every further field is a filter that `knowledge_search` accepts in `filters`.
- `search`: returns at most `limit` hits from `offset` on, best first, or newest first if `order_by` is "recent" in the
  arguments or in `context.config`. `args.query` is the text as the user wrote it, in the query language
  (docs/search.md); completion sends `prefix*`, and `read_query` parses it. Report what you ignore in
  `SourceHits.read_as`. Clamp `limit` and `offset`, as `build_query` does. Scores are in 0..1 and comparable with those
  of other sources: the share of the query's terms that the hit contains, rare terms counting more.
- `render_hit`: builds the result item of one hit. It is called only for hits that are delivered, so that the cost of a
  snippet is paid only for them. `query` is the `SourceHits.query` of the page the hit came from.
- `get`: returns one item, or the part of it that the arguments select. Raises `NotFound` for absent and foreign ids.
- `list_items`: the caller's items, newest first.
- `tools` and `call_tool`: MCP tools; each name starts with the source's name and an underscore. Declare at least
  `<name>_search` (input `search_input`, output `SearchResponse`) and `<name>_get` (input a subclass of
  `sources.source.SourceGetArguments` with the id argument, output `GetResponse`); `LibrarySource.call_tool` shows how
  they call `search` and `get`.
- `resources` and `read_resource`: resources other than `name://{id}`, which every source has.

A source is constructed once and keeps no state of a user: each call receives the request context and the caller's
library. Raise errors of `config.errors`; any other exception is logged and reported as an unexpected failure. A search
result or a list that breaks these rules, a late answer or an exception costs the source its own hits and entries, never
the whole search or list. The code of a third-party source runs on a thread of its own, with an event loop of its own
(`sources.isolated_source`).
"""

# About this package: Read `source` first, the protocol that the aggregator and the server use. `library_source`
# implements most of it for sources in the library, and `chats`, `media`, `notes`, `characters` and `prompts` the rest.
# `kinds` is how a kind of item is declared, `records` has the declarations and `drafts` what callers write. `registry`
# loads the sources, and `isolated_source` keeps those of other distributions from affecting the server.

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Annotated, Any, Protocol, Self, TypeVar
from urllib.parse import unquote

import msgspec
from msgspec import UNSET, Meta, Struct, structs

from auth.context import RequestContext
from config.errors import InvalidParams, NotFound
from sources.items import GetResponse, Loc, ResultItem, RetrievalOptions, SearchResponse, short_title, uri_of
from sources.query import Term
from sources.records import ListPage, SemanticStatus
from sources.storage.contract import Library

# Digits of the largest integer that a storage engine can hold.
_ID_DIGITS_MAX = 19


class SourceTool(Struct, frozen=True, kw_only=True):
    """Declares an MCP tool of a source; `Source.call_tool` runs it. `name` is the full name that clients see."""

    name: str
    title: str
    description: str
    input: type[Any]
    output: type[Any]


class SourceResource(Struct, frozen=True, kw_only=True):
    """Declares an MCP resource, or a template if `uri` has `{variables}`; `Source.read_resource` reads it."""

    uri: str
    name: str
    title: str
    description: str
    mime_type: str


class ItemEntry(Struct, frozen=True, kw_only=True):
    """One item in a list of a library's items."""

    id: str | int
    uri: str
    title: str | None
    last_modified: str | None


class GetArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of every get except the id. The passage is chosen by `cursor`, else by `loc`, else by `query`;
    without any of them reading starts at the beginning."""

    retrieval: Annotated[RetrievalOptions | None, Meta(description="How much to read.")] = None
    loc: Annotated[dict[str, Any] | None, Meta(description="loc of a hit: read there.")] = None
    query: Annotated[str | None, Meta(description="Read where this matches.")] = None
    cursor: Annotated[str | None, Meta(description="next_cursor of a response.")] = None

    def at_part(self, loc: Mapping[str, str]) -> Self:
        """Returns these arguments for the part of an item that a URI names, such as a message. In mode `full` that is
        the chunk at `loc`, not the whole item. An offset in the arguments counts from the beginning of the part."""
        requested = self.requested_loc or {}
        names_part = requested.keys() - {"approx_offset", "conversation_id"}
        args = self if names_part else structs.replace(self, loc={**loc, **requested})
        if args.cursor is not None or args.retrieval is None or args.retrieval.mode != "full":
            return args
        return structs.replace(args, retrieval=structs.replace(args.retrieval, mode="chunk"))

    @property
    def requested_loc(self) -> dict[str, Any] | None:
        """The argument `loc`, or else `retrieval.loc`, which clients of tldw send."""
        if self.loc is None and self.retrieval is not None:
            return self.retrieval.loc
        return self.loc

    @property
    def parsed_loc(self) -> Loc | None:
        loc = self.requested_loc
        if loc is None:
            return None
        try:
            return msgspec.convert({k: v for k, v in loc.items() if v is not None}, Loc, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidParams(f"loc: {error}; expected the loc of a search result") from error


class RankedHit(Struct, frozen=True, kw_only=True, gc=False):
    """A hit with what is needed to rank it among the hits of other sources.

    `id` is the id of the item that the hit is part of, `rank` its position in its own source, from 0. `lexical` and
    `cosine` are the parts of the score by words and by meaning, if meanings were compared, and `boosts` the factors of
    a message by which its score was changed after that. Hits with equal `content_key` have the same content under
    different URIs. `payload` holds whatever the source needs to render the hit, and `text_chars` is the length of the
    text in it: long ones are rendered outside the event loop. In the payload of a library source, a `RankedMatch`, that
    is computed when it is needed. The fields below are set by the aggregator: the position in the merged ranking, the
    versions of the items with the same content by their URIs, the other hits of the same item, best first, and for a
    hit of another library which of the searches found it.
    """

    source: str
    uri: str
    id: str | int
    rank: int
    score: float
    last_modified: str | None
    version: int | None
    content_key: Hashable = None
    bm25: float | None = None
    lexical: float | None = None
    cosine: float | None = None
    boosts: Mapping[str, float] = {}
    payload: Any = None
    text_chars: int = 0
    position: int = 0
    duplicates: Mapping[str, int] = {}
    parts: "tuple[RankedHit, ...]" = ()
    stream: str = ""


class SourceHits(Struct, frozen=True, kw_only=True):
    """One page of a source's hits. `query` is passed to `Source.render_hit` with each of them.

    `next_offset` is the `offset` of the next page, or None if `has_more` is false. `total_estimated` may be None.
    `semantic` says whether meanings were compared, if the source can do so, and of how many `texts`; `floor` is the
    least cosine of the hit that is nearest by meaning.
    """

    hits: tuple[RankedHit, ...]
    has_more: bool
    next_offset: int | None
    total_estimated: int | None
    read_as: str | None = None
    query: Any = None
    semantic: SemanticStatus | None = None
    floor: float | None = None
    texts: int = 1


class Source(Protocol):
    """See the module docstring for what each member has to do."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def mime_type(self) -> str: ...
    @property
    def tools(self) -> Sequence[SourceTool]: ...
    @property
    def resources(self) -> Sequence[SourceResource]: ...
    @property
    def search_input(self) -> type[Any]: ...

    async def search(self, context: RequestContext, library: Library, args: Any) -> SourceHits: ...

    def render_hit(self, hit: RankedHit, query: Any, topic: Sequence[Term]) -> ResultItem:
        """`topic` are terms of earlier queries of the session, which may decide between equally good snippets."""
        ...

    async def get(
        self, context: RequestContext, library: Library, item_id: str | int, args: GetArguments
    ) -> GetResponse: ...

    async def list_items(
        self, context: RequestContext, library: Library, limit: int, offset: int
    ) -> ListPage[ItemEntry]: ...

    async def call_tool(self, context: RequestContext, library: Library, name: str, args: Any) -> Any:
        """Runs the tool `name` of `tools`; `args` is an instance of its input Struct."""
        ...

    async def read_resource(
        self, context: RequestContext, library: Library, uri: str, variables: Mapping[str, str]
    ) -> str:
        """Reads the resource declared in `resources` under `uri`, with the values of its template variables."""
        ...


class HitRenderer(Protocol):
    """The part of `Source` that turns hits into result items."""

    def render_hit(self, hit: RankedHit, query: Any, topic: Sequence[Term]) -> ResultItem: ...


def search_response(source: HitRenderer, page: SourceHits) -> SearchResponse:
    """Renders every hit of a page."""
    return SearchResponse(
        results=tuple([source.render_hit(hit, page.query, ()) for hit in page.hits]),
        has_more=page.has_more,
        next_offset=page.next_offset,
        total_estimated=page.total_estimated,
        read_as=page.read_as or UNSET,
        semantic=page.semantic or UNSET,
    )


def hits_from_response(response: SearchResponse, offset: int = 0) -> SourceHits:
    """For a source whose search builds whole result items: each is the payload of its hit, so `render_hit` can return
    `hit.payload`. Items with the same snippet and cost count as duplicates."""
    hits = [
        RankedHit(
            source=item.source,
            uri=item.uri,
            id=item.id,
            rank=offset + index,
            score=item.score,
            last_modified=item.last_modified,
            version=None if item.version is UNSET else item.version,
            content_key=(item.snippet, item.cost_tokens) if item.snippet else None,
            payload=item,
        )
        for index, item in enumerate(response.results)
    ]
    return SourceHits(
        hits=tuple(hits),
        has_more=response.has_more,
        next_offset=response.next_offset,
        total_estimated=response.total_estimated,
        read_as=response.read_as or None,
    )


class ListedRecord(Protocol):
    """A stored record with an id."""

    @property
    def id(self) -> str | int: ...
    @property
    def last_modified(self) -> str: ...


T = TypeVar("T", bound=ListedRecord)


def entry_page(source: str, page: ListPage[T], title: Callable[[T], str]) -> ListPage[ItemEntry]:
    entries = (
        ItemEntry(id=row.id, uri=uri_of(source, row.id), title=short_title(title(row)), last_modified=row.last_modified)
        for row in page.rows
    )
    return ListPage(tuple(entries), page.total)


def numeric_id(item_id: str | int) -> int | None:
    """Parses an integer id, which URIs and many models send as text; None if the text is not a number."""
    if isinstance(item_id, int):
        return item_id
    return int(item_id) if item_id.isascii() and item_id.isdigit() and len(item_id) <= _ID_DIGITS_MAX else None


# -- item ids ----------------------------------------------------------------------------------------------------------
# Item ids as arguments: every tool that takes an id also takes the item's URI.

UriArgument = Annotated[str | None, Meta(description="Or the uri of a hit.")]


class SourceGetArguments(GetArguments, frozen=True, kw_only=True):
    """The arguments of a source's own get. Each source adds its id argument, which may be omitted if `uri` is set."""

    uri: UriArgument = None


class ItemId(Struct, frozen=True):
    """An item of a known source. `part` is the second segment of a URI, such as the id of a message."""

    id: str | int
    part: str | None = None


def item_id_from(source: str, argument: str, item_id: str | int | None, uri: str | None) -> ItemId:
    """Returns the item that is named by `argument`, whose value may be a URI, or by the argument `uri`.

    Raises InvalidParams if neither is set or if they contradict each other.
    """
    if uri is None:
        if item_id is None:
            raise InvalidParams(f"{argument}: expected the id or uri of a hit, got nothing")
        if not isinstance(item_id, str) or not item_id.startswith(f"{source}://"):
            return ItemId(item_id)
        return _parse(source, argument, item_id)
    parsed = _parse(source, "uri", uri)
    if item_id is not None and str(item_id) not in (str(parsed.id), uri):
        raise InvalidParams(f"{argument}: expected {parsed.id!r}, the value in uri, got {str(item_id)[:60]!r}")
    return parsed


def whole_item_id(source: str, argument: str, item_id: str | int | None, uri: str | None) -> str | int:
    """Returns the id of a whole item. A URI with a second segment does not name one."""
    parsed = item_id_from(source, argument, item_id, uri)
    if parsed.part is not None:
        raise NotFound("item", (uri or str(item_id))[:200])
    return parsed.id


def _parse(source: str, argument: str, uri: str) -> ItemId:
    scheme, separator, path = uri.partition("://")
    segments = [unquote(segment) for segment in path.split("/")]
    if scheme != source or not separator or not all(segments) or len(segments) > 2:
        raise InvalidParams(f"{argument}: expected a URI that starts with {source}://, got {uri[:60]!r}")
    return ItemId(segments[0], segments[1] if len(segments) == 2 else None)
