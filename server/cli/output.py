"""Output of commands: tables, JSON, times and questions.

rich 15 takes 190 ms to import, and 1.2 s for a table of 2,000 rows; this takes 30 ms.
"""

import re
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from unicodedata import category, east_asian_width
from urllib.parse import urlsplit

import click
import msgspec

from config.errors import InvalidParams
from config.settings import Settings
from config.times import format_time_seconds, parse_time

# -- cells -------------------------------------------------------------------------------------------------------------
# Widths of text on a terminal, in cells: East Asian characters take two, combining marks none.

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
    """Prints columns as wide as their widest value. The last column is not padded."""
    widths = [max(cell_width(row[column]) for row in (titles, *rows)) for column in range(len(titles))]
    for row in (titles, *rows):
        cells = [cell + " " * (width - cell_width(cell)) for cell, width in zip(row, widths, strict=True)]
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
