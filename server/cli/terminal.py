"""Text from a library on a terminal: control characters removed, matches highlighted.

Colours are omitted if the output is not a terminal or NO_COLOR is set.
"""

import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from sources.query import ParsedQuery
from sources.search.snippets import LENGTH_MAX, Highlighter

_WIDTH_MAX = 100
_INDENT = "   "
# ECMA-48: C0 and C1 controls start the sequences that move the cursor and set titles. Newline and tab are text.
_CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f]")
# Unicode UAX 9: these change the direction of the surrounding text and can disguise it.
_BIDI_CONTROLS = re.compile("[\u202a-\u202e\u2066-\u2069]")
_SOURCE_COLOURS = {"notes": "green", "media": "magenta", "chats": "cyan", "characters": "yellow", "prompts": "blue"}


def echo(text: str = "", *, err: bool = False) -> None:
    """Prints a line. click omits colours if the output is not a terminal; we omit them if NO_COLOR is set."""
    click.echo(text, err=err, color=None if uses_colour() else False)


def uses_colour() -> bool:
    return not os.environ.get("NO_COLOR")


def strip_control_characters(text: str) -> str:
    return _BIDI_CONTROLS.sub("", _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text))


def source_style(source: str) -> str:
    return click.style(source, fg=_SOURCE_COLOURS.get(source, "white"))


def dim(text: str) -> str:
    return click.style(text, dim=True)


class MatchHighlighter:
    """Highlights the matches of one query."""

    def __init__(self, query: ParsedQuery) -> None:
        self._highlighter = Highlighter(query.terms)

    def line(self, text: str, **style: Any) -> str:
        """Highlights a single line, such as a title. `style` applies to the rest of the text."""
        text = strip_control_characters(text)
        return _styled(text, 0, self._ranges(text), **style)

    def paragraph(self, text: str) -> Iterator[str]:
        """Wraps a snippet, which is a single line, to the width of the terminal."""
        text, start = strip_control_characters(text), 0
        ranges = self._ranges(text)
        width = min(_WIDTH_MAX, terminal_columns()) - len(_INDENT)
        for line in textwrap.wrap(text, max(20, width), break_long_words=False, break_on_hyphens=False):
            yield _INDENT + _styled(line, start, ranges)
            start += len(line) + 1

    def text(self, text: str) -> str:
        """Highlights a text of any length, keeping its line breaks."""
        return "\n".join(self.line(line) for line in text.split("\n"))

    def _ranges(self, text: str) -> list[tuple[int, int]]:
        """Returns the ranges of matches, searching pieces no longer than a snippet.

        A piece whose white space the snippet normalizes is skipped, because the offsets would be wrong.
        """
        ranges: list[tuple[int, int]] = []
        lead = len(text) - len(text.lstrip())
        for start in range(lead, len(text), LENGTH_MAX):
            piece = text[start : start + LENGTH_MAX].rstrip()
            snippet = self._highlighter.snippet(piece, LENGTH_MAX)
            if snippet.text == piece:
                ranges += ((start + first, start + last) for first, last in snippet.ranges)
        return ranges


def _styled(line: str, start: int, ranges: Sequence[tuple[int, int]], **style: Any) -> str:
    """Styles a line that starts at offset `start` of the text that the ranges refer to."""
    parts, at = [], 0
    for first, last in ((max(0, a - start), min(len(line), b - start)) for a, b in ranges):
        if first < last:
            parts += [_in_style(line[at:first], style), click.style(line[first:last], fg="red", bold=True)]
            at = last
    return "".join([*parts, _in_style(line[at:], style)])


def _in_style(text: str, style: Mapping[str, Any]) -> str:
    return click.style(text, **style) if text and style else text


def terminal_columns(descriptor: int = 1) -> int:
    """Returns the width of the terminal. A pseudo-terminal without a size reports 0."""
    try:
        return os.get_terminal_size(descriptor).columns or _WIDTH_MAX
    except OSError:
        return _WIDTH_MAX
