"""The source `bookmarks`."""

from florilegium.sources import KindSource
from florilegium_bookmarks.kind import BOOKMARK


class Bookmarks(KindSource):
    kind = BOOKMARK
    title = "Bookmarks"
