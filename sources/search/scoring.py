"""Scores from 0 to 1.

The default score is comparable across sources and pages: it depends on the query, the hit and how common the words are,
but never on the other hits. `scale_to_range` is the alternative, which ranks within one result list.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from math import log, sqrt
from typing import ClassVar, Protocol

from msgspec import Struct

from config.times import format_time
from sources.query import Term
from sources.text.segmentation import segment
from sources.text.stemming import stem
from sources.times import TimeSpan

# The whole formula, by words: each term of the query has a weight (`term_weights`). A text gets the sum of those of
# its terms, saturated by how often they occur (`Scorer.tally`), times the root of the share of the query that it has,
# plus a share for a title that matches, divided by what the whole query could reach (`Scorer.scores`). `QueryBoosts`
# then raises the odds for times and people that the query names. `FusedSearch` adds the meaning: it replaces the score
# by `(1 - w) * score + w * cosine`, where the cosine is boosted in the same way.

# Term frequency saturation and length normalization as in BM25 (k1 1.2, b 0.75). The mean length is fixed at 600
# characters, about 100 words, so that sources with short and with long texts are scored alike. All four values lie in
# the middle of a flat optimum: half or double of each changes little.
_SATURATION = 1.2
_LENGTH_SHARE = 0.75
_MEAN_LENGTH_CHARS = 600
_TITLE_SHARE = 0.3

# Avoids a division by zero in `scale_to_range`.
_EPSILON = 1e-9


class TermStatistics(Struct, frozen=True):
    """The number of rows in all sources together that contain a term, and how often the query contains it."""

    rows_with_term: int
    count: int = 1


class Prominence(Struct, frozen=True):
    """How much more an occurrence in the prominent part of a text counts than one in the rest."""

    weight: int


TITLE_AND_BODY = Prominence(2)
MESSAGE_AND_CONTEXT = Prominence(3)


def term_weights(rows: int, terms: Sequence[TermStatistics]) -> list[float]:
    """Returns the weight of each term, which is always positive: the rarer the term among `rows`, the higher. It is the
    inverse document frequency of BM25; repeating a word in the query counts by the square root."""
    weights: list[float] = []
    for term in terms:
        others = max(rows, term.rows_with_term) - term.rows_with_term
        weights.append(log(1 + (others + 0.5) / (term.rows_with_term + 0.5)) * sqrt(term.count))
    return weights


class TermTally(Struct, frozen=True, gc=False):
    """What several texts contain of a query, each list by text: the sum of the saturated weights of the terms, the
    weights of those in the prominent part and of all, and the terms of both as bits."""

    saturated: list[float]
    in_title: list[float]
    matched: list[float]
    prominent: list[int]
    terms: list[int]


class Scorer:
    """Scores hits by the share of the query that they contain, weighted and saturated. Titles that match add to it.
    `total` is the weight of the whole query, if not that of all terms."""

    def __init__(self, weights: Sequence[float], prominence: Prominence, total: float | None = None) -> None:
        self._weights = tuple(weights)
        self._total = sum(weights) if total is None else total
        self._prominence = prominence.weight
        # The same for every hit, so computed once.
        self._damping = _SATURATION * (1 - _LENGTH_SHARE)
        self._damping_per_char = _SATURATION * _LENGTH_SHARE / _MEAN_LENGTH_CHARS

    def tally(
        self, counts: Sequence[Mapping[int, int]], lengths_chars: Sequence[int], plain: Collection[int] = ()
    ) -> TermTally:
        """Adds up the terms of several texts. Most texts contain few terms of a query, so only those are visited.

        `counts` are the numbers of occurrences of each term. The number of a text is that of its prominent part (the
        title, if there is one); the rest of it follows after the prominent parts of all texts. `lengths_chars` are the
        lengths of all indexed text. The prominent parts of `plain` texts count no more than the rest.
        """
        texts = len(lengths_chars)
        dampings = [self._damping + self._damping_per_char * length for length in lengths_chars]
        saturated, in_title, matched = [0.0] * texts, [0.0] * texts, [0.0] * texts
        prominent, terms = [0] * texts, [0] * texts
        bit = 1
        for weight, parts in zip(self._weights, counts, strict=True):
            for part, count in parts.items():
                index, occurrences = part - texts, count
                if part < texts:
                    prominence = 1 if part in plain else self._prominence
                    index, occurrences = part, prominence * count + parts.get(part + texts, 0)
                    in_title[index] += weight
                    prominent[index] |= bit
                elif index in parts:
                    continue  # counted with the prominent part
                saturated[index] += weight * occurrences / (occurrences + dampings[index])
                matched[index] += weight
                terms[index] |= bit
            bit <<= 1
        return TermTally(saturated, in_title, matched, prominent, terms)

    def scores(
        self, tally: TermTally, title_shares: Mapping[int, float], opening_shares: Mapping[int, float]
    ) -> list[float]:
        """Returns the score of each text. `title_shares` are the shares of titles that the query contains, by the
        number of the text; those of titles that do not match are left out. `opening_shares` are those of titles that
        begin with the same common words as the query; they count as much as the text matches."""
        total = self._total
        if total <= 0:
            return [0.0] * len(tally.matched)
        # Repetition does not make up for missing terms: otherwise a short text that repeats one of five terms would
        # rank above a long one that contains them all.
        scores = [
            saturated * sqrt(min(1.0, matched / total))
            for saturated, matched in zip(tally.saturated, tally.matched, strict=True)
        ]
        for index, share in title_shares.items():
            scores[index] += _TITLE_SHARE * tally.in_title[index] * share
        for index, share in opening_shares.items():
            scores[index] += _TITLE_SHARE * tally.matched[index] * share
        return [min(1.0, score / total / (1 + _TITLE_SHARE)) for score in scores]

    def name_score(self, terms: Sequence[int]) -> float:
        """Returns the score of a text that matches by the name of its author alone, which counts like a title without
        a text."""
        weight = sum(self._weights[term] for term in terms)
        return min(1.0, _TITLE_SHARE * weight / self._total / (1 + _TITLE_SHARE)) if self._total > 0 else 0.0


def raise_odds(score: float, factor: float) -> float:
    """Multiplies the odds of a score. Low scores grow by the factor, and no score exceeds 1."""
    return factor * score / (1 + (factor - 1) * score)


def title_share(title_stems: frozenset[str], query_stems: frozenset[str]) -> float:
    """Returns the share of a title's stems that the query contains."""
    return len(title_stems & query_stems) / len(title_stems) if title_stems else 0.0


def scale_to_range(ranks: Sequence[float]) -> list[float]:
    """Scales bm25 ranks, of which the lowest is best, to 0 for the worst and 1 for the best. Equal ranks are all 1."""
    if not ranks:
        return []
    worst, best = max(ranks), min(ranks)
    if worst == best:
        return [1.0] * len(ranks)
    return [(worst - rank) / (worst - best + _EPSILON) for rank in ranks]


# -- sender boost ------------------------------------------------------------------------------------------------------
# Ranks higher what was said by someone whom a query names.
#
# "What did Ana paint" is answered by a message from Ana. As a word her name says little: it is in every message that
# she wrote, and in the context of every reply to it, so that it is among the most common words of a conversation.

# In conversations it helps more the larger it is, up to 2. Above 1.3, chats begin to displace better answers of other
# sources about the same person.
_FACTOR = 1.3
# Names that clients use where the sender has none.
_ROLES = frozenset(("user", "assistant", "system", "tool", "human", "ai", "bot"))


class SenderBoost:
    """The boost of one query. A query that is nothing but a name asks for the word."""

    def __init__(self, terms: Sequence[Term]) -> None:
        tokens = {token for term in terms for phrase in term.word.alternatives for token in phrase.tokens}
        # Without any, no sender can change a score.
        self.stems = frozenset(map(stem, tokens - _ROLES)) if len(terms) > 1 else frozenset()
        self._factors: dict[str, float] = {"": 1.0}

    def factor(self, sender: str) -> float:
        factor = self._factors.get(sender)
        if factor is None:
            is_named = not self.stems.isdisjoint(map(stem, segment(sender).split()))
            factor = self._factors[sender] = _FACTOR if is_named else 1.0
        return factor


# -- time boost --------------------------------------------------------------------------------------------------------
# Ranks higher what was created in the times that a query mentions.
#
# A question about August is mostly answered by what was written in August, or shortly after it: "last month we ...".
# The preference is mild, because the best answer may have been written at any other time. Factors between 1.1 and 1.3
# measure the same; above, good answers of other times are lost.

_INSIDE = 1.2
# Shortly after the time, and within a whole year or since a date, which says little.
_NEAR = 1.1
_SHORTLY_AFTER = timedelta(days=10)
_WIDE = frozenset(("year", "open"))
# The stored form sorts as text; these sort before and after every time.
_FIRST, _LAST = "", "~"


class BoostedPeriod(Struct, frozen=True):
    """A half-open range of stored times, and the factor for what was created in it."""

    start: str
    end: str
    factor: float


class TimeBoost:
    """The boost of one query. Without times it leaves every score as it is."""

    def __init__(self, times: Sequence[TimeSpan]) -> None:
        periods = [period for span in times for period in _periods(span)]
        # The first period that contains a time decides.
        self.periods = tuple(sorted(periods, key=lambda period: -period.factor))
        self._inside = [period for span in times for period in _periods(span)[:1]]

    def factor(self, created_at: str) -> float:
        return next((period.factor for period in self.periods if period.start <= created_at < period.end), 1.0)

    def contains(self, created_at: str) -> bool:
        """Returns whether a time is in one of the named times. What was created then counts as containing their
        words."""
        return any(period.start <= created_at < period.end for period in self._inside)


def _periods(span: TimeSpan) -> list[BoostedPeriod]:
    start = format_time(span.start) if span.start is not None else _FIRST
    end = format_time(span.end) if span.end is not None else _LAST
    if span.end is None or span.precision in _WIDE:
        return [BoostedPeriod(start, end, _NEAR)]
    try:
        after = format_time(span.end + _SHORTLY_AFTER)
    except OverflowError:
        after = _LAST
    return [BoostedPeriod(start, end, _INSIDE), BoostedPeriod(end, after, _NEAR)]


# -- query boosts ------------------------------------------------------------------------------------------------------
# What raises the scores of hits apart from their words and their meaning.


class BoostedMatch(Protocol):
    """`has_speakers` says whether matches of its kind can have been said by someone."""

    has_speakers: ClassVar[bool]

    @property
    def created_at(self) -> str: ...
    @property
    def speaker(self) -> str: ...


class QueryBoosts:
    """The boosts of one query, for its times and for the people it names."""

    def __init__(self, times: Sequence[TimeSpan] = (), terms: Sequence[Term] = ()) -> None:
        self.time = TimeBoost(times)
        self.sender = SenderBoost(terms)

    def apply_to(self, scores: list[float], matches: Sequence[BoostedMatch]) -> list[float]:
        """Returns the boosted scores of several matches of one kind."""
        by_sender = bool(self.sender.stems) and bool(matches) and matches[0].has_speakers
        if not self.time.periods and not by_sender:
            return scores
        boosted: list[float] = []
        for match_score, match in zip(scores, matches, strict=True):
            score = match_score
            if self.time.periods:
                score = raise_odds(score, self.time.factor(match.created_at))
            if (factor := self.sender.factor(match.speaker)) != 1:
                score = raise_odds(score, factor)
            boosted.append(score)
        return boosted


NO_BOOSTS = QueryBoosts()


@lru_cache(maxsize=64)
def query_boosts(times: tuple[TimeSpan, ...], terms: tuple[Term, ...]) -> QueryBoosts:
    """Returns the boosts of a query. All sources of a search need the same."""
    return QueryBoosts(times, terms)


# -- near words --------------------------------------------------------------------------------------------------------
# Finds the words of a vocabulary that a misspelled word may mean.
#
# A vocabulary is one text: its words, each with a space before and after it. That takes a tenth of the memory of a
# list, and most words are ruled out by searching the text for parts of the misspelled word.

# Shorter words have too many neighbours.
NEAR_MIN_CHARS = 4
# Longer ones are encoded data rather than words.
NEAR_MAX_CHARS = 64
# From this length on, two letters may be wrong; before, one. Shorter words have unrelated words at that distance.
_TWO_EDITS_MIN_CHARS = 7
# A part of a compound has at least this many letters.
COMPOUND_MIN_CHARS = 5


def can_be_misspelled(word: str) -> bool:
    """Returns whether similar words are worth looking for: not for numbers and names of things with digits."""
    return len(word) >= NEAR_MIN_CHARS and not any(map(str.isdigit, word))


def similar_words(word: str, vocabulary: str) -> dict[str, int]:
    """Returns the words that a misspelled word may mean, each with the number of edits between the two. A swap of
    two neighbouring letters counts as one edit."""
    from rapidfuzz.distance import OSA  # noqa: PLC0415 - most processes never need it
    from rapidfuzz.process import extract  # noqa: PLC0415 - as above

    edits_max = 2 if len(word) >= _TWO_EDITS_MIN_CHARS else 1
    possible = set[str]()
    # Every word within this distance contains one of these texts.
    # With one edit, a word still begins with its first half or ends with its second. With two, it begins with its first
    # third, or ends with its last, or one edit is in each of these, and it contains the second. An edit can also swap
    # the letters at the border of two parts. Then a word begins or ends with such a part, unless there is another edit
    # in it: in that case it ends or begins with the part on the other side.
    cuts = [len(word) * number // (edits_max + 1) for number in range(edits_max + 2)]
    first, last = cuts[1], cuts[-2]
    beginnings = (word[:first], word[: first - 1] + word[first])
    endings = (word[last:], word[last - 1] + word[last + 1 :])
    middle = (word[first:last],) if first < last else ()
    for part in {*(f" {part}" for part in beginnings), *(f"{part} " for part in endings), *middle}:
        possible.update(_words_with(part, vocabulary, len(word) - edits_max, len(word) + edits_max))
    found = extract(word, possible, scorer=OSA.distance, score_cutoff=edits_max, limit=None)
    return {other: edits for other, edits, _ in found if edits and can_be_misspelled(other)}


def compounds_with(word: str, vocabulary: str) -> list[str]:
    """Returns the compounds that end with a word."""
    if len(word) < COMPOUND_MIN_CHARS:
        return []
    return _words_with(f"{word} ", vocabulary, len(word) + 1, NEAR_MAX_CHARS)


def _words_with(part: str, vocabulary: str, min_chars: int, max_chars: int) -> list[str]:
    """Returns the words of some lengths that contain a text, which may include the space before or after a word."""
    words = []
    at = vocabulary.find(part)
    while at >= 0:
        start, end = vocabulary.rfind(" ", 0, at + 1) + 1, vocabulary.find(" ", at + 1)
        if min_chars <= end - start <= max_chars:
            words.append(vocabulary[start:end])
        at = vocabulary.find(part, end)
    return words
