"""One ranking of the results of all sources, built only as far as it is read.

A position denotes the same result whichever page is requested, so a page is found by reading the ranking from its
beginning. When sorted by relevance, the ranking is built in rounds: a fixed number of hits from each source are merged,
then the next ones. When sorted by date, it is an exact merge, because each source returns its hits in that order. An
item is ranked once, where its first hit is.
"""

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import attrgetter
from typing import Literal

import msgspec
from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from aggregator.fanout import Fanout
from aggregator.filters import Dedupe
from aggregator.responses import KnowledgeItem, KnowledgeResponse
from sessions.state import SeenItems
from sources.query import Term
from sources.search.arguments import LIMIT_MAX
from sources.semantic.endpoint import Reranker
from sources.semantic.model import SemanticUnavailable
from sources.source import RankedHit, SourceHits

# -- merge -------------------------------------------------------------------------------------------------------------
# Merges the hits of several sources into one list of results, one for each item. The functions are pure.
#
# Scores are comparable across sources, so hits are ordered by score. Hits of the same item become one result: a page
# would otherwise show the same conversation several times. Of results with the same content, the best one lists the
# others. Then results over the limit per source among ten move behind the others. No item is lost.

# Scores are compared in steps of this many per unit; smaller differences are floating-point noise.
_SCORE_STEPS = 10_000
# `limit_per_source` applies to each block of this many hits.
_BLOCK = 10
# URIs listed with a hit that has the same content; a further one becomes a hit of its own.
ALSO_IN_MAX = 10
_uri_of = attrgetter("uri")


def merge_hits(hits: Sequence[RankedHit], source_max: int) -> list[RankedHit]:
    """Returns the results in their order. At most `source_max` of any ten are of one source, while others are left."""
    return limit_per_source(merge_duplicates(group_by_item(sort_by_score(hits))), source_max)


def sort_by_score(hits: Sequence[RankedHit]) -> list[RankedHit]:
    """Best first; equal scores by date, then by URI."""
    ordered = sorted(hits, key=_uri_of)
    ranks = [(round(hit.score * _SCORE_STEPS), hit.last_modified or "") for hit in ordered]
    return [ordered[index] for index in sorted(range(len(ranks)), key=ranks.__getitem__, reverse=True)]


def sort_by_date(hits: Sequence[RankedHit]) -> list[RankedHit]:
    """Newest first and hits without a date last; then by URI."""
    ordered = sorted(hits, key=_uri_of)
    return sorted(ordered, key=lambda hit: hit.last_modified or "", reverse=True)


def group_by_item(hits: Sequence[RankedHit]) -> list[RankedHit]:
    """The first hit of an item becomes its result, with the others as its `parts`."""
    results: dict[tuple[str, str | int], RankedHit] = {}
    for hit in hits:
        item = hit.stream or hit.source, hit.id
        if item in results:
            hit = replace(results[item], parts=(*results[item].parts, hit))  # noqa: PLW2901 - the result of the item
        results[item] = hit
    return list(results.values())


def limit_per_source(hits: Sequence[RankedHit], limit: int) -> list[RankedHit]:
    """Allows at most `limit` hits of one source among each ten, as long as other sources have hits left."""
    ordered: list[RankedHit] = []
    remaining = list(hits)
    while remaining:
        counts: dict[str, int] = {}
        block: list[RankedHit] = []
        rest: list[RankedHit] = []
        for index, hit in enumerate(remaining, 1):
            counts[hit.source] = count = counts.get(hit.source, 0) + 1
            (block if count <= limit else rest).append(hit)
            if len(block) == _BLOCK:
                rest += remaining[index:]
                break
        free = _BLOCK - len(block)  # more than 0 if only one source is left
        ordered += block + rest[:free]
        remaining = rest[free:]
    return ordered


def merge_duplicates(results: Sequence[RankedHit]) -> list[RankedHit]:
    """Of results with the same content, only the first remains, and lists the URIs of the others in `also_in`."""
    first: dict[Hashable, int] = {}
    merged: list[RankedHit] = []
    copies: list[dict[str, int]] = []
    for result in results:
        parts = frozenset(map(content_of, result.parts)) if result.parts else None
        key = (result.uri if result.content_key is None else result.content_key, parts)
        at = first.setdefault(key, len(merged))
        if at < len(merged):
            if len(copies[at]) < ALSO_IN_MAX:
                if result.uri != merged[at].uri:  # a source may return the same URI twice
                    copies[at][result.uri] = result.version or 0
                continue
            first[key] = len(merged)
        merged.append(result)
        copies.append({})
    return [replace(hit, duplicates=found) if found else hit for hit, found in zip(merged, copies, strict=True)]


def content_of(hit: RankedHit) -> Hashable:
    """Without a content key a hit equals only itself."""
    return hit.uri if hit.content_key is None else hit.content_key


Order = Literal["relevance", "recent"]
# The first pages need two rounds at most. After these, each round is twice as large as the one before.
_EQUAL_ROUNDS = 2


class _SourceStream:
    """The hits of one source in one library, read page by page. `name` is the key of the fanout."""

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
        # The hits that were ranked, for `read_results`.
        self._ranked: list[RankedHit] = []
        self.position = 0

    @property
    def is_finished(self) -> bool:
        return not self._ready and self.is_read

    @property
    def is_read(self) -> bool:
        """Whether the sources have no more hits."""
        return not [stream for stream in self._streams if stream.has_more or stream.pending]

    @property
    def total(self) -> int | None:
        """The number of results, if all hits were read: how many of them are of the same item, or copies, cannot be
        known before."""
        if not self.is_read or any(stream.has_failed for stream in self._streams):
            return None
        return self.position + len(self._ready)

    @property
    def source_totals(self) -> dict[str, int]:
        """The numbers of hits of the sources that know theirs."""
        return {stream.name: stream.total for stream in self._streams if stream.total is not None}

    async def skip_to(self, offset: int) -> None:
        while self.position < offset and await self.next() is not None:
            pass

    async def has_next(self) -> bool:
        """Whether there is another result. Reads on if it has to: all that the sources have left may be parts of items
        that were ranked before."""
        while not self._ready and not self.is_finished:
            await self._extend()
        return bool(self._ready)

    async def next(self) -> RankedHit | None:
        """The next result with its position, or None at the end."""
        if not self._ready and not await self.has_next():
            return None
        hit = replace(self._ready.popleft(), position=self.position)
        self.position += 1
        return hit

    async def read_results(self, results_min: int) -> list[RankedHit]:
        """The hits of the first results, at least `results_min` of them if there are as many, wherever the page is that
        was read before. Reads as much at once as it can, because nothing is shown of them."""
        while len(self._items) < results_min and not self.is_read:
            await self._extend(LIMIT_MAX)
        return self._ranked

    async def _extend(self, depth: int = 0) -> None:
        streams = [stream for stream in self._streams if stream.has_more and not stream.pending]
        depth = depth or min(LIMIT_MAX, self._fanout.depth << max(0, self._rounds - _EQUAL_ROUNDS + 1))
        offsets = {stream.name: stream.offset for stream in streams}
        pages = await self._fanout.search(offsets, depth)
        self._rounds += 1
        for stream in streams:
            stream.add(pages.get(stream.name))
        hits = self._take_newest() if self._order == "recent" else self._take_pending()
        # Items that were ranked before, or listed as copies, are not ranked again.
        hits = [hit for hit in hits if (hit.stream or hit.source, hit.id) not in self._items]
        self._items.update([(hit.stream or hit.source, hit.id) for hit in hits])
        self._ranked += hits
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
            key = hit.stream or hit.source
            counts[key] -= 1
            if key in unfinished and not counts[key]:
                break
        for stream in self._streams:
            stream.pending = [hit for hit in ordered[end:] if (hit.stream or hit.source) == stream.name]
        return ordered[:end]


# -- reranking ---------------------------------------------------------------------------------------------------------
# The first hits of a ranking in the order of a reranker.
#
# A page is cut from the reranked ranking, so a position denotes the same hit on every page. Scores do not change:
# those of a reranker are comparable within one answer only.


class RerankedRanking:
    """Reads like a MergedRanking. `problem` says why the reranker could not order the first hits."""

    def __init__(
        self, ranking: MergedRanking, reranker: Reranker, fanout: Fanout, query: str, topic: Sequence[Term]
    ) -> None:
        self._ranking = ranking
        self._reranker = reranker
        self._fanout = fanout
        self._query = query
        self._topic = topic
        self._ready: deque[RankedHit] = deque()
        self._reranked: frozenset[str] = frozenset()
        self.problem: str | None = None

    @property
    def description(self) -> str:
        if self.problem is not None:
            return f"hits were not reranked: {self.problem}"
        return f"the first {self._reranker.hits_max} hits are in the order of the reranker"

    @property
    def position(self) -> int:
        return self._ready[0].position if self._ready else self._ranking.position

    @property
    def is_finished(self) -> bool:
        return not self._ready and self._ranking.is_finished

    @property
    def total(self) -> int | None:
        return self._ranking.total

    @property
    def source_totals(self) -> dict[str, int]:
        return self._ranking.source_totals

    async def skip_to(self, offset: int) -> None:
        if offset < self._reranker.hits_max:
            self._ready.extend(hit for hit in await self._read_first() if hit.position >= offset)
        if not self._ready:
            await self._ranking.skip_to(offset)

    async def has_next(self) -> bool:
        return bool(self._ready) or await self._ranking.has_next()

    async def next(self) -> RankedHit | None:
        return self._ready.popleft() if self._ready else await self._ranking.next()

    def sort(self, hits: Sequence[RankedHit]) -> list[RankedHit]:
        """Sorts the hits of a page: those that were reranked by position, then the others by score."""
        first = [hit for hit in hits if hit.uri in self._reranked]
        rest = [hit for hit in hits if hit.uri not in self._reranked]
        return [*sorted(first, key=lambda hit: hit.position), *sort_by_score(rest)]

    async def _read_first(self) -> list[RankedHit]:
        hits: list[RankedHit] = []
        while self._ranking.position < self._reranker.hits_max and (hit := await self._ranking.next()) is not None:
            hits.append(hit)
        try:
            order = await self._order(hits)
        except SemanticUnavailable as error:
            logger.warning("hits were not reranked: {}", error.reason)
            self.problem = error.reason
            return hits
        self._reranked = frozenset(hit.uri for hit in order)
        return [replace(moved, position=hit.position) for moved, hit in zip(order, hits, strict=True)]

    async def _order(self, hits: Sequence[RankedHit]) -> list[RankedHit]:
        """Sorts hits by the scores of the reranker, which reads the title and the snippet of each. A hit that cannot be
        rendered is not delivered, so its place does not matter."""
        items = await self._fanout.render(hits, self._topic)
        texts = [
            f"{items[hit.uri].title or ''}\n{items[hit.uri].snippet or ''}" if hit.uri in items else "" for hit in hits
        ]
        scores = await self._reranker.scores(self._query, texts)
        ranked = sorted(zip(scores, hits, strict=True), key=lambda pair: -pair[0])
        return [hit for _, hit in ranked]


Ranking = MergedRanking | RerankedRanking


# -- paging ------------------------------------------------------------------------------------------------------------
# Pages of the ranking: the results that the session has not seen, as many as the limit and the size allow.
#
# An offset counts positions of the whole ranking, including results already seen, so that paging and deduplication do
# not interfere with each other: a page without seen results has exactly `limit` positions. The ranking decides which
# results make a page; within the page they are ordered by score, or by date if that was requested. Text is never left
# out to fit a page: the page has fewer results instead.

encode = msgspec.json.Encoder().encode


class PageSelection(Struct, frozen=True, kw_only=True):
    """The results that a page should contain, before they are rendered and measured.

    `candidates` are to be delivered as far as they fit, the first ones first. Results in `required` that do not fit are
    delivered by the next page. `seen` are the results found that the session has seen. `end` is the first position that
    was not examined, and `is_last` is true if the ranking ends there.
    """

    candidates: tuple[RankedHit, ...]
    required: tuple[RankedHit, ...]
    seen: tuple[RankedHit, ...]
    exhausted: bool
    end: int
    is_last: bool


class RenderedResult(Struct, frozen=True):
    """A result, the hits that it shows, and its size in bytes with the comma after it. `longer` is the same result with
    more text, for a page that has room for it."""

    item: KnowledgeItem
    hits: tuple[RankedHit, ...]
    size: int
    longer: "RenderedResult | None" = None


async def select_page(
    ranking: Ranking, seen: SeenItems, dedupe: Dedupe, *, limit: int, examined_max: int
) -> PageSelection:
    """Reads the ranking until `limit` results are found that are not in `seen` with their current version. Of a result
    whose passages were seen in part, the others remain.

    If all results were seen, a search from the start returns the best of them again, and a later page is empty.
    """
    offset = ranking.position
    has_seen = len(seen) > 0
    fresh: list[RankedHit] = []
    repeated: list[RankedHit] = []
    for _ in range(examined_max):
        hit = await ranking.next() if len(fresh) < limit else None
        if hit is None:
            break
        unseen = _without_seen(hit, seen) if has_seen else hit
        if unseen is None:
            repeated.append(hit)
        else:
            fresh.append(unseen)
    is_last = not await ranking.has_next()
    exhausted = not fresh and bool(repeated) and is_last
    required = repeated if exhausted and not offset else fresh
    demoted = repeated if dedupe == "demote" and required is fresh else []
    return PageSelection(
        candidates=tuple([*required, *demoted][:limit]),
        required=tuple(required),
        seen=tuple(repeated),
        exhausted=exhausted,
        end=ranking.position,
        is_last=is_last,
    )


def _without_seen(result: RankedHit, seen: SeenItems) -> RankedHit | None:
    hits = [hit for hit in (result, *result.parts) if not seen.has(hit.uri, hit.version or 0)]
    if not hits:
        return None
    if hits[0] is result and len(hits) == 1 + len(result.parts):
        return result
    return replace(hits[0], position=result.position, parts=tuple(hits[1:]))


def fill_page(
    envelope: KnowledgeResponse,
    selection: PageSelection,
    rendered: Mapping[int, RenderedResult],
    room_bytes: int,
    sort: Callable[[Sequence[RankedHit]], Sequence[RankedHit]],
) -> tuple[KnowledgeResponse, list[RankedHit]]:
    """Adds as many results to a response as fit in `room_bytes`; what is left goes to longer
    forms of the first ones. Returns the response and the hits that it shows.

    `rendered` holds the candidates by position; those that could not be rendered are missing and skipped. At least one
    result is delivered, so that paging always advances.
    """
    positions: list[int] = []
    examined = len(selection.candidates)
    for index, hit in enumerate(selection.candidates):
        if hit.position not in rendered:
            continue
        size = rendered[hit.position].size
        if positions and size > room_bytes:
            examined = index
            break
        room_bytes -= size
        positions.append(hit.position)
    shown: dict[int, RenderedResult] = {}
    for position in positions:
        result = shown[position] = rendered[position]
        if result.longer is not None and result.longer.size - result.size <= room_bytes:
            shown[position] = result.longer
            room_bytes -= result.longer.size - result.size
    waiting = selection.required[examined:]
    end = waiting[0].position if waiting else selection.end
    is_end = not waiting and selection.is_last
    # Those that the session has seen come after the others.
    required = [hit.position for hit in selection.required]
    delivered = [hit for hit in selection.candidates if hit.position in shown]
    ordered = [
        *sort([hit for hit in delivered if hit.position in required]),
        *sort([hit for hit in delivered if hit.position not in required]),
    ]
    response = replace(
        envelope,
        results=tuple([shown[hit.position].item for hit in ordered]),
        has_more=not is_end,
        next_offset=None if is_end else end,
        suppressed=sum([hit.position < end and hit.position not in shown for hit in selection.seen]),
        exhausted=selection.exhausted,
        cut=examined < len(selection.candidates),
    )
    return response, [hit for result in shown.values() for hit in result.hits]
