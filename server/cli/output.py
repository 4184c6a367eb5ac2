"""Output of commands: tables, JSON, times and questions.

rich 15 takes 190 ms to import, and 1.2 s for a table of 2,000 rows; this takes 30 ms.
"""

import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from unicodedata import category, east_asian_width
from urllib.parse import urlsplit

import click
import msgspec

from config.errors import InvalidParams
from config.settings import Settings
from config.times import format_time_seconds, parse_time

if TYPE_CHECKING:
    from sources.query import ParsedQuery

# -- cells -------------------------------------------------------------------------------------------------------------
# Widths of text on a terminal, in cells: East Asian characters take two, combining marks none.

# A narrower column says too little.
_COLUMN_CELLS_MIN = 8
# Marks that are drawn over the previous character, and invisible format characters.
_ZERO_WIDTH = frozenset(("Mn", "Me", "Cf"))


def cell_width(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_width, text))


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


def print_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_result(value: Any, text: str, *, as_json: bool) -> None:
    """Prints what a command did, for a program or for people."""
    print_json(value) if as_json else click.echo(text)


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints columns as wide as their widest value. On a terminal that is too narrow for them, the widest values are
    cut. The last column is not padded."""
    widths = [max(cell_width(row[column]) for row in (titles, *rows)) for column in range(len(titles))]
    if sys.stdout.isatty():
        # A program that reads the output gets all of it. Titles stay whole.
        minima = [min(width, max(cell_width(t), _COLUMN_CELLS_MIN)) for t, width in zip(titles, widths, strict=True)]
        room = max(sum(minima), terminal_columns() - 2 * (len(widths) - 1))
        while sum(widths) > room:
            widest = max(
                (column for column in range(len(widths)) if widths[column] > minima[column]), key=widths.__getitem__
            )
            widths[widest] -= 1
    for row in (titles, *rows):
        cells = []
        for cell, width in zip(row, widths, strict=True):
            is_cut = cell_width(cell) > width
            text = truncate_cells(cell, width - 1) + "\N{HORIZONTAL ELLIPSIS}" if is_cut else cell
            cells.append(text + " " * (width - cell_width(text)))
        click.echo("  ".join(cells).rstrip())


def pluralize(count: int, nouns: str) -> str:
    """Returns "1,204 notes", "1 note" or "1 entry". `nouns` is the plural; "media" has no singular here."""
    if count != 1:
        return f"{count:,} {nouns}"
    return f"1 {nouns.removesuffix('ies')}y" if nouns.endswith("ies") else f"1 {nouns.removesuffix('s')}"


def format_time(seconds: float | None) -> str | None:
    """Formats seconds since 1970 as ISO 8601 in UTC, without fractions."""
    return None if seconds is None else format_time_seconds(seconds)


def confirm(question: str) -> None:
    """Asks on the terminal, and ends the command unless the answer is yes."""
    # Without a terminal, the answer would be whatever is piped to the command.
    if not sys.stdin.isatty():
        raise click.UsageError("cannot ask for confirmation without a terminal; add --yes")
    click.confirm(question, abort=True)


# -- urls --------------------------------------------------------------------------------------------------------------
# Server URLs, from the settings or from the command line.

# A server that listens on all addresses is reachable from its own machine at the loopback address.
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, never bound


def local_url(settings: Settings) -> str:
    """Returns the base URL at which a server with these settings is reachable from its own machine."""
    host = _LOOPBACK.get(settings.host, settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def require_url(field: str, url: str) -> str:
    """Returns the URL without a trailing slash. Rejects URLs with credentials, a query or a fragment."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # the port is parsed and validated only when accessed
    except ValueError:
        parts = urlsplit("")
    # The URL becomes part of commands and configuration that people copy, so that no character may need quoting.
    plain = url.isascii() and url.isprintable() and not set(" \"'<>\\^`{|}?#") & set(url)
    if not plain or parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise InvalidParams(f"{field}: expected http:// or https:// and a host, without a query, got {url[:80]!r}")
    return url.rstrip("/")


# -- times -------------------------------------------------------------------------------------------------------------
# Parses durations and times from the command line: `90d`, `12h`, `2026-12-31`. All times are UTC.

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(rf"([0-9]{{1,9}})([{''.join(_UNITS_S)}])\Z")
# `datetime` supports years up to 9999; a longer lifetime is a typing mistake.
_LONGEST_S = 1000 * 365 * 86_400


def parse_duration(field: str, text: str) -> float:
    """Converts a duration such as `30m`, `12h` or `90d` to seconds."""
    match = _DURATION.match(text)
    seconds = int(match[1]) * _UNITS_S[match[2]] if match else 0
    if not 0 < seconds <= _LONGEST_S:
        raise InvalidParams(f"{field}: expected a number and s, m, h, d or w, such as 90d, got {text[:40]!r}")
    return float(seconds)


def parse_expiry(field: str, text: str, now: float) -> float:
    """Converts a duration from now, a date (end of that day) or a date and time to seconds since 1970."""
    if _DURATION.match(text):
        return now + parse_duration(field, text)
    # A key that expires on a date is valid through that day.
    return _parse_date(field, text, timedelta(days=1), "90d", "2026-12-31")


def parse_start(field: str, text: str, now: float) -> float:
    """Converts a duration before now, a date (beginning of that day) or a date and time to seconds since 1970."""
    if _DURATION.match(text):
        return now - parse_duration(field, text)
    return _parse_date(field, text, timedelta(), "7d", "2026-01-31")


def _parse_date(field: str, text: str, offset: timedelta, duration_example: str, date_example: str) -> float:
    """Converts a date and time, or a date (the beginning of that day plus `offset`), to seconds since 1970."""
    try:
        if len(text) > len(date_example):
            return parse_time(text).timestamp()
        day = date.fromisoformat(text) + offset
        return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        expected = f"a duration such as {duration_example}, a date such as {date_example}, or {date_example}T18:00:00Z"
        raise InvalidParams(f"{field}: expected {expected}, got {text[:40]!r}") from None


_SIZE_UNITS = ("B", "KB", "MB", "GB", "TB")


def format_size(count: int) -> str:
    """Returns 12 KB or 3.4 MB, in decimal units like file listings."""
    amount, unit = float(count), _SIZE_UNITS[0]
    for unit in _SIZE_UNITS:
        if amount < 1000 or unit == _SIZE_UNITS[-1]:
            break
        amount /= 1000
    return f"{amount:.1f} {unit}" if unit not in ("B", "KB") else f"{amount:.0f} {unit}"


# -- terminal ----------------------------------------------------------------------------------------------------------
# Text from a library on a terminal: control characters removed, matches highlighted.
#
# Colours are omitted if the output is not a terminal or NO_COLOR is set.

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

    def __init__(self, query: "ParsedQuery") -> None:
        from sources.search.snippets import LENGTH_MAX, Highlighter  # noqa: PLC0415 - not for `--help`

        self._highlighter = Highlighter(query.terms)
        self._piece_chars = LENGTH_MAX

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
        for start in range(lead, len(text), self._piece_chars):
            piece = text[start : start + self._piece_chars].rstrip()
            snippet = self._highlighter.snippet(piece, self._piece_chars)
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
