"""Legacy sessions in Redis: opened by one process, known to all, and listed by last use to apply the limits.

The key of a session contains a digest of its owner, so a session id leads nowhere without the owner's credential. Each
process remembers the sessions it has served, and serves them on while Redis does not answer: every request is
authenticated, so a session that has ended meanwhile gives no access.
"""

import hashlib
import sys
from array import array
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, Final

import msgspec
from cachetools import LRUCache
from msgspec import Struct

from auth.context import Owner, SessionId
from auth.redis import CACHED_NAME_MAX_CHARS, RUNS_MAX, RedisConnection, RedisScript, ScriptRun
from config.errors import SessionNotFound, SharedStateUnavailable
from config.numbers import clamp
from config.settings import Settings
from sessions.state import NOTHING_SEEN, SessionHandle, SessionState, SessionStateLimits, new_handle
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


# -- state -------------------------------------------------------------------------------------------------------------
# Session state in Redis. Every operation is one script, so two processes never overwrite each other's changes.
#
# Items are stored as hashes of eight bytes, one after the other in one string, the latest last: 500 of them take 4 KB,
# and a false match is about as likely as 1 in 10^14. Redis returns the string as it is, whereas a script copies every
# member of a set, which takes 40 us for 200 of them. While Redis does not answer, a search is served without the state
# of its session, and the response says so.

_HASH_BYTES = 8
# Eight bytes as an unsigned number, for `array` and `memoryview`.
_HASH_FORMAT: Final = "Q"
# A search with `dedupe` looks up all hits of its pages, 200 and more, and the next searches mostly the same ones: from
# the cache, a hash takes 0.1 us instead of 3 us.
_HASHES_MAX = 16_384
# The size of an empty state without its fields, in units of one seen item.
_BASE_SIZE = 3
_NO_DEFAULTS: Mapping[str, Any] = MappingProxyType({})

# A state is a hash with the fields `items`, `queries` and one for each default. Every query ends with the byte 255,
# which is in no UTF-8 text.
# KEYS: the state, and of its user: the states by last use, and their sizes, with the total in an empty field.
# ARGV: the idle time in ms, the size that the states of a user may have together, the base size, the bytes of a hash.
_FUNCTIONS = """
local ttl = tonumber(ARGV[1])

local function touch()
  redis.call('ZADD', KEYS[2], now, KEYS[1])
  for index = 1, 3 do redis.call('PEXPIRE', KEYS[index], ttl) end
end

local function forget(key)
  redis.call('DEL', key)
  redis.call('ZREM', KEYS[2], key)
  local size = redis.call('HGET', KEYS[3], key)
  if not size then return end
  redis.call('HDEL', KEYS[3], key)
  redis.call('HINCRBY', KEYS[3], '', -size)
end

local function count(queries) return select(2, queries:gsub('\\255', '')) end

local function resize(items, queries)
  local before = redis.call('HMGET', KEYS[3], '', KEYS[1])
  local size = ARGV[3] + redis.call('HLEN', KEYS[1]) + count(queries) + #items / ARGV[4]
  redis.call('HSET', KEYS[3], '', (before[1] or 0) + size - (before[2] or 0), KEYS[1], size)
  touch()
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ttl * 1000)) do forget(key) end
  while tonumber(redis.call('HGET', KEYS[3], '')) > tonumber(ARGV[2]) do
    local oldest = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
    if oldest == KEYS[1] then return end
    forget(oldest)
  end
end

local function clear()
  redis.call('HSET', KEYS[1], 'items', '', 'queries', '')
  resize('', '')
end
"""
_CREATE_STATE = RedisScript(
    _FUNCTIONS
    + """
if redis.call('EXISTS', KEYS[1]) == 0 then clear() else touch() end
return redis.call('HGETALL', KEYS[1])
""",
    uses_now=True,
)
# Needs only the first of the arguments. Most calls change nothing: the idle timer is restarted when it has run for 1 %.
GET_STATE = RedisScript(
    """
local state = redis.call('HGETALL', KEYS[1])
if #state == 0 then return false end
if redis.call('PTTL', KEYS[1]) < ARGV[1] * 0.99 then
  redis.call('ZADD', KEYS[2], now, KEYS[1])
  for index = 1, 3 do redis.call('PEXPIRE', KEYS[index], ARGV[1]) end
end
return state
""",
    uses_now=True,
)
# ARGV 5 to 8: how many items and queries to keep, the query, and the items. Those seen before move to the end.
_RECORD = RedisScript(
    _FUNCTIONS
    + """
local items, queries = unpack(redis.call('HMGET', KEYS[1], 'items', 'queries'))
if not items then return false end

local query = ARGV[7] .. '\\255'
if #query > 1 then
  local at = ('\\255' .. queries):find('\\255' .. query, 1, true)
  if at then queries = queries:sub(1, at - 1) .. queries:sub(at + #query) end
  queries = queries .. query
  for _ = ARGV[6] + 1, count(queries) do queries = queries:sub(queries:find('\\255', 1, true) + 1) end
end

local bytes, delivered, seen_at = tonumber(ARGV[4]), ARGV[8], {}
for first = 1, #delivered, bytes do
  local item = delivered:sub(first, first + bytes - 1)
  local at = items:find(item, 1, true)
  while at and at % bytes ~= 1 do at = items:find(item, at + 1, true) end
  if at then seen_at[#seen_at + 1] = at end
end
table.sort(seen_at)
local others, after = {}, 1
for _, at in ipairs(seen_at) do
  others[#others + 1] = items:sub(after, at - 1)
  after = at + bytes
end
others[#others + 1] = items:sub(after)
items = (table.concat(others) .. delivered):sub(-ARGV[5] * bytes)

redis.call('HSET', KEYS[1], 'items', items, 'queries', queries)
resize(items, queries)
return true
""",
    uses_now=True,
)
_SET_DEFAULTS = RedisScript(
    _FUNCTIONS
    + """
local items, queries = unpack(redis.call('HMGET', KEYS[1], 'items', 'queries'))
if not items then return false end
if #ARGV > 4 then redis.call('HSET', KEYS[1], unpack(ARGV, 5)) end
resize(items, queries)
return redis.call('HGETALL', KEYS[1])
""",
    uses_now=True,
)
_RESET = RedisScript(
    _FUNCTIONS
    + """
local before = redis.call('HGETALL', KEYS[1])
if #before == 0 then return false end
redis.call('DEL', KEYS[1])
clear()
return before
""",
    uses_now=True,
)
_DELETE = RedisScript(_FUNCTIONS + "forget(KEYS[1])", uses_now=True)
_DEFAULT = "default "
_END_OF_QUERY = b"\xff"


class SeenHashes:
    """The items of a session, of which only hashes are known. They are taken apart when the first is looked up: not all
    calls do."""

    def __init__(self, joined: bytes) -> None:
        self._joined = joined

    def __len__(self) -> int:
        return len(self._joined) // _HASH_BYTES

    def has(self, uri: str, version: int) -> bool:
        return _hash(uri, version) in self._hashes

    @cached_property
    def _hashes(self) -> frozenset[int]:
        """As numbers: to take them out as bytes takes five times as long, 57 us for 200 of them."""
        return frozenset(memoryview(self._joined).cast(_HASH_FORMAT))


class RedisSessionStates:
    def __init__(self, connection: RedisConnection, limits: SessionStateLimits) -> None:
        self._connection = connection
        user_max = min(limits.user_max, limits.total_max)
        self._common = (round(limits.ttl_s * 1000), user_max, _BASE_SIZE, _HASH_BYTES)
        self._seen_max = clamp(limits.seen_max, 1, user_max // 2)
        self._queries_max = clamp(limits.queries_max, 1, user_max // 4)
        self._cached_run = lru_cache(RUNS_MAX)(self._build_run)

    async def create(self, owner: Owner) -> SessionState:
        """Does not wait: a new state is empty."""
        handle = new_handle()
        if self._connection.post(_CREATE_STATE, self.run_of(handle, owner).keys, *self._common):
            return SessionState(handle, NOTHING_SEEN, (), _NO_DEFAULTS)
        return await self.get_or_create(handle, owner)

    async def get_or_create(self, handle: SessionHandle, owner: Owner) -> SessionState:
        try:
            return _state(handle, await self._run(_CREATE_STATE, handle, owner))
        except SharedStateUnavailable as error:
            return _without_state(handle, error)

    async def get(self, handle: SessionHandle, owner: Owner) -> SessionState:
        try:
            return _state(handle, _require(await self._connection.execute(self.run_of(handle, owner))))
        except SharedStateUnavailable as error:
            return _without_state(handle, error)

    def run_of(self, handle: SessionHandle, owner: Owner) -> ScriptRun:
        """Returns what `get` runs."""
        build = self._cached_run if len(handle) <= CACHED_NAME_MAX_CHARS else self._build_run
        return build(handle, owner)

    def _build_run(self, handle: SessionHandle, owner: Owner) -> ScriptRun:
        return ScriptRun(GET_STATE, self._keys(handle, owner), self._common[:1])

    async def record(
        self, handle: SessionHandle, owner: Owner, query: str, delivered: Mapping[str, int], seen_max: int | None = None
    ) -> None:
        """Does not wait: later commands of this process, and in practice of others, find the items recorded."""
        items = array(_HASH_FORMAT, [_hash(uri, version) for uri, version in delivered.items()]).tobytes()
        limits = (self._seen_max if seen_max is None else clamp(seen_max, 1, self._seen_max), self._queries_max)
        self._connection.post(_RECORD, self.run_of(handle, owner).keys, *self._common, *limits, query, items)

    async def set_defaults(self, handle: SessionHandle, owner: Owner, defaults: Mapping[str, Any]) -> SessionState:
        fields = [part for name, value in defaults.items() for part in (_DEFAULT + name, msgspec.json.encode(value))]
        return _state(handle, _require(await self._run(_SET_DEFAULTS, handle, owner, *fields)))

    async def reset(self, handle: SessionHandle, owner: Owner) -> SessionState:
        return _state(handle, _require(await self._run(_RESET, handle, owner)))

    async def delete(self, handle: SessionHandle, owner: Owner) -> None:
        """A state that cannot be deleted now expires by itself."""
        self._connection.post(_DELETE, self._keys(handle, owner), *self._common)

    async def _run(self, script: RedisScript, handle: SessionHandle, owner: Owner, *arguments: str | bytes) -> Any:
        return await self._connection.run(script, self.run_of(handle, owner).keys, *self._common, *arguments)

    def _keys(self, handle: SessionHandle, owner: Owner) -> tuple[str, ...]:
        """The owner is part of the key: with the handle of another user's session, no key of that user is read."""
        connection = self._connection
        state = connection.key("session state", connection.digest((*owner, handle)))
        return state, connection.key("states", owner.user_id), connection.key("state sizes", owner.user_id)


def _require(reply: Any) -> Any:
    if reply is None:
        raise SessionNotFound
    return reply


def _state(handle: SessionHandle, reply: Any) -> SessionState:
    fields = {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}
    items, queries = fields.pop("items"), fields.pop("queries")
    defaults = {name[len(_DEFAULT) :]: msgspec.json.decode(value) for name, value in fields.items()}
    texts = tuple(query.decode("utf-8", "surrogatepass") for query in queries.split(_END_OF_QUERY)[:-1])
    return SessionState(handle, SeenHashes(items), texts, MappingProxyType(defaults))


def _without_state(handle: SessionHandle, error: SharedStateUnavailable) -> SessionState:
    return SessionState(handle, NOTHING_SEEN, (), _NO_DEFAULTS, error.message)


@lru_cache(_HASHES_MAX)
def _hash(uri: str, version: int) -> int:
    """Returns a hash of eight bytes as a number, in the byte order of this machine. The bytes in Redis do not depend on
    it."""
    text = f"{version} {uri}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=_HASH_BYTES).digest(), sys.byteorder)
