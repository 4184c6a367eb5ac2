"""Imports in Redis: their state for every process, and a lease for the one that runs them.

While Redis does not answer, an import goes on, and only its own process shows it.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from auth.redis.connection import RedisConnection, RedisScript
from config.errors import SharedStateUnavailable
from config.paths import UserId
from server.import_board import LEASE_S, PostedImport
from server.stores import Peers

_CANCEL = "import cancelled"
_KEEP_S = 86_400
# KEYS: the imports of a user, the active ones of all users, the lease. ARGV: id, content, user, process, lease in ms.
# Returns 0 if the import belongs to another process or has ended, which the lease says for a process that was late.
_POST = RedisScript("""
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
_RELEASE = RedisScript("""
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
""")
_REMOVE = RedisScript("""
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('SET', KEYS[3], 'ended', 'EX', ARGV[2])
""")
# One step, because the import may have ended since its process was found to have left it. Returns its content, or false
# if it belongs to a process.
_CLAIM = RedisScript("""
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 then return false end
if not redis.call('SET', KEYS[3], ARGV[2], 'NX', 'PX', ARGV[3]) then return false end
return redis.call('HGET', KEYS[1], ARGV[1])
""")
_DECODER = msgspec.msgpack.Decoder(PostedImport)


class RedisImportBoard:
    is_shared = True

    def __init__(self, connection: RedisConnection, peers: Peers) -> None:
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
            await self._connection.run(_RELEASE, [self._lease(posted.job.id)], self._peers.id)

    async def list(self, owner: UserId) -> Sequence[PostedImport]:
        contents = await self._connection.call("HVALS", self._connection.key("imports", owner))
        return sorted(map(_DECODER.decode, contents), key=lambda posted: posted.job.started_at, reverse=True)

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
                posted = _DECODER.decode(content)
                if not await asyncio.to_thread(Path(posted.folder).is_dir):  # on another machine
                    continue
                content = await connection.run(_CLAIM, self._keys(posted), job_id, self._peers.id, lease_ms)
                if content is not None:
                    claimed.append(_DECODER.decode(content))
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
