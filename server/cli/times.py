"""Parses durations and times from the command line: `90d`, `12h`, `2026-12-31`. All times are UTC."""

import re
from datetime import UTC, date, datetime, timedelta

from config.errors import InvalidParams
from config.times import parse_time

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
    try:
        return _end_of_day(text) if len(text) <= len("2026-12-31") else _point_in_time(text)
    except (ValueError, OverflowError):
        expected = "a duration such as 90d, a date such as 2026-12-31, or 2026-12-31T18:00:00Z"
        raise InvalidParams(f"{field}: expected {expected}, got {text[:40]!r}") from None


def parse_start(field: str, text: str, now: float) -> float:
    """Converts a duration before now, a date (beginning of that day) or a date and time to seconds since 1970."""
    if _DURATION.match(text):
        return now - parse_duration(field, text)
    try:
        if len(text) > len("2026-12-31"):
            return _point_in_time(text)
        day = date.fromisoformat(text)
        return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        expected = "a duration such as 7d, a date such as 2026-01-31, or 2026-01-31T18:00:00Z"
        raise InvalidParams(f"{field}: expected {expected}, got {text[:40]!r}") from None


def _end_of_day(text: str) -> float:
    """Returns the end of a day: a key that expires on a date is valid through that day."""
    following = date.fromisoformat(text) + timedelta(days=1)
    return datetime(following.year, following.month, following.day, tzinfo=UTC).timestamp()


def _point_in_time(text: str) -> float:
    return parse_time(text).timestamp()
