"""The tools `search` and `fetch` in the form that OpenAI's deep research asks for: in goes one string, out come one
text with JSON and the same as structured content. They list no output schema, as the contract names none.

A caller has nothing but ids, so an id says where to read too: it is the URI of an item, and for one that is too long to
be read at once the place of the hit follows after `#`.
"""

from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import parse_qsl, urlencode

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from aggregator.responses import KnowledgeAnswer, SourceReport
from aggregator.retrieval import KnowledgeGet
from aggregator.search import KnowledgeSearch
from config.errors import InvalidParams
from config.settings import Settings
from server.protocol.call import Call
from server.protocol.catalog import Tool
from server.runtime import Knowledge
from server.tools.compact import CompactItem, Permalinks, compact_hit, compact_item
from sources.items import GetResponse, ResultItem, RetrievalOptions
from sources.reading.retrieval import WINDOW_MAX

# The rest of a budget is for what describes the item.
_WHOLE_SHARE = 0.9
_CURSOR = "cursor"
# The least of a hit's loc that leads back to it; what else it says can be had from the item.
_PLACES = ("chunk_index", "message_id", "field", "approx_offset")
# Of the longest place or cursor of ours, with room; what is longer is none of ours, and is refused as such.
_FRAGMENT_MAX_CHARS = 400

Extent = Literal["whole", "beginning", "passage", "continuation"]


class ResearchQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(description="What to look for.")]


class ResearchId(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Annotated[str, Meta(description="id of a result of search.")]


class Found(Struct, frozen=True, kw_only=True):
    id: str
    title: str
    url: str
    text: str


class ResearchAnswer(Struct, frozen=True, kw_only=True):
    """`note` is left out unless the list is not what it seems: a source did not answer, or the query was not read
    literally."""

    results: tuple[Found, ...]
    note: str | UnsetType = UNSET


class _Address(Struct, frozen=True):
    """What an id names: an item, and the place in it or the cursor to read on from."""

    uri: str
    loc: Mapping[str, str] | None = None
    cursor: str | None = None

    @property
    def is_place(self) -> bool:
        """A URI of two segments names a part of an item, as that of a message does."""
        return self.loc is not None or "/" in self.uri.partition("://")[2]


def search_tool(knowledge: Knowledge, settings: Settings) -> Tool:
    links = Permalinks(settings.base_url)

    async def run(call: Call, given: ResearchQuery) -> ResearchAnswer:
        # There is no field here to say that hits were held back, so none are.
        answer = await knowledge.aggregator.search(call.context, KnowledgeSearch(query=given.query, dedupe="off"))
        results = tuple(_found(item, links, settings.retrieval_max_tokens) for item in answer.results)
        return ResearchAnswer(results=results, note=_note(answer) or UNSET)

    return Tool(
        name="search",
        title="Search for research",
        description=(
            "Search the user's library for things to read with fetch and to cite by url. "
            'Example: {"query": "solid-state batteries"}'
        ),
        input=ResearchQuery,
        handler=run,
    )


def fetch_tool(knowledge: Knowledge, settings: Settings) -> Tool:
    links = Permalinks(settings.base_url)
    known = frozenset(source.name for source in knowledge.sources)

    async def run(call: Call, given: ResearchId) -> CompactItem:
        address = _read_id(links.uri_of(given.id), known)
        read = await knowledge.retriever.get(call.context, _reading(address))
        return _fetched(read, address, given.id, links)

    return Tool(
        name="fetch",
        title="Fetch for research",
        description=(
            "Read a result of search: all of its text, or of a very long one the passage found; "
            'metadata.next_id reads on. Example: {"id": "notes://6f1c"}'
        ),
        input=ResearchId,
        handler=run,
    )


def _found(item: ResultItem, links: Permalinks, budget_tokens: int) -> Found:
    hit = compact_hit(item, links)
    return Found(id=_id_of(item, budget_tokens), title=hit.title, url=hit.url, text=hit.text)


def _id_of(item: ResultItem, budget_tokens: int) -> str:
    """The URI alone wherever that leads to the whole item, so that one item has one id."""
    is_short = item.cost_tokens is UNSET or item.cost_tokens <= budget_tokens * _WHOLE_SHARE
    if item.loc is None or is_short:
        return item.uri
    place = {name: value for name in _PLACES if (value := getattr(item.loc, name)) is not None}
    return f"{item.uri}#{urlencode(place)}" if place else item.uri


def _note(answer: KnowledgeAnswer) -> str:
    reports = [_fault(source, report) for source, report in answer.sources.items()]
    read_as = [f"the query was read as {answer.read_as}"] if answer.read_as is not UNSET else []
    return "; ".join([*read_as, *filter(None, reports)])


def _fault(source: str, report: SourceReport) -> str | None:
    match report.status:
        case "ok":
            return None
        case "timeout":
            return f"{source} did not answer in time"
        case "skipped":
            return f"{source} failed several times and was not asked"
        case "error":
            return f"{source} could not be searched"


def _read_id(text: str, known: frozenset[str]) -> _Address:
    uri, _, fragment = text.partition("#")
    source, separator, path = uri.partition("://")
    if not (separator and path and source in known):
        raise InvalidParams(f"id: got {text[:60]!r}, expected the id of a result of search, such as notes://6f1c")
    place = dict(parse_qsl(fragment[:_FRAGMENT_MAX_CHARS]))
    cursor = place.pop(_CURSOR, None)
    return _Address(uri, place or None, cursor)


def _reading(address: _Address) -> KnowledgeGet:
    if address.cursor is not None or not address.is_place:
        options = RetrievalOptions(mode="full")
    else:
        options = RetrievalOptions(mode="chunk_with_siblings", sibling_window=WINDOW_MAX)
    loc = dict(address.loc) if address.loc is not None else None
    return KnowledgeGet(uri=address.uri, loc=loc, cursor=address.cursor, retrieval=options)


def _fetched(read: GetResponse, address: _Address, identity: str, links: Permalinks) -> CompactItem:
    """The item under the id it was asked by, with how much of it this is, and the id that reads on."""
    item = compact_item(read, links)
    metadata = {name: value for name, value in item.metadata.items() if name not in ("mode", "anchor", "next_cursor")}
    metadata["extent"] = _extent(read, address)
    if read.next_cursor is not None:
        metadata["next_id"] = f"{read.meta.uri}#{urlencode({_CURSOR: read.next_cursor})}"
    return replace(item, id=identity, url=links.of(address.uri, read.meta.loc), metadata=metadata)


def _extent(read: GetResponse, address: _Address) -> Extent:
    if address.cursor is not None:
        return "continuation"
    if address.is_place:
        return "passage"
    return "beginning" if read.next_cursor is not None else "whole"
