"""Opens the connection to Redis and builds the stores on it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import msgspec
from msgspec.structs import replace

from auth.context import SessionId
from auth.redis.connection import RedisConnection, RedisScript, open_redis
from auth.redis.stores import RedisTickets, RedisUsedTokens, open_state_keys, redis_limits
from config.errors import SharedStateUnavailable
from config.paths import UserId
from config.settings import Settings
from server.compat.agentchatbus.agents import REPLY_TOKEN_LIMITS, ReplyToken, ReplyTokenLimits, too_many_reply_tokens
from server.protocol.call import Call
from server.redis.peers import RedisImportBoard, open_peers
from server.stores import RECENT_CALLS_MAX, RecentCall, StateStores, recent_call, session_state_limits
from sessions.redis.state import RedisSessionStates
from sessions.redis.store import RedisSessionStore

# -- reply tokens ------------------------------------------------------------------------------------------------------
# Reply tokens of the message bus in Redis: issued by one process, consumed once by any. Without Redis none is.

# KEYS: the token, the tokens of its user by last use, those of all users. ARGV: content, lifetime in ms, both limits.
_PUT = RedisScript(
    """
local ttl = tonumber(ARGV[2])
for index = 2, 3 do redis.call('ZREMRANGEBYSCORE', KEYS[index], '-inf', now - ttl * 1000) end
if redis.call('EXISTS', KEYS[1]) == 0 then
  if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[3]) then
    local oldest = redis.call('ZPOPMIN', KEYS[2])[1]
    redis.call('ZREM', KEYS[3], oldest)
    redis.call('DEL', oldest)
  end
  if redis.call('ZCARD', KEYS[3]) >= tonumber(ARGV[4]) then return 0 end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ttl)
for index = 2, 3 do
  redis.call('ZADD', KEYS[index], now, KEYS[1])
  redis.call('PEXPIRE', KEYS[index], ttl)
end
return 1
""",
    uses_now=True,
)
_REPLACE = RedisScript("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
return 1
""")
_TOKEN_DECODER = msgspec.msgpack.Decoder(ReplyToken)
_encode = msgspec.msgpack.encode


class RedisReplyTokenStore:
    def __init__(self, connection: RedisConnection, limits: ReplyTokenLimits = REPLY_TOKEN_LIMITS) -> None:
        self._connection = connection
        self._ttl_s = 2 * limits.ttl_s
        self._limits = (limits.user_max, limits.total_max)

    async def get(self, user_id: UserId, key: str) -> ReplyToken | None:
        content = await self._connection.call("GET", self._keys(user_id, key)[0])
        return None if content is None else _TOKEN_DECODER.decode(content)

    async def put(self, user_id: UserId, key: str, token: ReplyToken) -> None:
        arguments = (_encode(token), round(self._ttl_s * 1000), *self._limits)
        if not await self._connection.run(_PUT, self._keys(user_id, key), *arguments):
            raise too_many_reply_tokens(self._limits[1], self._ttl_s)

    async def consume(self, user_id: UserId, key: str, token: ReplyToken, now: float) -> bool:
        contents = (_encode(token), _encode(replace(token, consumed_at=now)))
        return bool(await self._connection.run(_REPLACE, self._keys(user_id, key)[:1], *contents))

    def _keys(self, user_id: UserId, key: str) -> list[str]:
        name = self._connection.key
        return [name("reply token", user_id, key), name("reply tokens", user_id), name("reply tokens")]


# -- recent calls ------------------------------------------------------------------------------------------------------
# The last MCP calls of each user in Redis. They are recorded without waiting, and lost while Redis does not answer.

_RECORD = RedisScript("""
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, ARGV[2] - 1)
redis.call('EXPIRE', KEYS[1], ARGV[3])
""")
_KEEP_S = 86_400
_JOB_DECODER = msgspec.msgpack.Decoder(RecentCall)


class RedisRecentCalls:
    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection

    def record(self, call: Call, method: str, tool: str, outcome: str, seconds: float) -> None:
        record = recent_call(call, method, tool, outcome, seconds)
        if record is not None:
            content = msgspec.msgpack.encode(record)
            self._connection.post(_RECORD, [self._key(call.context.user_id)], content, RECENT_CALLS_MAX, _KEEP_S)

    async def list(self, user_id: UserId, limit: int) -> Sequence[RecentCall]:
        rows = await self._connection.call("LRANGE", self._key(user_id), 0, limit - 1)
        return [_JOB_DECODER.decode(row) for row in rows]

    async def forget(self, user_id: UserId) -> None:
        """A deletion goes on without Redis: the calls contain no content and expire within a day."""
        with suppress(SharedStateUnavailable):
            await self._connection.call("DEL", self._key(user_id))

    def _key(self, user_id: UserId) -> str:
        return self._connection.key("calls", user_id)


_SESSION_CHANGED = "session changed"


@asynccontextmanager
async def open_redis_stores(settings: Settings) -> AsyncIterator[StateStores]:
    async with (
        open_redis(settings) as connection,
        open_state_keys(connection) as state_keys,
        open_peers(connection) as peers,
    ):
        # Streams of a session can be open at another process than the one that changes its subscriptions.
        sessions = RedisSessionStore(connection, settings, lambda *change: peers.publish(_SESSION_CHANGED, change))
        peers.handle(_SESSION_CHANGED, lambda change: sessions.update(SessionId(change[0]), change[1]))
        yield StateStores(
            sessions=sessions,
            session_states=RedisSessionStates(connection, session_state_limits(settings)),
            make_limit=redis_limits(connection, settings),
            tickets=RedisTickets(connection, settings),
            used_tokens=RedisUsedTokens(connection),
            state_keys=state_keys,
            recent_calls=RedisRecentCalls(connection),
            peers=peers,
            import_board=RedisImportBoard(connection, peers),
            reply_tokens=RedisReplyTokenStore(connection),
        )
