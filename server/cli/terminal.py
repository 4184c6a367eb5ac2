"""Text from a library on a terminal: control characters removed, matches highlighted.

Colours are omitted if the output is not a terminal or NO_COLOR is set.
"""

import asyncio
import os
import re
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import click

from config.times import format_clock
from server.cli.output import pluralize, truncate_cells
from sources.importers.engine.progress import ImportProgress
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
        # `start` counts the space that wrapping removes. Words are not broken, because the offsets would be lost.
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


# -- meter -------------------------------------------------------------------------------------------------------------
# The progress of an import on stderr: on a terminal one line that is redrawn, with bytes, items, rate and remaining
# time; otherwise a plain line every few seconds.

_BAR_CELLS = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"
# A shorter part of a name says too little.
_FILE_CELLS_MIN = 8
_DRAW_INTERVAL_S = 0.2
_PRINT_INTERVAL_S = 10.0
_ERASE_LINE = "\r\x1b[2K"
_STDERR = 2
_UNITS = ("B", "KB", "MB", "GB", "TB")


@asynccontextmanager
async def show_progress(progress: ImportProgress, *, is_terminal: bool | None = None) -> AsyncIterator[None]:
    """Shows progress while the block runs. It is written to stderr, so that stdout has only the command's result."""
    started = time.monotonic()
    draws = sys.stderr.isatty() if is_terminal is None else is_terminal
    # A task of its own, so that the importer need not know who looks at its progress.
    task = asyncio.create_task(_draw(progress, started) if draws else _print(progress))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if draws:
            click.echo(_ERASE_LINE, err=True, nl=False, color=True)
            if progress.items:
                elapsed_s = time.monotonic() - started
                items, rate = pluralize(progress.items, "items"), _rate(progress.items, elapsed_s)
                final_line = f"{format_size(progress.bytes_read)}, {items} in {format_clock(elapsed_s)} ({rate})"
                echo(dim(final_line), err=True)


def progress_line(progress: ImportProgress, elapsed_s: float, columns: int) -> str:
    """Returns a line that fits the terminal; the name of the file, which comes last, is shortened."""
    return "".join(text for text, _ in _styled_parts(progress, elapsed_s, columns))


def _styled_parts(progress: ImportProgress, elapsed_s: float, columns: int) -> list[tuple[str, dict[str, Any]]]:
    """Returns the parts of the line with their styles. A line that must be cut has no styles."""
    share = min(1.0, progress.bytes_read / progress.bytes_total) if progress.bytes_total else 0.0
    # The filled and the empty part. It moves in eighths of a cell, so that large files show progress, too.
    cells, eighths = divmod(int(share * _BAR_CELLS * 8), 8)
    bar_filled = "\N{FULL BLOCK}" * cells + (_EIGHTHS[eighths] if eighths else "")
    filled, empty = bar_filled, "\N{LIGHT SHADE}" * (_BAR_CELLS - len(bar_filled))
    remaining = format_clock(elapsed_s * (1 - share) / share) if share else "--:--"
    numbers = (
        f" {share:4.0%}  {format_size(progress.bytes_read)} of {format_size(progress.bytes_total)}  "
        f"{pluralize(progress.items, 'items')}  {_rate(progress.items, elapsed_s)}  {remaining} left"
    )
    columns_left = columns - len(filled + empty + numbers) - 3
    if columns_left < 0:
        return [((filled + empty + numbers)[: max(0, columns - 1)], {})]
    name = strip_control_characters(progress.file).replace("\n", " ")
    file = truncate_cells(name, columns_left) if columns_left >= _FILE_CELLS_MIN else ""
    file_part = f"  {file}" if file else ""
    return [(filled, {"fg": "cyan"}), (empty, {"dim": True}), (numbers, {}), (file_part, {"dim": True})]


def _rate(items: int, elapsed_s: float) -> str:
    return f"{items / elapsed_s if elapsed_s > 0 else 0:,.0f}/s"


def format_size(count: int) -> str:
    """Returns 12 KB or 3.4 MB, in decimal units like file listings."""
    amount, unit = float(count), _UNITS[0]
    for unit in _UNITS:
        if amount < 1000 or unit == _UNITS[-1]:
            break
        amount /= 1000
    return f"{amount:.1f} {unit}" if unit not in ("B", "KB") else f"{amount:.0f} {unit}"


async def _draw(progress: ImportProgress, started: float) -> None:
    while True:
        parts = _styled_parts(progress, time.monotonic() - started, terminal_columns(_STDERR))
        line = "".join(click.style(text, **style) if uses_colour() else text for text, style in parts)
        # color=True keeps the sequence that erases the line, even if colours are disabled.
        click.echo(f"{_ERASE_LINE}{line}", err=True, nl=False, color=True)
        await asyncio.sleep(_DRAW_INTERVAL_S)


# For logs: no sequences that only a terminal understands.
async def _print(progress: ImportProgress) -> None:
    while True:
        await asyncio.sleep(_PRINT_INTERVAL_S)
        read = f"{format_size(progress.bytes_read)} of {format_size(progress.bytes_total)}"
        items = pluralize(progress.items, "items")
        click.echo(f"{read}, {items}: {strip_control_characters(progress.file)}", err=True)
