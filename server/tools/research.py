"""The tools `search` and `fetch` as OpenAI's deep research expects them.

Both take one string and return JSON, as text and as structured content. Ids are all that the caller keeps, so an id
also says where to read: it is the URI of an item, and for an item that is too long for one response, the position of
the hit follows after `#`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlencode

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from aggregator.contract import KnowledgeItem, KnowledgeResponse, KnowledgeSearch, failed_reports
from aggregator.libraries import split_library, with_library
from aggregator.retrieval import KnowledgeGet
from config.errors import InvalidParams
from config.settings import Settings
from server.protocol.call import Call
from server.protocol.catalog import Tool
from server.services import Knowledge
from sources.items import GetResponse, Loc, ResultItem, RetrievalOptions
from sources.reading.retrieval import WINDOW_MAX

# -- compact -----------------------------------------------------------------------------------------------------------
# The compact shape of an item, `{id, title, text, url, metadata}`, which deep-research clients expect.
#
# The other fields of the canonical shape go into `metadata`; empty ones are omitted.

# Fields that the compact shape has under another name. An item read by its id has no meaningful score.
_MOVED_OF_HIT = frozenset(("id", "title", "snippet", "passages", "uri", "url", "highlights"))
_MOVED_OF_ITEM = _MOVED_OF_HIT | {"score", "score_type"}
_TITLE_MAX_CHARS = 80
# The id of the marked passage in the page of an item.
PASSAGE = "passage"


# What a compact hit has in addition to a canonical one, besides the address of the server: longer names, the URI of the
# item once more as part of its address, and a position.
_HIT_EXTRA_BYTES = 128


class CompactItem(Struct, frozen=True, kw_only=True):
    id: str
    title: str
    text: str
    url: str
    metadata: Mapping[str, Any]


class Permalinks(Struct, frozen=True):
    """URLs of item pages: `notes://6f1c` is `/items/notes/6f1c`. With a position they open at the passage, which is
    marked: `/items/notes/6f1c?at=120#passage`."""

    base_url: str

    def of(self, uri: str, loc: Loc | None = None) -> str:
        uri, library = split_library(uri)
        source, _, path = uri.partition("://")
        is_part = "/" in path
        parameters = {} if loc is None else _position(loc, is_part=is_part)
        if library is not None:
            parameters["library"] = library
        query = f"?{urlencode(parameters)}" if parameters else ""
        fragment = f"#{PASSAGE}" if parameters.keys() - {"library"} or is_part else ""
        return f"{self._root}{source}/{path}{query}{fragment}"

    def uri_of(self, text: str) -> str:
        """Returns the URI of the item behind a permalink. Returns any other text unchanged."""
        address, _, query = text.removeprefix(self._root).partition("#")[0].partition("?")
        source, separator, path = address.partition("/")
        if not text.startswith(self._root) or not separator:
            return text
        library = dict(parse_qsl(query)).get("library")
        return with_library(f"{source}://{path}", library)

    @property
    def hit_extra_bytes(self) -> int:
        """About how many bytes more a hit has in the compact shape."""
        return len(self.base_url.encode()) + _HIT_EXTRA_BYTES

    @property
    def _root(self) -> str:
        return f"{self.base_url}/items/"


def _position(loc: Loc, *, is_part: bool) -> dict[str, Any]:
    """Returns the query parameters of a permalink for a position. The URI of a part, such as a message, names it
    already."""
    message = {} if is_part else {"message": loc.message_id, "message_index": loc.message_index}
    if loc.message_id is not None:
        message.pop("message_index", None)
    chunk_index = loc.chunk_index if loc.seconds is None else None
    parameters = {
        "t": f"{loc.seconds:g}" if loc.seconds is not None else None,
        "chunk_index": chunk_index,
        **message,
        "field": loc.field,
        "at": loc.approx_offset,
    }
    return {name: value for name, value in parameters.items() if value is not None}


def compact_response(response: KnowledgeResponse, links: Permalinks) -> Mapping[str, Any]:
    """Converts the hits of a page. Fields about the page as a whole stay as they are."""
    fields: dict[str, Any] = msgspec.to_builtins(response)
    return {**fields, "results": [compact_hit(item, links) for item in response.results]}


def compact_hit(item: KnowledgeItem, links: Permalinks) -> CompactItem:
    return CompactItem(
        id=item.uri,
        title=title_of(item, item.snippet or ""),
        text=passages_text(item),
        url=links.of(item.uri, item.loc),
        metadata=_metadata(item, _MOVED_OF_HIT),
    )


def passages_text(item: KnowledgeItem) -> str:
    """The best passage, then the others of the item, one line each."""
    return "\n".join([item.snippet or "", *(passage.snippet for passage in item.passages or ())])


def compact_item(response: GetResponse, links: Permalinks) -> CompactItem:
    """Converts an item. Its metadata includes how it was read."""
    retrieval = {
        "mode": response.mode,
        "anchor": response.anchor,
        "tokens": response.tokens,
        "truncated": response.truncated,
    }
    if response.over_budget is not UNSET:
        retrieval["over_budget"] = response.over_budget
    if response.next_cursor is not None:
        retrieval["next_cursor"] = response.next_cursor
    return CompactItem(
        id=response.meta.uri,
        title=title_of(response.meta, response.content),
        text=response.content,
        url=links.of(response.meta.uri, response.meta.loc),
        metadata={**_metadata(response.meta, _MOVED_OF_ITEM), **retrieval},
    )


def title_of(item: ResultItem, text: str) -> str:
    """Returns a title that is never empty, because clients of this shape show nothing else.

    Falls back to the beginning of the text, then to the URI.
    """
    if item.title:
        return item.title
    start = " ".join(text[: 2 * _TITLE_MAX_CHARS].split()) or item.uri
    return start if len(start) <= _TITLE_MAX_CHARS else start[: _TITLE_MAX_CHARS - 1].rstrip() + "…"


def _metadata(item: ResultItem, moved: frozenset[str]) -> dict[str, Any]:
    fields = msgspec.to_builtins(item)
    metadata = {name: value for name, value in fields.items() if name not in moved and value not in (None, [], {})}
    return {**metadata, "source_url": item.url} if item.url else metadata


# The share of the budget that is left for content; the metadata of the item takes the rest.
_CONTENT_SHARE = 0.9
# The contract has neither a limit nor a next page, so that a search returns a little more than a default page.
_RESULTS = 10
_CURSOR = "cursor"
# The fields of a hit's loc that are needed to find the passage again.
_LOC_FIELDS = ("chunk_index", "message_id", "field", "approx_offset")
# What the note says about a source, by the status of its report.
_FAULTS = {
    "timeout": "did not respond in time",
    "skipped": "was skipped after repeated failures",
    "error": "could not be searched",
}
# Longer than any position or cursor we create. Anything longer is rejected.
_FRAGMENT_MAX_CHARS = 400

Extent = Literal["whole", "beginning", "passage", "continuation"]


class ResearchQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(description="Search query.")]


class ResearchId(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Annotated[str, Meta(description="id of a search result.")]


class ResearchResult(Struct, frozen=True, kw_only=True):
    id: str
    title: str
    url: str
    text: str


class ResearchResponse(Struct, frozen=True, kw_only=True):
    """`note` is set only if a source did not respond or the query was reinterpreted."""

    results: tuple[ResearchResult, ...]
    note: Annotated[str, Meta(description="What the search could not do.")] | UnsetType = UNSET


class ResearchItem(Struct, frozen=True, kw_only=True):
    """An item as `fetch` returns it. By OpenAI's contract, the values of its metadata are strings."""

    id: str
    title: str
    text: str
    url: str
    metadata: Mapping[str, str]


class _ResearchAddress(Struct, frozen=True):
    """The parts of an id: an item, and a position in it or a cursor."""

    uri: str
    loc: Mapping[str, str] | None = None
    cursor: str | None = None

    @property
    def has_position(self) -> bool:
        """A URI with two segments addresses a part of an item, such as a message."""
        return self.loc is not None or "/" in self.uri.partition("://")[2]


class ResearchTools:
    """Handlers of `search` and `fetch`, and their declarations."""

    def __init__(self, knowledge: Knowledge, settings: Settings) -> None:
        self._knowledge = knowledge
        self._links = Permalinks(settings.base_url)
        self._budget_tokens = settings.retrieval_max_tokens
        self._source_names = frozenset(source.name for source in knowledge.sources)

    async def search(self, call: Call, arguments: ResearchQuery) -> ResearchResponse:
        # The contract has no field to report suppressed hits, so none are suppressed.
        request = KnowledgeSearch(query=arguments.query, limit=_RESULTS, dedupe="off")
        response = await self._knowledge.aggregator.search(call.context, request)
        results = tuple(
            ResearchResult(
                id=_id_of(item, self._budget_tokens),
                title=title_of(item, item.snippet or ""),
                url=self._links.of(item.uri, item.loc),
                text=passages_text(item),
            )
            for item in response.results
        )
        notes = [f"query interpretation: {response.read_as}"] if response.read_as is not UNSET else []
        notes += [f"{name} {_FAULTS[report.status]}" for name, report in failed_reports(response)]
        return ResearchResponse(results=results, note="; ".join(notes) or UNSET)

    async def fetch(self, call: Call, arguments: ResearchId) -> ResearchItem:
        text = self._links.uri_of(arguments.id)
        uri, _, fragment = text.partition("#")
        source, separator, path = uri.partition("://")
        if not (separator and path and source in self._source_names):
            raise InvalidParams(f"id: expected the id of a search result, such as notes://6f1c, got {text[:60]!r}")
        position = dict(parse_qsl(fragment[:_FRAGMENT_MAX_CHARS]))
        cursor = position.pop(_CURSOR, None)
        address = _ResearchAddress(uri, position or None, cursor)
        if address.cursor is not None or not address.has_position:
            options = RetrievalOptions(mode="full")
        else:
            options = RetrievalOptions(mode="chunk_with_siblings", sibling_window=WINDOW_MAX)
        loc = dict(address.loc) if address.loc is not None else None
        request = KnowledgeGet(uri=address.uri, loc=loc, cursor=address.cursor, retrieval=options)
        response = await self._knowledge.retriever.get(call.context, request)
        return _fetched_item(response, address, arguments.id, self._links)

    def tools(self) -> tuple[Tool, ...]:
        return (
            Tool(
                name="search",
                title="Search for research",
                description=(
                    "Search the user's library. Read results with fetch and cite them by url. "
                    'Example: {"query": "solid-state batteries"}'
                ),
                input=ResearchQuery,
                output=ResearchResponse,
                handler=self.search,
            ),
            Tool(
                name="fetch",
                title="Fetch for research",
                description=(
                    "Read a search result: its whole text, or the matching passage of a very long one; "
                    'metadata.next_id continues. Example: {"id": "notes://6f1c"}'
                ),
                input=ResearchId,
                output=ResearchItem,
                handler=self.fetch,
            ),
        )


def _id_of(item: ResultItem, budget_tokens: int) -> str:
    """Returns only the URI if the whole item fits the budget, so that one item has one id."""
    is_short = item.cost_tokens is not UNSET and item.cost_tokens <= budget_tokens * _CONTENT_SHARE
    if item.loc is None or is_short:
        return item.uri
    position = {name: value for name in _LOC_FIELDS if (value := getattr(item.loc, name)) is not None}
    return f"{item.uri}#{urlencode(position)}" if position else item.uri


def _fetched_item(response: GetResponse, address: _ResearchAddress, identity: str, links: Permalinks) -> ResearchItem:
    """Returns the item under the requested id, with its extent and the id that continues it."""
    item = compact_item(response, links)
    metadata = {name: value for name, value in item.metadata.items() if name not in ("mode", "anchor", "next_cursor")}
    extent: Extent = "beginning" if response.next_cursor is not None else "whole"
    if address.has_position:
        extent = "passage"
    if address.cursor is not None:
        extent = "continuation"
    metadata["extent"] = extent
    if response.next_cursor is not None:
        metadata["next_id"] = f"{response.meta.uri}#{urlencode({_CURSOR: response.next_cursor})}"
    # The position to cite is that of the id, with what the response adds to it, such as the time.
    loc: dict[str, Any] = {**msgspec.to_builtins(response.meta.loc or Loc()), **(address.loc or {})}
    return ResearchItem(
        id=identity,
        title=item.title,
        text=item.text,
        url=links.of(address.uri, msgspec.convert(loc, Loc, strict=False) if loc else None),
        metadata={name: _metadata_text(value) for name, value in metadata.items()},
    )


def _metadata_text(value: Any) -> str:
    """A value as text: lists of words with commas, and anything else that is not a string as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        return ", ".join(value)
    return msgspec.json.encode(value).decode()
