"""Tokens for one use, remembered in Redis: a second process rejects what a first has accepted. Without the server no
token is accepted."""

import hashlib

from auth.redis.connection import RedisConnection


class RedisUsedTokens:
    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection

    async def use(self, token: bytes, ttl_s: float) -> bool:
        key = self._connection.key("used", hashlib.sha256(token).hexdigest())
        return await self._connection.call("SET", key, 1, "NX", "PX", max(1, round(ttl_s * 1000))) is not None
