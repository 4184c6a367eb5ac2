"""The share of a library that has vectors, counted at most once in a while: counting takes time while many rows are
waiting, and every search reports it."""

import time
from collections.abc import Callable

_KNOWN_FOR_S = 1.0


class CoverageMemory:
    def __init__(self) -> None:
        # The share and when it was counted, by the number of a kind and that of a model.
        self._shares: dict[tuple[int, int], tuple[float, float]] = {}

    def share(self, kind: int, model: int, count: Callable[[], float]) -> float:
        now = time.monotonic()
        known = self._shares.get((kind, model))
        if known is not None and now - known[1] < _KNOWN_FOR_S:
            return known[0]
        share = count()
        self._shares[kind, model] = (share, now)
        return share
