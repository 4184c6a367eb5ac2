"""Scores in 0..1. The default means the same in every source and on every page: it depends on the query, the hit and
how common its words are, never on the other hits. The formulas that rank within one result list stand beside it."""

from collections.abc import Sequence
from math import log, sqrt

from msgspec import Struct

# Term frequency saturates and length counts as in BM25 (k1 1.2, b 0.75); the mean length is fixed at 600 characters,
# about 100 words, so that sources with short and with long texts are measured alike. All four lie in the middle of a
# flat optimum: half or double of each changes little.
_SATURATION = 1.2
_LENGTH_SHARE = 0.75
_MEAN_LENGTH_CHARS = 600
_TITLE_SHARE = 0.3

# Keeps the division of `scale_to_range` defined.
_EPSILON = 1e-9


class TermStatistics(Struct, frozen=True):
    """A term of the query: in how many rows of all sources together it occurs, and how often the query names it."""

    rows_with_term: int
    count: int = 1


class Prominence(Struct, frozen=True):
    """How much an occurrence in the prominent part of a text (its title, one's own message) counts against one in the
    rest (its body, the context)."""

    weight: int


TITLE_AND_BODY = Prominence(2)
MESSAGE_AND_CONTEXT = Prominence(3)


def term_weights(rows: int, terms: Sequence[TermStatistics]) -> tuple[float, ...]:
    """How much each term says, by how rare it is among `rows`; always above zero, most for a word nobody wrote."""
    return tuple(_term_weight(max(rows, term.rows_with_term), term) for term in terms)


def _term_weight(rows: int, term: TermStatistics) -> float:
    return log(1 + (rows - term.rows_with_term + 0.5) / (term.rows_with_term + 0.5)) * sqrt(term.count)


class Scorer:
    """The share of a query that is found in a hit, weighted and saturated; a title that is the query adds to it."""

    def __init__(self, weights: Sequence[float], prominence: Prominence) -> None:
        self._weights = tuple(weights)
        self._total = sum(weights)
        self._prominence = prominence.weight
        # The same for every hit, so multiplied out once.
        self._damping = _SATURATION * (1 - _LENGTH_SHARE)
        self._damping_per_char = _SATURATION * _LENGTH_SHARE / _MEAN_LENGTH_CHARS

    def score(self, prominent: Sequence[int], other: Sequence[int], length_chars: int, title_share: float) -> float:
        """By how often each term occurs, the length of all indexed text, and the share of the title, which is the
        prominent part of what has one, that the query names."""
        if self._total <= 0:
            return 0.0
        damping = self._damping + self._damping_per_char * length_chars
        found = titled = held = 0.0
        for weight, most, rest in zip(self._weights, prominent, other, strict=True):
            if most or rest:
                occurrences = self._prominence * most + rest
                found += weight * occurrences / (occurrences + damping)
                titled += weight if most else 0.0
                held += weight
        # What is said often does not make up for what is not said at all: a short text that repeats one word of five
        # would otherwise stand before a long one that holds them all.
        found *= sqrt(held / self._total)
        return (found + _TITLE_SHARE * titled * title_share) / self._total / (1 + _TITLE_SHARE)


def title_share(title_stems: frozenset[str], query_stems: frozenset[str]) -> float:
    """The share of a title's stems that the query names."""
    return len(title_stems & query_stems) / len(title_stems) if title_stems else 0.0


# -- scores within one result list -------------------------------------------------------------------------------------


def scale_to_range(ranks: Sequence[float]) -> list[float]:
    """bm25 ranks, of which the lowest is best, by their place between the worst and the best; alike they are all 1."""
    if not ranks:
        return []
    worst, best = max(ranks), min(ranks)
    if worst == best:
        return [1.0] * len(ranks)
    return [(worst - rank) / (worst - best + _EPSILON) for rank in ranks]


def scale_to_best(ranks: Sequence[float]) -> list[float]:
    """Ranks of which the highest is best, as PostgreSQL's ts_rank, by their share of the best."""
    best = max(ranks, default=0.0)
    return [rank / best for rank in ranks] if best > 0 else [1.0] * len(ranks)


def decay_by_position(position: int) -> float:
    """A score for engines that order and do not rank: 1, 1/2, 1/3."""
    return 1 / (1 + position)
