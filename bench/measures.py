"""The two measures of retrieval quality, as the collections' own papers define them. Pure."""

from collections.abc import Collection, Mapping, Sequence
from math import log2


def recall(found: Sequence[str], relevant: Collection[str]) -> float:
    """The share of what is relevant that was found."""
    return len(set(found) & set(relevant)) / len(set(relevant))


def ndcg(found: Sequence[str], grades: Mapping[str, int], depth: int) -> float:
    """Gain by grade, less for what stands lower, as a share of what the best order would have."""
    best = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
    return _gain([grades.get(identity, 0) for identity in found[:depth]]) / _gain(best[:depth])


def _gain(grades: Sequence[int]) -> float:
    return sum(grade / log2(place + 2) for place, grade in enumerate(grades))
