"""Opens the connection to Redis and builds the stores on it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import msgspec

from auth.context import SessionId
from auth.redis.connection import RedisConnection, RedisScript, open_redis
from auth.redis.stores import RedisTickets, RedisUsedTokens, open_state_keys, redis_limits
from config.errors import SharedStateUnavailable
from config.paths import UserId
from config.settings import Settings
from server.protocol.call import Call
from server.recent_calls import RECENT_CALLS_MAX, RecentCall, recent_call
from server.redis.import_board import RedisImportBoard
from server.redis.peers import open_peers
from server.redis.reply_tokens import RedisReplyTokenStore
from server.stores import StateStores, session_state_limits
from sessions.redis.state import RedisSessionStates
from sessions.redis.store import RedisSessionStore

# -- recent calls ------------------------------------------------------------------------------------------------------
# The last MCP calls of each user in Redis. They are recorded without waiting, and lost while Redis does not answer.

_RECORD = RedisScript("""
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, ARGV[2] - 1)
redis.call('EXPIRE', KEYS[1], ARGV[3])
""")
_KEEP_S = 86_400
_DECODER = msgspec.msgpack.Decoder(RecentCall)


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
        return [_DECODER.decode(row) for row in rows]

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
