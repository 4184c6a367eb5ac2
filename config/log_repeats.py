"""Limits how often a library logs the same thing.

Clients can cause some lines, such as uvicorn's warning about an invalid request, thousands of times a second.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

_INTERVAL_S = 1.0
_KEYS_MAX = 100


class RepeatedLines:
    """Allows one line per second for each key and counts the others. The least recently logged keys are forgotten."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def count_omitted(self, key: Hashable) -> int | None:
        """Returns how many lines were left out since the last one, or None if this one is to be left out too."""
        now = self._clock()
        logged_at, omitted = self._lines.get(key, (float("-inf"), 0))
        if now - logged_at < _INTERVAL_S:
            self._lines[key] = (logged_at, omitted + 1)
            return None
        self._lines[key] = (now, 0)
        self._lines.move_to_end(key)
        if len(self._lines) > _KEYS_MAX:
            self._lines.popitem(last=False)
        return omitted
