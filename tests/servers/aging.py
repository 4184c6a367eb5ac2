"""Makes the keys of a deployment older, as if time had passed: their lifetimes end sooner, and stored times move back.

Expiry in Redis and PostgreSQL follows the server's clock, which tests cannot set.
"""

import asyncpg

from auth.redis import RedisConnection

# Sorted sets whose scores are times in microseconds, and texts that are.
_TIMES = ("sessions", "states", "tickets")
_TEXTS = ("rate",)


async def age_keys(connection: RedisConnection, seconds: float) -> None:
    prefix = f"{connection.key()}:"
    for key in await list_keys(connection):
        name = key[len(prefix) :].partition(":")[0]
        kind = await connection.call("TYPE", key)
        if name in _TIMES and kind == b"zset":
            for member in await connection.call("ZRANGE", key, 0, -1):
                await connection.call("ZINCRBY", key, round(-seconds * 1_000_000), member)
        elif name in _TEXTS:
            full_at = int(await connection.call("GET", key))
            await connection.call("SET", key, full_at - round(seconds * 1_000_000), "KEEPTTL")
        await _shorten(connection, key, seconds)


async def _shorten(connection: RedisConnection, key: str, seconds: float) -> None:
    remaining_ms = await connection.call("PTTL", key)
    if remaining_ms >= 0:
        await connection.call("PEXPIRE", key, max(0, round(remaining_ms - seconds * 1000)))


async def list_keys(connection: RedisConnection) -> list[str]:
    keys: list[str] = []
    cursor = b"0"
    while True:
        cursor, found = await connection.call("SCAN", cursor, "MATCH", f"{connection.key()}:*", "COUNT", 1000)
        keys += [key.decode() for key in found]
        if cursor == b"0":
            return keys


async def age_embedding_users(url: str) -> None:
    """Ends the time in which the users of a process that embeds are left to it."""
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        await connection.execute("UPDATE florilegium.embedding_users SET until = 0")
    finally:
        await connection.close()
