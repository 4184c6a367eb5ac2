"""Token buckets: how often a key (a user, a user's tool, an address) may do something. Nothing here waits."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from msgspec import Struct

from config.errors import RateLimited
from config.settings import Settings

Clock = Callable[[], float]


class TokenBuckets:
    """One bucket per key, refilled at `per_minute`, holding at most `burst`. A rate of 0 is no limit.

    A bucket is kept as one number: the time at which it will be full again. That says the same as a level and
    the time it was measured at, and a missing entry is simply a full bucket. At `keys_max` the key unseen longest
    is forgotten, which can only be too lenient.
    """

    def __init__(self, what: str, per_minute: float, burst: int, keys_max: int, clock: Clock = time.monotonic) -> None:
        self._what = what
        self._interval_s = 60.0 / per_minute if per_minute else 0.0
        self._burst = burst
        self._keys_max = keys_max
        self._clock = clock
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()

    def take(self, key: Hashable, cost: float = 1) -> None:
        """Take `cost` from the key's bucket, or raise RateLimited with the exact wait and take nothing.

        What costs more than the bucket holds takes all of it: otherwise it could never be allowed.
        """
        if not self._interval_s:
            return
        now = self._clock()
        full_at = max(self._full_at.get(key, now), now) + min(cost, self._burst) * self._interval_s
        wait_s = full_at - now - self._burst * self._interval_s
        if wait_s > 1e-9:  # the rounding error of the additions above, in seconds
            raise RateLimited(self._what, wait_s)
        self._full_at[key] = full_at
        self._full_at.move_to_end(key)
        if len(self._full_at) > self._keys_max:
            self._full_at.popitem(last=False)


class Limits(Struct, frozen=True):
    """The kinds of limit: calls of a user, calls of a user to one tool, failed sign-ins from an address."""

    user: TokenBuckets
    tool: TokenBuckets
    failures: TokenBuckets


def limits_of(settings: Settings, clock: Clock = time.monotonic) -> Limits:
    keys_max = settings.rate_keys_max
    return Limits(
        user=TokenBuckets("calls", settings.rate_user_per_minute, settings.rate_user_burst, keys_max, clock),
        tool=TokenBuckets("this tool", settings.rate_tool_per_minute, settings.rate_tool_burst, keys_max, clock),
        failures=TokenBuckets(
            "failed sign-ins",
            settings.rate_failures_per_minute,
            settings.rate_failures_burst,
            keys_max,
            clock,
        ),
    )
