"""The search page: one box over all sources. Its address is its whole state, and every search is one of REST."""

from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from typing import Any, ClassVar
from urllib.parse import urlencode

from msgspec import UNSET
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from aggregator.responses import HitExplanation, KnowledgeItem, KnowledgeResponse
from aggregator.search import KnowledgeSearch
from aggregator.similar import ItemsSimilar
from config.errors import FlorilegiumError
from config.times import format_clock
from server.console.markdown import without_markup
from server.console.page_handler import LibraryPage, Viewer
from server.console.pages import PageForm
from server.operations import library
from server.operations.items import SOURCE_NAMES
from server.operations.knowledge import UriRequest, find_similar_items, read_item_by_uri, search_knowledge
from server.operations.operation import NoArguments
from server.tools.research import Permalinks, title_of
from sources.items import GetResponse, ResultItem, SearchResponse
from sources.records import SemanticStatus
from sources.search.arguments import read_query
from sources.search.snippets import Highlighter

# Results on a page, and newest items on the page without a query.
_LIMIT = 20
_RECENT = 10
_SNIPPET_CHARS = 320
_LINKS = Permalinks("")
# What each choice of the date filter adds to the query.
_PERIODS = {"today": "after:today", "week": "after:7d", "month": "after:1m", "year": "after:1y"}
PERIOD_LABELS = {"": "Any time", "today": "Today", "week": "Past week", "month": "Past month", "year": "Past year"}


class SearchForm(PageForm, frozen=True, kw_only=True):
    """The fields of the form, with the names that they have in the address."""

    path: ClassVar[str] = "/"
    field_max_chars: ClassVar[int] = 1000

    q: str = ""
    source: str = ""
    tag: str = ""
    type: str = ""
    when: str = ""
    since: str = ""
    until: str = ""
    sender: str = ""
    namespace: str = ""
    sort: str = ""
    # The URI of an item: then the page shows what is similar to it instead of the results of a query.
    similar: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to search for. A source or an order alone selects nothing."""
        return replace(self, source="", sort="", offset="") == SearchForm()

    @property
    def has_filters(self) -> bool:
        return replace(self, q="", similar="", offset="") != SearchForm()

    def request(self) -> KnowledgeSearch:
        return KnowledgeSearch(
            query=" ".join(self._query()),
            sources=("chats",) if self.namespace else (self.source,) if self.source else (),
            filters={"chats": {"namespace": self.namespace}} if self.namespace else {},
            order_by="recent" if self.sort == "recent" else None,
            limit=_LIMIT,
            offset=self.position,
            snippet_length=_SNIPPET_CHARS,
            dedupe="off",
            explain=True,
        )

    def _query(self) -> Iterator[str]:
        """The filters are those of the query language, so that a page finds what an assistant would find."""
        yield self.q
        for name, text in (("tag", self.tag), ("type", self.type), ("sender", self.sender)):
            for value in filter(None, (part.strip() for part in text.replace('"', " ").split(","))):
                yield f'{name}:"{value}"'
        if self.when in _PERIODS:
            yield _PERIODS[self.when]
        if since := _date(self.since):
            yield f"after:{since}"
        if until := _date(self.until):
            # People mean the whole day; `before:` excludes it.
            yield f"before:{until + timedelta(days=1)}"


class SearchPage(LibraryPage):
    async def show(self, request: Request) -> Response:
        form = SearchForm.of(request)
        viewer = await self.admit(request, find_similar_items if form.similar else search_knowledge)
        try:
            if form.similar:
                values = await self._similar_items(viewer, form)
            elif form.is_empty:
                recent: library.LibraryItems = await self.run(
                    viewer, library.list_items, library.LibraryItemsRequest(limit=_RECENT)
                )
                values = {"recent": recent}
            else:
                search = form.request()
                response: KnowledgeResponse = await self.run(viewer, search_knowledge, search)
                counted = response
                if search.sources:  # the counts of the other sources need a search of all of them
                    counted = await self.run(
                        viewer, search_knowledge, replace(search, sources=(), limit=1, offset=0, explain=True)
                    )
                totals = {name: one.total for name, one in counted.sources.items() if one.total is not UNSET}
                # A source that failed has no total, and then there is none of all.
                total = sum(totals.values()) if len(totals) == len(counted.sources) else None
                problems = [
                    f"{name}: {report.error or report.status}"
                    for name, report in response.sources.items()
                    if report.status != "ok"
                ]
                hits = []
                for item in response.results:
                    # The words to mark are those that the search says it found, not always those of the query.
                    words = item.explain.terms if item.explain is not UNSET else ()
                    terms = read_query(" ".join(words), self.settings).terms
                    hits.append(hit_view(item, form, Highlighter(terms) if terms else None))
                values = {
                    "response": response,
                    "hits": hits,
                    "tabs": [
                        {
                            "title": title,
                            "address": form.address(source=name),
                            "count": totals.get(name) if name else total,
                            "is_current": name == form.source,
                        }
                        for name, title in {"": "All", **self._sources}.items()
                    ],
                    "problems": problems,
                    **form.paging(response.next_offset if response.has_more else None),
                }
        except FlorilegiumError as error:
            values = {"error": error.message, "status": error.status}
        shared = {"form": form, "sources": self._sources.items(), "periods": PERIOD_LABELS, "section": "search"}
        defaults: dict[str, Any] = {
            "hits": [],
            "tabs": [],
            "recent": None,
            "response": None,
            "problems": [],
            "item": "",
            "item_title": "",
            **form.paging(None),
        }
        return await self.render(request, viewer, "search.html", **shared, **{**defaults, **values})

    async def _similar_items(self, viewer: Viewer, form: SearchForm) -> Mapping[str, Any]:
        request = ItemsSimilar(uri=form.similar, limit=_LIMIT, offset=form.position, snippet_length=_SNIPPET_CHARS)
        response: SearchResponse = await self.run(viewer, find_similar_items, request)
        item: GetResponse = await self.run(viewer, read_item_by_uri, UriRequest(uri=form.similar, mode="snippet"))
        return {
            "response": response,
            "item": _LINKS.of(form.similar),
            "item_title": title_of(item.meta, item.content),
            "hits": [hit_view(hit, form) for hit in response.results],
            **form.paging(response.next_offset if response.has_more else None),
        }


def hit_view(item: ResultItem, form: SearchForm, highlighter: Highlighter | None = None) -> Mapping[str, Any]:
    """Returns the values of a result card."""
    explanation = item.explain if isinstance(item, KnowledgeItem) and item.explain is not UNSET else None
    passages = (item.passages if isinstance(item, KnowledgeItem) else UNSET) or ()

    def marked(text: str) -> list[tuple[str, bool]]:
        """Splits a text into parts, and says of each whether it is to be marked. The template escapes them."""
        text = without_markup(text)
        parts, position = [], 0
        for start, end in highlighter.ranges(text) if highlighter is not None else ():
            parts += [(text[position:start], False), (text[start:end], True)]
            position = end
        return [part for part in (*parts, (text[position:], False)) if part[0]]

    # With the words to mark on the page of the item.
    path, mark, fragment = _LINKS.of(item.uri, item.loc).partition("#")
    if form.q:
        path += f"{'&' if '?' in path else '?'}{urlencode({'find': form.q})}"

    return {
        "source": item.source,
        "title": title_of(item, item.snippet or ""),
        "address": path + mark + fragment,
        "snippet": marked(item.snippet or ""),
        "passages": [(passage.sender or "", marked(passage.snippet)) for passage in passages],
        "time": item.created_at or item.last_modified or "",
        "at": format_clock(item.loc.seconds) if item.loc is not None and item.loc.seconds is not None else "",
        "sender": item.sender or "",
        "media_type": item.media_type or "",
        "tags": [(tag, form.address(tag=tag, similar="")) for tag in item.tags or ()],
        "score": item.score,
        "why": list(_reasons(explanation)) if explanation is not None else [],
        "similar": SearchForm(similar=item.uri).address(),
        "copies": len(getattr(item, "also_in", None) or ()),
        "more": item.more_in_item or 0,
        "tokens": item.cost_tokens or 0,
    }


def _reasons(explanation: HitExplanation) -> Iterator[str]:
    """Says in words why a hit is where it is."""
    if explanation.terms:
        yield f"contains {', '.join(explanation.terms)}"
    if explanation.lexical is not UNSET:
        yield f"words {explanation.lexical:.2f}, meaning {explanation.semantic or 0.0:.2f}"
    if explanation.time_boost is not UNSET and explanation.time_boost != 1:
        yield f"raised by {explanation.time_boost:g} for its time"
    yield f"number {explanation.rank_in_source + 1} of its source"


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


_LIBRARY_LIMIT = 50


class LibraryForm(PageForm, frozen=True, kw_only=True):
    """The choices in the address of the page."""

    path: ClassVar[str] = "/library"
    field_max_chars: ClassVar[int] = 300

    source: str = ""
    tag: str = ""
    type: str = ""
    namespace: str = ""
    since: str = ""
    until: str = ""

    @property
    def is_filtered(self) -> bool:
        return self != LibraryForm(offset=self.offset)

    def request(self) -> library.LibraryItemsRequest:
        return library.LibraryItemsRequest(
            source=self.source if self.source in SOURCE_NAMES else None,
            tag=self.tag or None,
            media_type=self.type or None,
            namespace=self.namespace or None,
            since=self.since or None,
            until=self.until or None,
            limit=_LIBRARY_LIMIT,
            offset=self.position,
        )


class LibraryBrowser(LibraryPage):
    """The library page: what is in a library, its items by source, tag, type, namespace and date, and many at once."""

    done_sentences: ClassVar = {"restored": "The items are restored.", "tagged": "The tags are changed."}

    async def show(self, request: Request) -> Response:
        form = LibraryForm.of(request)
        viewer = await self.admit(request, library.list_items)
        overview: library.LibraryOverview = await self.run(viewer, library.get_library, NoArguments())
        values: dict[str, Any] = {"items": [], "total": 0, **form.paging(None)}
        try:
            page = await self.run(viewer, library.list_items, form.request())
            for item in page.items:
                size = f"{item.chars:,} characters" if item.chars is not None else ""
                if item.messages is not None:
                    size = "1 message" if item.messages == 1 else f"{item.messages:,} messages"
                values["items"].append((item, size))
            values["total"] = page.total
            values |= form.paging(page.next_offset)
        except FlorilegiumError as error:
            values |= {"error": error.message, "status": error.status}
        semantic: SemanticStatus | None = None
        if overview.recent:
            # How much of the library has embeddings. A search says so, and nothing else does.
            probe = KnowledgeSearch(query=overview.recent[0].title or "text", limit=1, dedupe="off")
            semantic = (await self.run(viewer, search_knowledge, probe)).semantic or None
        return await self.render(
            request,
            viewer,
            "library.html",
            form=form,
            overview=overview,
            titles=self._sources,
            semantic=semantic,
            deleted=request.query_params.get("deleted", "")[:10_000],
            section="library",
            **values,
        )
