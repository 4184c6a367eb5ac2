"""Times as other programs write them, in our one form. What is no time is none: an item without its time is worth more
than none at all."""

import math

from config.times import format_time, format_timestamp, parse_time

# The year 5138 in seconds, and 1973 in milliseconds: nothing that is imported is so new, or so old.
_MILLISECONDS_FROM = 1e11


def moment_of(value: object) -> str | None:
    """Of seconds or milliseconds since 1970, as a number or as text, or of an ISO 8601 time; without a zone it is UTC.
    Zero is how programs write that they do not know."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _of_number(value)
    if not isinstance(value, str):
        return None
    try:
        return _of_number(float(value))
    except ValueError:
        return _of_text(value)


def _of_number(number: float) -> str | None:
    if not math.isfinite(number) or number <= 0:
        return None
    try:
        return format_timestamp(number / 1000 if number >= _MILLISECONDS_FROM else number)
    except (ValueError, OverflowError, OSError):
        return None


def _of_text(text: str) -> str | None:
    try:
        return format_time(parse_time(text.strip()))
    except (ValueError, OverflowError):
        return None
