"""Reads a query in a way that matches more if nothing matches it as typed."""

from collections.abc import Callable

from msgspec.structs import replace

from sources.records import HitPage
from sources.storage.contract import Search


def search_relaxed(search: Search, has_match: Callable[[Search], bool], run: Callable[[Search], HitPage]) -> HitPage:
    """Runs the first reading of the query that matches anything, or the last. The decision does not depend on the
    requested page, so all pages are read the same way. The page names the query if it is not the one in `search`."""
    reading = search
    while reading.query.relaxed is not None and not search.is_strict and not has_match(reading):
        reading = replace(reading, query=reading.query.relaxed, corpus=None)
    page = run(reading)
    is_changed = reading is not search and page.total != 0 and page.query is None
    return replace(page, query=reading.query) if is_changed else page
