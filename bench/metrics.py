"""Retrieval metrics, as defined by the papers of the datasets."""

from collections.abc import Collection, Mapping, Sequence
from math import log2


def recall(hits: Sequence[str], relevant: Collection[str]) -> float:
    """Returns the share of the relevant items that are among the hits."""
    return len(set(hits) & set(relevant)) / len(set(relevant))


def ndcg(hits: Sequence[str], grades: Mapping[str, int], depth: int) -> float:
    """Returns the normalized discounted cumulative gain of the first `depth` hits."""
    best = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
    return _discounted_gain([grades.get(identity, 0) for identity in hits[:depth]]) / _discounted_gain(best[:depth])


def _discounted_gain(grades: Sequence[int]) -> float:
    return sum(grade / log2(index + 2) for index, grade in enumerate(grades))
