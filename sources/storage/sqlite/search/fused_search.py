"""A search that ranks by words and meaning together.

The score of a hit is `(1 - w) * lexical + w * cosine`, where `w` is the weight of the model. Both parts mean the same
for every query and source, so that the score does too. The first hits, the head, are the best matches by words and the
nearest by meaning, sorted by this score. The other matches by words follow in their own order, each block of them
sorted by the same score. An item has the same score wherever it is found.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections import Counter as Tally
from collections.abc import Callable, Sequence
from operator import attrgetter

from msgspec.structs import replace

from sources.records import Hit, HitPage
from sources.storage.contract import Search
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.index.statistics import CorpusStatistics
from sources.storage.sqlite.search.candidates import HitCandidate
from sources.storage.sqlite.search.fts_search import SCORE_DIGITS, BlockScoring, FtsSearch
from sources.storage.sqlite.search.match_tiers import MatchTier
from sources.storage.sqlite.search.meaning import MeaningScan, NearEntry, QueryMeaning
from sources.storage.sqlite.search.target import SearchTarget
from sources.storage.sqlite.sql import SqlFilter, json_array
from sources.storage.sqlite.vectors.passages import field_at

# The head: this many matches by words and this many by meaning.
LEXICAL_HEAD = 40
NEAREST_HEAD = 40
# With filters, so many of the nearest are checked before the filters are evaluated for all items.
_FILTERED_NEAREST = 1_000
_NO_FILTER = SqlFilter()


class FusedSearch(FtsSearch):
    def __init__(
        self,
        connection: JobConnection,
        target: SearchTarget,
        search: Search,
        statistics: CorpusStatistics,
        ranked_rows_max: int,
        extra_filter: SqlFilter = _NO_FILTER,
        *,
        meaning: QueryMeaning,
    ) -> None:
        super().__init__(connection, target, search, statistics, ranked_rows_max, extra_filter)
        self._weight = meaning.model.weight
        self._scan = MeaningScan(connection, meaning, target.vectors, self._item_bits)
        self._near: dict[int, NearEntry] = {}
        self._meaning_only: list[HitCandidate] = []

    def run(self) -> HitPage:
        self._statistics.refresh(self._connection)
        page = self._nearest_page() if self._search.ranking == "meaning" else super().run()
        if self._search.query.times and page.has_more:
            # What was created at these times counts as a match, whether or not it contains the words.
            page = replace(page, total=None)
        status = self._scan.status(lambda sql, parameters: self._statistics.count(self._connection, sql, parameters))
        return replace(page, semantic=status)

    def _nearest_page(self) -> HitPage:
        search, end = self._search, self._search.offset + self._search.limit
        entries = [entry for entry in self._nearest(end + 1) if entry.cosine > 0]
        candidates = self._fetch_near(entries[search.offset : end])
        for candidate in candidates:
            candidate.lexical, candidate.cosine = 0.0, self._near[candidate.entry].cosine
            candidate.score = round(candidate.cosine, SCORE_DIGITS)
        has_more = len(entries) > end
        self._locate(candidates)
        return HitPage(self._hits(candidates), has_more=has_more, total=None if has_more else len(entries))

    def _rank(self, tiers: Sequence[MatchTier], scoring: BlockScoring) -> tuple[list[HitCandidate], bool]:
        if not self._scan.has_vectors:
            return super()._rank(tiers, scoring)
        offset, limit = self._search.offset, self._search.limit
        lexical, has_rest = self._window(tiers, scoring, 0, LEXICAL_HEAD)
        head = self._head(lexical, scoring)
        window = head[offset : offset + limit]
        if len(head) > offset + limit or not has_rest:
            return window, len(head) > offset + limit
        self._skipped = tuple([candidate.entry >> self._item_bits for candidate in head])
        fused = _FusedScoring(scoring, self._fuse)
        rest, has_more = self._window(tiers, fused, max(0, offset - len(head)), limit - len(window))
        self._skipped = ()
        return window + rest, has_more

    def _head(self, lexical: Sequence[HitCandidate], scoring: BlockScoring) -> list[HitCandidate]:
        known = {candidate.entry >> self._item_bits for candidate in lexical}
        nearest = [entry for entry in self._nearest(NEAREST_HEAD) if entry.rowid >> self._item_bits not in known]
        near = self._fetch_near(nearest)
        if near:
            scoring.score(near)
        head = [*lexical, *near]
        self._fuse(head)
        self._meaning_only = [candidate for candidate in near if not candidate.lexical]
        return head

    def _fuse(self, candidates: list[HitCandidate]) -> None:
        """Adds the cosines to the scores of candidates, and sorts them. A time that the query names counts in both
        parts."""
        cosines = self._scan.best_cosines([candidate.entry for candidate in candidates])
        weight = self._weight
        for candidate in candidates:
            cosine = max(0.0, cosines.get(candidate.entry >> self._item_bits, 0.0))
            candidate.lexical = candidate.score
            candidate.cosine = self._boost.apply(cosine, candidate.created_at)
            candidate.score = round((1 - weight) * candidate.lexical + weight * candidate.cosine, SCORE_DIGITS)
        candidates.sort(key=attrgetter("sort_key"))
        candidates.sort(key=attrgetter("score", "last_modified"), reverse=True)

    def _nearest(self, count: int) -> list[NearEntry]:
        """Returns the nearest entries that pass the filters."""
        if not self._filter:
            return self._passing(self._scan.nearest(count))
        entries = self._scan.nearest(max(count, _FILTERED_NEAREST))
        passing = self._passing(entries)
        if len(passing) < count and len(entries) >= _FILTERED_NEAREST:
            passing = self._passing(self._scan.nearest(count, self._allowed_items()))
        return passing[:count]

    def _passing(self, entries: Sequence[NearEntry]) -> list[NearEntry]:
        """Leaves out entries that fail the filters, and those without a live row, which only a damaged file has."""
        target = self._target
        sql = f"SELECT wanted.value FROM json_each(?) wanted {target.join_on('wanted.value')} WHERE {target.is_live}"
        rows = self._connection.execute(
            f"{sql}{self._filter.sql}", (json_array([entry.rowid for entry in entries]), *self._filter.parameters)
        )
        passing = {rowid for (rowid,) in rows}
        return [entry for entry in entries if entry.rowid in passing]

    def _allowed_items(self) -> list[int]:
        listing = f"{self._target.list_sql(self._search)}{self._filter.sql}"
        rows = self._connection.execute(f"SELECT number FROM ({listing})", self._filter.parameters)
        return [rowid >> self._item_bits for (rowid,) in rows]

    def _fetch_near(self, entries: Sequence[NearEntry]) -> list[HitCandidate]:
        candidates = self._fetch([entry.rowid for entry in entries])
        for candidate, entry in zip(candidates, entries, strict=True):
            candidate.entry = entry.rowid
            self._near[entry.rowid] = entry
        return candidates

    def _count_extra(self, matching_items: Tally[int] | None) -> int:
        if matching_items is None:
            return len(self._meaning_only)
        return sum(candidate.entry >> self._item_bits not in matching_items for candidate in self._meaning_only)

    def _hits(self, candidates: Sequence[HitCandidate]) -> tuple[Hit, ...]:
        hits = super()._hits(candidates)
        return tuple([_with_nearest_field(hit, self._target.embedded_fields) for hit in hits])

    def _locate(self, candidates: Sequence[HitCandidate]) -> None:
        near = [self._near[candidate.entry] for candidate in candidates if candidate.entry in self._near]
        ranges = self._scan.passage_ranges(near) if near else {}
        for candidate in candidates:
            candidate.passage = ranges.get(candidate.entry)


def _with_nearest_field(hit: Hit, names: Sequence[str]) -> Hit:
    """A hit that shows one of several fields shows that of the nearest passage, if it was found by its meaning."""
    if not names or hit.passage is None or hit.lexical:
        return hit
    start, end = hit.passage
    index, offset = field_at([hit.fields[name] for name in names], start)
    text = hit.fields[names[index]]
    if not text:
        return replace(hit, passage=None)
    return replace(hit, field=names[index], text=text, passage=(offset, offset + end - start))


class _FusedScoring(BlockScoring):
    """Sorts the blocks that follow the head by the same score."""

    def __init__(self, lexical: BlockScoring, fuse: Callable[[list[HitCandidate]], None]) -> None:
        self._lexical = lexical
        self._fuse = fuse

    def score(self, block: list[HitCandidate]) -> None:
        self._lexical.score(block)
        self._fuse(block)
