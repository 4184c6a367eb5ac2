"""Messages between processes through Redis: a channel for all of them, and one for each.

The subscription has a connection of its own. It is opened again whenever it is lost; what was sent meanwhile is lost,
so handlers of `RECONNECTED` repeat what matters.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from loguru import logger
from msgspec import Struct

from auth.redis.connection import RedisConnection, RedisReplyError, RedisScript
from config.errors import SharedStateUnavailable
from server.stores import RECONNECTED, PeerHandler

# A subscription whose server does not even answer pings is opened again.
_PING_S = 5.0
_RECONNECT_S = 0.2
_PUBLISH = RedisScript("return redis.call('PUBLISH', KEYS[1], ARGV[1])")
_ACQUIRE = RedisScript("""
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
""")
_RELEASE = RedisScript("if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end")


class _PeerMessage(Struct, frozen=True, array_like=True):
    sender: str
    kind: str
    content: Any


_DECODER = msgspec.msgpack.Decoder(_PeerMessage)


class RedisPeers:
    def __init__(self, connection: RedisConnection) -> None:
        self.id = secrets.token_hex(8)
        self._connection = connection
        self._handlers: dict[str, list[PeerHandler]] = {}
        self._channels = (connection.key("peers"), connection.key("peer", self.id))
        self._has_answered = False
        self._is_subscribed = asyncio.Event()
        # Whether messages may have been sent while there was no subscription.
        self._has_gap = False

    def handle(self, kind: str, handler: PeerHandler) -> None:
        self._handlers.setdefault(kind, []).append(handler)

    def publish(self, kind: str, content: Any) -> None:
        self._connection.post(_PUBLISH, [self._channels[0]], self._encode(kind, content))

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
            with suppress(OSError, TimeoutError, RedisReplyError):
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
                    self._dispatch(RECONNECTED, None)
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
async def open_peers(connection: RedisConnection) -> AsyncIterator[RedisPeers]:
    peers = RedisPeers(connection)
    task = asyncio.create_task(peers.run())
    await peers.wait_until_subscribed(_RECONNECT_S)
    try:
        yield peers
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
