"""One search in one target by words, and by meaning if there is a vector of the query, executed in one job.

The ordered matches are divided into blocks of fixed size, and hits within a block are ordered by their comparable
score. A page therefore requires scoring only one or two blocks, and a hit has the same position and score regardless of
the page size and offset it is requested with.

With a vector, the score of a hit is `(1 - w) * lexical + w * cosine`, where `w` is the weight of the model for the
query. Both parts mean the same in every source, so that scores can be compared. The first hits, the head, are the best
matches by words and the nearest by meaning, sorted by this score. If even the nearest is no nearer than chance would
have it, only the matches by words are. The other matches by words follow in their own order, each block of them sorted
by the same score. An item has the same score wherever it is found.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections import Counter as Tally
from collections.abc import Callable, Sequence
from functools import partial
from heapq import merge
from operator import attrgetter

from msgspec.json import Decoder
from msgspec.structs import replace

from sources.query import AllOf, AnyOf, Expression, Title, Word
from sources.query.parser import can_have_near_terms
from sources.query.words import is_foreign
from sources.records import SEMANTIC_OFF, HitPage, RankedMatch, SemanticStatus, combine_statuses
from sources.search.message_boost import MessageBoost
from sources.search.scoring import (
    NO_BOOSTS,
    SCORE_DIGITS,
    BlockScoring,
    ComparableScoring,
    QueryScoring,
    Scorer,
    TermStatistics,
    query_boosts,
    sort_block,
    term_weights,
)
from sources.search.term_matching import term_counter
from sources.semantic.model import LEAST_COSINE, vector_length
from sources.storage.contract import Search
from sources.storage.search.engine import (
    ENTRY_COLUMNS,
    EntryRow,
    FieldChoice,
    HitCandidate,
    MatchTier,
    NearEntry,
    PassageScan,
    QueryVector,
    RankingResult,
    SearchConnection,
    SearchStatistics,
    SearchTarget,
    TierSql,
)
from sources.storage.tables.sql import SqlFilter, json_array

# Matches of a single word differ in little but their age, so fewer of them are ranked than of several words together.
_ONE_WORD_SHARE = 4
# The usual page size. Larger blocks cost more scoring and change little: the first ten hits are the same for nine of
# ten queries.
BLOCK_ROWS = 20
# The same for a search of several sources, whose first page has hits of all of them: nDCG@10 is .8304 with 10 rows and
# .8299 with 20 (`make bench-quality`).
SHARED_BLOCK_ROWS = 10
# Index entries read per requested item, where an item has several.
_ENTRIES_PER_ITEM = 4
# It takes longer to leave out fewer matches than to rank them.
_UNRANKED_ROWS_MIN = 100
# How much a near word counts, compared with the word itself.
_NEAR_WEIGHT = 0.7
# A single word matches little if fewer rows contain it than a page has hits.
LITTLE_ROWS = 20

# The nearest in the head. More of them do not improve the first page. If there are no other matches by words, they cost
# less and are all there is to find.
NEAREST_HEAD = 10
NEAREST_HEAD_OF_FEW = 20
# With filters, so many of the nearest are checked before the filters are evaluated for all items.
_FILTERED_NEAREST = 1_000
NOT_APPLICABLE = SemanticStatus("not_applicable")

_decode_numbers = Decoder(list[int]).decode
_by_score = attrgetter("score", "last_modified")
_entry_of, _rowid_of, _word_of = attrgetter("entry"), attrgetter("rowid"), attrgetter("word")
# The candidates of a page, whether there are more, and how many there are, if that is known.
_Page = tuple[list[HitCandidate], bool, int | None]


class TextSearch:
    """`ranked_rows_max` is the maximum number of matches that are ranked; `extra_filter` is added to the search's own
    filters. `meaning` is the vector of the query, or why there is none."""

    def __init__(
        self,
        connection: SearchConnection,
        target: SearchTarget,
        search: Search,
        statistics: SearchStatistics,
        ranked_rows_max: int,
        extra_filter: SqlFilter | None = None,
        meaning: QueryVector | SemanticStatus = SEMANTIC_OFF,
    ) -> None:
        query = search.query
        self._connection = connection
        self.target = target
        self.search = search
        self._statistics = statistics
        self._ranked_rows_max = ranked_rows_max
        self._extra_filter = extra_filter
        self._match_text = statistics.engine.compiler(target, search.fields)
        # A query that is a single word, or has operators, which are obeyed literally.
        self._is_literal = len(query.terms) < 2 or query.has_operators
        self._item_bits = 0 if search.within is not None else target.item_bits
        self._term_counter = term_counter(query.terms)
        if target.text_form and self._term_counter.is_unspaced:
            self.target = target = target.without_text_form()
        self._boosts = NO_BOOSTS
        has_speakers = target.candidate.has_speakers
        if search.scoring == "comparable":
            prose = query.prose if search.boosts_messages and has_speakers else None
            self._boosts = query_boosts(query.times, query.own_terms, prose)
        # A boost for times moves hits further than the rest of the score does.
        is_short = search.is_one_of_several and not self._boosts.time.periods
        self._block_rows = SHARED_BLOCK_ROWS if is_short else BLOCK_ROWS
        # The second stage of messages.
        self._message_boost = self._boosts.message if has_speakers else None
        if self._message_boost is not None:
            self._block_rows = target.lexical_head
        # How many of the first matches by words are ranked by words and meaning together.
        self.head_rows = target.lexical_head // 2 if is_short else target.lexical_head
        # How many entries match each term, and an upper bound of how many match at all.
        self._frequencies: list[int] | None = None
        self._matches_max = 0
        # Items that are not among the matches, because they have a position before them.
        self._skipped: tuple[int, ...] = ()
        # Those of all entries that match an expression, if they were read.
        self._matched_items: dict[str, list[int]] = {}
        self._semantic, self._vector = SEMANTIC_OFF, None
        if isinstance(meaning, SemanticStatus):
            self._semantic = meaning
        else:
            self._vector = meaning
            # All cosines of a query whose vector is shorter are smaller, those that are due to chance, too.
            self._length = vector_length(meaning.vector)
            # The share of the cosine in scores. Stop words of other languages than English count, because models know
            # these less well: Hindi would lose by it (`make bench-languages`).
            terms = len(query.own_terms)
            if not query.prose.isascii() and is_foreign(words := query.prose.split()):
                terms = max(terms, len(words))
            self._weight = meaning.model.weight_for(terms)
            # The entries that were found by their meaning, by rowid.
            self._near: dict[int, NearEntry] = {}
        # The candidates that have no word of the query.
        self._meaning_only: list[HitCandidate] = []

    def _read_filter(self) -> None:
        """Called when the search begins: an engine may have to read the values that meet a condition."""
        own = self._statistics.engine.filter(self._connection, self.target, self.search)
        self._filter = own if self._extra_filter is None else own & self._extra_filter

    def run(self) -> HitPage:
        search, connection, target, vector = self.search, self._connection, self.target, self._vector
        expression, semantic, floor = search.query.expression, self._semantic, None
        texts = 0
        if vector is None and (search.ranking == "meaning" or (expression is None and not search.has_filters)):
            return HitPage((), has_more=False, total=0, semantic=semantic)
        self._read_filter()
        if expression is None:
            candidates, has_more, total = self._list()
        elif vector is None:
            self._statistics.refresh(connection)
            candidates, has_more, total = self._ranked_page(self._tiers(expression))
        else:
            self._statistics.refresh(connection)
            scan = vector.scan(connection, target.vectors, self._item_bits)
            texts = self._statistics.count_rows(connection, target.index)
            if search.ranking == "meaning":
                candidates, has_more, total = self._nearest_page(scan)
            else:
                tiers = self._tiers(expression)
                floor = self._length * vector.model.floor_for(texts)
                candidates, has_more, total = self._ranked_page(tiers, scan if scan.has_vectors else None, floor)
                if search.query.times and has_more:
                    # What was created at these times counts as a match, whether or not it contains the words.
                    total = None
            for candidate in candidates:
                if (near := self._near.get(candidate.entry)) is not None:
                    candidate.passage = near.passage
            semantic = scan.status(partial(self._statistics.count, connection, target.index))
        target.complete(connection, candidates, FieldChoice(search.fields, self._term_counter))
        return HitPage(tuple(candidates), has_more, total, semantic, floor=floor, texts=texts)

    def _ranked_page(self, tiers: Sequence[MatchTier], scan: PassageScan | None = None, floor: float = 0.0) -> _Page:
        """Returns the matches by words, and with `scan` those by meaning. `floor` is the least cosine of the nearest:
        chance finds one that is nearer than anything below it."""
        search = self.search
        scoring = self._scoring(tiers[0], self._message_boost if scan is None else None)
        if scan is None:
            candidates, has_more = self._window(tiers, scoring, search.offset, search.limit)
        else:
            candidates, has_more = self._rank_with_meaning(scan, floor, tiers, scoring)
        is_end = not has_more and (len(candidates) > 0 or not search.offset)
        total = search.offset + len(candidates) if is_end else None
        all_matches = MatchTier(tiers[-1].match, "newest")
        if self._item_bits and candidates:
            total = self._count_entries(candidates, all_matches, total)
            candidates = self._at_matching_text(candidates, all_matches)
        elif total is None and search.counts_hits and self._matches_max <= self._ranked_rows_max:
            total = self._count_hits(all_matches) + len(self._meaning_only)
        return candidates, has_more, total

    def _list(self) -> _Page:
        """Returns what passes the filters, newest first."""
        search = self.search
        listing = self.target.list_sql(search) + self._filter.sql
        parameters = self._filter.parameters
        page = f"{listing} ORDER BY age DESC, number DESC LIMIT ? OFFSET ?"
        rows = self._connection.execute(page, (*parameters, search.limit, search.offset))
        candidates = self.target.candidates(self._connection, [rowid for rowid, _ in rows])
        [total] = self._connection.execute(f"SELECT count(*) FROM ({listing}) AS listing", parameters).fetchone()
        return candidates, search.offset + len(candidates) < total, total

    def has_match(self) -> bool:
        """Whether anything matches, on whatever page."""
        expression = self.search.query.expression
        if expression is None:
            return True
        match = self._match_text(expression)
        self._read_filter()
        if not self._filter.conditions:
            # `run` needs the count, too. To count the matches of a phrase is most of the cost of finding few of them.
            self._statistics.refresh(self._connection)
            return self._count(match) > 0
        [is_found] = self._connection.execute(*self._tier_sql(MatchTier(match, "newest")).select_any()).fetchone()
        return bool(is_found)

    def lacks_words(self) -> bool:
        """Whether the library lacks a word of the query, or has little of a single one. Counts no more than it needs,
        because it is asked for every search."""
        query = self.search.query
        if not can_have_near_terms(query):
            return False
        self._statistics.refresh(self._connection)
        enough = LITTLE_ROWS if len(query.terms) == 1 else 1
        rare = [term.word for term, count in zip(query.terms, self.count_terms(), strict=True) if count < enough]
        if not rare:
            return False
        matches = [*map(self._statistics.engine.compiler(), rare)]
        return min(self._statistics.count_each_in_library(self._connection, matches, enough)) < enough

    def count_terms(self) -> list[int]:
        """Returns how many entries match each term of the query."""
        if self._frequencies is None:
            matches = [*map(self._match_text, map(_word_of, self.search.query.terms))]
            self._frequencies = self._statistics.count_each(self._connection, self.target.index, matches)
        return self._frequencies

    def _count(self, match: str) -> int:
        [count] = self._statistics.count_each(self._connection, self.target.index, (match,))
        return count

    # -- tiers ---------------------------------------------------------------------------------------------------------
    # Which matches come first, depending on how common the words of the query are.
    #
    # Matches with all words of a plain query come before those with only some, except in chats, each group ordered by
    # bm25. That costs a few microseconds per match, ten times as much as to find it, so if a query has several words,
    # the matches of its rarer words come first. Of words that occur almost everywhere only the newest matches are
    # taken, unranked.

    def _tiers(self, expression: Expression) -> list[MatchTier]:
        """Returns the tiers, of which at most `ranked_rows_max` matches are ranked. The last one is that of all matches
        that no other has."""
        search, match_text = self.search, self._match_text
        frequencies = self.count_terms()
        self._matches_max = sum(frequencies)
        all_ranked = self._ranked_tier(expression)
        if all_ranked.first and not self._statistics.engine.reads_ahead:
            counted = zip(search.query.terms, frequencies, strict=True)
            missing = {term.word for term, frequency in counted if not frequency}
            if not missing.isdisjoint(self._preferred()):
                all_ranked = replace(all_ranked, first="")  # nothing has all of these words
        match = all_ranked.match
        if search.order == "recent" or search.scoring == "minmax":
            return [all_ranked]
        ranked_max = self._ranked_rows_max
        if self._is_literal:
            if len(frequencies) < 2:
                ranked_max //= _ONE_WORD_SHARE
            if self._count(match) <= ranked_max:
                return [all_ranked]
            rarer = ranked = match_text(Title(expression)) if isinstance(expression, Word) else ""
            if rarer and not 0 < self._count(rarer) <= ranked_max:
                rarer = ""
        else:
            if self._matches_max <= ranked_max:
                return self._rarer_first(expression, all_ranked, frequencies)
            # The rarest words, as many as fit: together they have no more matches than can be ranked.
            rare: list[Word] = []
            for frequency, place in sorted(zip(frequencies, range(len(frequencies)), strict=True)):
                ranked_max -= frequency
                if ranked_max < 0:
                    break
                rare.append(search.query.terms[place].word)
            rarer = match_text(AnyOf(tuple(rare))) if rare else ""
            ranked = self._statistics.engine.both(rarer, match) if rarer else ""
        if not rarer:
            return [MatchTier(match, "newest")]
        return [MatchTier(ranked, "rank", all_ranked.first), MatchTier(match, "newest", excluded=rarer)]

    def _rarer_first(
        self, expression: Expression, all_ranked: MatchTier, frequencies: Sequence[int]
    ) -> list[MatchTier]:
        """Moves what has only the most common words to a second tier, so that it is ranked only if a page needs it.

        All of these words weigh no more than any of the others. So where words are repeated equally often in texts of
        the same length, what is in the second tier ranks below everything in the first, which fills two blocks.
        """
        query, statistics = self.search.query, self._statistics
        is_plain = isinstance(expression, AnyOf) and query.terms == query.own_terms and not self._boosts.time.periods
        if not is_plain or statistics.engine.reads_ahead:
            return [all_ranked]
        rows = statistics.count_rows(self._connection, self.target.index)
        weights = term_weights(rows, [TermStatistics(count, 1) for count in frequencies])
        # Of words that occur, the rarest first.
        rarer = [index for index, count in enumerate(frequencies) if count]
        rarer.sort(key=frequencies.__getitem__)
        weight, common_rows = 0.0, 0
        while len(rarer) > 1:
            *others, index = rarer
            weight += weights[index]
            is_enough = frequencies[others[-1]] >= 2 * self._block_rows
            if weight > weights[others[-1]] or not is_enough or query.terms[index].word in query.preferred:
                break
            common_rows += frequencies[index]
            rarer = others
        if common_rows < _UNRANKED_ROWS_MIN:
            return [all_ranked]
        within = self._match_text(AnyOf(tuple([query.terms[index].word for index in rarer])))
        return [replace(all_ranked, within=within), replace(all_ranked, first="", excluded=within)]

    def _ranked_tier(self, expression: Expression) -> MatchTier:
        """Returns the tier with all matches, which is the only one unless they are too many to be ranked."""
        search, match = self.search, self._match_text(expression)
        if search.order == "recent":
            return MatchTier(match, "recent")
        if self._is_literal or search.scoring == "minmax":
            return MatchTier(match, "rank")
        preferred = self._preferred()
        if not preferred:
            return MatchTier(match, "rank")
        [*others, last] = preferred
        return MatchTier(match, "rank", self._match_text(AllOf(preferred) if others else last))

    def _preferred(self) -> tuple[Word, ...]:
        """Returns the words of which entries that have all come first: the phrases that are quoted in a sentence, or
        else all words."""
        if self.search.query.preferred or not self.target.prefers_all_terms:
            return self.search.query.preferred
        return tuple(map(_word_of, self.search.query.own_terms))

    def _tier_sql(self, tier: MatchTier) -> TierSql:
        is_ranked = tier.order == "rank" or self.search.scoring == "minmax" or self._item_bits > 0
        is_ranked = is_ranked and tier.order != "newest"
        boost = self._boosts.time.periods if tier.order == "rank" else ()
        tier_sql = self._statistics.engine.tier_sql
        return tier_sql(self.target, tier, self._filter, self._item_bits, is_ranked, boost, self._skipped)

    def _count_hits(self, tier: MatchTier) -> int:
        index = self.target.index
        if tier.has_all_matches and not (self._filter.conditions or self._item_bits or self._skipped):
            return self._count(tier.match)
        tier_sql = self._tier_sql(tier)
        statement = tier_sql.count_items() if self._item_bits else tier_sql.count_entries()
        return self._statistics.count(self._connection, index, *statement)

    # -- window --------------------------------------------------------------------------------------------------------
    # `limit` candidates from `start` on.

    def first_page(self, start: int, limit: int) -> tuple[TierSql, tuple[int, int, int]]:
        """Returns what `run` will read its first candidates with if all matches can be ranked. The query must have an
        expression."""
        expression = self.search.query.expression
        assert expression is not None
        self._read_filter()
        _, _, *page = self._blocks(start, limit)
        return self._tier_sql(self._ranked_tier(expression)), (page[0], page[1], page[2])

    def _blocks(self, start: int, wanted: int) -> tuple[int, int, int, int, int]:
        """Returns the first row and the number of rows of the blocks that contain the wanted ones, the limit and the
        offset of their entries, and how many items these have at most. One more is read, to see if there is any."""
        first = start - start % self._block_rows
        size = -(-(start + wanted - first) // self._block_rows) * self._block_rows
        if self._item_bits:
            end = first + size + 1
            return first, size, end * _ENTRIES_PER_ITEM, 0, end
        return first, size, size + 1, first, size + 1

    def _window(
        self, tiers: Sequence[MatchTier], scoring: BlockScoring, start: int, limit: int
    ) -> tuple[list[HitCandidate], bool]:
        """Returns the candidates, and whether there are more."""
        window: list[HitCandidate] = []
        if not self._matches_max:
            return window, False
        block_rows = self._block_rows
        for index, tier in enumerate(tiers):
            wanted = limit - len(window)
            first, size, *page = self._blocks(start, wanted)
            candidates, rows = self._read(tier, first, size, *page)
            scored: list[HitCandidate] = []
            for block_start in range(0, len(candidates), block_rows):
                block = candidates[block_start : block_start + block_rows]
                scoring.score(block)
                scored += block
            window += scored[start - first :][:wanted]
            if len(window) == limit:
                has_more = start + wanted < first + rows
                return window, has_more or any(self._count_hits(later) for later in tiers[index + 1 :])
            start = max(0, start - (first + len(scored) if scored or not first else self._count_hits(tier)))
        return window, False

    def _read(
        self, tier: MatchTier, first: int, size: int, limit: int, offset: int, items_max: int
    ) -> tuple[list[HitCandidate], int]:
        """Returns at most `size` candidates from `first` on, and how many there are, one more if there are more."""
        item_bits, tier_sql = self._item_bits, self._tier_sql(tier)
        while True:
            rows = tier_sql.read_entries(self._connection, limit, offset, items_max)
            if not item_bits:
                break
            # Of an item with several entries, the best one counts, which is the first: they are read in order.
            items = [row[0] >> item_bits for row in rows]
            best = dict(zip(reversed(items), reversed(rows), strict=True))
            is_all = len(rows) < limit
            if is_all and tier.has_all_matches and not self._skipped:
                self._matched_items[tier.match] = items
            if is_all or len(best) >= items_max:
                rows = [best[item] for item in [*dict.fromkeys(items)][first:items_max]]
                break
            limit *= _ENTRIES_PER_ITEM
        shown, build = rows[:size], self.target.candidate
        # Those that were not read with their entries, also because they are from another table.
        alone: Sequence[EntryRow] = shown
        if shown and len(shown[0]) > ENTRY_COLUMNS:
            alone = [row for row in shown if row[ENTRY_COLUMNS] is None]
        if not alone:
            return [build(*row) for row in shown], len(rows)
        read = self.target.candidates(self._connection, [row[0] for row in alone])
        others: dict[int, HitCandidate] = {}
        for candidate, row in zip(read, alone, strict=True):
            candidate.entry, candidate.bm25, candidate.has_all_terms = row[:ENTRY_COLUMNS]
            others[candidate.entry] = candidate
        return [others.get(row[0]) or build(*row) for row in shown], len(rows)

    # -- scores --------------------------------------------------------------------------------------------------------

    def _scoring(self, tier: MatchTier, message_boost: MessageBoost | None) -> BlockScoring:
        search, query = self.search, self.search.query
        if search.scoring == "minmax":
            best, worst = self._connection.execute(*self._tier_sql(tier).select_extremes()).fetchone()
            return QueryScoring(self._term_counter, partial(self._statistics.engine.scale_ranks, best, worst))
        terms, weights = query.terms, [1.0]  # one term is the whole query, however rare it is
        if len(terms) > 1:
            # Counted in all columns, even if only some are searched: a score must not depend on the searched columns.
            corpus = search.known_corpus
            if corpus is None:
                corpus = self._statistics.source_corpus(query, self._connection, self.target.index)
            frequencies = corpus.frequencies
            statistics = [TermStatistics(rows, term.count) for rows, term in zip(frequencies, terms, strict=True)]
            weights = term_weights(corpus.rows, statistics)
            if query.preferred:
                # Gives a phrase that is quoted in a sentence, and occurs, the weight of all words together, so that
                # these do not outvote it.
                is_preferred = [term.word in query.preferred for term in terms]
                others = sum([0.0 if first else weight for first, weight in zip(is_preferred, weights, strict=True)])
                for index, first in enumerate(is_preferred):
                    if first and frequencies[index]:
                        weights[index] = max(weights[index], others)
        # A near term weighs less than the term that it may mean, and is no part of the whole query.
        own = len(query.own_terms)
        near = [(index, term.near or 0) for index, term in enumerate(terms[own:], own)] if own < len(terms) else []
        for index, meant in near:
            # A word that occurs nowhere is only as rare as the term it may mean.
            weights[meant] = min(weights[meant], weights[index])
        for index, meant in near:
            weights[index] = _NEAR_WEIGHT * weights[meant]
        return ComparableScoring(
            self._term_counter,
            Scorer(weights, self.target.prominence, sum(weights[:own])),
            search,
            self._boosts,
            prefers_all_terms=self.target.prefers_all_terms,
            message_boost=message_boost,
        )

    def _count_entries(
        self, candidates: Sequence[HitCandidate], all_matches: MatchTier, total: int | None
    ) -> int | None:
        """Sets how many more entries of each item match. Returns the number of items if it is cheap to count them, or
        `total`."""
        if self._matches_max <= self._ranked_rows_max:
            items = self._matched_items.get(all_matches.match)
            if items is None:
                [text] = self._connection.execute(*self._tier_sql(all_matches).select_items()).fetchone()
                items = _decode_numbers(text)
            entries = Tally(items)
            total = len(entries)
            for candidate in self._meaning_only:
                total += candidate.entry >> self._item_bits not in entries
        else:
            shown = [int(candidate.id) for candidate in candidates]
            rows = self._connection.execute(*self._tier_sql(all_matches).count_entries_of(shown))
            entries = Tally(dict(rows.fetchall()))
        for candidate in candidates:
            candidate.more_in_item = max(0, entries[int(candidate.id)] - 1)
        return total

    def _at_matching_text(self, candidates: list[HitCandidate], all_matches: MatchTier) -> list[HitCandidate]:
        """Replaces candidates that match only by the title, which all entries of their item share, by the best entry
        whose own text matches: a hit should show the words that were searched for."""
        by_title = [one for one in candidates if one.lexical != 0 and not one.is_matched_in_other]
        if not by_title:
            return candidates
        # The rowid of the best entry of each item whose text matches, by item.
        tier_sql = self._tier_sql(all_matches)
        entries = {}
        for item in [int(candidate.id) for candidate in by_title]:
            rows = self._connection.execute(*tier_sql.select_texts_of(item, 2, is_ranked=False)).fetchall()
            if len(rows) > 1:  # ranking reads all entries of every word, whatever the item
                rows = self._connection.execute(*tier_sql.select_texts_of(item, 1, is_ranked=True)).fetchall()
            if rows:
                [(entries[item],)] = rows
        replaced = [candidate for candidate in by_title if int(candidate.id) in entries]
        shown = self.target.candidates(self._connection, [entries[int(candidate.id)] for candidate in replaced])
        by_id = {candidate.id: candidate for candidate in shown}
        for candidate in replaced:
            for name in RankingResult.__struct_fields__:
                setattr(by_id[candidate.id], name, getattr(candidate, name))
            by_id[candidate.id].entry = entries[int(candidate.id)]
        return [by_id.get(candidate.id, candidate) for candidate in candidates]

    # -- meaning -------------------------------------------------------------------------------------------------------

    def _nearest_page(self, scan: PassageScan) -> _Page:
        search, end = self.search, self.search.offset + self.search.limit
        entries = [entry for entry in self._nearest(scan, end + 1, 0.0, 0.0) if entry.cosine > 0]
        candidates = self._fetch_near(entries[search.offset : end])
        for candidate in candidates:
            candidate.lexical, candidate.cosine = 0.0, self._near[candidate.entry].cosine
            candidate.score = round(candidate.cosine, SCORE_DIGITS)
        has_more = len(entries) > end
        return candidates, has_more, None if has_more else len(entries)

    def _rank_with_meaning(
        self, scan: PassageScan, floor: float, tiers: Sequence[MatchTier], scoring: BlockScoring
    ) -> tuple[list[HitCandidate], bool]:
        """Returns the candidates of the page, and whether there are more."""
        offset, limit, item_bits = self.search.offset, self.search.limit, self._item_bits
        lexical, has_rest = self._window(tiers, scoring, 0, self.head_rows)
        count = NEAREST_HEAD if has_rest else NEAREST_HEAD_OF_FEW
        nearest = self._nearest(scan, count, self._length * LEAST_COSINE, floor)
        near: list[HitCandidate] = []
        if nearest:
            known = {candidate.entry >> item_bits for candidate in lexical}
            near = self._fetch_near([entry for entry in nearest if entry.rowid >> item_bits not in known])
        if near and (has_rest or self.search.query.times):
            # Without a rest, all matches by words are among `lexical`, and the nearest need not be searched for words.
            scoring.score(near)
        head = [*lexical, *near]
        self._fuse(scan, head)
        self._meaning_only = [candidate for candidate in near if not candidate.lexical]
        window = head[offset : offset + limit]
        if len(head) > offset + limit or not has_rest:
            return window, len(head) > offset + limit
        if len(window) == limit and not near:
            # The head has no item of the rest, so there are more hits, and nothing has to be read to know it.
            return window, True
        self._skipped = tuple([candidate.entry >> item_bits for candidate in head])
        fused = _FusedScoring(scoring, partial(self._fuse, scan))
        rest, has_more = self._window(tiers, fused, max(0, offset - len(head)), limit - len(window))
        self._skipped = ()
        return window + rest, has_more

    def _fuse(self, scan: PassageScan, candidates: list[HitCandidate]) -> None:
        """Adds the cosines to the scores of candidates, and sorts them. Times and people that the query names count in
        both parts."""
        weight = self._weight
        cosines = scan.best_cosines([*map(_entry_of, candidates)])
        cosines = self._boosts.apply_to(cosines, candidates)
        for candidate, cosine in zip(candidates, cosines, strict=True):
            lexical = candidate.score
            if candidate.is_only_named and cosine > lexical:
                # The vector of a message contains the name of its sender; if the query is nothing else, it is always
                # near.
                cosine = lexical  # noqa: PLW2901 - as above
            candidate.lexical, candidate.cosine = lexical, cosine
            candidate.score = round((1 - weight) * lexical + weight * cosine, SCORE_DIGITS)
        if self._message_boost is not None:
            scores = self._message_boost.apply_to([candidate.score for candidate in candidates], candidates)
            for candidate, score in zip(candidates, scores, strict=True):
                candidate.score = round(score, SCORE_DIGITS)
        sort_block(candidates, _by_score)

    def _nearest(self, scan: PassageScan, count: int, least: float, floor: float) -> list[NearEntry]:
        """Returns the nearest entries that pass the filters, or none if none of them has the cosine `floor`."""
        if not self._filter.conditions:
            return scan.nearest(count, least, floor)
        entries = scan.nearest(max(count, _FILTERED_NEAREST), least, floor)
        passing = self._passing(entries)
        if len(passing) < count and len(entries) >= _FILTERED_NEAREST:
            listing = f"{self.target.list_sql(self.search)}{self._filter.sql}"
            rows = self._connection.execute(f"SELECT number FROM ({listing}) AS listing", self._filter.parameters)
            allowed = [rowid >> self._item_bits for (rowid,) in rows]
            passing = self._passing(scan.nearest(count, least, floor, allowed))
        return passing[:count] if passing and passing[0].cosine >= floor else []

    def _passing(self, entries: Sequence[NearEntry]) -> list[NearEntry]:
        """Leaves out entries that fail the filters, and those without a live row, which only a damaged file has."""
        target = self.target
        rowid = "CAST(wanted.value AS BIGINT)"
        sql = f"SELECT {rowid} FROM {target.dialect.listed()} {target.join_on(rowid)} WHERE {target.is_live}"
        rows = self._connection.execute(
            f"{sql}{self._filter.sql}", (json_array([*map(_rowid_of, entries)]), *self._filter.parameters)
        )
        passing = {rowid for (rowid,) in rows}
        return [entry for entry in entries if entry.rowid in passing]

    def _fetch_near(self, entries: Sequence[NearEntry]) -> list[HitCandidate]:
        candidates = self.target.candidates(self._connection, [*map(_rowid_of, entries)])
        if len(candidates) < len(entries):
            entries = self._passing(entries)
            candidates = self.target.candidates(self._connection, [*map(_rowid_of, entries)])
        for entry in entries:
            self._near[entry.rowid] = entry
        return candidates


class _FusedScoring(BlockScoring):
    """Sorts the blocks that follow the head by the same score."""

    def __init__(self, lexical: BlockScoring, fuse: Callable[[list[HitCandidate]], None]) -> None:
        self._lexical = lexical
        self._fuse = fuse

    def score(self, block: list[HitCandidate]) -> None:
        self._lexical.score(block)
        self._fuse(block)


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
        semantic=combine_statuses([(page.semantic, page.texts) for page in pages]) or SEMANTIC_OFF,
        query=next((page.query for page in pages if page.query is not None), None),
        floor=min((page.floor for page in pages if page.floor is not None), default=None),
        texts=sum(page.texts for page in pages),
    )


def _sort_key(search: Search) -> Callable[[RankedMatch], str | float]:
    if search.order == "recent" or search.query.expression is None:
        return lambda match: match.last_modified
    return lambda match: match.score
