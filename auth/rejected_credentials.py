"""Records rejected credentials in the audit log, without letting strangers fill it.

The first credential from an address is recorded at once. Further ones are counted, and their number is recorded when
the period ends. Beyond a number of addresses per period, those of all others are counted together.
"""

import time
from collections import Counter
from collections.abc import Callable

from auth.audit import Audit

ACTION = "credential.reject"
_PERIOD_S = 3600.0
# Replaces the addresses that are not listed.
_OTHERS = "other addresses"


class RejectedCredentials:
    def __init__(self, audit: Audit, addresses_max: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._audit = audit
        self._addresses_max = addresses_max
        self._clock = clock
        self._ends_at = 0.0
        self._addresses: set[str] = set()
        # Those that are not recorded yet.
        self._counts: Counter[str] = Counter()

    def record(self, address: str, reason: str) -> None:
        self.flush()
        if address in self._addresses:
            self._counts[address] += 1
        elif len(self._addresses) < self._addresses_max:
            self._addresses.add(address)
            self._audit.record(ACTION, "", address=address, detail=reason)
        else:
            self._counts[_OTHERS] += 1

    def flush(self, *, is_last: bool = False) -> None:
        """Records the counts of a period that has ended, or of the last one."""
        if self._clock() < self._ends_at and not is_last:
            return
        for address, count in self._counts.items():
            self._audit.record(ACTION, "", address=address, detail="repeated", count=count)
        self._addresses.clear()
        self._counts.clear()
        self._ends_at = self._clock() + _PERIOD_S
