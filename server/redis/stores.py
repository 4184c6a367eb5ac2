"""Opens the connection to Redis and builds the stores on it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from auth.redis.connection import open_redis
from auth.redis.rate_limits import redis_limits
from auth.redis.state_keys import open_state_keys
from auth.redis.tickets import RedisTickets
from auth.redis.used_tokens import RedisUsedTokens
from config.settings import Settings
from server.redis.recent_calls import RedisRecentCalls
from server.state_stores import StateStores, session_state_limits
from sessions.redis.state import RedisSessionStates
from sessions.redis.store import RedisSessionStore


@asynccontextmanager
async def open_redis_stores(settings: Settings) -> AsyncIterator[StateStores]:
    async with open_redis(settings) as connection, open_state_keys(connection) as state_keys:
        yield StateStores(
            sessions=RedisSessionStore(connection, settings),
            session_states=RedisSessionStates(connection, session_state_limits(settings)),
            make_limit=redis_limits(connection, settings),
            tickets=RedisTickets(connection, settings),
            used_tokens=RedisUsedTokens(connection),
            state_keys=state_keys,
            recent_calls=RedisRecentCalls(connection, settings),
        )
