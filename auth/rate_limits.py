"""Token buckets: how often a key (a user, a user's tool, an address) may do something.

They are kept in this process, or in Redis for all processes of a deployment (`auth.redis.rate_limits`).
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, Self

from msgspec import Struct

from config.errors import RateLimited
from config.settings import Settings

Clock = Callable[[], float]
LimitKey = str | tuple[str, ...]


class LimitRule(Struct, frozen=True):
    """Buckets are refilled at `per_minute` and hold at most `burst` tokens; a rate of 0 means no limit. `name`
    distinguishes the rule from others, and `what` says in messages what is limited."""

    name: str
    what: str
    per_minute: float
    burst: int

    @property
    def interval_s(self) -> float:
        """The time in which a bucket gains one token."""
        return 60.0 / self.per_minute if self.per_minute else 0.0


class RateLimit(Protocol):
    """One bucket per key. `refusals` is how often `take` refused, since the start of the process."""

    refusals: int

    async def take(self, key: LimitKey, cost: float = 1) -> None:
        """Takes `cost` tokens, or takes none and raises RateLimited with the exact wait.

        A cost above the bucket's capacity empties the bucket; otherwise it could never be allowed.
        """
        ...

    async def give_back(self, key: LimitKey, cost: float = 1) -> None:
        """Returns tokens that `take` took for something that turned out not to count."""
        ...


MakeLimit = Callable[[LimitRule], RateLimit]


class TokenBuckets:
    """The buckets of one rule, in this process.

    A bucket is stored as one number, the time at which it will be full again; that is equivalent to a level and the
    time of its measurement, and a missing entry is a full bucket. At `keys_max` the least recently used key is dropped,
    which can only make the limit more lenient.
    """

    def __init__(self, rule: LimitRule, keys_max: int, clock: Clock = time.monotonic) -> None:
        self._rule = rule
        self._interval_s = rule.interval_s
        self._keys_max = keys_max
        self._clock = clock
        self._full_at: OrderedDict[LimitKey, float] = OrderedDict()
        self.refusals = 0

    async def take(self, key: LimitKey, cost: float = 1) -> None:
        if not self._interval_s:
            return
        now, burst = self._clock(), self._rule.burst
        full_at = max(self._full_at.get(key, now), now) + min(cost, burst) * self._interval_s
        wait_s = full_at - now - burst * self._interval_s
        if wait_s > 1e-9:  # tolerates the rounding error of the additions above
            self.refusals += 1
            raise RateLimited(self._rule.what, wait_s)
        self._full_at[key] = full_at
        self._full_at.move_to_end(key)
        if len(self._full_at) > self._keys_max:
            self._full_at.popitem(last=False)

    async def give_back(self, key: LimitKey, cost: float = 1) -> None:
        if key in self._full_at:
            self._full_at[key] -= cost * self._interval_s


def in_process_limits(settings: Settings, clock: Clock = time.monotonic) -> MakeLimit:
    return lambda rule: TokenBuckets(rule, settings.rate_keys_max, clock)


class RateLimits(Struct, frozen=True):
    """Limits for a user's calls, a user's calls to one tool, and failed sign-ins from one address."""

    user: RateLimit
    tool: RateLimit
    failures: RateLimit

    @classmethod
    def from_settings(cls, settings: Settings, make_limit: MakeLimit) -> Self:
        failure_rate = settings.rate_failures_per_minute
        return cls(
            user=make_limit(user_rule(settings)),
            tool=make_limit(tool_rule(settings)),
            failures=make_limit(LimitRule("failures", "failed sign-ins", failure_rate, settings.rate_failures_burst)),
        )


def user_rule(settings: Settings) -> LimitRule:
    """Limits users only if authentication is configured: in single-user mode there are no other users to protect."""
    per_minute = settings.rate_user_per_minute if settings.is_auth_configured else 0
    return LimitRule("user", "calls", per_minute, settings.rate_user_burst)


def tool_rule(settings: Settings) -> LimitRule:
    """Limits the calls of a user to one tool, as `user_rule` does all calls."""
    per_minute = settings.rate_tool_per_minute if settings.is_auth_configured else 0
    return LimitRule("tool", "this tool", per_minute, settings.rate_tool_burst)
