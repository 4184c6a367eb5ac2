"""One search in one target, done in one job.

The order of the matches is cut into blocks of fixed size, and within a block hits are ordered by the comparable score.
So a page costs the scoring of a block or two, and a hit has the same place and score whichever page it is asked for on.
"""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

from collections import Counter as Counts
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import or_

from msgspec.json import Decoder

from sources.query import Expression, Term
from sources.records import Hit, HitPage
from sources.search.scoring import Scorer, TermStatistics, scale_to_range, term_weights, title_share
from sources.storage.contract import Search
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.index.statistics import Statistics
from sources.storage.sqlite.search.counting import Counter
from sources.storage.sqlite.search.match_expression import match_text
from sources.storage.sqlite.search.match_sql import Place, Places, Statement
from sources.storage.sqlite.search.match_tiers import Band, Planner
from sources.storage.sqlite.search.target import Candidate, Target, is_filtered, json_list
from sources.text.stemming import stem
from sources.text.stopwords import STOPWORDS

# A page of the usual size. Larger blocks change little among the first hits (the first ten are the same in nine queries
# of ten) and cost their scoring.
BLOCK = 20
_SCORE_DIGITS = 4
# Entries read for each item wanted, where an item has several.
_ENTRIES_PER_ITEM = 4

_read_numbers = Decoder(list[int]).decode
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

    def find(self) -> HitPage:
        expression = self._search.query.expression
        if expression is None:
            return self._list() if is_filtered(self._search) else HitPage((), has_more=False, total=0)
        self._statistics.refresh(self._connection)
        frequencies = [self._count(self._match(term.word)) for term in self._search.query.terms]
        planner = Planner(self._match, self._count, self._ranked_rows_max)
        bands = planner.bands(self._search, expression, frequencies)
        found, has_more = self._window(bands, self._order(bands[0]))
        return self._page(found, has_more, Band(self._match(expression), "newest"), sum(frequencies))

    def _match(self, expression: Expression) -> str:
        return match_text(expression, self._target.title, self._search.fields, self._target.phrase_columns)

    def _count(self, match: str) -> int:
        return self._statistics.matches(self._connection, self._target.index, match)

    # The window: `limit` hits from `offset` on, and whether there are more

    def _window(self, bands: Sequence[Band], order: _Order) -> tuple[list[Candidate], bool]:
        start = self._search.offset
        found: list[Candidate] = []
        for at, band in enumerate(bands):
            wanted = self._search.limit - len(found)
            first = start - start % BLOCK
            size = -(-(start + wanted - first) // BLOCK) * BLOCK
            places = self._places(band)
            # One place more than is scored: it says that there are more hits, and costs no look at its row.
            taken = self._taken(places, size + 1, first)
            ordered = self._ordered(places, taken[:size], order)
            found += ordered[start - first :][:wanted]
            if len(found) == self._search.limit:
                has_more = start + wanted < first + len(taken)
                return found, has_more or any(self._size(later) for later in bands[at + 1 :])
            start = max(0, start - (first + len(ordered) if ordered or not first else self._size(band)))
        return found, False

    def _ordered(self, places: Places, taken: Sequence[Place], order: _Order) -> list[Candidate]:
        candidates = self._fetch([number for number, _, _ in taken])
        for candidate, (_, rank, is_first) in zip(candidates, taken, strict=True):
            candidate.bm25 = rank if places.is_ranked else None
            candidate.holds_all = bool(is_first)
        ordered: list[Candidate] = []
        for at in range(0, len(candidates), BLOCK):
            block = candidates[at : at + BLOCK]
            order(block)
            ordered += block
        return ordered

    def _taken(self, places: Places, limit: int, offset: int) -> list[Place]:
        return self._items(places, limit, offset) if self._item_bits else self._entries(places, limit, offset)

    def _entries(self, places: Places, limit: int, offset: int) -> list[Place]:
        return self._connection.execute(*places.found(limit, offset)).fetchall()

    def _items(self, places: Places, limit: int, offset: int) -> list[Place]:
        """The best entry of each item; as its entries are read in order, that is the first."""
        taken = (offset + limit) * _ENTRIES_PER_ITEM
        while True:
            entries = self._entries(places, taken, 0)
            items: dict[int, Place] = {}
            for place in entries:
                items.setdefault(place[0] >> self._item_bits, place)
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
        """How many hits a band has."""
        if not (self._filter or self._item_bits or band.excluded):
            return self._count(band.match)
        places = self._places(band)
        return self._statistics.count(self._connection, *(places.count_items() if self._item_bits else places.count()))

    # The order within a block

    def _order(self, band: Band) -> _Order:
        return self._scale(band) if self._search.scoring == "minmax" else self._compare()

    def _compare(self) -> _Order:
        terms = self._search.query.terms
        scorer = Scorer(self._weights(terms), self._target.prominence)
        stems = frozenset(stem(token) for term in terms for phrase in term.word.alternatives for token in phrase.tokens)
        key = _score if self._search.query.has_operators else _whole_and_score
        is_sorted = self._search.order == "relevance"

        def order(block: list[Candidate]) -> None:
            forms = [candidate.prominent for candidate in block] + [candidate.other for candidate in block]
            counts = self._counter.count_each(forms)
            for candidate, prominent, other in zip(block, counts, counts[len(block) :], strict=False):
                is_titled = candidate.has_title and any(prominent)
                share = title_share(_title_stems(candidate.prominent), stems) if is_titled else 0.0
                candidate.holds_all = candidate.holds_all or all(map(or_, prominent, other))
                candidate.score = round(scorer.score(prominent, other, candidate.chars, share), _SCORE_DIGITS)
            if is_sorted:
                block.sort(key=_identity)
                block.sort(key=key, reverse=True)

        return order

    def _weights(self, terms: Sequence[Term]) -> Sequence[float]:
        if len(terms) == 1:
            return (1.0,)  # however rare: it is all of the query
        # In all columns, whichever are searched: a hit's score does not depend on where else was looked.
        corpus = self._search.corpus or self._statistics.source_corpus(
            self._search.query, self._connection, self._target.index
        )
        known = [TermStatistics(rows, term.count) for rows, term in zip(corpus.frequencies, terms, strict=True)]
        return term_weights(corpus.rows, known)

    def _scale(self, band: Band) -> _Order:
        """The seed's score: the rank's place between the worst and the best of all matches."""
        best, worst = self._connection.execute(*self._places(band).extremes()).fetchone()

        def order(block: list[Candidate]) -> None:
            ranks = [worst if candidate.bm25 is None else candidate.bm25 for candidate in block]
            scaled = scale_to_range([best, worst, *ranks])[2:]
            for candidate, value in zip(block, scaled, strict=True):
                counts = zip(
                    self._counter.count(candidate.prominent), self._counter.count(candidate.other), strict=True
                )
                candidate.holds_all = all(map(any, counts))
                candidate.score = round(value, _SCORE_DIGITS)

        return order

    # The page

    def _page(self, shown: Sequence[Candidate], has_more: bool, everything: Band, matches: int) -> HitPage:
        """`everything` are all matches, of which there are `matches` entries at most."""
        total = self._search.offset + len(shown) if not has_more and (shown or not self._search.offset) else None
        if self._item_bits and shown:
            total = self._count_entries(shown, everything, matches, total)
        elif total is None and matches <= self._ranked_rows_max:
            total = self._size(everything)
        return HitPage(self._hits(shown), has_more=has_more, total=total)

    def _count_entries(
        self, shown: Sequence[Candidate], everything: Band, matches: int, total: int | None
    ) -> int | None:
        """How many more entries of the same item match; how many items there are, if so many can be counted."""
        if matches <= self._ranked_rows_max:
            [numbers] = self._connection.execute(*self._places(everything).numbers()).fetchone()
            counts = Counts([number >> self._item_bits for number in _read_numbers(numbers)])
            total = len(counts)
        else:
            counts = Counts(dict(self._connection.execute(*self._entries_of(shown, everything.match)).fetchall()))
        for candidate in shown:
            candidate.more_in_item = counts[int(candidate.identity)] - 1
        return total

    def _entries_of(self, shown: Sequence[Candidate], match: str) -> Statement:
        table = self._target.index.table
        items = json_list([int(candidate.identity) for candidate in shown])
        sql = (
            f"SELECT rowid >> {self._item_bits}, count(*) FROM {table} WHERE {table} MATCH ? "
            f"AND rowid >> {self._item_bits} IN (SELECT value FROM json_each(?)) GROUP BY 1"
        )
        return sql, (match, items)

    def _hits(self, shown: Sequence[Candidate]) -> tuple[Hit, ...]:
        return tuple(self._target.hit(candidate, self._search, self._counter) for candidate in shown)

    def _list(self) -> HitPage:
        """What passes the filter, newest first."""
        listed = self._target.listed(self._search) + self._filter.sql
        parameters = self._filter.parameters
        page = f"{listed} ORDER BY age DESC, number DESC LIMIT ? OFFSET ?"
        rows = self._connection.execute(page, (*parameters, self._search.limit, self._search.offset))
        shown = self._fetch([number for number, _ in rows])
        total: int = self._connection.execute(f"SELECT count(*) FROM ({listed})", parameters).fetchone()[0]
        return HitPage(self._hits(shown), has_more=self._search.offset + len(shown) < total, total=total)


@lru_cache(maxsize=4096)
def _title_stems(form: str) -> frozenset[str]:
    return frozenset(stem(word) for word in form.split() if word not in STOPWORDS)


def _identity(candidate: Candidate) -> str | int:
    return candidate.identity


def _score(candidate: Candidate) -> tuple[float, str]:
    return candidate.score, candidate.age


def _whole_and_score(candidate: Candidate) -> tuple[bool, float, str]:
    return candidate.holds_all, candidate.score, candidate.age
