"""Opens the connection to Redis and builds the stores on it."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from loguru import logger
from msgspec import Struct, structs

from auth import redis
from auth.context import SessionId
from config.errors import SharedStateUnavailable
from config.paths import UserId
from config.settings import Settings
from server import stores
from server.compat.agentchatbus.agents import REPLY_TOKEN_LIMITS, ReplyToken, ReplyTokenLimits, too_many_reply_tokens
from server.import_board import LEASE_S, PostedImport
from server.protocol.dispatcher import RECENT_CALLS_MAX, RecentCall
from sessions.redis import RedisSessionStates, RedisSessionStore

# -- reply tokens ------------------------------------------------------------------------------------------------------
# Reply tokens of the message bus in Redis: issued by one process, consumed once by any. Without Redis none is.

# KEYS: the token, the tokens of its user by last use, those of all users. ARGV: content, lifetime in ms, both limits.
_PUT = redis.RedisScript(
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
_REPLACE = redis.RedisScript("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
return 1
""")
_TOKEN_DECODER = msgspec.msgpack.Decoder(ReplyToken)
_encode = msgspec.msgpack.encode


class RedisReplyTokenStore:
    def __init__(self, connection: redis.RedisConnection, limits: ReplyTokenLimits = REPLY_TOKEN_LIMITS) -> None:
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
        contents = (_encode(token), _encode(structs.replace(token, consumed_at=now)))
        return bool(await self._connection.run(_REPLACE, self._keys(user_id, key)[:1], *contents))

    def _keys(self, user_id: UserId, key: str) -> list[str]:
        name = self._connection.key
        return [name("reply token", user_id, key), name("reply tokens", user_id), name("reply tokens")]


# -- recent calls ------------------------------------------------------------------------------------------------------
# The last MCP calls of each user in Redis. They are recorded without waiting, and lost while Redis does not answer.

_RECORD = redis.RedisScript("""
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, ARGV[2] - 1)
redis.call('EXPIRE', KEYS[1], ARGV[3])
""")
_KEEP_S = 86_400
_CALL_DECODER = msgspec.msgpack.Decoder(RecentCall)


class RedisRecentCalls:
    def __init__(self, connection: redis.RedisConnection) -> None:
        self._connection = connection

    def record(self, user_id: UserId, call: RecentCall) -> None:
        content = msgspec.msgpack.encode(call)
        self._connection.post(_RECORD, [self._key(user_id)], content, RECENT_CALLS_MAX, _KEEP_S)

    async def list(self, user_id: UserId, limit: int) -> Sequence[RecentCall]:
        rows = await self._connection.call("LRANGE", self._key(user_id), 0, limit - 1)
        return [_CALL_DECODER.decode(row) for row in rows]

    async def forget(self, user_id: UserId) -> None:
        """A deletion goes on without Redis: the calls contain no content and expire within a day."""
        with suppress(SharedStateUnavailable):
            await self._connection.call("DEL", self._key(user_id))

    def _key(self, user_id: UserId) -> str:
        return self._connection.key("calls", user_id)


_SESSION_CHANGED = "session changed"


@asynccontextmanager
async def open_redis_stores(settings: Settings) -> AsyncIterator[stores.StateStores]:
    async with (
        redis.open_redis(settings) as connection,
        redis.open_state_keys(connection) as state_keys,
        open_peers(connection) as peers,
    ):
        # Streams of a session can be open at another process than the one that changes its subscriptions.
        sessions = RedisSessionStore(connection, settings, lambda *change: peers.publish(_SESSION_CHANGED, change))
        peers.handle(_SESSION_CHANGED, lambda change: sessions.update(SessionId(change[0]), change[1]))
        yield stores.StateStores(
            sessions=sessions,
            session_states=RedisSessionStates(connection, stores.session_state_limits(settings)),
            make_limit=redis.redis_limits(connection),
            tickets=redis.RedisTickets(connection, settings),
            used_tokens=redis.RedisUsedTokens(connection),
            state_keys=state_keys,
            recent_calls=RedisRecentCalls(connection),
            peers=peers,
            import_board=RedisImportBoard(connection, peers),
            reply_tokens=RedisReplyTokenStore(connection),
        )


# -- peers -------------------------------------------------------------------------------------------------------------
# Messages between processes through Redis: a channel for all of them, and one for each.
#
# The subscription has a connection of its own. It is opened again whenever it is lost; what was sent meanwhile is lost,
# so handlers of `RECONNECTED` repeat what matters.

# A subscription whose server does not even answer pings is opened again.
_PING_S = 5.0
_RECONNECT_S = 0.2
_PUBLISH = redis.RedisScript("return redis.call('PUBLISH', KEYS[1], ARGV[1])")
_ACQUIRE = redis.RedisScript("""
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
""")
_RELEASE = redis.RedisScript("if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end")


class _PeerMessage(Struct, frozen=True, array_like=True):
    sender: str
    kind: str
    content: Any


_DECODER = msgspec.msgpack.Decoder(_PeerMessage)


class RedisPeers:
    def __init__(self, connection: redis.RedisConnection) -> None:
        self.id = secrets.token_hex(8)
        self._connection = connection
        self._handlers: dict[str, list[stores.PeerHandler]] = {}
        self._channels = (connection.key("peers"), connection.key("peer", self.id))
        self._has_answered = False
        self._is_subscribed = asyncio.Event()
        # Whether messages may have been sent while there was no subscription.
        self._has_gap = False

    def handle(self, kind: str, handler: stores.PeerHandler) -> None:
        self._handlers.setdefault(kind, []).append(handler)

    def publish(self, kind: str, content: Any) -> None:
        self._connection.post(_PUBLISH, [self._channels[0]], self._encode(kind, content))

    async def tell(self, kind: str, content: Any) -> None:
        with suppress(SharedStateUnavailable):
            await self._connection.run(_PUBLISH, [self._channels[0]], self._encode(kind, content))

    async def send(self, peer: str, kind: str, content: Any) -> bool:
        receivers = await self._connection.call(
            "PUBLISH", self._connection.key("peer", peer), self._encode(kind, content)
        )
        return bool(receivers)

    async def hold(self, name: str, lifetime_s: float) -> None:
        with suppress(SharedStateUnavailable):  # it is repeated
            await self._connection.call("SET", self._key(name), self.id, "PX", round(lifetime_s * 1000))

    async def release(self, name: str) -> None:
        self._connection.post(_RELEASE, [self._key(name)], self.id)

    async def acquire(self, name: str, lifetime_s: float) -> bool:
        try:
            return bool(await self._connection.run(_ACQUIRE, [self._key(name)], self.id, round(lifetime_s * 1000)))
        except SharedStateUnavailable:
            return False

    async def holder(self, name: str) -> str | None:
        content = await self._connection.call("GET", self._key(name))
        return content.decode() if content is not None else None

    async def run(self) -> None:
        """Keeps the subscription open."""
        while True:
            with suppress(OSError, TimeoutError, redis.RedisReplyError):
                protocol = await self._connection.open(self._receive)
                try:
                    protocol.push("SUBSCRIBE", *self._channels)
                    self._has_answered = True
                    while self._has_answered and not protocol.closed.done():
                        self._has_answered = False
                        protocol.push("PING")
                        await asyncio.wait([protocol.closed], timeout=_PING_S)
                finally:
                    protocol.close()
            self._is_subscribed.clear()
            self._has_gap = True
            await asyncio.sleep(_RECONNECT_S)

    async def wait_until_subscribed(self, timeout_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_subscribed.wait(), timeout_s)

    def _receive(self, reply: Any) -> None:
        self._has_answered = True
        match reply:
            case [b"subscribe", _, count] if count == len(self._channels):
                self._is_subscribed.set()
                if self._has_gap:  # not before: what is sent until now is lost
                    self._has_gap = False
                    self._dispatch(stores.RECONNECTED, None)
            case [b"message", _, content]:
                message = _DECODER.decode(content)
                if message.sender != self.id:
                    self._dispatch(message.kind, message.content)

    def _dispatch(self, kind: str, content: Any) -> None:
        for handler in self._handlers.get(kind, ()):
            try:
                handler(content)
            except (ValueError, TypeError, LookupError) as error:  # another version may send another form
                logger.warning("cannot read a message {!r} of another process: {}", kind, error)

    def _encode(self, kind: str, content: Any) -> bytes:
        return msgspec.msgpack.encode(_PeerMessage(self.id, kind, content))

    def _key(self, name: str) -> str:
        return self._connection.key("holder", self._connection.digest(name))


@asynccontextmanager
async def open_peers(connection: redis.RedisConnection) -> AsyncIterator[RedisPeers]:
    peers = RedisPeers(connection)
    task = asyncio.create_task(peers.run())
    await peers.wait_until_subscribed(_RECONNECT_S)
    try:
        yield peers
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# -- import board ------------------------------------------------------------------------------------------------------
# Imports in Redis: their state for every process, and a lease for the one that runs them.
#
# While Redis does not answer, an import goes on, and only its own process shows it.

_CANCEL = "import cancelled"
# KEYS: the imports of a user, the active ones of all users, the lease. ARGV: id, content, user, process, lease in ms.
# Returns 0 if the import belongs to another process or has ended, which the lease says for a process that was late.
_POST = redis.RedisScript("""
local process = redis.call('GET', KEYS[3])
if process and process ~= ARGV[4] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[6])
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[2], ARGV[1])
  redis.call('SET', KEYS[3], 'ended', 'EX', ARGV[6])
else
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
  redis.call('SET', KEYS[3], ARGV[4], 'PX', ARGV[5])
end
return 1
""")
_RELEASE_JOB = redis.RedisScript("""
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
""")
_REMOVE = redis.RedisScript("""
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('SET', KEYS[3], 'ended', 'EX', ARGV[2])
""")
# One step, because the import may have ended since its process was found to have left it. Returns its content, or false
# if it belongs to a process.
_CLAIM = redis.RedisScript("""
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 then return false end
if not redis.call('SET', KEYS[3], ARGV[2], 'NX', 'PX', ARGV[3]) then return false end
return redis.call('HGET', KEYS[1], ARGV[1])
""")
_JOB_DECODER = msgspec.msgpack.Decoder(PostedImport)


class RedisImportBoard:
    is_shared = True

    def __init__(self, connection: redis.RedisConnection, peers: stores.Peers) -> None:
        self._connection = connection
        self._peers = peers

    async def post(self, posted: PostedImport) -> bool:
        owner = posted.owner if posted.is_active else ""
        content = msgspec.msgpack.encode(posted)
        arguments = (posted.job.id, content, owner, self._peers.id, round(LEASE_S * 1000), _KEEP_S)
        try:
            return bool(await self._connection.run(_POST, self._keys(posted), *arguments))
        except SharedStateUnavailable:
            return True

    async def remove(self, posted: PostedImport) -> None:
        with suppress(SharedStateUnavailable):
            await self._connection.run(_REMOVE, self._keys(posted), posted.job.id, _KEEP_S)

    async def release(self, posted: PostedImport) -> None:
        with suppress(SharedStateUnavailable):
            await self._connection.run(_RELEASE_JOB, [self._lease(posted.job.id)], self._peers.id)

    async def list(self, owner: UserId) -> Sequence[PostedImport]:
        contents = await self._connection.call("HVALS", self._connection.key("imports", owner))
        return sorted(map(_JOB_DECODER.decode, contents), key=lambda posted: posted.job.started_at, reverse=True)

    async def count_running(self, owner: UserId) -> int:
        try:
            leases = [self._lease(posted.job.id) for posted in await self.list(owner) if posted.is_active]
            return int(await self._connection.call("EXISTS", *leases)) if leases else 0
        except SharedStateUnavailable:
            return 0

    async def claim_abandoned(self) -> Sequence[PostedImport]:
        connection, claimed, lease_ms = self._connection, [], round(LEASE_S * 1000)
        with suppress(SharedStateUnavailable):
            active = await connection.call("HGETALL", connection.key("active imports"))
            for job_id, owner in zip(active[::2], active[1::2], strict=True):
                content = await connection.call("HGET", connection.key("imports", owner.decode()), job_id)
                if content is None:  # the user's imports have expired
                    await connection.call("HDEL", connection.key("active imports"), job_id)
                    continue
                posted = _JOB_DECODER.decode(content)
                if not await asyncio.to_thread(Path(posted.folder).is_dir):  # on another machine
                    continue
                content = await connection.run(_CLAIM, self._keys(posted), job_id, self._peers.id, lease_ms)
                if content is not None:
                    claimed.append(_JOB_DECODER.decode(content))
        return claimed

    def request_cancel(self, job_id: str) -> None:
        self._peers.publish(_CANCEL, job_id)

    def on_cancel(self, handler: Callable[[str], None]) -> None:
        self._peers.handle(_CANCEL, handler)

    def _keys(self, posted: PostedImport) -> Sequence[str]:
        key = self._connection.key
        return [key("imports", posted.owner), key("active imports"), self._lease(posted.job.id)]

    def _lease(self, job_id: str) -> str:
        return self._connection.key("import lease", job_id)
