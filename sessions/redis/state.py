"""Session state in Redis. Every operation is one script, so two processes never overwrite each other's changes.

Items are stored as hashes of eight bytes, one after the other in one string, the latest last: 500 of them take 4 KB,
and a false match is about as likely as 1 in 10^14. Redis returns the string as it is, whereas a script copies every
member of a set, which takes 40 us for 200 of them.
While Redis does not answer, a search is served without the state of its session, and the response says so.
"""

import hashlib
from collections.abc import Mapping
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

from auth.principal import Owner
from auth.redis.connection import RedisConnection
from auth.redis.scripts import RedisScript, ScriptRun
from config.errors import SessionNotFound, SharedStateUnavailable
from config.numbers import clamp
from sessions.state import NOTHING_SEEN, SessionHandle, SessionState, SessionStateLimits, new_handle

_HASH_BYTES = 8
# A search with `dedupe` looks up all hits of its pages, 200 and more, and the next searches mostly the same ones: from
# the cache, a hash takes 0.1 us instead of 3 us.
_HASHES_MAX = 16_384
# The size of an empty state, in units of one seen item.
_BASE_SIZE = 4
_NO_DEFAULTS: Mapping[str, Any] = MappingProxyType({})

# KEYS: defaults (with an empty field, so that it exists), queries, seen items, and of the user: the states by last use,
# and their sizes, with the total in an empty field. ARGV: the idle time in ms, the size that the states of a user may
# have together, the base size, and the bytes of a hash.
_FUNCTIONS = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ttl = tonumber(ARGV[1])

local function resize(key, size)
  redis.call('HINCRBY', KEYS[5], '', size - (redis.call('HGET', KEYS[5], key) or 0))
  if size > 0 then redis.call('HSET', KEYS[5], key, size) else redis.call('HDEL', KEYS[5], key) end
end

local function forget(key)
  redis.call('DEL', key, key .. ':queries', key .. ':items')
  redis.call('ZREM', KEYS[4], key)
  resize(key, 0)
end

local function touch()
  redis.call('ZADD', KEYS[4], now, KEYS[1])
  for index = 1, 5 do redis.call('PEXPIRE', KEYS[index], ttl) end
end

local function measure()
  local items = redis.call('STRLEN', KEYS[3]) / ARGV[4]
  resize(KEYS[1], ARGV[3] + redis.call('HLEN', KEYS[1]) + redis.call('LLEN', KEYS[2]) + items)
  touch()
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now - ttl * 1000)) do forget(key) end
  while tonumber(redis.call('HGET', KEYS[5], '')) > tonumber(ARGV[2]) do
    local oldest = redis.call('ZRANGE', KEYS[4], 0, 0)[1]
    if oldest == KEYS[1] then return end
    forget(oldest)
  end
end

local function state()
  return {redis.call('HGETALL', KEYS[1]), redis.call('LRANGE', KEYS[2], 0, -1), redis.call('GET', KEYS[3])}
end
"""
_CREATE = RedisScript(
    _FUNCTIONS
    + """
if redis.call('HSETNX', KEYS[1], '', '') == 1 then measure() else touch() end
return state()
"""
)
GET_STATE = RedisScript(
    _FUNCTIONS
    + """
local found = state()
if #found[1] == 0 then return false end
touch()
return found
"""
)
# ARGV 5 to 8: how many items and queries to keep, the query, and the items. Those seen before move to the end.
_RECORD = RedisScript(
    _FUNCTIONS
    + """
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
if ARGV[7] ~= '' then
  redis.call('LREM', KEYS[2], 0, ARGV[7])
  redis.call('RPUSH', KEYS[2], ARGV[7])
  redis.call('LTRIM', KEYS[2], -ARGV[6], -1)
end
local bytes, items = tonumber(ARGV[4]), redis.call('GET', KEYS[3]) or ''
for first = 1, #ARGV[8], bytes do
  local item = ARGV[8]:sub(first, first + bytes - 1)
  local at = items:find(item, 1, true)
  while at and at % bytes ~= 1 do at = items:find(item, at + 1, true) end
  if at then items = items:sub(1, at - 1) .. items:sub(at + bytes) end
end
if ARGV[8] ~= '' then redis.call('SET', KEYS[3], (items .. ARGV[8]):sub(-ARGV[5] * bytes)) end
measure()
return true
"""
)
_SET_DEFAULTS = RedisScript(
    _FUNCTIONS
    + """
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
if #ARGV > 4 then redis.call('HSET', KEYS[1], unpack(ARGV, 5)) end
measure()
return state()
"""
)
_RESET = RedisScript(
    _FUNCTIONS
    + """
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
local before = state()
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
redis.call('HSET', KEYS[1], '', '')
measure()
return before
"""
)
_DELETE = RedisScript(_FUNCTIONS + "forget(KEYS[1])")


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
    def _hashes(self) -> frozenset[bytes]:
        joined = self._joined
        return frozenset(joined[at : at + _HASH_BYTES] for at in range(0, len(joined), _HASH_BYTES))


class RedisSessionStates:
    def __init__(self, connection: RedisConnection, limits: SessionStateLimits) -> None:
        self._connection = connection
        user_max = min(limits.user_max, limits.total_max)
        self._common = (round(limits.ttl_s * 1000), user_max, _BASE_SIZE, _HASH_BYTES)
        self._seen_max = clamp(limits.seen_max, 1, user_max // 2)
        self._queries_max = clamp(limits.queries_max, 1, user_max // 4)

    async def create(self, owner: Owner) -> SessionState:
        """Does not wait: a new state is empty."""
        handle = new_handle()
        if self._connection.post(_CREATE, self._keys(handle, owner), *self._common):
            return SessionState(handle, NOTHING_SEEN, (), _NO_DEFAULTS)
        return await self.get_or_create(handle, owner)

    async def get_or_create(self, handle: SessionHandle, owner: Owner) -> SessionState:
        try:
            reply = self._connection.take_ahead(self.run_of(handle, owner))
            return _state(handle, reply or await self._run(_CREATE, handle, owner))
        except SharedStateUnavailable as error:
            return _without_state(handle, error)

    async def get(self, handle: SessionHandle, owner: Owner) -> SessionState:
        try:
            return _state(handle, await self._require(GET_STATE, handle, owner))
        except SharedStateUnavailable as error:
            return _without_state(handle, error)

    def run_of(self, handle: SessionHandle, owner: Owner) -> ScriptRun:
        """Returns what `get` runs."""
        return ScriptRun(GET_STATE, tuple(self._keys(handle, owner)), self._common)

    async def record(self, handle: SessionHandle, owner: Owner, query: str, delivered: Mapping[str, int]) -> None:
        """Does not wait: later commands of this process, and in practice of others, find the items recorded."""
        items = b"".join(_hash(uri, version) for uri, version in delivered.items())
        limits = (self._seen_max, self._queries_max)
        self._connection.post(_RECORD, self._keys(handle, owner), *self._common, *limits, query, items)

    async def set_defaults(self, handle: SessionHandle, owner: Owner, defaults: Mapping[str, Any]) -> SessionState:
        fields = [part for name, value in defaults.items() for part in (name, msgspec.json.encode(value))]
        return _state(handle, await self._require(_SET_DEFAULTS, handle, owner, *fields))

    async def reset(self, handle: SessionHandle, owner: Owner) -> SessionState:
        return _state(handle, await self._require(_RESET, handle, owner))

    async def delete(self, handle: SessionHandle, owner: Owner) -> None:
        """A state that cannot be deleted now expires by itself."""
        self._connection.post(_DELETE, self._keys(handle, owner), *self._common)

    async def _require(self, script: RedisScript, handle: SessionHandle, owner: Owner, *arguments: str | bytes) -> Any:
        reply = await self._run(script, handle, owner, *arguments)
        if reply is None:
            raise SessionNotFound
        return reply

    async def _run(self, script: RedisScript, handle: SessionHandle, owner: Owner, *arguments: str | bytes) -> Any:
        return await self._connection.run(script, self._keys(handle, owner), *self._common, *arguments)

    def _keys(self, handle: SessionHandle, owner: Owner) -> list[str]:
        """The owner is part of the key: with the handle of another user's session, no key of that user is read."""
        connection = self._connection
        state = connection.key("state", connection.digest((*owner, handle)))
        of_user = (connection.key("states", owner.user_id), connection.key("state sizes", owner.user_id))
        return [state, f"{state}:queries", f"{state}:items", *of_user]


def _state(handle: SessionHandle, reply: Any) -> SessionState:
    fields, queries, seen = reply
    defaults = {
        name.decode(): msgspec.json.decode(value) for name, value in zip(fields[::2], fields[1::2], strict=True) if name
    }
    texts = tuple(query.decode("utf-8", "surrogatepass") for query in queries)
    return SessionState(handle, SeenHashes(seen or b""), texts, MappingProxyType(defaults))


def _without_state(handle: SessionHandle, error: SharedStateUnavailable) -> SessionState:
    return SessionState(handle, NOTHING_SEEN, (), _NO_DEFAULTS, error.message)


@lru_cache(_HASHES_MAX)
def _hash(uri: str, version: int) -> bytes:
    return hashlib.blake2b(f"{version} {uri}".encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).digest()
