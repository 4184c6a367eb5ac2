"""One full-text search in one target, executed in one job.

The ordered matches are divided into blocks of fixed size, and hits within a block are ordered by their comparable
score. A page therefore requires scoring only one or two blocks, and a hit has the same position and score regardless of
the page size and offset it is requested with.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from abc import abstractmethod
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from sources.query import AllOf, AnyOf, Expression, Title, Word
from sources.records import HitPage
from sources.search.scoring import (
    NO_BOOSTS,
    BlockScoring,
    BoostedPeriod,
    ComparableScoring,
    QueryScoring,
    Scorer,
    TermStatistics,
    query_boosts,
    term_weights,
)
from sources.search.term_matching import term_counter
from sources.storage.contract import Search
from sources.storage.search.engine import (
    CandidateRow,
    FieldChoice,
    HitCandidate,
    MatchedEntry,
    MatchStatements,
    RankingResult,
    SearchConnection,
    SearchStatistics,
    SearchTarget,
)
from sources.storage.tables.sql import SqlFilter, Statement

# -- match tiers -------------------------------------------------------------------------------------------------------
# Decides which matches of a query come first, depending on how common its words are.
#
# Matches with all words of a plain query come before those with only some, except in chats, each group ordered by
# bm25. That costs a few microseconds per match, so for words that occur almost everywhere only the newest matches are
# taken, unranked. If a query has several words, the matches of its rarer words come first.

# Matches of a single word differ in little but their age, so fewer of them are ranked than of several words together.
_ONE_WORD_SHARE = 4


class MatchTier(Struct, frozen=True):
    """Matches with one sort order. The tiers of a search follow one another and have no match in common."""

    match: str
    order: Literal["rank", "newest", "recent"]
    # Matches of this expression come before the other matches of the tier.
    first: str = ""
    # Matches of this expression belong to the previous tier.
    excluded: str = ""


# The usual page size. Larger blocks cost more scoring and change little: the first ten hits are the same for nine of
# ten queries.
BLOCK_ROWS = 20
# The same for a search of several sources, whose first page has hits of all of them: nDCG@10 is .8304 with 10 rows and
# .8299 with 20 (`make bench-quality`).
SHARED_BLOCK_ROWS = 10
# Index entries read per requested item, where an item has several.
_ENTRIES_PER_ITEM = 4
# Rowid, rank, and whether it matches `MatchTier.first`. The columns of a candidate follow, if the engine reads both.
_ENTRY_COLUMNS = 3

# How much a near word counts, compared with the word itself.
_NEAR_WEIGHT = 0.7

_decode_rowids = Decoder(list[int]).decode
_NO_FILTER = SqlFilter()


class RankingPlan(Struct, frozen=True):
    """What is decided before entries are read. `matches_max` is an upper bound of the number of index entries that
    match, and `all_matches` is a tier with all of them."""

    matches_max: int
    tiers: Sequence[MatchTier]
    scoring: BlockScoring
    all_matches: MatchTier


class TextSearch:
    """`ranked_rows_max` is the maximum number of matches that are ranked; `extra_filter` is added to the search's own
    filters."""

    def __init__(
        self,
        connection: SearchConnection,
        target: SearchTarget,
        search: Search,
        statistics: SearchStatistics,
        ranked_rows_max: int,
        extra_filter: SqlFilter = _NO_FILTER,
    ) -> None:
        self._connection = connection
        self._target = target
        self._search = search
        self._statistics = statistics
        self._ranked_rows_max = ranked_rows_max
        self._filter = statistics.engine.filter(connection, target, search) & extra_filter
        self._match_text = statistics.engine.compiler(target, search.fields)
        # A query that is a single word, or has operators, which are obeyed literally.
        self._is_literal = len(search.query.terms) < 2 or search.query.has_operators
        self._item_bits = 0 if search.within is not None else target.item_bits
        self._term_counter = term_counter(search.query.terms)
        is_comparable = search.scoring == "comparable"
        self._boosts = NO_BOOSTS
        if is_comparable:
            query, prose = search.query, search.query.prose if search.boosts_messages else None
            self._boosts = query_boosts(query.times, query.own_terms, prose)
        self._has_second_stage = target.candidate.has_speakers and self._boosts.message is not None
        # A boost for times moves hits further than the rest of the score does.
        is_short = search.is_one_of_several and not self._boosts.time.periods
        self._block_rows = SHARED_BLOCK_ROWS if is_short else BLOCK_ROWS
        if self._has_second_stage:
            self._block_rows = target.lexical_head
        # How many of the first matches by words are ranked by words and meaning together.
        self.head_rows = target.lexical_head // 2 if is_short else target.lexical_head
        self._matches_max = 0
        # Items that are not among the matches, because they have a position before them.
        self._skipped: tuple[int, ...] = ()
        # Those of all entries that match an expression, if they were read.
        self._rowids: dict[str, list[int]] = {}

    def run(self) -> HitPage:
        expression = self._search.query.expression
        if expression is None:
            return self._list() if self._search.has_filters else HitPage((), has_more=False, total=0)
        self._statistics.refresh(self._connection)
        plan = self._plan(expression)
        self._matches_max = plan.matches_max
        candidates, has_more = self._rank(plan.tiers, plan.scoring)
        # The page
        offset = self._search.offset
        total = offset + len(candidates) if not has_more and (candidates or not offset) else None
        if self._item_bits and candidates:
            total = self._count_entries(candidates, plan.all_matches, total)
            candidates = self._at_matching_text(candidates, plan.all_matches)
        elif total is None and self._search.counts_hits and self._matches_max <= self._ranked_rows_max:
            total = self._count_hits(plan.all_matches) + self._count_extra(None)
        self._locate(candidates)
        return HitPage(self._complete(candidates), has_more=has_more, total=total)

    def _plan(self, expression: Expression) -> RankingPlan:
        matches = list(map(self._match_text, [term.word for term in self._search.query.terms]))
        frequencies = self._statistics.count_each(self._connection, self._target.index, matches)
        all_ranked = self._ranked_tier(expression)
        if self._search.order == "recent" or self._search.scoring == "minmax":
            tiers = [all_ranked]
        elif self._is_literal:
            tiers = self._tiers_of_one(expression, all_ranked)
        else:
            tiers = self._tiers_of_words(frequencies, all_ranked)
        return RankingPlan(sum(frequencies), tiers, self._scoring(tiers[0]), MatchTier(all_ranked.match, "newest"))

    def _ranked_tier(self, expression: Expression) -> MatchTier:
        """Returns the tier with all matches, which is the only one unless they are too many to be ranked."""
        match = self._match_text(expression)
        if self._search.order == "recent":
            return MatchTier(match, "recent")
        # A phrase that is quoted in a sentence comes before everything else; otherwise what has all words does.
        preferred = self._search.query.preferred
        if not preferred and self._target.prefers_all_terms:
            preferred = tuple([term.word for term in self._search.query.own_terms])
        if not preferred or self._is_literal or self._search.scoring == "minmax":
            return MatchTier(match, "rank")
        [*others, last] = preferred
        return MatchTier(match, "rank", self._match_text(AllOf(preferred) if others else last))

    def _tiers_of_one(self, expression: Expression, all_ranked: MatchTier) -> list[MatchTier]:
        is_one_word = len(self._search.query.terms) < 2
        ranked_max = self._ranked_rows_max // (_ONE_WORD_SHARE if is_one_word else 1)
        match = all_ranked.match
        if self._count(match) <= ranked_max:
            return [all_ranked]
        in_title = self._match_text(Title(expression)) if isinstance(expression, Word) else ""
        if in_title and 0 < self._count(in_title) <= ranked_max:
            return [MatchTier(in_title, "rank"), MatchTier(match, "newest", excluded=in_title)]
        return [MatchTier(match, "newest")]

    def _tiers_of_words(self, frequencies: Sequence[int], all_ranked: MatchTier) -> list[MatchTier]:
        """Returns the tiers of several plain words: at most `ranked_rows_max` matches are ranked."""
        # The rarest words, as many as fit: together they have no more matches than can be ranked.
        words = [term.word for term in self._search.query.terms]
        rare: list[Word] = []
        rare_matches = 0
        for frequency, _, word in sorted(zip(frequencies, range(len(words)), words, strict=True)):
            rare_matches += frequency
            if rare_matches > self._ranked_rows_max:
                break
            rare.append(word)
        if len(rare) == len(words):
            return [all_ranked]
        if not rare:
            return [MatchTier(all_ranked.match, "newest")]
        any_rare = self._match_text(AnyOf(tuple(rare)))
        both = self._statistics.engine.both(any_rare, all_ranked.match)
        return [
            MatchTier(both, "rank", all_ranked.first),
            MatchTier(all_ranked.match, "newest", excluded=any_rare),
        ]

    def _count(self, match: str) -> int:
        return self._statistics.count_matches(self._connection, self._target.index, match)

    def has_match(self) -> bool:
        """Whether anything matches, on whatever page."""
        expression = self._search.query.expression
        if expression is None:
            return True
        tier = MatchTier(self._match_text(expression), "newest")
        if not self._filter:
            # `run` needs the count, too. To count the matches of a phrase is most of the cost of finding few of them.
            self._statistics.refresh(self._connection)
            return self._count(tier.match) > 0
        [is_found] = self._connection.execute(*self._match_sql(tier).select_any()).fetchone()
        return bool(is_found)

    def _rank(self, tiers: Sequence[MatchTier], scoring: BlockScoring) -> tuple[list[HitCandidate], bool]:
        """Returns the candidates of the requested page, and whether there are more."""
        return self._window(tiers, scoring, self._search.offset, self._search.limit)

    # The window: `limit` candidates from `start` on

    def _window(
        self, tiers: Sequence[MatchTier], scoring: BlockScoring, start: int, limit: int
    ) -> tuple[list[HitCandidate], bool]:
        """Returns the candidates, and whether there are more."""
        if not self._matches_max:
            return [], False
        window: list[HitCandidate] = []
        block_rows = self._block_rows
        for index, tier in enumerate(tiers):
            wanted = limit - len(window)
            first, size = _whole_blocks(start, wanted, self._block_rows)
            match_sql = self._match_sql(tier)
            matched, candidates = self._read(tier, match_sql, size, first)
            scored: list[HitCandidate] = []
            for candidate, entry in zip(candidates, matched[:size], strict=True):
                candidate.entry = entry[0]
                candidate.bm25 = entry[1] if match_sql.is_ranked else None
                candidate.has_all_terms = bool(entry[2])
            for block_start in range(0, len(candidates), block_rows):
                block = candidates[block_start : block_start + block_rows]
                scoring.score(block)
                scored += block
            window += scored[start - first :][:wanted]
            if len(window) == limit:
                has_more = start + wanted < first + len(matched)
                return window, has_more or any(self._count_hits(later) for later in tiers[index + 1 :])
            start = max(0, start - (first + len(scored) if scored or not first else self._count_hits(tier)))
        return window, False

    def _read(
        self, tier: MatchTier, match_sql: MatchStatements, size: int, first: int
    ) -> tuple[Sequence[MatchedEntry], list[HitCandidate]]:
        """Returns the entries from `first` on, one more than `size` if there are more hits, and the candidates of the
        others. Of an item with several entries, the best one counts, which is the first: they are read in order."""
        item_bits, end = self._item_bits, first + size + 1
        limit, offset, items_max = self._entry_page(size, first)
        while True:
            entries = match_sql.read_candidates(self._connection, limit, offset, items_max)
            if entries is None:
                entries = self._connection.execute(*match_sql.select_entries(limit, offset)).fetchall()
            if not item_bits:
                break
            items: dict[int, MatchedEntry] = {}
            for entry in entries:
                items.setdefault(entry[0] >> item_bits, entry)
            is_all = len(entries) < limit
            if is_all and not (tier.excluded or self._skipped):
                self._rowids[tier.match] = [entry[0] for entry in entries]
            if is_all or len(items) >= end:
                entries = list(items.values())[first:end]
                break
            limit *= _ENTRIES_PER_ITEM
        shown, build = entries[:size], self._target.candidate
        # Those that were not read with their entries, also because they are from another table.
        rowids = [row[0] for row in shown if len(row) <= _ENTRY_COLUMNS or row[_ENTRY_COLUMNS] is None]
        others = dict(zip(rowids, self._target.candidates(self._connection, rowids), strict=True)) if rowids else {}
        return entries, [others[row[0]] if row[0] in others else build(*row[_ENTRY_COLUMNS:]) for row in shown]

    def _entry_page(self, size: int, first: int) -> tuple[int, int, int]:
        """Returns the limit and the offset of the entries of a page, and how many items it has at most."""
        end = first + size + 1
        return (end * _ENTRIES_PER_ITEM, 0, end) if self._item_bits else (size + 1, first, end - first)

    def first_page(self, start: int, limit: int) -> tuple[MatchStatements, tuple[int, int, int]] | None:
        """Returns what `run` will read its first candidates with if all matches can be ranked."""
        expression = self._search.query.expression
        if expression is None:
            return None
        first, size = _whole_blocks(start, limit, self._block_rows)
        return self._match_sql(self._ranked_tier(expression)), self._entry_page(size, first)

    def _match_sql(self, tier: MatchTier) -> MatchStatements:
        is_ranked = tier.order == "rank" or self._search.scoring == "minmax" or self._item_bits > 0
        is_ranked = is_ranked and tier.order != "newest"
        return self._statistics.engine.match_statements(
            self._target,
            tier,
            self._filter,
            self._item_bits,
            is_ranked=is_ranked,
            boost=self._boosts.time.periods,
            skipped=self._skipped,
        )

    def _count_hits(self, tier: MatchTier) -> int:
        if not (self._filter or self._item_bits or tier.excluded or self._skipped):
            return self._count(tier.match)
        match_sql = self._match_sql(tier)
        statement = match_sql.count_items() if self._item_bits else match_sql.count_entries()
        return self._statistics.count(self._connection, self._target.index, *statement)

    # Scores

    def _scoring(self, tier: MatchTier) -> BlockScoring:
        if self._search.scoring == "minmax":
            best, worst = self._connection.execute(*self._match_sql(tier).select_extremes()).fetchone()
            return QueryScoring(self._term_counter, partial(self._statistics.engine.scale_ranks, best, worst))
        # A near term weighs less than the term that it may mean, and is no part of the whole query.
        query = self._search.query
        terms, weights = query.terms, [1.0]  # one term is the whole query, however rare it is
        if len(terms) > 1:
            # Counted in all columns, even if only some are searched: a score must not depend on the searched columns.
            corpus = self._search.known_corpus
            if corpus is None:
                corpus = self._statistics.source_corpus(query, self._connection, self._target.index)
            statistics = [
                TermStatistics(rows, term.count) for rows, term in zip(corpus.frequencies, terms, strict=True)
            ]
            weights = term_weights(corpus.rows, statistics)
            # Gives a phrase that is quoted in a sentence, and occurs, the weight of all words together, so that these
            # do not outvote it.
            others = 0.0
            for term, weight in zip(terms, weights, strict=True):
                others += 0.0 if term.word in query.preferred else weight
            for index, term in enumerate(terms):
                if term.word in query.preferred and corpus.frequencies[index]:
                    weights[index] = max(weights[index], others)
        near = [(index, term.near) for index, term in enumerate(terms) if term.near is not None]
        for index, meant in near:
            # A word that occurs nowhere is only as rare as the term it may mean.
            weights[meant] = min(weights[meant], weights[index])
        for index, meant in near:
            weights[index] = _NEAR_WEIGHT * weights[meant]
        scorer = Scorer(weights, self._target.prominence, sum(weights[: len(weights) - len(near)]))
        return ComparableScoring(
            self._term_counter,
            scorer,
            self._search,
            self._boosts,
            prefers_all_terms=self._target.prefers_all_terms,
            message_boost=self._boosts.message if self._has_second_stage and self._has_final_scores else None,
        )

    @property
    def _has_final_scores(self) -> bool:
        """Whether nothing is added to the scores by words."""
        return True

    def _at_matching_text(self, candidates: Sequence[HitCandidate], all_matches: MatchTier) -> list[HitCandidate]:
        """Replaces candidates that match only by the title, which all entries of their item share, by the best entry
        whose own text matches: a hit should show the words that were searched for."""
        by_title = [one for one in candidates if one.lexical != 0 and not one.is_matched_in_other]
        if not by_title:
            return [*candidates]
        # The rowid of the best entry of each item whose text matches, by item.
        match_sql = self._match_sql(all_matches)
        entries = {}
        for item in [int(candidate.id) for candidate in by_title]:
            rows = self._connection.execute(*match_sql.select_texts_of(item, 2, is_ranked=False)).fetchall()
            if len(rows) > 1:  # ranking reads all entries of every word, whatever the item
                rows = self._connection.execute(*match_sql.select_texts_of(item, 1, is_ranked=True)).fetchall()
            if rows:
                [(entries[item],)] = rows
        replaced = [candidate for candidate in by_title if int(candidate.id) in entries]
        shown = self._target.candidates(self._connection, [entries[int(candidate.id)] for candidate in replaced])
        by_id = {candidate.id: candidate for candidate in shown}
        for candidate in replaced:
            for name in RankingResult.__struct_fields__:
                setattr(by_id[candidate.id], name, getattr(candidate, name))
            by_id[candidate.id].entry = entries[int(candidate.id)]
        return [by_id.get(candidate.id, candidate) for candidate in candidates]

    def _count_extra(self, matching_items: Tally[int] | None) -> int:
        """Counts the hits that do not match by their words. `matching_items` has the items that do, if they are
        known."""
        return 0

    def _locate(self, candidates: Sequence[HitCandidate]) -> None:
        """Sets the passages of hits that do not match by their words."""

    def _count_entries(
        self, candidates: Sequence[HitCandidate], all_matches: MatchTier, total: int | None
    ) -> int | None:
        """Sets how many more entries of each item match. Returns the number of items if it is cheap to count them, or
        `total`."""
        if self._matches_max <= self._ranked_rows_max:
            rowids = self._rowids.get(all_matches.match)
            if rowids is None:
                [text] = self._connection.execute(*self._match_sql(all_matches).select_rowids()).fetchone()
                rowids = _decode_rowids(text)
            entries = Tally([rowid >> self._item_bits for rowid in rowids])
            total = len(entries) + self._count_extra(entries)
        else:
            items = [int(candidate.id) for candidate in candidates]
            rows = self._connection.execute(*self._match_sql(all_matches).count_entries_of(items))
            entries = Tally(dict(rows.fetchall()))
        for candidate in candidates:
            candidate.more_in_item = max(0, entries[int(candidate.id)] - 1)
        return total

    def _complete(self, candidates: Sequence[HitCandidate]) -> tuple[HitCandidate, ...]:
        """Adds what the hits need in addition to the candidates."""
        self._target.add_context(self._connection, candidates)
        self._target.candidate.prepare_hits(candidates, FieldChoice(self._search.fields, self._term_counter))
        return tuple(candidates)

    def _list(self) -> HitPage:
        """Returns what passes the filters, newest first."""
        search = self._search
        listing = self._target.list_sql(search) + self._filter.sql
        parameters = self._filter.parameters
        page = f"{listing} ORDER BY age DESC, number DESC LIMIT ? OFFSET ?"
        rows = self._connection.execute(page, (*parameters, search.limit, search.offset))
        candidates = self._target.candidates(self._connection, [rowid for rowid, _ in rows])
        [total] = self._connection.execute(f"SELECT count(*) FROM ({listing}) AS listing", parameters).fetchone()
        return HitPage(self._complete(candidates), has_more=search.offset + len(candidates) < total, total=total)


def _whole_blocks(start: int, wanted: int, block_rows: int) -> tuple[int, int]:
    """Returns the first row and the number of rows of the blocks that contain the wanted ones."""
    first = start - start % block_rows
    return first, -(-(start + wanted - first) // block_rows) * block_rows


# -- readings ----------------------------------------------------------------------------------------------------------
# Reads a query in a way that matches more if nothing matches it as typed.


def search_relaxed(search: Search, has_match: Callable[[Search], bool], run: Callable[[Search], HitPage]) -> HitPage:
    """Runs the first reading of the query that matches anything, or the last. The decision does not depend on the
    requested page, so all pages are read the same way. The page names the query if it is not the one in `search`."""
    reading = search
    while reading.query.relaxed is not None and not search.is_strict and not has_match(reading):
        reading = replace(reading, query=reading.query.relaxed, corpus=None)
    page = run(reading)
    is_changed = reading is not search and page.total != 0 and page.query is None
    return replace(page, query=reading.query) if is_changed else page


# -- tier sql ----------------------------------------------------------------------------------------------------------
# The SQL that finds the index entries of a match tier, in order. It selects rowids only; rows are fetched later.


class TierSql(Struct, frozen=True):
    """Statements over the entries of one tier that pass a filter, which are the same on all engines. Rowids that differ
    only in the lowest `item_bits` bits belong to the same item."""

    target: SearchTarget
    tier: MatchTier
    filter: SqlFilter
    item_bits: int
    is_ranked: bool
    boost: tuple[BoostedPeriod, ...] = ()
    # Items to leave out.
    skipped: tuple[int, ...] = ()

    def read_candidates(
        self, _connection: Any, _limit: int, _offset: int, _items_max: int
    ) -> Sequence[CandidateRow] | None:
        """Reading the rows of a page separately costs little if no server has to be asked."""
        return None

    def select_any(self) -> Statement:
        """Selects whether there is an entry at all."""
        sql, parameters = self._matching()
        return f"SELECT EXISTS (SELECT 1 {sql})", parameters

    def count_entries(self) -> Statement:
        sql, parameters = self._matching()
        return f"SELECT count(*) {sql}", parameters

    def count_items(self) -> Statement:
        sql, parameters = self._matching()
        return f"SELECT count(DISTINCT {self._rowid} >> {self.item_bits}) {sql}", parameters

    @property
    def _is_boosted(self) -> bool:
        return bool(self.boost) and self.is_ranked and self.tier.order == "rank"

    @property
    @abstractmethod
    def _rowid(self) -> str:
        """The SQL expression of the rowid of an entry."""

    @abstractmethod
    def _matching(self) -> Statement:
        """Returns the SQL from FROM on."""
