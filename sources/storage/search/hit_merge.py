"""Merges the hits of two searches with the same query into one page."""

from collections.abc import Callable
from heapq import merge

from sources.records import HitPage, RankedMatch
from sources.storage.contract import Search


def merge_pages(search: Search, *pages: HitPage) -> HitPage:
    """Each page must begin at the first hit and reach to the end of the requested one. Their own order is kept, so the
    result is the same however it is divided into pages."""
    end = search.offset + search.limit
    matches = tuple(merge(*(page.matches for page in pages), key=_sort_key(search), reverse=True))
    totals = [page.total for page in pages]
    return HitPage(
        matches[search.offset : end],
        has_more=len(matches) > end or any(page.has_more for page in pages),
        total=None if None in totals else sum(total for total in totals if total is not None),
        # The one that covers less: both kinds of hits are on one page.
        semantic=min((page.semantic for page in pages), key=lambda status: status.coverage or 0.0),
        query=next((page.query for page in pages if page.query is not None), None),
        floor=min((page.floor for page in pages if page.floor is not None), default=None),
    )


def _sort_key(search: Search) -> Callable[[RankedMatch], str | float]:
    if search.order == "recent" or search.query.expression is None:
        return lambda match: match.last_modified
    return lambda match: match.score
