"""Adds near words to a query if it has words that the library does not contain, or is a word that matches little.

An unknown word may be misspelled. It may also be part of a compound: Steuer finds Steuererklärung. The words come from
the indexes that the search itself reads, so human-only text never affects what an agent finds.
"""

from collections.abc import Iterator, Sequence
from operator import itemgetter

from sources.query import AllOf, Expression, ParsedQuery, Phrase, Prefix, Term, Word
from sources.query.near_terms import can_have_near_terms, with_near_terms
from sources.query.prefixes import searchable_prefixes
from sources.query.words import with_other_endings
from sources.search.near_words import COMPOUND_MIN_CHARS, can_be_misspelled
from sources.storage.contract import Search
from sources.storage.search.engine import SearchConnection, SearchStatistics
from sources.storage.search.match_counter import MatchCounter
from sources.storage.search.target import SearchTarget
from sources.text.segmentation import UNSPACED_RUN
from sources.text.stemming import stem

# A word matches little if fewer rows contain it than a page has hits.
_LITTLE_ROWS = 20
# For how many words of a query near words are looked up.
_ATTEMPTS_MAX = 4
# How many other words of the query a near word has to occur with.
_EVIDENCE_WORDS = 2


class Spelling:
    """Looks up near words for a search in one target. At most `words_max` words of an index are compared."""

    def __init__(
        self,
        connection: SearchConnection,
        target: SearchTarget,
        search: Search,
        statistics: SearchStatistics,
        words_max: int,
    ) -> None:
        self._connection = connection
        self._index = target.index
        self._query = search.query
        self._statistics = statistics
        self._words_max = words_max
        self._counter = MatchCounter(connection, target, search, statistics)

    def correct(self) -> ParsedQuery | None:
        """Returns the query with near words, or None if there are none or none are needed."""
        if not self._words_max or not can_have_near_terms(self._query):
            return None
        self._statistics.refresh(self._connection)
        words = [term.word for term in self._query.terms]
        rows = self._counter.count_each(words)
        if self._is_spelled_correctly(words, rows):
            return None
        rows = [count or self._count(word) for count, word in zip(rows, words, strict=True)]
        known = [word for count, word in sorted(zip(rows, words, strict=True), key=itemgetter(0)) if count]
        near: list[Term] = []
        notes: list[str] = []
        attempts = 0
        for index, (word, count) in enumerate(zip(words, rows, strict=True)):
            token = None if index in self._query.time_terms else _single_token(word)
            if token is not None and attempts < _ATTEMPTS_MAX and (not count or self._matches_little(word)):
                attempts += 1
                others = [other for other in known if other is not word][:_EVIDENCE_WORDS]
                compounds = self._occurring([*self._compounds(token, word)], others)
                similar = [] if count else self._occurring(self._similar(token, word), others)
                notes += _notes(word.text, compounds, similar)
                near += [Term(one, self._query.terms[index].count, near=index) for one in (*compounds, *similar)]
        return with_near_terms(self._query, near, notes) if near else None

    def _is_spelled_correctly(self, words: Sequence[Word], rows: Sequence[int]) -> bool:
        """Whether the library contains all words, and enough of a single one. `rows` are those of the target. Counts no
        more than it needs, because it is asked for every search."""
        enough = _LITTLE_ROWS if len(words) == 1 else 1
        return all(
            count >= enough
            or self._statistics.count_in_library(self._connection, self._match_text(word), enough) >= enough
            for word, count in zip(words, rows, strict=True)
        )

    def _matches_little(self, word: Word) -> bool:
        return len(self._query.terms) == 1 and self._count(word) < _LITTLE_ROWS

    def _occurring(self, near: Sequence[Word], others: Sequence[Word]) -> Sequence[Word]:
        """Returns the near words that occur together with the rarest other words of the query. Without that, a word
        that is spelled correctly and merely unknown would be taken for any similar word."""
        if not others:
            return near
        matches = [self._match_text(AllOf((word, *others))) for word in near]
        counts = self._statistics.count_each_in_library(self._connection, matches)
        return [word for word, count in zip(near, counts, strict=True) if count]

    def _count(self, expression: Expression) -> int:
        return self._statistics.count_in_library(self._connection, self._match_text(expression))

    def _match_text(self, expression: Expression) -> str:
        return self._statistics.engine.match_text(expression)

    def _compounds(self, token: str, word: Word) -> Iterator[Word]:
        """Yields the word for the compounds that begin with the token of a word, if there are any."""
        if len(token) >= COMPOUND_MIN_CHARS:
            prefixes = tuple(Prefix(prefix, (prefix,)) for prefix in searchable_prefixes(token))
            compound = Word(f"{token}*", prefixes)
            if self._count(compound) > self._count(word):
                yield compound

    def _similar(self, token: str, word: Word) -> list[Word]:
        spellings = self._statistics.vocabulary(self._connection, self._index, self._words_max).near_words(stem(token))
        is_inflected = any(isinstance(one, Prefix) for one in word.alternatives)
        words = [Word(spelling, (Phrase(spelling, (spelling,)),)) for spelling in spellings]
        return [with_other_endings(near) for near in words] if is_inflected else words


def _single_token(word: Word) -> str | None:
    """Returns the token of a word that is a single one and may be misspelled."""
    phrase = word.alternatives[0]
    if isinstance(phrase, Prefix) or any(len(one.tokens) != 1 for one in word.alternatives):
        return None
    token = phrase.tokens[0]
    return token if can_be_misspelled(token) and not UNSPACED_RUN.search(token) else None


def _notes(text: str, compounds: Sequence[Word], words: Sequence[Word]) -> Iterator[str]:
    if compounds:
        yield f"searched for words that begin with {text} too"
    if words:
        yield f"did you mean {' or '.join(word.text for word in words)}? ({text} is in no item)"
