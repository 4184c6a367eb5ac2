"""Scores from 0 to 1.

The default score is comparable across sources and pages: it depends on the query, the hit and how common the words are,
but never on the other hits. `scale_to_range` is the alternative, which ranks within one result list.
"""

from collections.abc import Collection, Mapping, Sequence
from math import log, sqrt

from msgspec import Struct

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


def term_weights(rows: int, terms: Sequence[TermStatistics]) -> tuple[float, ...]:
    """Returns the weight of each term, which is always positive: the rarer the term among `rows`, the higher."""
    return tuple(_term_weight(max(rows, term.rows_with_term), term) for term in terms)


def _term_weight(rows: int, term: TermStatistics) -> float:
    return log(1 + (rows - term.rows_with_term + 0.5) / (term.rows_with_term + 0.5)) * sqrt(term.count)


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
