"""Reply tokens of the message bus in Redis: issued by one process, consumed once by any. Without Redis none is."""

import msgspec
from msgspec.structs import replace

from auth.redis.connection import RedisConnection, RedisScript
from config.paths import UserId
from server.compat.agentchatbus.agents import REPLY_TOKEN_LIMITS, ReplyToken, ReplyTokenLimits, too_many_reply_tokens

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
_DECODER = msgspec.msgpack.Decoder(ReplyToken)
_encode = msgspec.msgpack.encode


class RedisReplyTokenStore:
    def __init__(self, connection: RedisConnection, limits: ReplyTokenLimits = REPLY_TOKEN_LIMITS) -> None:
        self._connection = connection
        self._ttl_s = 2 * limits.ttl_s
        self._limits = (limits.user_max, limits.total_max)

    async def get(self, user_id: UserId, key: str) -> ReplyToken | None:
        content = await self._connection.call("GET", self._keys(user_id, key)[0])
        return None if content is None else _DECODER.decode(content)

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
