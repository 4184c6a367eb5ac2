"""The last MCP calls of each user in Redis. They are recorded without waiting, and lost while Redis does not answer."""

from collections.abc import Sequence

import msgspec

from auth.redis.connection import RedisConnection
from auth.redis.scripts import RedisScript
from config.errors import SharedStateUnavailable
from config.paths import UserId
from config.settings import Settings
from server.protocol.call import Call
from server.recent_calls import RecentCall, recent_call

_RECORD = RedisScript("""
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, ARGV[2] - 1)
redis.call('EXPIRE', KEYS[1], ARGV[3])
""")
_KEEP_S = 86_400
_DECODER = msgspec.msgpack.Decoder(RecentCall)


class RedisRecentCalls:
    def __init__(self, connection: RedisConnection, settings: Settings) -> None:
        self._connection = connection
        self._per_user = settings.recent_calls_max

    def record(self, call: Call, method: str, tool: str, outcome: str, seconds: float) -> None:
        record = recent_call(call, method, tool, outcome, seconds)
        if record is not None and self._per_user:
            content = msgspec.msgpack.encode(record)
            self._connection.post(_RECORD, [self._key(call.context.user_id)], content, self._per_user, _KEEP_S)

    async def list(self, user_id: UserId, limit: int) -> Sequence[RecentCall]:
        rows = await self._connection.call("LRANGE", self._key(user_id), 0, limit - 1)
        return [_DECODER.decode(row) for row in rows]

    async def forget(self, user_id: UserId) -> None:
        """A deletion goes on without Redis: the calls contain no content and expire within a day."""
        try:
            await self._connection.call("DEL", self._key(user_id))
        except SharedStateUnavailable:
            return

    def _key(self, user_id: UserId) -> str:
        return self._connection.key("calls", user_id)
