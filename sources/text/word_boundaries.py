"""Positions at which a text is cut to fit a budget: between words if one ends nearby, otherwise between graphemes."""

from sources.text.graphemes import grapheme_boundary_before

# How far a cut may move to keep a word whole; longer than the words of languages that use spaces.
_WORD_MAX_CHARS = 48


def word_boundary_before(text: str, position: int, start: int = 0) -> int:
    """Returns the last word boundary at or before `position`, but not before `start`.

    For a position past the end, that is the end of the text.
    """
    if position >= len(text):
        return len(text)
    for index in range(position, max(start, position - _WORD_MAX_CHARS), -1):
        if text[index].isspace() != text[index - 1].isspace():
            return index
    return max(start, grapheme_boundary_before(text, position))


def next_word_start(text: str, position: int) -> int:
    """Returns the first start of a word at or after `position`; if none is near, a grapheme boundary at or before
    it."""
    if position <= 0:
        return 0
    for index in range(position, min(len(text), position + _WORD_MAX_CHARS)):
        if text[index - 1].isspace() and not text[index].isspace():
            return index
    return grapheme_boundary_before(text, min(position, len(text)))
