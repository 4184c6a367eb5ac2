"""Decides which matches of a query come first, depending on how common its words are.

Matches with all words of a plain query come before those with only some, except in chats, each group ordered by bm25.
That costs a few microseconds per match, so for words that occur almost everywhere only the newest matches are taken,
unranked. If a query has several words, the matches of its rarer words come first.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from sources.query import AllOf, AnyOf, Expression, Title, Word
from sources.storage.contract import Search
from sources.storage.search.match_counter import MatchCounter

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


class TierPlanner:
    """Chooses the tiers of a search, so that at most `ranked_rows_max` matches are ranked. With `prefers_all_terms`,
    matches with all words come first."""

    def __init__(self, counter: MatchCounter, ranked_rows_max: int, *, prefers_all_terms: bool) -> None:
        self._counter = counter
        self._ranked_rows_max = ranked_rows_max
        self._prefers_all_terms = prefers_all_terms

    def plan(self, search: Search, expression: Expression, frequencies: Sequence[int]) -> list[MatchTier]:
        """`frequencies` are the numbers of matches of the query's terms."""
        match = self._counter.match_text(expression)
        if search.order == "recent":
            return [MatchTier(match, "recent")]
        if search.scoring == "minmax":
            return [MatchTier(match, "rank")]
        words = tuple(term.word for term in search.query.terms)
        if len(words) < 2 or search.query.has_operators:
            return self._literal_tiers(expression, match, is_one_word=len(words) < 2)
        # A phrase that is quoted in a sentence comes before everything else.
        preferred = search.query.preferred
        if not preferred and self._prefers_all_terms:
            preferred = tuple(term.word for term in search.query.own_terms)
        return self._plain_tiers(match, words, frequencies, preferred)

    def _plain_tiers(
        self, match: str, words: tuple[Word, ...], frequencies: Sequence[int], preferred: tuple[Word, ...]
    ) -> list[MatchTier]:
        rare = self._rare_words(words, frequencies)
        if not rare:
            return [MatchTier(match, "newest")]
        occurs = all(frequency for word, frequency in zip(words, frequencies, strict=True) if word in preferred)
        first = self._counter.match_text(_all_of(preferred)) if preferred and occurs else ""
        if len(rare) == len(words):
            return [MatchTier(match, "rank", first)]
        any_rare = self._counter.match_text(AnyOf(rare))
        return [
            MatchTier(self._counter.both(any_rare, match), "rank", first),
            MatchTier(match, "newest", excluded=any_rare),
        ]

    def _literal_tiers(self, expression: Expression, match: str, *, is_one_word: bool) -> list[MatchTier]:
        ranked_max = self._ranked_rows_max // (_ONE_WORD_SHARE if is_one_word else 1)
        if self._counter.count(match) <= ranked_max:
            return [MatchTier(match, "rank")]
        in_title = self._counter.match_text(Title(expression)) if isinstance(expression, Word) else ""
        if in_title and 0 < self._counter.count(in_title) <= ranked_max:
            return [MatchTier(in_title, "rank"), MatchTier(match, "newest", excluded=in_title)]
        return [MatchTier(match, "newest")]

    def _rare_words(self, words: Sequence[Word], frequencies: Sequence[int]) -> tuple[Word, ...]:
        """Returns the rarest words, as many as fit: together they have no more matches than can be ranked."""
        rare: list[Word] = []
        matches = 0
        for frequency, index in sorted((frequency, index) for index, frequency in enumerate(frequencies)):
            matches += frequency
            if matches > self._ranked_rows_max:
                break
            rare.append(words[index])
        return tuple(rare)


def _all_of(words: Sequence[Word]) -> Expression:
    return AllOf(tuple(words)) if len(words) > 1 else words[0]
