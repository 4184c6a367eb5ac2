"""Circuit breaker: skips a source for a while after repeated failures.

Failures are counted per user, because one user's damaged file must not disable a source for everyone.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache

from cachetools import LRUCache
from msgspec import Struct

from config.paths import UserId
from config.settings import Settings


class _Circuit(Struct):
    failures: int = 0
    open_until: float = 0.0


class Breaker:
    """After the pause the source is tried again; if that fails too, the next pause starts at once."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings_of = cache(settings.of_source)
        self._clock = clock
        self._circuits: LRUCache[tuple[UserId, str], _Circuit] = LRUCache(settings.breaker_entries_max)

    def wait_s(self, user: UserId, source: str) -> float:
        """Seconds until the source may be tried again; 0 if it may be tried now."""
        circuit = self._circuits.get((user, source))
        return max(0.0, circuit.open_until - self._clock()) if circuit is not None else 0.0

    def record_success(self, user: UserId, source: str) -> None:
        self._circuits.pop((user, source), None)

    def record_failure(self, user: UserId, source: str) -> None:
        circuit = self._circuits.setdefault((user, source), _Circuit())
        circuit.failures += 1
        settings = self._settings_of(source)
        if circuit.failures >= settings.breaker_failures:
            circuit.open_until = self._clock() + settings.breaker_pause_s

    def open_circuits(self) -> Mapping[str, int]:
        """Returns for how many users each failing source is skipped at the moment."""
        now = self._clock()
        return Counter(source for (_, source), circuit in self._circuits.items() if circuit.open_until > now)
