"""Legacy sessions in Redis: opened by one process, known to all, and listed by last use to apply the limits.

The key of a session contains a digest of its owner, so a session id leads nowhere without the owner's credential. Each
process remembers the sessions it has served, and serves them on while Redis does not answer: every request is
authenticated, so a session that has ended meanwhile gives no access.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
from cachetools import LRUCache
from msgspec import Struct

from auth.context import Owner, SessionId
from auth.redis.connection import CACHED_NAME_MAX_CHARS, RUNS_MAX, RedisConnection, RedisScript, ScriptRun
from config.errors import SessionNotFound, SharedStateUnavailable
from config.settings import Settings
from sessions.store import Session, too_many_sessions

# KEYS: the session, the sessions of its user, all sessions. Members of the sets are the keys of sessions.
_CREATE = RedisScript(
    """
local ttl = tonumber(ARGV[2])
for index = 2, 3 do
  redis.call('ZREMRANGEBYSCORE', KEYS[index], '-inf', now - ttl * 1000)
  redis.call('ZREM', KEYS[index], KEYS[1])
end
if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[3]) then
  local oldest = redis.call('ZPOPMIN', KEYS[2])[1]
  redis.call('ZREM', KEYS[3], oldest)
  redis.call('DEL', oldest)
end
if redis.call('ZCARD', KEYS[3]) >= tonumber(ARGV[4]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ttl)
for index = 2, 3 do
  redis.call('ZADD', KEYS[index], now, KEYS[1])
  redis.call('PEXPIRE', KEYS[index], ttl)
end
return 1
""",
    uses_now=True,
)
GET_SESSION = RedisScript(
    """
local session = redis.call('GETEX', KEYS[1], 'PX', ARGV[1])
if not session then return session end
for index = 2, 3 do
  redis.call('ZADD', KEYS[index], now, KEYS[1])
  redis.call('PEXPIRE', KEYS[index], ARGV[1])
end
return session
""",
    uses_now=True,
)
_END = RedisScript("""
for index = 2, 3 do redis.call('ZREM', KEYS[index], KEYS[1]) end
return redis.call('DEL', KEYS[1])
""")
# Changes only a session that still exists (XX), and leaves its idle timer alone.
_SAVE = RedisScript("return redis.call('SET', KEYS[1], ARGV[1], 'XX', 'KEEPTTL')")


class _StoredSession(Struct, frozen=True, array_like=True):
    version: str
    client_name: str
    client_version: str
    capabilities: dict[str, Any]
    profile: str
    log_level: str | None
    subscriptions: tuple[str, ...]


_DECODER = msgspec.msgpack.Decoder(_StoredSession)


class RedisSessionStore:
    """`announce` makes a change of a session known to the processes that have open streams of it."""

    def __init__(
        self,
        connection: RedisConnection,
        settings: Settings,
        announce: Callable[[SessionId, bytes], None] = lambda session_id, content: None,
    ) -> None:
        self._connection = connection
        self._ttl_s = settings.session_ttl_s
        self._ttl_ms = round(settings.session_ttl_s * 1000)
        self._limits = (settings.fixed.session_max_per_user, settings.session_max)
        self._announce = announce
        self._known: LRUCache[SessionId, Session] = LRUCache(settings.session_max)
        self._cached_run = lru_cache(RUNS_MAX)(self._build_run)

    def __len__(self) -> int:
        return len(self._known)

    async def create(self, session: Session) -> None:
        keys = self._keys(session.id, session.owner)
        if not await self._connection.run(_CREATE, keys, _encode(session), self._ttl_ms, *self._limits):
            raise too_many_sessions(self._ttl_s)
        self._known[session.id] = session

    async def get(self, session_id: str, owner: Owner) -> Session:
        identifier = SessionId(session_id)
        known = self._known.get(identifier)
        if known is not None and known.owner != owner:
            raise SessionNotFound
        # Also for a known session: another process may have ended it or changed its subscriptions.
        try:
            content = await self._connection.execute(self.run_of(identifier, owner))
        except SharedStateUnavailable:
            if known is None:
                raise
            return known
        if content is None:
            self._known.pop(identifier, None)
            raise SessionNotFound
        # The same object for every request of a session, because open streams refer to its subscriptions.
        stored, session = _DECODER.decode(content), self._known.get(identifier)
        if session is None:
            session = Session(
                id=identifier,
                owner=owner,
                version=stored.version,
                client_name=stored.client_name,
                client_version=stored.client_version,
                capabilities=stored.capabilities,
                profile=stored.profile,
            )
            self._known[identifier] = session
        _apply(stored, session)
        return session

    def run_of(self, session_id: SessionId, owner: Owner) -> ScriptRun:
        """Returns what `get` runs."""
        build = self._cached_run if len(session_id) <= CACHED_NAME_MAX_CHARS else self._build_run
        return build(session_id, owner)

    def _build_run(self, session_id: SessionId, owner: Owner) -> ScriptRun:
        return ScriptRun(GET_SESSION, tuple(self._keys(session_id, owner)), (self._ttl_ms,))

    async def holds(self, session: Session) -> bool:
        try:
            return bool(await self._connection.call("EXISTS", self._keys(session.id, session.owner)[0]))
        except SharedStateUnavailable:
            return session.id in self._known

    async def save(self, session: Session) -> None:
        content = _encode(session)
        await self._connection.run(_SAVE, self._keys(session.id, session.owner)[:1], content)
        self._announce(session.id, content)

    async def end(self, session: Session) -> None:
        self._known.pop(session.id, None)
        await self._connection.run(_END, self._keys(session.id, session.owner))

    def update(self, session_id: SessionId, content: bytes) -> None:
        """Applies a change that another process has announced, if this process knows the session."""
        known = self._known.get(session_id)
        if known is not None:
            _apply(_DECODER.decode(content), known)

    def _keys(self, session_id: SessionId, owner: Owner) -> list[str]:
        connection = self._connection
        return [
            connection.key("session", connection.digest((*owner, session_id))),
            connection.key("sessions", owner.user_id),
            connection.key("sessions"),
        ]


def _encode(session: Session) -> bytes:
    return msgspec.msgpack.encode(
        _StoredSession(
            session.version,
            session.client_name,
            session.client_version,
            dict(session.capabilities),
            session.profile,
            session.log_level,
            tuple(session.subscriptions),
        )
    )


def _apply(stored: _StoredSession, session: Session) -> None:
    session.log_level = stored.log_level
    if session.subscriptions != set(stored.subscriptions):
        session.subscriptions.clear()
        session.subscriptions.update(stored.subscriptions)
