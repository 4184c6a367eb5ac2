"""Token buckets in Redis, counted together for all processes. The clock is the server's, because hosts may differ.

While the server does not answer, each process limits by buckets of its own, which take part in no other's count.
"""

from collections.abc import Callable
from functools import lru_cache

from auth.rate_limits import LimitKey, LimitRule, RateLimit, in_process_limits
from auth.redis.connection import RedisConnection
from auth.redis.scripts import RUNS_MAX, RedisScript, ScriptRun
from config.errors import RateLimited, SharedStateUnavailable
from config.settings import Settings

# A bucket is the time, in microseconds, at which it will be full again. Returns the wait, 0 if the tokens were taken.
TAKE = RedisScript(
    """
local full_at = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), now) + ARGV[1]
local wait = full_at - now - ARGV[2]
if wait > 0 then return math.ceil(wait) end
redis.call('SET', KEYS[1], string.format('%.0f', full_at), 'PX', math.max(1, math.ceil((full_at - now) / 1000)))
return 0
""",
    uses_now=True,
    goes_on="reply == 0",
)
_GIVE_BACK = RedisScript("""
local full_at = redis.call('GET', KEYS[1])
if full_at then redis.call('SET', KEYS[1], string.format('%.0f', full_at - ARGV[1]), 'KEEPTTL') end
""")
_MICROSECONDS = 1_000_000


class RedisTokenBuckets:
    def __init__(self, connection: RedisConnection, rule: LimitRule, fallback: RateLimit) -> None:
        self._connection = connection
        self._rule = rule
        self._fallback = fallback
        self.refusals = 0
        self._interval_us = rule.interval_s * _MICROSECONDS
        self.run_of = lru_cache(RUNS_MAX)(self._run_of)

    async def take(self, key: LimitKey, cost: float = 1) -> None:
        run = self.run_of(key, cost)
        if run is None:
            return
        try:
            wait_us = await self._connection.execute(run)
        except SharedStateUnavailable:
            await self._take_from_fallback(key, cost)
            return
        if wait_us:
            self.refusals += 1
            raise RateLimited(self._rule.what, wait_us / _MICROSECONDS)

    def _run_of(self, key: LimitKey, cost: float = 1) -> ScriptRun | None:
        """Returns the script that `take` runs, or None if there is no limit."""
        if not self._interval_us:
            return None
        cost_us = round(min(cost, self._rule.burst) * self._interval_us)
        return ScriptRun(TAKE, (self._key(key),), (cost_us, round(self._rule.burst * self._interval_us)))

    async def _take_from_fallback(self, key: LimitKey, cost: float) -> None:
        try:
            await self._fallback.take(key, cost)
        except RateLimited:
            self.refusals += 1
            raise

    async def give_back(self, key: LimitKey, cost: float = 1) -> None:
        if not self._interval_us:
            return
        try:
            await self._connection.run(_GIVE_BACK, [self._key(key)], round(cost * self._interval_us))
        except SharedStateUnavailable:
            await self._fallback.give_back(key, cost)

    def _key(self, key: LimitKey) -> str:
        return self._connection.key("rate", self._rule.name, self._connection.digest(key))


def redis_limits(connection: RedisConnection, settings: Settings) -> Callable[[LimitRule], RedisTokenBuckets]:
    fallback = in_process_limits(settings)
    return lambda rule: RedisTokenBuckets(connection, rule, fallback(rule))
