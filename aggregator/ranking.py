"""One ranking of all sources, made as far as it is read.

A position means the same hit whatever page it is asked for on. By relevance the ranking goes in rounds: a fixed number
of hits from each source, ordered together, then the next. By date it is one exact merge, since each source comes in
that order.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from aggregator.merge import Candidate, Entry, Fairness, by_date, collapse
from sources.source import Matches

Order = Literal["relevance", "recent"]
# Asks sources for their hits from an offset on, and leaves out those that did not answer.
Ask = Callable[[Mapping[str, int]], Awaitable[Mapping[str, Matches]]]


class _Stream:
    """The hits of one source, read window by window."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offset = 0
        self.has_more = True
        self.total: int | None = None
        self.pending: list[Candidate] = []

    def take(self, answer: Matches | None) -> None:
        """A source that did not answer has no more hits. Nor has one whose next page is not further on."""
        if answer is None:
            self.has_more, self.total = False, None
            return
        self.pending += (Candidate(self.name, match, self.offset + at, answer) for at, match in enumerate(answer.found))
        self.total = answer.total_estimated
        following = answer.next_offset if answer.has_more else None
        self.has_more = following is not None and following > self.offset
        self.offset = following if following is not None and self.has_more else self.offset + len(answer.found)


class Place(Struct, frozen=True):
    position: int
    entry: Entry


class Ranking:
    """`depth` is how many hits a source gives at a time, and must be the same for all pages of one search."""

    def __init__(self, ask: Ask, sources: Sequence[str], order: Order, depth: int, fairness: Fairness) -> None:
        self._ask = ask
        self._streams = [_Stream(name) for name in sources]
        self._order = order
        self._depth = depth
        self._fairness = fairness
        self._rounds = 0
        self._ready: deque[Entry] = deque()
        self.position = 0

    @property
    def is_finished(self) -> bool:
        return not self._ready and not any(stream.has_more or stream.pending for stream in self._streams)

    @property
    def total(self) -> int | None:
        """How many hits there are, if every source knows."""
        totals = [stream.total for stream in self._streams]
        return sum(total for total in totals if total is not None) if None not in totals else None

    async def skip_to(self, offset: int) -> None:
        while self.position < offset and not self.is_finished:
            if not self._ready:
                await self._extend()
            passed = min(len(self._ready), offset - self.position)
            for _ in range(passed):
                self._ready.popleft()
            self.position += passed
            if not self._ready and self._order == "relevance":
                self._leap(offset)

    async def next(self) -> Place | None:
        while not self._ready and not self.is_finished:
            await self._extend()
        if not self._ready:
            return None
        place = Place(self.position, self._ready.popleft())
        self.position += 1
        # What was told with an earlier hit is no reason for another page.
        while self._ready and self._ready[0].is_told:
            self._ready.popleft()
            self.position += 1
        return place

    def _leap(self, offset: int) -> None:
        """Passes whole rounds by without asking for them, where each source's number of hits is known."""
        reading = [stream for stream in self._streams if stream.has_more]
        if any(stream.total is None or stream.offset != self._rounds * self._depth for stream in reading):
            return
        while reading:
            sizes = [min(self._depth, (stream.total or 0) - stream.offset) for stream in reading]
            if self.position + sum(sizes) > offset:
                return
            self.position += sum(sizes)
            self._rounds += 1
            for stream in reading:
                stream.offset += self._depth
                stream.has_more = stream.offset < (stream.total or 0)
            reading = [stream for stream in reading if stream.has_more]

    async def _extend(self) -> None:
        asked = [stream for stream in self._streams if stream.has_more and not stream.pending]
        answers = await self._ask({stream.name: stream.offset for stream in asked})
        self._rounds += 1
        for stream in asked:
            stream.take(answers.get(stream.name))
        if self._order == "recent":
            self._ready.extend(collapse(self._newest()))
        else:
            self._ready.extend(collapse(self._fairness.order(self._all_pending())))

    def _all_pending(self) -> list[Candidate]:
        taken = [candidate for stream in self._streams for candidate in stream.pending]
        for stream in self._streams:
            stream.pending = []
        return taken

    def _newest(self) -> list[Candidate]:
        """Pending hits, newest first, up to the last known one of a source that has more: its next may be newer than
        what follows."""
        left = {stream.name: len(stream.pending) for stream in self._streams}
        open_ended = {stream.name for stream in self._streams if stream.has_more}
        ordered = by_date(self._all_pending())
        taken = 0
        for candidate in ordered:
            taken += 1
            left[candidate.source] -= 1
            if candidate.source in open_ended and not left[candidate.source]:
                break
        for stream in self._streams:
            stream.pending = [rest for rest in ordered[taken:] if rest.source == stream.name]
        return ordered[:taken]
