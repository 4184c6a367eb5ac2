"""The search page: one box over all sources. Its address is its whole state, and every search is one of REST.

The script of the page requests the results first and the filters after them (`part`), because filters have counts,
which need more reads. Without the script, one page has both.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, ClassVar, cast
from urllib.parse import parse_qs, urlencode

from msgspec import UNSET, Struct, structs
from starlette.requests import Request
from starlette.responses import Response

from aggregator.contract import FacetedSearch, HitExplanation, KnowledgeItem, KnowledgeResponse, KnowledgeSearch
from aggregator.facets import FacetCount, FacetedResponse, Facets
from aggregator.similar import ItemsSimilar
from config.errors import FlorilegiumError, NotFound
from config.times import format_clock
from server.console.browser import see_other
from server.console.charts import COLUMNS_MAX, ChartRow, calendar_chart, column_chart
from server.console.edit_page import find_change
from server.console.markdown import without_markup
from server.console.page_handler import LibraryPage, Viewer
from server.console.pages import MONTHS, N_, PageForm, _, month_text, ngettext
from server.operations import library
from server.operations.items import SOURCE_NAMES
from server.operations.knowledge import UriRequest, find_similar_items, read_item_by_uri, search_knowledge
from server.operations.library import (
    LibraryItemsRequest,
    SavedSearches,
    SavedSearchName,
    delete_saved_search,
    list_saved_searches,
    save_search,
)
from server.operations.operation import NoArguments
from server.tools.research import Permalinks, title_of
from sources.items import GetResponse, ResultItem, SearchResponse
from sources.records import SemanticStatus
from sources.saved_searches import SavedSearch, SearchRequest
from sources.search.arguments import OWN_LIBRARY, read_query
from sources.search.snippets import Highlighter

# Results on a page, and newest items on the page without a query.
_LIMIT = 20
_RECENT = 10
_SNIPPET_CHARS = 320
_LINKS = Permalinks("")
# What each choice of the date filter adds to the query.
_PERIODS = {"today": "after:today", "week": "after:7d", "month": "after:1m", "year": "after:1y"}
PERIOD_LABELS = {
    "": N_("Any time"),
    "today": N_("Today"),
    "week": N_("Past week"),
    "month": N_("Past month"),
    "year": N_("Past year"),
}
# The filters whose values are a list, and those that a form keeps in hidden fields while the query is changed.
_LISTED = ("tag", "type", "sender", "library")
_KEPT = ("source", "tag", "type", "sender", "library", "namespace", "sort")
# How many values of each filter are shown before "More", so that they fit in a row.
_CHIPS_SHOWN = {"date": 2, "tag": 3, "type": 1, "sender": 1, "namespace": 0, "library": 2}
_YEAR_CHARS = len("2026")


class SearchForm(PageForm, frozen=True, kw_only=True):
    """The fields of the form, with the names that they have in the address."""

    path: ClassVar[str] = "/"
    field_max_chars: ClassVar[int] = 1000

    # Those of a saved search.
    q: str = ""
    source: str = ""
    tag: str = ""
    type: str = ""
    when: str = ""
    since: str = ""
    until: str = ""
    sender: str = ""
    library: str = ""
    namespace: str = ""
    sort: str = ""
    # The URI of an item: then the page shows what is similar to it instead of the results of a query.
    similar: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to search for. A source or an order alone selects nothing."""
        return structs.replace(self, source="", sort="", offset="") == SearchForm()

    @property
    def has_filters(self) -> bool:
        return structs.replace(self, q="", similar="", offset="") != SearchForm()

    @property
    def kept(self) -> list[tuple[str, str]]:
        """The choices that a form for another query keeps."""
        return [(name, value) for name in _KEPT if (value := getattr(self, name))]

    @classmethod
    def of_query(cls, query: str) -> "SearchForm":
        """Reads the query string of an address of this page; anything else in it is ignored."""
        values = parse_qs(query[: cls.field_max_chars * len(cls.__struct_fields__)])
        return cls(**{name: values[name][0][: cls.field_max_chars] for name in cls.__struct_fields__ if name in values})

    def listed(self, name: str) -> list[str]:
        """The values of a filter that has several, separated by commas."""
        text: str = getattr(self, name)
        return list(filter(None, (part.strip() for part in text.replace('"', " ").split(","))))

    def request(self) -> FacetedSearch:
        return FacetedSearch(
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
        for name in _LISTED:
            for value in self.listed(name):
                yield f'{name}:"{value}"'
        if self.when in _PERIODS:
            yield _PERIODS[self.when]
        if since := _date(self.since):
            yield f"after:{since}"
        if until := _date(self.until):
            # People mean the whole day; `before:` excludes it.
            yield f"before:{until + timedelta(days=1)}"


class FilterChip(Struct, frozen=True, kw_only=True):
    """A filter that can be added, with how many results it leaves, or one that is active and can be removed."""

    kind: str
    label: str
    address: str
    count: int | None = None


def active_filters(form: SearchForm) -> list[FilterChip]:
    """The filters of the address, each with the address without it."""
    chips = [
        FilterChip(
            kind=name, label=value, address=form.address(**{name: ",".join(v for v in form.listed(name) if v != value)})
        )
        for name in _LISTED
        for value in form.listed(name)
    ]
    if form.namespace:
        chips.append(FilterChip(kind="namespace", label=form.namespace, address=form.address(namespace="")))
    if form.when in _PERIODS:
        chips.append(FilterChip(kind="date", label=_(PERIOD_LABELS[form.when]), address=form.address(when="")))
    if _date(form.since) or _date(form.until):
        chips.append(FilterChip(kind="date", label=_range_label(form), address=form.address(since="", until="")))
    if form.sort == "recent":
        chips.append(FilterChip(kind="order", label=_("Newest first"), address=form.address(sort="")))
    return chips


def offered_filters(form: SearchForm, facets: Facets) -> dict[str, list[FilterChip]]:
    """The filters that would narrow the results, by kind. A value that all results have is not one of them."""

    def chips(kind: str, counts: Sequence[FacetCount]) -> list[FilterChip]:
        current = [value.casefold() for value in form.listed(kind)] if kind in _LISTED else []
        return [
            FilterChip(
                kind=kind,
                label=one.value,
                address=form.address(**{kind: ",".join([*form.listed(kind), one.value]) if current else one.value}),
                count=one.count,
            )
            for one in counts
            # A comma would be read as the end of the value.
            if one.count < facets.counted and one.value.casefold() not in current and "," not in one.value
        ]

    dates = facets.years if len(facets.years) > 1 else facets.months
    groups = {
        "date": [
            FilterChip(
                kind="date",
                label=_range_label(SearchForm(since=first.isoformat(), until=last.isoformat())),
                address=form.address(when="", since=first.isoformat(), until=last.isoformat()),
                count=one.count,
            )
            for one in (dates if len(dates) > 1 else ())
            for first, last in [_period(one.value)]
        ],
        "tag": chips("tag", facets.tags),
        "type": chips("type", facets.media_types),
        "sender": chips("sender", facets.senders),
        "namespace": chips("namespace", facets.namespaces),
    }
    return {kind: some for kind, some in groups.items() if some}


def _period(value: str) -> tuple[date, date]:
    """The first and the last day of a year or a month."""
    if len(value) == _YEAR_CHARS:
        return date(int(value), 1, 1), date(int(value), 12, 31)
    first = date.fromisoformat(f"{value}-01")
    return first, (first + timedelta(days=31)).replace(day=1) - timedelta(days=1)


def _range_label(form: SearchForm) -> str:
    since, until = _date(form.since), _date(form.until)
    if since is None or until is None:
        return _("From %(day)s", day=since) if since else _("Until %(day)s", day=until)
    for period in (f"{since:%Y}", f"{since:%Y-%m}"):
        if _period(period) == (since, until):
            return period if len(period) == _YEAR_CHARS else month_text(since)
    return f"{since}" if since == until else f"{since} to {until}"


class SearchPage(LibraryPage):
    done_sentences: ClassVar = {"saved": N_("The search is saved."), "deleted": N_("The saved search is deleted.")}

    async def show(self, request: Request) -> Response:
        form, part = SearchForm.of(request), request.query_params.get("part", "")
        viewer = await self.admit(request, find_similar_items if form.similar else search_knowledge)
        if name := request.query_params.get("saved", ""):
            found = [one for one in await self._saved(viewer) if one.name == name]
            if not found:
                raise NotFound("saved search", name[:100])
            return see_other(_saved_address(found[0]))
        try:
            if form.similar:
                values = await self._similar_items(viewer, form)
            elif form.is_empty:
                recent: library.LibraryItems = await self.run(
                    viewer, library.list_items, library.LibraryItemsRequest(limit=_RECENT)
                )
                values = {"recent": recent}
            else:
                values = await self._results(viewer, form, part)
        except FlorilegiumError as error:
            values = {"error": error.message, "status": error.status}
        facets = cast("Facets | None", values.pop("facets", None))
        offered = offered_filters(form, facets) if facets is not None else {}
        if facets is not None and viewer.context.principal.libraries and not form.library:
            names = dict.fromkeys([OWN_LIBRARY, *(access.name for access in viewer.context.principal.libraries)])
            offered["library"] = [
                FilterChip(kind="library", label=name, address=form.address(library=name))
                for name in names
                if "," not in name
            ]
        shown = [chip for kind, some in offered.items() for chip in some[: _CHIPS_SHOWN[kind]]]
        defaults: dict[str, Any] = {
            "form": form,
            "section": "search",
            "hits": [],
            "tabs": [],
            "recent": None,
            "response": None,
            "problems": [],
            "item": "",
            "item_title": "",
            "active": active_filters(form),
            "shown": shown,
            "more": {kind: rest for kind, some in offered.items() if (rest := some[_CHIPS_SHOWN[kind] :])},
            "periods": PERIOD_LABELS,
            "facets": facets,
            "saved": [] if part else [(one.name, _saved_address(one)) for one in await self._saved(viewer)],
            **form.paging(None),
        }
        template = {"results": "results.html", "filters": "filters.html"}.get(part, "search.html")
        return await self.render(viewer, template, **{**defaults, **values})

    async def save(self, request: Request) -> Response:
        viewer, values = await self.admit_form(request, save_search)
        form = SearchForm.of_query(values.get("search", ""))
        fields = {
            name: value for name, value in structs.asdict(form).items() if name in SearchRequest.__struct_fields__
        }
        saved: SavedSearch = await self.run(viewer, save_search, SavedSearch(name=values.get("name", ""), **fields))
        return see_other(f"{_saved_address(saved)}&done=saved")

    async def delete_saved(self, request: Request) -> Response:
        viewer, values = await self.admit_form(request, delete_saved_search)
        await self.run(viewer, delete_saved_search, SavedSearchName(name=values.get("name", "")))
        return see_other("/?done=deleted")

    async def _saved(self, viewer: Viewer) -> Sequence[SavedSearch]:
        """None for a credential that may not see the account."""
        if not viewer.is_person:
            return ()
        saved: SavedSearches = await self.run(viewer, list_saved_searches, NoArguments())
        return saved.searches

    async def _results(self, viewer: Viewer, form: SearchForm, part: str) -> dict[str, Any]:
        search = form.request()
        if part == "filters":
            search = structs.replace(search, limit=1, offset=0, explain=False)
        response: KnowledgeResponse = await self.run(
            viewer, search_knowledge, structs.replace(search, facets=part != "results")
        )
        facets = response.facets if isinstance(response, FacetedResponse) else UNSET
        if part == "filters":
            return {"response": response, "facets": facets or None}
        counted = response
        if form.source and not form.namespace:  # the counts of the other sources need a search of all of them
            counted = await self.run(
                viewer, search_knowledge, structs.replace(search, sources=(), limit=1, offset=0, facets=False)
            )
        # Of all libraries. A source that failed has no total, and then there is none of all.
        totals: dict[str, int | None] = {}
        for by_source in (counted.sources, *counted.libraries.values()):
            for name, report in by_source.items():
                before = totals.get(name, 0)
                totals[name] = None if before is None or report.total is UNSET else before + report.total
        total = None if None in totals.values() else sum(count or 0 for count in totals.values())
        problems = [
            f"{place}{name}: {report.error or report.status}"
            for place, by_source in {
                "": response.sources,
                **{f"{name}, ": by_source for name, by_source in response.libraries.items()},
            }.items()
            for name, report in by_source.items()
            if report.status != "ok"
        ]
        hits = []
        for number, item in enumerate(response.results, form.position + 1):
            # The words to mark are those that the search says it found, not always those of the query.
            words = item.explain.terms if item.explain is not UNSET else ()
            terms = read_query(" ".join(words), self.settings).terms
            hits.append(hit_view(item, form, number, Highlighter(terms) if terms else None))
        return {
            "response": response,
            "facets": facets or None,
            "hits": hits,
            "tabs": [
                {
                    "title": title,
                    "address": form.address(source=name),
                    "count": totals.get(name) if name else total,
                    "is_current": name == form.source,
                }
                for name, title in {"": _("All"), **self.source_titles}.items()
                # A source without results cannot be chosen, and a namespace has conversations only.
                if not form.namespace and (not name or name == form.source or totals.get(name) != 0)
            ],
            "problems": problems,
            **form.paging(response.next_offset if response.has_more else None),
        }

    async def _similar_items(self, viewer: Viewer, form: SearchForm) -> dict[str, Any]:
        request = ItemsSimilar(uri=form.similar, limit=_LIMIT, offset=form.position, snippet_length=_SNIPPET_CHARS)
        response: SearchResponse = await self.run(viewer, find_similar_items, request)
        item: GetResponse = await self.run(viewer, read_item_by_uri, UriRequest(uri=form.similar, mode="snippet"))
        return {
            "response": response,
            "item": _LINKS.of(form.similar),
            "item_title": title_of(item.meta, item.content),
            "hits": [hit_view(hit, form, number) for number, hit in enumerate(response.results, form.position + 1)],
            **form.paging(response.next_offset if response.has_more else None),
        }


def _saved_address(saved: SavedSearch) -> str:
    return SearchForm(**{name: value for name, value in structs.asdict(saved).items() if name != "name"}).address()


def hit_view(
    item: ResultItem, form: SearchForm, number: int, highlighter: Highlighter | None = None
) -> Mapping[str, Any]:
    """Returns the values of a result card. `number` is its place among the results."""
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

    # With the words to mark on the page of the item, and the way back to this one.
    path, mark, fragment = _LINKS.of(item.uri, item.loc).partition("#")
    here = form.address(offset=form.offset).partition("?")[2]
    more = {**({"find": form.q} if form.q else {}), "back": here, "result": number}
    path += f"{'&' if '?' in path else '?'}{urlencode(more)}"

    return {
        "source": item.source,
        "number": number,
        "title": title_of(item, item.snippet or ""),
        "address": path + mark + fragment,
        "snippet": marked(item.snippet or ""),
        "passages": [(passage.sender or "", marked(passage.snippet)) for passage in passages],
        "time": item.created_at or item.last_modified or "",
        "at": format_clock(item.loc.seconds) if item.loc is not None and item.loc.seconds is not None else "",
        "sender": item.sender or "",
        "media_type": item.media_type or "",
        "library": item.library or "",
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
        yield _("contains %(words)s", words=", ".join(explanation.terms))
    if explanation.lexical is not UNSET:
        words, meaning = f"{explanation.lexical:.2f}", f"{explanation.semantic or 0.0:.2f}"
        yield _("words %(words)s, meaning %(meaning)s", words=words, meaning=meaning)
    if explanation.time_boost is not UNSET and explanation.time_boost != 1:
        yield _("raised by %(factor)s for its time", factor=f"{explanation.time_boost:g}")
    yield _("number %(number)s of its source", number=explanation.rank_in_source + 1)


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


_LIBRARY_LIMIT = 50
_YEAR = re.compile(r"[1-9]\d{3}", re.ASCII)
# The most frequent tag is written in the largest of so many sizes.
_TAG_SIZES = 5
# Pinned items that the library page shows first.
_PINNED_MAX = 50


class LibraryForm(PageForm, frozen=True, kw_only=True):
    """The choices in the address of the page."""

    path: ClassVar[str] = "/library"
    field_max_chars: ClassVar[int] = 300

    source: str = ""
    tag: str = ""
    type: str = ""
    namespace: str = ""
    created: str = ""
    since: str = ""
    until: str = ""
    # The name or handle of someone else's.
    library: str = ""

    @property
    def is_filtered(self) -> bool:
        return self != LibraryForm(offset=self.offset, library=self.library)

    def request(self) -> LibraryItemsRequest:
        return LibraryItemsRequest(
            source=self.source if self.source in SOURCE_NAMES else None,
            tag=self.tag or None,
            media_type=self.type or None,
            namespace=self.namespace or None,
            created=self.created or None,
            since=self.since or None,
            until=self.until or None,
            library=self.library or None,
            limit=_LIBRARY_LIMIT,
            offset=self.position,
        )


class LibraryBrowser(LibraryPage):
    """The library page: what is in a library, its items by source, tag, type, namespace and date, and many at once."""

    done_sentences: ClassVar = {"restored": N_("The items are restored."), "tagged": N_("The tags are changed.")}

    async def show(self, request: Request) -> Response:
        form = LibraryForm.of(request)
        viewer = await self.admit(request, library.list_items)
        asked = library.LibraryOverviewRequest(library=form.library or None)
        overview: library.LibraryOverview = await self.run(viewer, library.get_library, asked)
        values: dict[str, Any] = {"items": [], "total": 0, **form.paging(None)}
        try:
            page = await self.run(viewer, library.list_items, form.request())
            for item in page.items:
                size = ngettext("%(num)s character", "%(num)s characters", item.chars) if item.chars is not None else ""
                if item.messages is not None:
                    size = ngettext("%(num)s message", "%(num)s messages", item.messages)
                values["items"].append((item, size))
            values["total"] = page.total
            values |= form.paging(page.next_offset)
        except FlorilegiumError as error:
            values |= {"error": error.message, "status": error.status}
        pinned: tuple[library.LibraryItem, ...] = ()
        if not form.offset:
            shown = structs.replace(
                LibraryForm(source=form.source, library=form.library).request(), pinned=True, limit=_PINNED_MAX
            )
            pinned = (await self.run(viewer, library.list_items, shown)).items
        semantic: SemanticStatus | None = None
        if overview.recent and not form.library:
            # How much of the library has embeddings. A search says so, and nothing else does.
            probe = KnowledgeSearch(query=overview.recent[0].title or "text", limit=1, dedupe="off")
            semantic = (await self.run(viewer, search_knowledge, probe)).semantic or None
        return await self.render(
            viewer,
            "library.html",
            form=form,
            others=viewer.context.principal.libraries,
            overview=overview,
            titles=self.source_titles,
            semantic=semantic,
            deleted=request.query_params.get("deleted", "")[:10_000],
            pinned=pinned,
            change=await find_change(self, viewer),
            section="library",
            **values,
        )

    async def timeline(self, request: Request) -> Response:
        """When the items of a library were created, and their tags: pictures of what the list has."""
        viewer = await self.admit(request, library.get_library_timeline)
        year = request.query_params.get("year", "")
        asked = library.LibraryTimelineRequest(year=int(year) if _YEAR.fullmatch(year) else None)
        timeline: library.LibraryTimeline = await self.run(viewer, library.get_library_timeline, asked)
        years = sorted({int(month[:_YEAR_CHARS]) for month in timeline.months}, reverse=True)
        rows, is_by_year = self._timeline_rows(timeline.months)
        most = max((one.items for one in timeline.tags), default=1)
        tags = [(one.tag, one.items, 1 + int(_TAG_SIZES * (one.items - 1) / most)) for one in timeline.tags]
        return await self.render(
            viewer,
            "timeline.html",
            timeline=timeline,
            years=years,
            rows=list(reversed(rows)),
            is_by_year=is_by_year,
            chart=column_chart(rows, list(self.source_titles.values())),
            calendar=calendar_chart(timeline.year or 1, timeline.days),
            months=list(map(_, MONTHS)),
            tags=sorted(tags, key=lambda one: one[0].casefold()),
            form=LibraryForm(),
            section="timeline",
        )

    def _timeline_rows(self, months: Mapping[str, Mapping[str, int]]) -> tuple[list[ChartRow], bool]:
        """A row for each month from the first to the last, or for each year if that would be too many."""
        if not months:
            return [], False
        first, last = (12 * int(month[:_YEAR_CHARS]) + int(month[5:]) - 1 for month in (min(months), max(months)))
        is_by_year = last - first >= COLUMNS_MAX
        if is_by_year:
            periods = [f"{year:04}" for year in range(first // 12, last // 12 + 1)][-COLUMNS_MAX:]
        else:
            periods = [f"{month // 12:04}-{month % 12 + 1:02}" for month in range(first, last + 1)]
        titles = self.source_titles
        counts: dict[str, Counter[str]] = {period: Counter() for period in periods}
        for month, by_source in months.items():
            if (period := month[: len(periods[0])]) in counts:
                counts[period].update({titles.get(name, name): items for name, items in by_source.items()})
        rows = []
        for period, values in counts.items():
            label = period if is_by_year else month_text(date.fromisoformat(f"{period}-01"))
            parts = ", ".join(f"{items:,} {name}" for name, items in values.items())
            rows.append(
                ChartRow(
                    label=label,
                    text=f"{label}: {parts}",
                    values=values,
                    address=LibraryForm(created=period).address(),
                )
            )
        return rows, is_by_year
