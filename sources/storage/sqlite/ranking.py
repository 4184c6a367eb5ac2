"""One search in one target, done in one job.

The order of the matches is cut into blocks of fixed size, and within a block hits are ordered by the comparable score.
So a page costs the scoring of a block or two, and a hit has the same place and score whichever page it is asked for on.
"""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import or_

from sources.query import Expression
from sources.records import Found, Hit
from sources.scoring import Scorer, TermStatistics, scale_to_range, term_weights, title_share
from sources.segment import STOPWORDS, stem
from sources.storage.contract import Search
from sources.storage.sqlite.bands import Band, Planner
from sources.storage.sqlite.connection import JobConnection
from sources.storage.sqlite.counting import Counter
from sources.storage.sqlite.match import match_text
from sources.storage.sqlite.places import Place, Places, is_first
from sources.storage.sqlite.statistics import Statistics
from sources.storage.sqlite.target import Candidate, Target, is_filtered, json_list

# Larger blocks change little among the first hits (the first ten are the same in nine queries of ten) and cost their
# scoring.
BLOCK = 24
_SCORE_DIGITS = 4
# Entries read for each item wanted, where an item has several.
_ENTRIES_PER_ITEM = 4

_Order = Callable[[list[Candidate]], None]


class Ranking:
    """`ranked_rows_max` is how many matches are ranked at most."""

    def __init__(
        self,
        connection: JobConnection,
        target: Target,
        search: Search,
        statistics: Statistics,
        ranked_rows_max: int,
    ) -> None:
        self._connection = connection
        self._target = target
        self._search = search
        self._statistics = statistics
        self._ranked_rows_max = ranked_rows_max
        self._filter = target.filter(search)
        self._item_bits = 0 if search.within is not None else target.item_bits
        self._counter = Counter(search.query.terms)

    def find(self) -> Found:
        expression = self._search.query.expression
        if expression is None:
            return self._list() if is_filtered(self._search) else Found((), has_more=False, total=0)
        self._statistics.refresh(self._connection)
        frequencies = [self._count(self._match(term.word)) for term in self._search.query.terms]
        planner = Planner(self._match, self._count, self._ranked_rows_max)
        bands = planner.bands(self._search, expression, frequencies)
        found = self._window(bands, self._order(bands[0]))
        return self._page(found, Band(self._match(expression), "newest"), sum(frequencies))

    def _match(self, expression: Expression) -> str:
        return match_text(expression, self._target.title, self._search.fields)

    def _count(self, match: str) -> int:
        return self._statistics.matches(self._connection, self._target.index, match)

    # The window: hits from `offset` on, one more than `limit` if there are so many

    def _window(self, bands: Sequence[Band], order: _Order) -> list[Candidate]:
        start = self._search.offset
        found: list[Candidate] = []
        for band in bands:
            wanted = self._search.limit + 1 - len(found)
            first = start - start % BLOCK
            size = -(-(start + wanted - first) // BLOCK) * BLOCK
            candidates = self._candidates(self._places(band), size, first)
            ordered: list[Candidate] = []
            for at in range(0, len(candidates), BLOCK):
                block = candidates[at : at + BLOCK]
                order(block)
                ordered += block
            found += ordered[start - first :][:wanted]
            if len(found) > self._search.limit:
                break
            start = max(0, start - (first + len(ordered) if ordered or not first else self._size(band)))
        return found

    def _candidates(self, places: Places, limit: int, offset: int) -> list[Candidate]:
        found = self._items(places, limit, offset) if self._item_bits else self._entries(places, limit, offset)
        candidates = self._fetch([place.number for place in found])
        for candidate, place in zip(candidates, found, strict=True):
            candidate.rank = place.rank
        return candidates

    def _entries(self, places: Places, limit: int, offset: int) -> list[Place]:
        sql, parameters = places.found(limit, offset)
        return [Place(number, rank) for number, rank, *_ in self._connection.execute(sql, parameters)]

    def _items(self, places: Places, limit: int, offset: int) -> list[Place]:
        """The best entry of each item; as its entries are read in order, that is the first."""
        taken = (offset + limit) * _ENTRIES_PER_ITEM
        while True:
            entries = self._entries(places, taken, 0)
            items: dict[int, Place] = {}
            for place in entries:
                items.setdefault(place.number >> self._item_bits, place)
            if len(items) >= offset + limit or len(entries) < taken:
                return list(items.values())[offset : offset + limit]
            taken *= _ENTRIES_PER_ITEM

    def _fetch(self, numbers: Sequence[int]) -> list[Candidate]:
        return list(self._target.candidates(self._connection, numbers)) if numbers else []

    def _places(self, band: Band) -> Places:
        is_ranked = band.order == "rank" or self._search.scoring == "minmax" or self._item_bits > 0
        is_ranked = is_ranked and band.order != "newest"
        return Places(self._target, band, self._filter, self._item_bits, is_ranked)

    def _size(self, band: Band) -> int:
        if not (self._filter or self._item_bits or band.excluded):
            return self._count(band.match)
        return self._statistics.count(self._connection, *self._places(band).count())

    # The order within a block

    def _order(self, band: Band) -> _Order:
        return self._scale(band) if self._search.scoring == "minmax" else self._compare()

    def _compare(self) -> _Order:
        terms = self._search.query.terms
        corpus = self._search.corpus or self._statistics.corpus(self._search.query, self._connection)
        known = [TermStatistics(rows, term.count) for rows, term in zip(corpus.frequencies, terms, strict=True)]
        scorer = Scorer(term_weights(corpus.rows, known), self._target.prominence)
        stems = frozenset(stem(token) for term in terms for phrase in term.word.alternatives for token in phrase.tokens)
        key = _score if self._search.query.explicit else _whole_and_score
        is_sorted = self._search.order == "relevance"

        def order(block: list[Candidate]) -> None:
            for candidate in block:
                self._rate(candidate, scorer, stems)
            if is_sorted:
                block.sort(key=_identity)
                block.sort(key=_age, reverse=True)
                block.sort(key=key, reverse=True)

        return order

    def _rate(self, candidate: Candidate, scorer: Scorer, stems: frozenset[str]) -> None:
        prominent = self._counter.count(candidate.prominent)
        other = self._counter.count(candidate.other)
        share = 0.0
        if candidate.has_title and any(prominent):
            share = title_share(_title_stems(candidate.prominent), stems)
        candidate.holds_all = is_first(candidate.rank) or all(map(or_, prominent, other))
        candidate.score = round(scorer.score(prominent, other, candidate.chars, share), _SCORE_DIGITS)

    def _scale(self, band: Band) -> _Order:
        """The seed's score: the rank's place between the worst and the best of all matches."""
        best, worst = self._connection.execute(*self._places(band).extremes()).fetchone()

        def order(block: list[Candidate]) -> None:
            scaled = scale_to_range([best, worst, *(candidate.rank for candidate in block)])[2:]
            for candidate, value in zip(block, scaled, strict=True):
                counts = zip(
                    self._counter.count(candidate.prominent), self._counter.count(candidate.other), strict=True
                )
                candidate.holds_all = all(map(any, counts))
                candidate.score = round(value, _SCORE_DIGITS)

        return order

    # The page

    def _page(self, found: Sequence[Candidate], everything: Band, matches: int) -> Found:
        """`everything` are all matches, of which there are `matches` entries at most."""
        offset, limit = self._search.offset, self._search.limit
        total: int | None = None
        if len(found) <= limit and (found or not offset):
            total = offset + len(found)
        elif matches <= self._ranked_rows_max:
            total = self._size(everything)
        shown = found[:limit]
        if self._item_bits:
            self._count_entries(shown, everything.match)
        return Found(self._hits(shown), has_more=len(found) > limit, total=total)

    def _count_entries(self, shown: Sequence[Candidate], match: str) -> None:
        """How many more entries of the same item match."""
        table = self._target.index.table
        items = json_list([int(candidate.identity) for candidate in shown])
        sql = (
            f"SELECT rowid >> {self._item_bits}, count(*) FROM {table} WHERE {table} MATCH ? "
            f"AND rowid >> {self._item_bits} IN (SELECT value FROM json_each(?)) GROUP BY 1"
        )
        counts = dict(self._connection.execute(sql, (match, items)).fetchall())
        for candidate in shown:
            candidate.more_in_item = counts[candidate.identity] - 1

    def _hits(self, shown: Sequence[Candidate]) -> tuple[Hit, ...]:
        return tuple(self._target.hit(candidate, self._search, self._counter) for candidate in shown)

    def _list(self) -> Found:
        """What passes the filter, newest first."""
        listed = self._target.listed(self._search) + self._filter.sql
        parameters = self._filter.parameters
        page = f"{listed} ORDER BY age DESC, number DESC LIMIT ? OFFSET ?"
        rows = self._connection.execute(page, (*parameters, self._search.limit, self._search.offset))
        shown = self._fetch([number for number, _ in rows])
        total: int = self._connection.execute(f"SELECT count(*) FROM ({listed})", parameters).fetchone()[0]
        return Found(self._hits(shown), has_more=self._search.offset + len(shown) < total, total=total)


@lru_cache(maxsize=4096)
def _title_stems(form: str) -> frozenset[str]:
    return frozenset(stem(word) for word in form.split() if word not in STOPWORDS)


def _identity(candidate: Candidate) -> str | int:
    return candidate.identity


def _age(candidate: Candidate) -> str:
    return candidate.age


def _score(candidate: Candidate) -> float:
    return candidate.score


def _whole_and_score(candidate: Candidate) -> tuple[bool, float]:
    return candidate.holds_all, candidate.score
