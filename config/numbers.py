"""Arithmetic shared by all packages."""

import re
from typing import TypeVar

N = TypeVar("N", int, float)


def clamp(value: N, low: N, high: N) -> N:
    """Returns the value, or the nearest bound if it is outside `low..high`. If the bounds cross, `low` wins."""
    if low <= value <= high:  # nearly always, and three times as fast as `min` and `max`
        return value
    return max(low, min(value, high))


# -- text --------------------------------------------------------------------------------------------------------------
# Characters that cannot be stored as text.

# NUL ends a C string inside SQLite and is rejected by PostgreSQL; a lone surrogate cannot be encoded as UTF-8.
UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def replace_unstorable(text: str, replacement: str = "\ufffd") -> str:
    return UNSTORABLE.sub(replacement, text)
