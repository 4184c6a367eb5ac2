"""One ranking of the results of all sources, built only as far as it is read.

A position denotes the same result whichever page is requested, so a page is found by reading the ranking from its
beginning. When sorted by relevance, the ranking is built in rounds: a fixed number of hits from each source are merged,
then the next ones. When sorted by date, it is an exact merge, because each source returns its hits in that order. An
item is ranked once, where its first hit is.
"""

from collections import deque
from typing import Literal

from msgspec.structs import replace

from aggregator.fanout import Fanout
from aggregator.merge import group_by_item, merge_duplicates, merge_hits, sort_by_date
from sources.search.arguments import LIMIT_MAX
from sources.source import RankedHit, SourceHits

Order = Literal["relevance", "recent"]
# The first pages need two rounds at most. After these, each round is twice as large as the one before.
_EQUAL_ROUNDS = 2


class _SourceStream:
    """The hits of one source, read page by page."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offset = 0
        self.has_more = True
        self.has_failed = False
        self.total: int | None = None
        self.pending: list[RankedHit] = []

    def add(self, page: SourceHits | None) -> None:
        """A source that did not answer counts as finished, and so does one whose next offset does not advance."""
        if page is None:
            self.has_more, self.has_failed, self.total = False, True, None
            return
        self.pending += page.hits
        self.total = page.total_estimated
        next_offset = page.next_offset if page.has_more else None
        self.has_more = next_offset is not None and next_offset > self.offset
        self.offset = next_offset if next_offset is not None and self.has_more else self.offset + len(page.hits)


class MergedRanking:
    def __init__(self, fanout: Fanout, order: Order, source_max: int) -> None:
        self._fanout = fanout
        self._streams = [_SourceStream(name) for name in fanout.sources]
        self._order = order
        self._source_max = source_max
        self._rounds = 0
        self._ready: deque[RankedHit] = deque()
        self._items: set[tuple[str, str | int]] = set()
        self.position = 0

    @property
    def is_finished(self) -> bool:
        return not self._ready and self._is_read

    @property
    def _is_read(self) -> bool:
        """Whether the sources have no more hits."""
        return not any(stream.has_more or stream.pending for stream in self._streams)

    @property
    def total(self) -> int | None:
        """The number of results, if all hits were read: how many of them are of the same item, or copies, cannot be
        known before."""
        if not self._is_read or any(stream.has_failed for stream in self._streams):
            return None
        return self.position + len(self._ready)

    @property
    def source_totals(self) -> dict[str, int]:
        """The numbers of hits of the sources that know theirs."""
        return {stream.name: stream.total for stream in self._streams if stream.total is not None}

    async def read_first(self) -> None:
        """Searches the sources for their first hits, which any position of the ranking needs."""
        if not self._ready and not self.is_finished:
            await self._extend()

    async def skip_to(self, offset: int) -> None:
        while self.position < offset and await self.next() is not None:
            pass

    async def next(self) -> RankedHit | None:
        """The next result with its position, or None at the end."""
        while not self._ready and not self.is_finished:
            await self._extend()
        if not self._ready:
            return None
        hit = replace(self._ready.popleft(), position=self.position)
        self.position += 1
        return hit

    async def _extend(self) -> None:
        streams = [stream for stream in self._streams if stream.has_more and not stream.pending]
        depth = min(LIMIT_MAX, self._fanout.depth << max(0, self._rounds - _EQUAL_ROUNDS + 1))
        pages = await self._fanout.search({stream.name: stream.offset for stream in streams}, depth)
        self._rounds += 1
        for stream in streams:
            stream.add(pages.get(stream.name))
        hits = self._take_newest() if self._order == "recent" else self._take_pending()
        # Items that were ranked before, or listed as copies, are not ranked again.
        hits = [hit for hit in hits if hit.item not in self._items]
        self._items.update(hit.item for hit in hits)
        if self._order == "recent":
            self._ready.extend(merge_duplicates(group_by_item(hits)))
        else:
            self._ready.extend(merge_hits(hits, self._source_max))

    def _take_pending(self) -> list[RankedHit]:
        hits = [hit for stream in self._streams for hit in stream.pending]
        for stream in self._streams:
            stream.pending = []
        return hits

    def _take_newest(self) -> list[RankedHit]:
        """Takes the pending hits, newest first, up to the last one of a source that has more: its next hit may be newer
        than what follows."""
        counts = {stream.name: len(stream.pending) for stream in self._streams}
        unfinished = {stream.name for stream in self._streams if stream.has_more}
        ordered = sort_by_date(self._take_pending())
        end = 0
        for hit in ordered:
            end += 1
            counts[hit.source] -= 1
            if hit.source in unfinished and not counts[hit.source]:
                break
        for stream in self._streams:
            stream.pending = [hit for hit in ordered[end:] if hit.source == stream.name]
        return ordered[:end]
