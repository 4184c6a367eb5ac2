"""Parses times written by other programs into the stored form. A value that is not a time is ignored: an item without
its time is better than no item."""

import math
import re

from config.times import format_time, format_timestamp, parse_time

# The year 5138 in seconds and 1973 in milliseconds: imported items are neither that new nor that old.
_MILLISECONDS_FROM = 1e11
_DATE = re.compile(r"(\d{4})(?:-(\d\d)(?:-(?P<day>\d\d)\b|\Z)|\Z)")


def stored_time(value: object) -> str | None:
    """Parses seconds or milliseconds since 1970, as a number or as text, or an ISO 8601 time. A time without a zone is
    taken as UTC. Zero means unknown in many programs and returns None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _from_number(value)
    if not isinstance(value, str):
        return None
    try:
        return _from_number(float(value))
    except ValueError:
        return _from_text(value)


def _from_number(number: float) -> str | None:
    if not math.isfinite(number) or number <= 0:
        return None
    try:
        return format_timestamp(number / 1000 if number >= _MILLISECONDS_FROM else number)
    except (ValueError, OverflowError, OSError):
        return None


def _from_text(text: str) -> str | None:
    try:
        return format_time(parse_time(text.strip()))
    except (ValueError, OverflowError):
        return None


def stored_date(text: object) -> str | None:
    """Parses a date or time as people write it. A year or month alone is taken as its first day, and text after a date
    that is not a time is ignored. Returns None for anything else."""
    if not isinstance(text, str):
        return None
    date = _DATE.match(text.strip())
    if date is None:
        return stored_time(text)
    year, month, day = date.groups(default="01")
    return (stored_time(text) if date["day"] else None) or stored_time(f"{year}-{month}-{day}")
