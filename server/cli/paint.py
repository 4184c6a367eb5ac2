"""Text of a library on a terminal: what could steer the terminal made harmless, matched words highlighted, colours for
eyes only. Programs that read the output, and people who set NO_COLOR, get the plain text."""

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
# ECMA-48: C0 and C1 begin the sequences that move cursors and set titles. A new line and a tab are text.
_STEERING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f]")
# Unicode UAX 9: what turns the direction of the text around it, so that a line reads as another than it is.
_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")
_SOURCE_COLOURS = {"notes": "green", "media": "magenta", "chats": "cyan", "characters": "yellow", "prompts": "blue"}


def say(text: str = "", *, err: bool = False) -> None:
    """Prints; click leaves the colours out where no terminal reads, and we where https://no-color.org is asked for."""
    click.echo(text, err=err, color=None if wants_colour() else False)


def wants_colour() -> bool:
    return not os.environ.get("NO_COLOR")


def harmless(text: str) -> str:
    return _TURNING.sub("", _STEERING.sub("\N{REPLACEMENT CHARACTER}", text))


def clock(seconds: float) -> str:
    """04:12, or 1:04:12 where there are hours."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def source_style(source: str) -> str:
    return click.style(source, fg=_SOURCE_COLOURS.get(source, "white"))


def dim(text: str) -> str:
    return click.style(text, dim=True)


class Marker:
    """Highlights the words of one query."""

    def __init__(self, query: ParsedQuery) -> None:
        self._highlighter = Highlighter(query.terms)

    def line(self, text: str, **style: Any) -> str:
        """Text on one line, such as a title; `style` is that of the words that do not match."""
        text = harmless(text)
        return _styled(text, 0, self._ranges(text), **style)

    def paragraph(self, text: str) -> Iterator[str]:
        """A snippet, which is one line, as several that fit the terminal."""
        text, start = harmless(text), 0
        ranges = self._ranges(text)
        width = min(_WIDTH_MAX, terminal_columns()) - len(_INDENT)
        for line in textwrap.wrap(text, max(20, width), break_long_words=False, break_on_hyphens=False):
            yield _INDENT + _styled(line, start, ranges)
            start += len(line) + 1

    def text(self, text: str) -> str:
        """A text of any length, as it is written."""
        return "\n".join(self.line(line) for line in text.split("\n"))

    def _ranges(self, text: str) -> list[tuple[int, int]]:
        """Where words match, looked for in pieces that a snippet can hold. One whose white space a snippet would
        change is left unmarked: the places would be wrong."""
        ranges: list[tuple[int, int]] = []
        lead = len(text) - len(text.lstrip())
        for start in range(lead, len(text), LENGTH_MAX):
            piece = text[start : start + LENGTH_MAX].rstrip()
            found = self._highlighter.snippet(piece, LENGTH_MAX)
            if found.text == piece:
                ranges += ((start + first, start + last) for first, last in found.ranges)
        return ranges


def _styled(line: str, start: int, ranges: Sequence[tuple[int, int]], **style: Any) -> str:
    """A line that begins at `start` of the text in which the ranges are."""
    parts, at = [], 0
    for first, last in ((max(0, a - start), min(len(line), b - start)) for a, b in ranges):
        if first < last:
            parts += [_in_style(line[at:first], style), click.style(line[first:last], fg="red", bold=True)]
            at = last
    return "".join([*parts, _in_style(line[at:], style)])


def _in_style(text: str, style: Mapping[str, Any]) -> str:
    return click.style(text, **style) if text and style else text


def terminal_columns(descriptor: int = 1) -> int:
    """Of the terminal we write to, by default on stdout. A pseudo-terminal that was told no size says 0."""
    try:
        return os.get_terminal_size(descriptor).columns or _WIDTH_MAX
    except OSError:
        return _WIDTH_MAX
