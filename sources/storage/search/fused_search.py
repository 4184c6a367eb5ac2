"""A search that ranks by words and meaning together.

The score of a hit is `(1 - w) * lexical + w * cosine`, where `w` is the weight of the model for the query. Both parts
mean the same in every source, so that scores can be compared. The first hits, the head, are the best matches by words
and the nearest by meaning, sorted by this score. If even the nearest is no nearer than chance would have it, only the
matches by words are. The other matches by words follow in their own order, each block of them sorted by the same score.
An item has the same score wherever it is found.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections import Counter as Tally
from collections.abc import Callable, Collection, Sequence
from functools import partial
from heapq import merge
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from sources.records import HitPage, RankedMatch, SemanticStatus
from sources.search.scoring import SCORE_DIGITS, BlockScoring, sort_block
from sources.semantic.model import LEAST_COSINE, ModelInfo, vector_length
from sources.storage.contract import Search
from sources.storage.search.engine import HitCandidate, SearchConnection, SearchStatistics, SearchTarget
from sources.storage.search.text_search import MatchTier, TextSearch
from sources.storage.tables.sql import SqlFilter, json_array

if TYPE_CHECKING:
    from sources.storage.vector_kinds import VectorKind


# -- meaning -----------------------------------------------------------------------------------------------------------
# Compares the meaning of a query with the passages of one collection: what a search needs from the engine.

NOT_APPLICABLE = SemanticStatus("not_applicable")
# The vector of a message is that of its own text, so it can be compared if only that is searched.
_EMBEDDED_FIELDS = ((), ("own",))
# Returns the single number that a statement selects.
CountRows = Callable[[str, tuple[str | int, ...]], int]


class NearEntry(Struct, frozen=True, gc=False):
    """An index entry that is near to a query. `vector` is the rowid of the vector of its nearest passage."""

    rowid: int
    cosine: float
    kind: "VectorKind"
    vector: int


class PassageScan(Protocol):
    """The cosines of the vectors of some kinds with one query. Items are the rowids of index entries without their
    lowest bits."""

    @property
    def has_vectors(self) -> bool: ...
    def status(self, count: CountRows) -> SemanticStatus: ...
    def nearest(self, count: int, least: float, allowed: Collection[int] | None = None) -> list[NearEntry]:
        """Returns the nearest entries with at least this cosine, one of each item, nearest first."""
        ...

    def best_cosines(self, rowids: Sequence[int]) -> dict[int, float]:
        """Returns the cosine of the best passage of the items of these entries, by item."""
        ...

    def passage_ranges(self, entries: Sequence[NearEntry]) -> dict[int, tuple[int, int]]:
        """Returns where the nearest passages are in the texts of their entries, by the rowid of the entry."""
        ...


class QueryVector(Protocol):
    """The vector of a query, ready to be compared."""

    @property
    def vector(self) -> bytes: ...
    @property
    def model(self) -> ModelInfo: ...
    def scan(self, connection: Any, kinds: "Sequence[VectorKind]", item_bits: int) -> PassageScan: ...


def has_meaning(search: Search) -> bool:
    """Whether meanings can be compared: not for a literal query, another order, or if only some fields are searched."""
    return bool(
        search.query.prose
        and search.query.expression is not None
        and search.ranking != "words"
        and search.order == "relevance"
        and search.scoring == "comparable"
        and search.fields in _EMBEDDED_FIELDS
    )


# The nearest in the head. More of them do not improve the first page. If there are no other matches by words, they cost
# less and are all there is to find.
NEAREST_HEAD = 10
NEAREST_HEAD_OF_FEW = 20
# With filters, so many of the nearest are checked before the filters are evaluated for all items.
_FILTERED_NEAREST = 1_000
_NO_FILTER = SqlFilter()
_RANK = attrgetter("score", "last_modified")


class FusedSearch(TextSearch):
    def __init__(
        self,
        connection: SearchConnection,
        target: SearchTarget,
        search: Search,
        statistics: SearchStatistics,
        ranked_rows_max: int,
        extra_filter: SqlFilter = _NO_FILTER,
        *,
        meaning: QueryVector,
    ) -> None:
        super().__init__(connection, target, search, statistics, ranked_rows_max, extra_filter)
        self._model = meaning.model
        # All cosines of a query whose vector is shorter are smaller, those that are due to chance, too.
        self._length = vector_length(meaning.vector)
        self._weight = meaning.model.weight_for(len(search.query.own_terms))
        self._scan = meaning.scan(connection, target.vectors, self._item_bits)
        self._near: dict[int, NearEntry] = {}
        self._meaning_only: list[HitCandidate] = []

    @property
    def _has_final_scores(self) -> bool:
        return not self._scan.has_vectors

    @property
    def _floor(self) -> float:
        rows = self._statistics.count_rows(self._connection, self._target.index)
        return self._length * self._model.floor_for(rows)

    def run(self) -> HitPage:
        if self._search.ranking == "meaning":
            self._statistics.refresh(self._connection)
            page = self._nearest_page()
        else:
            page = super().run()
        if self._search.query.times and page.has_more:
            # What was created at these times counts as a match, whether or not it contains the words.
            page = replace(page, total=None)
        status = self._scan.status(partial(self._statistics.count, self._connection, self._target.index))
        return replace(page, semantic=status, floor=self._floor if self._search.ranking != "meaning" else None)

    def _nearest_page(self) -> HitPage:
        search, end = self._search, self._search.offset + self._search.limit
        entries = [entry for entry in self._nearest(end + 1, 0.0) if entry.cosine > 0]
        candidates = self._fetch_near(entries[search.offset : end])
        for candidate in candidates:
            candidate.lexical, candidate.cosine = 0.0, self._near[candidate.entry].cosine
            candidate.score = round(candidate.cosine, SCORE_DIGITS)
        has_more = len(entries) > end
        self._locate(candidates)
        return HitPage(self._complete(candidates), has_more=has_more, total=None if has_more else len(entries))

    def _rank(self, tiers: Sequence[MatchTier], scoring: BlockScoring) -> tuple[list[HitCandidate], bool]:
        if not self._scan.has_vectors:
            return super()._rank(tiers, scoring)
        offset, limit = self._search.offset, self._search.limit
        lexical, has_rest = self._window(tiers, scoring, 0, self.head_rows)
        # Without a rest, all matches by words are among `lexical`, and the nearest need not be searched for words.
        known = {candidate.entry >> self._item_bits for candidate in lexical}
        nearest = self._nearest(NEAREST_HEAD if has_rest else NEAREST_HEAD_OF_FEW, self._length * LEAST_COSINE)
        if nearest and nearest[0].cosine < self._floor:
            # Even the best is no nearer than one of as many unrelated texts would be.
            nearest = []
        near = self._fetch_near([entry for entry in nearest if entry.rowid >> self._item_bits not in known])
        if near and (has_rest or self._search.query.times):
            scoring.score(near)
        head = [*lexical, *near]
        self._fuse(head)
        self._meaning_only = [candidate for candidate in near if not candidate.lexical]
        window = head[offset : offset + limit]
        if len(head) > offset + limit or not has_rest:
            return window, len(head) > offset + limit
        if len(window) == limit and not near:
            # The head has no item of the rest, so there are more hits, and nothing has to be read to know it.
            return window, True
        self._skipped = tuple([candidate.entry >> self._item_bits for candidate in head])
        fused = _FusedScoring(scoring, self._fuse)
        rest, has_more = self._window(tiers, fused, max(0, offset - len(head)), limit - len(window))
        self._skipped = ()
        return window + rest, has_more

    def _fuse(self, candidates: list[HitCandidate]) -> None:
        """Adds the cosines to the scores of candidates, and sorts them. Times and people that the query names count in
        both parts."""
        best = self._scan.best_cosines([candidate.entry for candidate in candidates])
        weight, item_bits = self._weight, self._item_bits
        cosines = [max(0.0, best.get(candidate.entry >> item_bits, 0.0)) for candidate in candidates]
        cosines = self._boosts.apply_to(cosines, candidates)
        for candidate, found in zip(candidates, cosines, strict=True):
            lexical = candidate.score
            # The vector of a message contains the name of its sender; if the query is nothing else, it is always near.
            cosine = min(found, lexical) if candidate.is_only_named else found
            candidate.lexical, candidate.cosine = lexical, cosine
            candidate.score = round((1 - weight) * lexical + weight * cosine, SCORE_DIGITS)
        if self._has_second_stage and self._boosts.message is not None:
            scores = self._boosts.message.apply_to([candidate.score for candidate in candidates], candidates)
            for candidate, score in zip(candidates, scores, strict=True):
                candidate.score = round(score, SCORE_DIGITS)
        sort_block(candidates, _RANK)

    def _nearest(self, count: int, least: float) -> list[NearEntry]:
        """Returns the nearest entries that pass the filters."""
        if not self._filter:
            return self._scan.nearest(count, least)
        entries = self._scan.nearest(max(count, _FILTERED_NEAREST), least)
        passing = self._passing(entries)
        if len(passing) < count and len(entries) >= _FILTERED_NEAREST:
            listing = f"{self._target.list_sql(self._search)}{self._filter.sql}"
            rows = self._connection.execute(f"SELECT number FROM ({listing}) AS listing", self._filter.parameters)
            passing = self._passing(self._scan.nearest(count, least, [rowid >> self._item_bits for (rowid,) in rows]))
        return passing[:count]

    def _passing(self, entries: Sequence[NearEntry]) -> list[NearEntry]:
        """Leaves out entries that fail the filters, and those without a live row, which only a damaged file has."""
        target = self._target
        rowid = "CAST(wanted.value AS BIGINT)"
        sql = f"SELECT {rowid} FROM {target.dialect.listed()} {target.join_on(rowid)} WHERE {target.is_live}"
        rows = self._connection.execute(
            f"{sql}{self._filter.sql}", (json_array([entry.rowid for entry in entries]), *self._filter.parameters)
        )
        passing = {rowid for (rowid,) in rows}
        return [entry for entry in entries if entry.rowid in passing]

    def _fetch_near(self, entries: Sequence[NearEntry]) -> list[HitCandidate]:
        candidates = self._target.candidates(self._connection, [entry.rowid for entry in entries])
        if len(candidates) < len(entries):
            entries = self._passing(entries)
            candidates = self._target.candidates(self._connection, [entry.rowid for entry in entries])
        for candidate, entry in zip(candidates, entries, strict=True):
            candidate.entry = entry.rowid
            self._near[entry.rowid] = entry
        return candidates

    def _locate(self, candidates: Sequence[HitCandidate]) -> None:
        near = [self._near[candidate.entry] for candidate in candidates if candidate.entry in self._near]
        ranges = self._scan.passage_ranges(near) if near else {}
        for candidate in candidates:
            candidate.passage = ranges.get(candidate.entry)

    def _count_extra(self, matching_items: Tally[int] | None) -> int:
        if matching_items is None:
            return len(self._meaning_only)
        return sum([candidate.entry >> self._item_bits not in matching_items for candidate in self._meaning_only])


class _FusedScoring(BlockScoring):
    """Sorts the blocks that follow the head by the same score."""

    def __init__(self, lexical: BlockScoring, fuse: Callable[[list[HitCandidate]], None]) -> None:
        self._lexical = lexical
        self._fuse = fuse

    def score(self, block: list[HitCandidate]) -> None:
        self._lexical.score(block)
        self._fuse(block)


# -- hit merge ---------------------------------------------------------------------------------------------------------
# Merges the hits of two searches with the same query into one page.


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
