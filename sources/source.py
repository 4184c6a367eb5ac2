"""What a source is: one kind of knowledge in a library, with its tools, its items and its resources.

A source is built once with the settings and keeps no state of a caller: each of its functions is given the request's
context and the caller's own library. A new one is a file that implements `Source` and a line in the registry, or an
entry point of another distribution.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Annotated, Any, Protocol, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct

from auth.context import RequestContext
from config.errors import InvalidParams
from sources.items import GetResponse, Loc, ResultItem, RetrievalOptions, SearchResponse, short_title, uri_of
from sources.query import Term
from sources.records import ListPage
from sources.storage.contract import Library


class SourceTool(Struct, frozen=True, kw_only=True):
    """A tool as a source declares it; `name` is the whole name under which it is advertised."""

    name: str
    title: str
    description: str
    input: type[Any]
    output: type[Any]
    run: Callable[[RequestContext, Library, Any], Awaitable[Any]]


class SourceResource(Struct, frozen=True, kw_only=True):
    """An address, or with `{variables}` a family of them, under which the caller reads something of its own beside
    whole items, which every source has under `name://{id}`."""

    uri: str
    name: str
    title: str
    description: str
    mime_type: str
    read: Callable[[RequestContext, Library, Mapping[str, str]], Awaitable[str]]


class Entry(Struct, frozen=True, kw_only=True):
    """One item in a list of a library's items."""

    id: str | int
    uri: str
    title: str | None
    last_modified: str | None


class Listed(Protocol):
    """A row of a library that has an id."""

    @property
    def id(self) -> str | int: ...
    @property
    def last_modified(self) -> str: ...


T = TypeVar("T", bound=Listed)
# Of the largest number an engine can keep.
_DIGITS_MAX = 19


def entry_page(source: str, page: ListPage[T], title: Callable[[T], str]) -> ListPage[Entry]:
    entries = (
        Entry(id=row.id, uri=uri_of(source, row.id), title=short_title(title(row)), last_modified=row.last_modified)
        for row in page.rows
    )
    return ListPage(tuple(entries), page.total)


def number_of(identity: str | int) -> int | None:
    """The number an id may be: in a URI and in many models' hands it is text."""
    if isinstance(identity, int):
        return identity
    return int(identity) if identity.isascii() and identity.isdigit() and len(identity) <= _DIGITS_MAX else None


class Reading(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an item is to be read: the arguments of every get but the id. What chooses the passage is the cursor, else
    `loc`, else `query`, else the beginning."""

    retrieval: Annotated[RetrievalOptions | None, Meta(description="How much of it.")] = None
    loc: Annotated[dict[str, Any] | None, Meta(description="loc of a hit: read there.")] = None
    query: Annotated[str | None, Meta(description="Read where this matches.")] = None
    cursor: Annotated[str | None, Meta(description="next_cursor of an earlier answer.")] = None

    @property
    def place(self) -> Loc | None:
        if self.loc is None:
            return None
        try:
            return msgspec.convert({k: v for k, v in self.loc.items() if v is not None}, Loc, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidParams(f"loc: {error}; expected the loc of a search result") from error


class Match(Struct, frozen=True, kw_only=True):
    """A hit as it is ranked among those of other sources. `id` is of the item it is part of; hits with equal `content`
    say the same under different names. `hit` is what its source needs to show it, and nobody else's business."""

    uri: str
    id: str | int
    score: float
    last_modified: str | None
    version: int | None
    content: Hashable = None
    bm25: float | None = None
    hit: Any = None


class Matches(Struct, frozen=True, kw_only=True):
    """One page of a search. To show a match costs a snippet, so it is left until it is known which are delivered:
    `show` takes one, and the words of earlier queries toward which its snippet may lean."""

    found: tuple[Match, ...]
    has_more: bool
    next_offset: int | None
    total_estimated: int | None
    show: Callable[[Match, Sequence[Term]], ResultItem]
    read_as: str | None = None

    def response(self) -> SearchResponse:
        """The whole page, shown."""
        return SearchResponse(
            results=tuple([self.show(match, ()) for match in self.found]),
            has_more=self.has_more,
            next_offset=self.next_offset,
            total_estimated=self.total_estimated,
            read_as=self.read_as or UNSET,
        )


def as_matches(shown: SearchResponse) -> Matches:
    """For a source whose hits are made whole at once: hits with the same snippet and cost say the same."""
    found = tuple(
        Match(
            uri=item.uri,
            id=item.id,
            score=item.score,
            last_modified=item.last_modified,
            version=item.version,
            content=(item.snippet, item.cost_tokens) if item.snippet else None,
            hit=item,
        )
        for item in shown.results
    )
    return Matches(
        found=found,
        has_more=shown.has_more,
        next_offset=shown.next_offset,
        total_estimated=shown.total_estimated,
        show=lambda match, _topic: match.hit,
        read_as=shown.read_as or None,
    )


class Source(Protocol):
    """One kind of knowledge. `name` is its word everywhere: in results, in tool names, as the scheme of its URIs."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def mime_type(self) -> str:
        """Of an item's text, read as a resource."""
        ...

    @property
    def tools(self) -> Sequence[SourceTool]: ...
    @property
    def resources(self) -> Sequence[SourceResource]: ...
    @property
    def search_input(self) -> type[Any]:
        """The Struct that `search` takes: `query`, `limit`, `offset`, `snippet_length`, and this source's filters."""
        ...

    async def search(self, context: RequestContext, library: Library, asked: Any) -> Matches: ...

    async def get(
        self, context: RequestContext, library: Library, identity: str | int, reading: Reading
    ) -> GetResponse:
        """One item, as much of it as `reading` asks for. Raises NotFound for what is absent or another's."""
        ...

    async def entries(self, context: RequestContext, library: Library, limit: int, offset: int) -> ListPage[Entry]:
        """The caller's items, newest first, for lists."""
        ...
