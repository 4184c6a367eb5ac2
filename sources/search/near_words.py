"""Finds the words of a vocabulary that a misspelled word may stand for."""

from collections.abc import Mapping

# Shorter words have too many neighbours.
NEAR_MIN_CHARS = 4
# From this length on, two letters may be wrong; before, one. Shorter words have unrelated words at that distance.
_TWO_EDITS_MIN_CHARS = 7
# A part of a compound has at least this many letters.
COMPOUND_MIN_CHARS = 5
# How many words are tried for one that is unknown.
_NEAR_MAX = 3


def can_be_misspelled(word: str) -> bool:
    """Returns whether similar words are worth looking for: not for numbers and names of things with digits."""
    return len(word) >= NEAR_MIN_CHARS and not any(map(str.isdigit, word))


def near_words(word: str, vocabulary: Mapping[str, int]) -> list[str]:
    """Returns the words of a vocabulary that are nearest to a word, or else compounds that end with it, the most
    frequent first. `vocabulary` holds the number of rows of each word. A swap of two neighbouring letters counts as one
    edit."""
    from rapidfuzz.distance import OSA  # noqa: PLC0415 - most processes never need it
    from rapidfuzz.process import extract  # noqa: PLC0415 - as above

    edits_max = 2 if len(word) >= _TWO_EDITS_MIN_CHARS else 1
    found = extract(word, vocabulary.keys(), scorer=OSA.distance, score_cutoff=edits_max, limit=None)
    near = [(edits, other) for other, edits, _ in found if edits and can_be_misspelled(other)]
    nearest = min((edits for edits, _ in near), default=0)
    similar = [other for edits, other in near if edits == nearest] or _compounds_with(word, vocabulary)
    return sorted(similar, key=lambda other: (-vocabulary[other], other))[:_NEAR_MAX]


def _compounds_with(word: str, vocabulary: Mapping[str, int]) -> list[str]:
    """Returns the compounds that end with a word."""
    if len(word) < COMPOUND_MIN_CHARS:
        return []
    return [other for other in vocabulary if other.endswith(word) and other != word]
