"""One ranking of the results of all sources, built only as far as it is read.

A position denotes the same result whichever page is requested, so a page is found by reading the ranking from its
beginning. When sorted by relevance, the ranking is built in rounds: a fixed number of hits from each source are merged,
then the next ones. When sorted by date, it is an exact merge, because each source returns its hits in that order. An
item is ranked once, where its first hit is.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal

import msgspec
from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from aggregator.contract import Dedupe, KnowledgeItem, KnowledgeResponse
from aggregator.fanout import Fanout
from sessions.state import SeenItems
from sources.query import Term
from sources.search.arguments import LIMIT_MAX
from sources.semantic.endpoint import Reranker
from sources.semantic.model import SemanticUnavailable
from sources.source import RankedHit

# -- merge -------------------------------------------------------------------------------------------------------------
# Merges the hits of several sources into one list of results, one for each item. The functions are pure.
#
# Scores are comparable across sources, so hits are ordered by score. Hits of the same item become one result: a page
# would otherwise show the same conversation several times. Of results with the same content, the best one lists the
# others. Then results over the limit per source among ten move behind the others. No item is lost.
#
# A round merges about fifty hits to show eight results, so that what is needed of each hit is read by `map`, and what
# is needed only of those that are shown is left to `MergedRanking.read`.

# Scores are compared in steps of this many per unit; smaller differences are floating-point noise.
_SCORE_STEPS = 10_000
# The limit per source applies to each block of this many results.
_BLOCK = 10
# URIs listed with a hit that has the same content; a further one becomes a hit of its own.
ALSO_IN_MAX = 10
_uri_of = attrgetter("uri")
_item_of = attrgetter("stream", "source", "id")
_content_key_of = attrgetter("content_key")


def sort_by_score(hits: Sequence[RankedHit]) -> list[RankedHit]:
    """Best first; equal scores by date, then by URI."""
    ordered = sorted(hits, key=_uri_of)
    ranks = [(round(hit.score * _SCORE_STEPS), hit.last_modified or "") for hit in ordered]
    return [*map(ordered.__getitem__, sorted(range(len(ranks)), key=ranks.__getitem__, reverse=True))]


def sort_by_date(hits: Sequence[RankedHit]) -> list[RankedHit]:
    """Newest first and hits without a date last; then by URI."""
    ordered = sorted(hits, key=_uri_of)
    return sorted(ordered, key=lambda hit: hit.last_modified or "", reverse=True)


def group_by_item(hits: Sequence[RankedHit]) -> list[RankedHit]:
    """The first hit of an item becomes its result, with the others as its `parts`."""
    results: dict[tuple[str, str, str | int], RankedHit] = {}
    parts: dict[tuple[str, str, str | int], list[RankedHit]] = {}
    for item, hit in zip(map(_item_of, hits), hits, strict=True):
        if results.setdefault(item, hit) is not hit:
            parts.setdefault(item, []).append(hit)
    for item, others in parts.items():
        results[item] = replace(results[item], parts=tuple(others))
    return list(results.values())


def merge_duplicates(results: Sequence[RankedHit]) -> list[RankedHit]:
    """Of results with the same content, only the first remains, and lists the others in `duplicates`."""
    contents = set(map(_content_key_of, results))
    if len(contents) == len(results) and None not in contents:
        return list(results)
    first: dict[Hashable, int] = {}
    merged: list[RankedHit] = []
    copies: dict[int, dict[str, int]] = {}
    for result in results:
        parts = frozenset(map(content_of, result.parts)) if result.parts else None
        key = content_of(result), parts
        at = first.setdefault(key, len(merged))
        if at < len(merged):
            listed = copies.setdefault(at, {})
            if len(listed) < ALSO_IN_MAX:
                if result.uri != merged[at].uri:  # a source may return the same URI twice
                    listed[result.uri] = result.version or 0
                continue
            first[key] = len(merged)
        merged.append(result)
    for at, listed in copies.items():
        merged[at] = replace(merged[at], duplicates=listed)
    return merged


def content_of(hit: RankedHit) -> Hashable:
    """Without a content key a hit equals only itself."""
    return hit.uri if hit.content_key is None else hit.content_key


def take_block(results: Sequence[RankedHit], source_max: int) -> tuple[list[RankedHit], list[RankedHit]]:
    """The next ten results, with at most `source_max` of one source as long as others have results left; and the
    remaining ones."""
    counts: defaultdict[str, int] = defaultdict(int)
    block: list[RankedHit] = []
    rest: list[RankedHit] = []
    for hit in results:
        if counts[hit.source] == source_max:
            rest.append(hit)
            continue
        counts[hit.source] += 1
        block.append(hit)
        if len(block) == _BLOCK:
            break
    rest += results[len(block) + len(rest) :]
    free = _BLOCK - len(block)  # more than 0 if only one source is left
    return block + rest[:free], rest[free:]


Order = Literal["relevance", "recent"]
# The first pages need two rounds at most. After these, each round is twice as large as the one before.
_EQUAL_ROUNDS = 2


class _SourceStream(Struct):
    """The hits of one source in one library, read page by page. `name` is the key of the fanout."""

    name: str
    offset: int = 0
    has_more: bool = True
    has_failed: bool = False
    total: int | None = None
    # Hits that were read and are not ranked yet.
    pending: list[RankedHit] = []


class MergedRanking:
    def __init__(self, fanout: Fanout, order: Order, source_max: int) -> None:
        self._fanout = fanout
        self._streams = [*map(_SourceStream, fanout.sources)]
        self._order = order
        # Within a page, too.
        self.sort = sort_by_date if order == "recent" else sort_by_score
        self._source_max = source_max
        self._rounds = 0
        # The next results, and those of the round that are not divided into blocks yet.
        self._ready: list[RankedHit] = []
        self._merged: list[RankedHit] = []
        self._items: set[tuple[str, str, str | int]] = set()
        # The hits that were ranked, for `read_results`.
        self._ranked: list[RankedHit] = []
        self.position = 0

    @property
    def is_finished(self) -> bool:
        return not self._ready and not self._merged and self.is_read

    @property
    def is_read(self) -> bool:
        """Whether the sources have no more hits."""
        for stream in self._streams:  # noqa: SIM110 - asked several times in every search
            if stream.has_more or stream.pending:
                return False
        return True

    @property
    def total(self) -> int | None:
        """The number of results, if all hits were read: how many of them are of the same item, or copies, cannot be
        known before."""
        if not self.is_read or any(stream.has_failed for stream in self._streams):
            return None
        return self.position + len(self._ready) + len(self._merged)

    @property
    def source_totals(self) -> dict[str, int]:
        """The numbers of hits of the sources that know theirs."""
        return {stream.name: stream.total for stream in self._streams if stream.total is not None}

    async def has_next(self) -> bool:
        """Whether there is another result. Reads on if it has to: all that the sources have left may be parts of items
        that were ranked before."""
        while not self._ready:
            if not self._merged:
                if self.is_read:
                    return False
                await self._extend()
            if self._order == "recent":
                self._ready, self._merged = self._merged, []
            else:
                self._ready, self._merged = take_block(self._merged, self._source_max)
        return True

    async def read(self, count: int) -> list[RankedHit]:
        """The next results with their positions; fewer than `count` only at the end."""
        results: list[RankedHit] = []
        while len(results) < count and await self.has_next():
            free = count - len(results)
            for hit in self._ready[:free]:
                results.append(replace(hit, position=self.position))
                self.position += 1
            self._ready = self._ready[free:]
        return results

    async def skip_to(self, offset: int) -> None:
        if offset > self.position:
            await self.read(offset - self.position)

    async def read_results(self, results_min: int) -> list[RankedHit]:
        """The hits of the first results, at least `results_min` of them if there are as many, wherever the page is that
        was read before. Reads as much at once as it can, because nothing is shown of them. No results can be read
        after that: rounds would share a block."""
        while len(self._items) < results_min and not self.is_read:
            await self._extend(LIMIT_MAX)
        return self._ranked

    async def _extend(self, depth: int = 0) -> None:
        """Reads a page of each source that has more, and merges what can be ranked."""
        offsets: dict[str, int] = {}
        for stream in self._streams:
            if stream.has_more and not stream.pending:
                offsets[stream.name] = stream.offset
        depth = depth or min(LIMIT_MAX, self._fanout.depth << max(0, self._rounds - _EQUAL_ROUNDS + 1))
        pages = await self._fanout.search(offsets, depth)
        self._rounds += 1
        hits: list[RankedHit] = []
        for stream in self._streams:
            if stream.name in offsets:
                page = pages.get(stream.name)
                # A source that did not answer counts as finished, and so does one whose next offset does not advance.
                if page is None:
                    stream.has_more, stream.has_failed, stream.total = False, True, None
                else:
                    stream.pending += page.hits
                    stream.total = page.total_estimated
                    end = page.next_offset if page.has_more else None
                    stream.has_more = end is not None and end > stream.offset
                    stream.offset = end if end is not None and stream.has_more else stream.offset + len(page.hits)
            hits += stream.pending
            stream.pending = []
        hits = self._take_newest(hits) if self._order == "recent" else sort_by_score(hits)
        # Items that were ranked before, or listed as copies, are not ranked again.
        if not self._items.isdisjoint(map(_item_of, hits)):
            hits = [hit for hit in hits if _item_of(hit) not in self._items]
        self._items.update(map(_item_of, hits))
        self._ranked += hits
        self._merged += merge_duplicates(group_by_item(hits))

    def _take_newest(self, hits: Sequence[RankedHit]) -> list[RankedHit]:
        """Returns the hits, newest first, up to the last one of a source that has more: its next hit may be newer than
        what follows. The others stay pending."""
        counts = Counter(hit.stream or hit.source for hit in hits)
        unfinished = {stream.name for stream in self._streams if stream.has_more}
        ordered = sort_by_date(hits)
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
        self._ready: list[RankedHit] = []
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
            self._ready = [hit for hit in await self._read_first() if hit.position >= offset]
        if not self._ready:
            await self._ranking.skip_to(offset)

    async def has_next(self) -> bool:
        return bool(self._ready) or await self._ranking.has_next()

    async def read(self, count: int) -> list[RankedHit]:
        results, self._ready = self._ready[:count], self._ready[count:]
        return results + await self._ranking.read(count - len(results)) if len(results) < count else results

    def sort(self, hits: Sequence[RankedHit]) -> list[RankedHit]:
        """Sorts the hits of a page: those that were reranked by position, then the others by score."""
        first = [hit for hit in hits if hit.uri in self._reranked]
        rest = [hit for hit in hits if hit.uri not in self._reranked]
        return [*sorted(first, key=lambda hit: hit.position), *sort_by_score(rest)]

    async def _read_first(self) -> list[RankedHit]:
        hits = await self._ranking.read(self._reranker.hits_max)
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
    """A result with all its fields and as clients get it, the hits that it shows, and its size in bytes with the comma
    after it. `longer` is the same result with more text, for a page that has room for it."""

    item: KnowledgeItem
    short_item: KnowledgeItem
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
    while len(fresh) < limit and len(fresh) + len(repeated) < examined_max:
        hits = await ranking.read(min(limit - len(fresh), examined_max - len(fresh) - len(repeated)))
        if not hits:
            break
        if not has_seen:
            fresh += hits
            continue
        for hit in hits:
            unseen = _without_seen(hit, seen)
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
    envelopes: tuple[KnowledgeResponse, KnowledgeResponse],
    selection: PageSelection,
    rendered: Mapping[int, RenderedResult],
    room_bytes: int,
    sort: Callable[[Sequence[RankedHit]], Sequence[RankedHit]],
) -> tuple[KnowledgeResponse, KnowledgeResponse, list[RankedHit]]:
    """Adds as many results to a response as fit in `room_bytes`; what is left goes to longer forms of the first ones.
    Returns the response with all fields of its results, the one that clients get, and the hits that they show.

    `envelopes` are the two responses without results, the same one if clients get all fields. `rendered` holds the
    candidates by position; those that could not be rendered are missing and skipped. At least one result is delivered,
    so that paging always advances.
    """
    candidates = selection.candidates
    shown: dict[int, RenderedResult] = {}
    # The hits of `required`, and those that the session has seen, which come after the others.
    delivered: list[RankedHit] = []
    demoted: list[RankedHit] = []
    examined = len(candidates)
    for index, hit in enumerate(candidates):
        result = rendered.get(hit.position)
        if result is None:
            continue
        if shown and result.size > room_bytes:
            examined = index
            break
        room_bytes -= result.size
        shown[hit.position] = result
        (delivered if index < len(selection.required) else demoted).append(hit)
    hits: list[RankedHit] = []
    for position, result in shown.items():
        longer = result.longer
        if longer is not None and (more := longer.size - result.size) <= room_bytes:
            room_bytes -= more
            shown[position] = result = longer  # noqa: PLW2901 - shown instead of the shorter form
        hits += result.hits
    items: list[KnowledgeItem] = []
    short_items: list[KnowledgeItem] = []
    for hit in (*sort(delivered), *sort(demoted)) if demoted else sort(delivered):
        result = shown[hit.position]
        items.append(result.item)
        short_items.append(result.short_item)
    waiting = selection.required[examined:]
    end = waiting[0].position if waiting else selection.end
    is_end = not waiting and selection.is_last
    suppressed = 0
    for hit in selection.seen:
        suppressed += hit.position < end and hit.position not in shown
    fields: dict[str, Any] = {
        "has_more": not is_end,
        "next_offset": None if is_end else end,
        "suppressed": suppressed,
        "exhausted": selection.exhausted,
        "cut": examined < len(candidates),
    }
    response = short = replace(envelopes[0], results=tuple(items), **fields)
    if envelopes[1] is not envelopes[0]:
        short = replace(envelopes[1], results=tuple(short_items), **fields)
    return response, short, hits
