"""Opens the connection to Redis and builds the stores on it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from auth.context import SessionId
from auth.redis.connection import RedisConnection, open_redis
from auth.redis.rate_limits import redis_limits
from auth.redis.state_keys import open_state_keys
from auth.redis.tickets import RedisTickets
from auth.redis.used_tokens import RedisUsedTokens
from config.settings import Settings
from server.redis.import_board import RedisImportBoard
from server.redis.peers import RedisPeers, open_peers
from server.redis.read_ahead import RedisReadAhead
from server.redis.recent_calls import RedisRecentCalls
from server.redis.reply_tokens import RedisReplyTokenStore
from server.state_stores import StateStores, session_state_limits
from sessions.redis.state import RedisSessionStates
from sessions.redis.store import RedisSessionStore

_SESSION_CHANGED = "session changed"


@asynccontextmanager
async def open_redis_stores(settings: Settings) -> AsyncIterator[StateStores]:
    async with (
        open_redis(settings) as connection,
        open_state_keys(connection) as state_keys,
        open_peers(connection) as peers,
    ):
        sessions = _sessions(connection, settings, peers)
        session_states = RedisSessionStates(connection, session_state_limits(settings))
        yield StateStores(
            sessions=sessions,
            session_states=session_states,
            read_ahead=RedisReadAhead(connection, settings, sessions, session_states),
            make_limit=redis_limits(connection, settings),
            tickets=RedisTickets(connection, settings),
            used_tokens=RedisUsedTokens(connection),
            state_keys=state_keys,
            recent_calls=RedisRecentCalls(connection, settings),
            peers=peers,
            import_board=RedisImportBoard(connection, peers),
            reply_tokens=RedisReplyTokenStore(connection, settings),
        )


def _sessions(connection: RedisConnection, settings: Settings, peers: RedisPeers) -> RedisSessionStore:
    """Streams of a session can be open at another process than the one that changes its subscriptions."""
    store = RedisSessionStore(connection, settings, lambda *change: peers.publish(_SESSION_CHANGED, change))
    peers.handle(_SESSION_CHANGED, lambda change: store.update(SessionId(change[0]), change[1]))
    return store
