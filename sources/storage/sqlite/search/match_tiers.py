"""Which matches of a query come in which order, decided by how common its words are.

What holds all words of a plain query comes first, then what holds any, each by bm25. That costs some microseconds a
match, so of words that are everywhere only the newest matches come, unranked; of several words, first those matches
that hold one of the rarer.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from sources.query import AllOf, AnyOf, Expression, Title, Word
from sources.storage.contract import Search

# Matches of one word differ in little but their age, so fewer of them are ranked than of several words together.
_ONE_WORD_SHARE = 4


class Band(Struct, frozen=True):
    """Matches in one order; the bands of a search follow one another and have no match in common."""

    match: str
    order: Literal["rank", "newest", "recent"]
    # Those that match this too come before the others.
    first: str = ""
    # Those that match this were in the band before.
    excluded: str = ""


class Planner:
    """Chooses the bands. `match` writes an expression for FTS5, `count` says how many entries match it."""

    def __init__(self, match: Callable[[Expression], str], count: Callable[[str], int], ranked_rows_max: int) -> None:
        self._match = match
        self._count = count
        self._ranked_rows_max = ranked_rows_max

    def bands(self, search: Search, expression: Expression, frequencies: Sequence[int]) -> list[Band]:
        """`frequencies` are the counts of the query's terms."""
        match = self._match(expression)
        if search.order == "recent":
            return [Band(match, "recent")]
        if search.scoring == "minmax":
            return [Band(match, "rank")]
        words = tuple(term.word for term in search.query.terms)
        if len(words) < 2 or search.query.has_operators:
            return self._as_it_stands(expression, match, is_one_word=len(words) < 2)
        return self._plain(match, words, frequencies)

    def _plain(self, match: str, words: tuple[Word, ...], frequencies: Sequence[int]) -> list[Band]:
        rare = self._rare(words, frequencies)
        if not rare:
            return [Band(match, "newest")]
        first = self._match(AllOf(words)) if all(frequencies) else ""
        if len(rare) == len(words):
            return [Band(match, "rank", first)]
        some = self._match(AnyOf(rare))
        return [Band(f"({some}) AND ({match})", "rank", first), Band(match, "newest", excluded=some)]

    def _as_it_stands(self, expression: Expression, match: str, *, is_one_word: bool) -> list[Band]:
        limit = self._ranked_rows_max // (_ONE_WORD_SHARE if is_one_word else 1)
        if self._count(match) <= limit:
            return [Band(match, "rank")]
        titled = self._match(Title(expression)) if isinstance(expression, Word) else ""
        if titled and 0 < self._count(titled) <= limit:
            return [Band(titled, "rank"), Band(match, "newest", excluded=titled)]
        return [Band(match, "newest")]

    def _rare(self, words: Sequence[Word], frequencies: Sequence[int]) -> tuple[Word, ...]:
        """The rarest words, as many as have no more matches together than are ranked."""
        rare: list[Word] = []
        matches = 0
        for frequency, at in sorted((frequency, at) for at, frequency in enumerate(frequencies)):
            matches += frequency
            if matches > self._ranked_rows_max:
                break
            rare.append(words[at])
        return tuple(rare)
