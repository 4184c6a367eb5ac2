"""Token buckets: how often a key (a user, a user's tool, an address) may do something. Nothing here blocks."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Self

from msgspec import Struct

from config.errors import RateLimited
from config.settings import Settings

Clock = Callable[[], float]


class TokenBuckets:
    """One bucket per key, refilled at `per_minute` and holding at most `burst` tokens. A rate of 0 means no limit.

    A bucket is stored as one number, the time at which it will be full again; that is equivalent to a level and the
    time of its measurement, and a missing entry is a full bucket. At `keys_max` the least recently used key is dropped,
    which can only make the limit more lenient.
    """

    def __init__(self, what: str, per_minute: float, burst: int, keys_max: int, clock: Clock = time.monotonic) -> None:
        self._what = what
        self._interval_s = 60.0 / per_minute if per_minute else 0.0
        self._burst = burst
        self._keys_max = keys_max
        self._clock = clock
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()
        # How often `take` refused, since the start of the process.
        self.refusals = 0

    def take(self, key: Hashable, cost: float = 1) -> None:
        """Takes `cost` tokens, or takes none and raises RateLimited with the exact wait.

        A cost above the bucket's capacity empties the bucket; otherwise it could never be allowed.
        """
        if not self._interval_s:
            return
        now = self._clock()
        full_at = max(self._full_at.get(key, now), now) + min(cost, self._burst) * self._interval_s
        wait_s = full_at - now - self._burst * self._interval_s
        if wait_s > 1e-9:  # tolerates the rounding error of the additions above
            self.refusals += 1
            raise RateLimited(self._what, wait_s)
        self._full_at[key] = full_at
        self._full_at.move_to_end(key)
        if len(self._full_at) > self._keys_max:
            self._full_at.popitem(last=False)

    def give_back(self, key: Hashable, cost: float = 1) -> None:
        """Returns tokens that `take` took for something that turned out not to count."""
        if key in self._full_at:
            self._full_at[key] -= cost * self._interval_s


class RateLimits(Struct, frozen=True):
    """Limits for a user's calls, a user's calls to one tool, and failed sign-ins from one address."""

    user: TokenBuckets
    tool: TokenBuckets
    failures: TokenBuckets

    @classmethod
    def from_settings(cls, settings: Settings, clock: Clock = time.monotonic) -> Self:
        """Limits users only if authentication is configured: in single-user mode there are no other users to
        protect."""
        keys_max = settings.rate_keys_max
        user_rate = settings.rate_user_per_minute if settings.is_auth_configured else 0
        tool_rate = settings.rate_tool_per_minute if settings.is_auth_configured else 0
        return cls(
            user=TokenBuckets("calls", user_rate, settings.rate_user_burst, keys_max, clock),
            tool=TokenBuckets("this tool", tool_rate, settings.rate_tool_burst, keys_max, clock),
            failures=TokenBuckets(
                "failed sign-ins",
                settings.rate_failures_per_minute,
                settings.rate_failures_burst,
                keys_max,
                clock,
            ),
        )
