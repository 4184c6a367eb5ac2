"""Which sources are passed by for a while, because they keep failing. Counted for each user: one damaged file is no
reason to keep a source from everybody else."""

import time
from collections.abc import Callable

from cachetools import LRUCache
from msgspec import Struct

from config.paths import UserId
from config.settings import Settings


class _Failing(Struct):
    failures: int = 0
    until: float = 0.0


class Breaker:
    """After the pause a source is asked again; if that fails too, the next pause begins at once."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._failures = settings.breaker_failures
        self._pause_s = settings.breaker_pause_s
        self._clock = clock
        self._failing: LRUCache[tuple[UserId, str], _Failing] = LRUCache(settings.breaker_entries_max)

    def wait_s(self, user: UserId, source: str) -> float:
        """How long the source is still passed by; 0 if it may be asked."""
        failing = self._failing.get((user, source))
        return max(0.0, failing.until - self._clock()) if failing is not None else 0.0

    def succeeded(self, user: UserId, source: str) -> None:
        self._failing.pop((user, source), None)

    def failed(self, user: UserId, source: str) -> None:
        failing = self._failing.setdefault((user, source), _Failing())
        failing.failures += 1
        if failing.failures >= self._failures:
            failing.until = self._clock() + self._pause_s
