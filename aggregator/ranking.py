"""One ranking of the hits of all sources, built only as far as it is read.

A position denotes the same hit whichever page is requested. When sorted by relevance, the ranking is built in rounds: a
fixed number of hits from each source are ordered together, then the next ones. When sorted by date, it is an exact
merge, because each source returns its hits in that order.
"""

from collections import deque
from typing import Literal

from msgspec.structs import replace

from aggregator.fanout import Fanout
from aggregator.merge import DiversityLimits, duplicates_last, mark_duplicates, order_hits, sort_by_date
from sources.source import RankedHit, SourceHits

Order = Literal["relevance", "recent"]


class _SourceStream:
    """The hits of one source, read page by page."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offset = 0
        self.has_more = True
        self.total: int | None = None
        self.pending: list[RankedHit] = []

    def add(self, page: SourceHits | None) -> None:
        """A source that did not answer counts as finished, and so does one whose next offset does not advance."""
        if page is None:
            self.has_more, self.total = False, None
            return
        self.pending += page.hits
        self.total = page.total_estimated
        next_offset = page.next_offset if page.has_more else None
        self.has_more = next_offset is not None and next_offset > self.offset
        self.offset = next_offset if next_offset is not None and self.has_more else self.offset + len(page.hits)


class MergedRanking:
    def __init__(self, fanout: Fanout, order: Order, limits: DiversityLimits) -> None:
        self._fanout = fanout
        self._streams = [_SourceStream(name) for name in fanout.sources]
        self._order = order
        self._limits = limits
        self._rounds = 0
        self._ready: deque[RankedHit] = deque()
        self.position = 0

    @property
    def is_finished(self) -> bool:
        return not self._ready and not any(stream.has_more or stream.pending for stream in self._streams)

    @property
    def total(self) -> int | None:
        """The number of hits, if every source knows its own."""
        totals = [stream.total for stream in self._streams]
        return sum(total for total in totals if total is not None) if None not in totals else None

    @property
    def source_totals(self) -> dict[str, int]:
        """The numbers of hits of the sources that know theirs."""
        return {stream.name: stream.total for stream in self._streams if stream.total is not None}

    async def read_first(self) -> None:
        """Searches the sources for their first hits, which any position of the ranking needs."""
        if not self._ready and not self.is_finished:
            await self._extend()

    async def skip_to(self, offset: int) -> None:
        while self.position < offset and not self.is_finished:
            if not self._ready:
                await self._extend()
            skipped = min(len(self._ready), offset - self.position)
            for _ in range(skipped):
                self._ready.popleft()
            self.position += skipped
            if not self._ready and self._order == "relevance":
                self._skip_rounds(offset)

    async def next(self) -> RankedHit | None:
        """The next hit with its position, or None at the end."""
        while not self._ready and not self.is_finished:
            await self._extend()
        if not self._ready:
            return None
        hit = replace(self._ready.popleft(), position=self.position)
        self.position += 1
        # Duplicates are listed with an earlier hit, so they alone are no reason for another page.
        while self._ready and self._ready[0].is_duplicate:
            self._ready.popleft()
            self.position += 1
        return hit

    def _skip_rounds(self, offset: int) -> None:
        """Skips whole rounds without searching, if every source knows its number of hits."""
        depth = self._fanout.depth
        streams = [stream for stream in self._streams if stream.has_more]
        if any(stream.total is None or stream.offset != self._rounds * depth for stream in streams):
            return
        while streams:
            sizes = [min(depth, (stream.total or 0) - stream.offset) for stream in streams]
            if self.position + sum(sizes) > offset:
                return
            self.position += sum(sizes)
            self._rounds += 1
            for stream in streams:
                stream.offset += depth
                stream.has_more = stream.offset < (stream.total or 0)
            streams = [stream for stream in streams if stream.has_more]

    async def _extend(self) -> None:
        streams = [stream for stream in self._streams if stream.has_more and not stream.pending]
        pages = await self._fanout.search({stream.name: stream.offset for stream in streams})
        self._rounds += 1
        for stream in streams:
            stream.add(pages.get(stream.name))
        if self._order == "recent":
            self._ready.extend(duplicates_last(mark_duplicates(self._take_newest())))
        else:
            ordered = order_hits(self._take_pending(), self._limits)
            self._ready.extend(duplicates_last(mark_duplicates(ordered)))

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
