"""Grapheme boundaries: the positions at which a text can be cut without splitting a character as the reader sees it."""

import re
from unicodedata import category, combining

# No letter has more marks than this (Unicode's stream-safe format allows 30); longer sequences are cut anyway.
_GRAPHEME_MAX_CHARS = 128
_JOINER = "\u200d"
_ATTACHED = re.compile(
    # joiners, Thai and Lao am, half-width voicing, Hangul vowels and finals, skin tones, tags
    "[\u200c\u200d\u0e33\u0eb3\uff9e\uff9f\u1160-\u11ff\ud7b0-\ud7fb\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"
)
_HANGUL_INITIAL = re.compile("[\u1100-\u115f\ua960-\ua97c]")
_HANGUL_FOLLOWING = re.compile("[\u1100-\u115f\ua960-\ua97c\uac00-\ud7a3]")
_REGIONAL = re.compile("[\U0001f1e6-\U0001f1ff]")
_VIRAMA = 9  # canonical combining class


def grapheme_boundary_before(text: str, index: int) -> int:
    """Returns the last boundary at or before `index`."""
    for position in range(index, max(0, index - _GRAPHEME_MAX_CHARS), -1):
        if is_grapheme_boundary(text, position):
            return position
    return 0 if index <= _GRAPHEME_MAX_CHARS else index


def grapheme_boundary_after(text: str, index: int) -> int:
    """Returns the first boundary at or after `index`."""
    for position in range(index, min(len(text), index + _GRAPHEME_MAX_CHARS)):
        if is_grapheme_boundary(text, position):
            return position
    return min(len(text), index + _GRAPHEME_MAX_CHARS)


def is_grapheme_boundary(text: str, index: int) -> bool:
    """Returns whether a text may be cut before the character at `index`.

    A simplified version of Unicode's extended grapheme clusters (UAX #29).
    """
    if index <= 0 or index >= len(text):
        return True
    before, after = text[index - 1], text[index]
    if after.isascii():
        return (before, after) != ("\r", "\n")
    if before.isascii() and category(before) == "Cc":
        return True
    if category(after)[0] == "M" or _ATTACHED.match(after) or before == _JOINER:
        return False
    if combining(before) == _VIRAMA:
        return not after.isalpha()
    if _REGIONAL.match(after):
        return _count_regional_letters_before(text, index) % 2 == 0
    return not (_HANGUL_INITIAL.match(before) and _HANGUL_FOLLOWING.match(after))


def _count_regional_letters_before(text: str, index: int) -> int:
    """Counts the regional letters right before `index`; each pair of them is a flag."""
    earliest = max(0, index - _GRAPHEME_MAX_CHARS)
    start = index
    while start > earliest and _REGIONAL.match(text[start - 1]):
        start -= 1
    return index - start
