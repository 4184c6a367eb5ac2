"""Used tokens, tickets, rate limits and other short-lived state, shared by all processes through Redis."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import lru_cache

import msgspec

from auth.context import Principal
from auth.rate_limits import LimitKey, LimitRule, RateLimit, in_process_limits
from auth.redis.connection import RUNS_MAX, RedisConnection, RedisScript, ScriptRun
from auth.tickets import StateKeys, new_ticket, ticket_hash, ticket_rejected, too_many_tickets
from config.errors import RateLimited, SharedStateUnavailable
from config.settings import Settings

_SYNCHRONIZE = RedisScript("redis.call('SET', KEYS[1], ARGV[1], 'NX') return redis.call('GET', KEYS[1])")
_INTERVAL_S = 1.0


@asynccontextmanager
async def open_state_keys(connection: RedisConnection) -> AsyncIterator[StateKeys]:
    keys, key = StateKeys(), connection.key("state secret")

    async def synchronize() -> None:
        with suppress(SharedStateUnavailable):
            keys.replace(await connection.run(_SYNCHRONIZE, [key], keys.secret))

    async def synchronize_periodically() -> None:
        while True:
            await asyncio.sleep(_INTERVAL_S)
            await synchronize()

    await synchronize()
    task = asyncio.create_task(synchronize_periodically())
    try:
        yield keys
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# -- used tokens -------------------------------------------------------------------------------------------------------
# Tokens for one use, remembered in Redis: a second process rejects what a first has accepted. Without the server no
# token is accepted.


class RedisUsedTokens:
    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection

    async def use(self, token: bytes, ttl_s: float) -> bool:
        key = self._connection.key("used", hashlib.sha256(token).hexdigest())
        return await self._connection.call("SET", key, 1, "NX", "PX", max(1, round(ttl_s * 1000))) is not None


# -- tickets -----------------------------------------------------------------------------------------------------------
# WebSocket tickets in Redis: issued by one process, redeemed once, by any. Nothing is accepted without the server.

# The sorted sets count the tickets of a user and of all users, by the time at which they expire.
_ISSUE = RedisScript(
    """
for index = 2, 3 do
  redis.call('ZREMRANGEBYSCORE', KEYS[index], '-inf', now)
  if redis.call('ZCARD', KEYS[index]) >= tonumber(ARGV[index + 1]) then return 0 end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
for index = 2, 3 do
  redis.call('ZADD', KEYS[index], now + ARGV[2] * 1000, KEYS[1])
  redis.call('PEXPIRE', KEYS[index], ARGV[2])
end
return 1
""",
    uses_now=True,
)
_REDEEM = RedisScript("""
local ticket = redis.call('GETDEL', KEYS[1])
if ticket then redis.call('ZREM', KEYS[2], KEYS[1]) end
return ticket
""")
_FORGET = RedisScript("return redis.call('ZREM', KEYS[1], ARGV[1])")
_PRINCIPAL = msgspec.msgpack.Decoder(Principal)


class RedisTickets:
    def __init__(self, connection: RedisConnection, settings: Settings) -> None:
        self._connection = connection
        self._ttl_s = settings.fixed.ws_ticket_ttl_s
        self._max = settings.session_max
        self._max_per_user = settings.stream_max_per_user

    async def issue(self, principal: Principal) -> tuple[str, float]:
        ticket = new_ticket()
        keys = [self._key(ticket), self._user_key(principal), self._connection.key("tickets")]
        is_issued = await self._connection.run(
            _ISSUE, keys, msgspec.msgpack.encode(principal), round(self._ttl_s * 1000), self._max_per_user, self._max
        )
        if not is_issued:
            raise too_many_tickets(self._ttl_s)
        return ticket, self._ttl_s

    async def redeem(self, ticket: str) -> Principal:
        key = self._key(ticket)
        content = await self._connection.run(_REDEEM, [key, self._connection.key("tickets")])
        if content is None:
            raise ticket_rejected()
        principal = _PRINCIPAL.decode(content)
        self._connection.post(_FORGET, [self._user_key(principal)], key)
        return principal

    def _key(self, ticket: str) -> str:
        return self._connection.key("ticket", ticket_hash(ticket).hex())

    def _user_key(self, principal: Principal) -> str:
        return self._connection.key("tickets", principal.user_id)


# -- rate limits -------------------------------------------------------------------------------------------------------
# Token buckets in Redis, counted together for all processes. The clock is the server's, because hosts may differ.
#
# While the server does not answer, each process limits by buckets of its own, which take part in no other's count.

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
            try:
                await self._fallback.take(key, cost)
            except RateLimited:
                self.refusals += 1
                raise
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
    fallback = in_process_limits()
    return lambda rule: RedisTokenBuckets(connection, rule, fallback(rule))
