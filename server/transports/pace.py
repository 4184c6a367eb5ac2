"""A rate that is enforced by waiting: events are counted after they happened, and the next one has to wait."""

import time
from collections.abc import Callable


class Pace:
    """A token bucket of `burst` events, refilled with `per_s` events each second, that can be overdrawn."""

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = 1 / per_s
        self._burst_s = burst / per_s
        self._clock = clock
        self._full_at = clock()

    def count(self) -> None:
        self._full_at = max(self._full_at, self._clock()) + self._interval_s

    def wait_s(self) -> float:
        """Returns how long the next event has to wait; 0 if the rate is not exceeded."""
        return max(0.0, self._full_at - self._clock() - self._burst_s)
