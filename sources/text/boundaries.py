"""Where a text is cut when a budget ends it: between words where one ends nearby, else between graphemes."""

from sources.text.chunking import cut_before

# How far a cut moves for the sake of a whole word: longer than the words of languages that write spaces.
_WORD_MAX_CHARS = 48


def word_border(text: str, position: int, start: int = 0) -> int:
    """The last border at or before `position`, but not before `start`; the end for a position behind it."""
    if position >= len(text):
        return len(text)
    for place in range(position, max(start, position - _WORD_MAX_CHARS), -1):
        if text[place].isspace() != text[place - 1].isspace():
            return place
    return max(start, cut_before(text, position))


def next_word(text: str, position: int) -> int:
    """The first beginning of a word at or after `position`, or a border before it where none is near."""
    if position <= 0:
        return 0
    for place in range(position, min(len(text), position + _WORD_MAX_CHARS)):
        if text[place - 1].isspace() and not text[place].isspace():
            return place
    return cut_before(text, min(position, len(text)))
