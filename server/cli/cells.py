"""Widths of text on a terminal, in cells: East Asian characters take two, combining marks none."""

from unicodedata import category, east_asian_width

# Marks that are drawn over the previous character, and invisible format characters.
_ZERO_WIDTH = frozenset(("Mn", "Me", "Cf"))


def cell_width(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_width, text))


def pad_cells(text: str, width: int) -> str:
    return text + " " * (width - cell_width(text))


def truncate_cells(text: str, width: int) -> str:
    """Returns as much of the text as fits into `width` cells."""
    used = 0
    for index, character in enumerate(text):
        used += _width(character)
        if used > width:
            return text[:index]
    return text


def _width(character: str) -> int:
    if category(character) in _ZERO_WIDTH:
        return 0
    return 2 if east_asian_width(character) in "WF" else 1
