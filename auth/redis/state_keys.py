"""The secret from which all processes of a deployment make the keys that sign state.

The first process stores its own secret, and the others use it. It is stored again if the server has lost it, so a
restart of Redis changes nothing.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from auth.redis.connection import RedisConnection
from auth.redis.scripts import RedisScript
from auth.state_keys import StateKeys
from config.errors import SharedStateUnavailable

_SYNCHRONIZE = RedisScript("redis.call('SET', KEYS[1], ARGV[1], 'NX') return redis.call('GET', KEYS[1])")
_INTERVAL_S = 1.0


@asynccontextmanager
async def open_state_keys(connection: RedisConnection) -> AsyncIterator[StateKeys]:
    keys = StateKeys()
    await _synchronize(connection, keys)
    task = asyncio.create_task(_synchronize_periodically(connection, keys))
    try:
        yield keys
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _synchronize_periodically(connection: RedisConnection, keys: StateKeys) -> None:
    while True:
        await asyncio.sleep(_INTERVAL_S)
        await _synchronize(connection, keys)


async def _synchronize(connection: RedisConnection, keys: StateKeys) -> None:
    with suppress(SharedStateUnavailable):
        keys.replace(await connection.run(_SYNCHRONIZE, [connection.key("state secret")], keys.secret))
