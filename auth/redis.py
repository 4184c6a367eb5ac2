"""A connection to Redis or Valkey that fails fast: short timeouts, no retries, and a pause after a failure.

Callers decide what a failure means: session state and rate limits continue without the server, and what protects
accounts (tickets, tokens for one use) refuses.
"""

# About this package: Start with `connection`: one pipelined connection, and scripts that Redis runs as one step. What
# is built on it is in `stores`, and in `sessions/redis` and `server/redis`. Each has a counterpart that keeps the same
# in the process.

import asyncio
import hashlib
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import hiredis
import msgspec
from loguru import logger

from auth.context import Principal
from auth.rate_limits import LimitKey, LimitRule, RateLimit, in_process_limits
from auth.tickets import StateKeys, Tickets
from config.errors import ConfigurationError, RateLimited, SharedStateUnavailable
from config.event_counts import SESSION_SERVER_EVENTS
from config.settings import Settings

# After a failure, Redis is not asked for this time, so that calls do not wait for it one after another.
_PAUSE_S = 0.5

# -- protocol ----------------------------------------------------------------------------------------------------------
# The wire protocol of Redis (RESP2) over an asyncio transport. Commands are pipelined: replies come in their order.
# hiredis encodes commands and parses replies.
#
# The client redis-py (8.1, with hiredis) takes 0.24 ms of CPU time for one script, and 0.21 ms with uvloop, most of it
# in its own layers, and every call waits for one. This takes 0.12 ms and 0.07 ms.

Argument = str | bytes | int | float
# The types of hiredis allow one argument only.
_pack = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)
# What the reader returns while the rest of a reply has not arrived yet.
_INCOMPLETE = object()


class RedisReplyError(Exception):
    """An error that the server returned, such as `NOSCRIPT No matching script`."""


def encode_command(arguments: tuple[Argument, ...]) -> bytes:
    try:
        return _pack(arguments)
    except UnicodeEncodeError:  # callers can send half of a surrogate pair
        encoded = (value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value for value in arguments)
        return _pack(tuple(encoded))


class RedisProtocol(asyncio.Protocol):
    """One connection. Replies without a waiting command go to `on_push`: the messages of subscriptions."""

    def __init__(self, on_push: Callable[[Any], None] | None = None) -> None:
        self._on_push = on_push
        self._waiting: deque[asyncio.Future[Any]] = deque()
        # Errors are returned, because they can be part of an array.
        self._reader = hiredis.Reader(replyError=RedisReplyError, notEnoughData=_INCOMPLETE)
        self._transport: asyncio.Transport | None = None
        # The scripts that were sent on this connection.
        self.scripts: set[object] = set()
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        waiting, self._waiting = self._waiting, deque()
        for future in waiting:
            if not future.done():
                _fail(future, ConnectionError("the connection to Redis was lost"))
        if not self.closed.done():
            self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not _INCOMPLETE:
                if not self._waiting:
                    if self._on_push is not None:
                        self._on_push(reply)
                    continue
                future = self._waiting.popleft()
                if future.done():  # its caller timed out
                    continue
                if isinstance(reply, RedisReplyError):
                    _fail(future, reply)
                else:
                    future.set_result(reply)
        except (hiredis.HiredisError, MemoryError):  # not a reply of Redis
            self.close()

    def send(self, *arguments: Argument) -> asyncio.Future[Any]:
        """Sends a command. The future has its reply, or raises ConnectionError or RedisReplyError."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionError("the connection to Redis was lost")
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(reply)
        # At once, and not by a task that first has to be scheduled.
        self._transport.write(encode_command(arguments))
        return reply

    def push(self, *arguments: Argument) -> None:
        """Sends a command whose replies go to `on_push`."""
        if self._transport is not None:
            self._transport.write(encode_command(arguments))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    """Also marks the error as retrieved, because asyncio logs those of calls that have ended meanwhile."""
    future.set_exception(error)
    future.exception()


# -- scripts -----------------------------------------------------------------------------------------------------------
# Lua scripts, each of which Redis runs as one atomic step.

# The clock of the server, in microseconds.
_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
"""


class RedisScript:
    """A script can use `now`, the time of the server in microseconds, if `uses_now` is set."""

    def __init__(self, body: str, *, uses_now: bool = False) -> None:
        self.text = f"{_NOW if uses_now else ''}{body}"
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()  # how EVALSHA names a script


# How many runs of each kind are kept: a call needs the same ones several times, and so do the next ones of its session.
RUNS_MAX = 1024
# Runs are kept by what callers send, such as a session id, unless it is longer than any that the server has issued.
CACHED_NAME_MAX_CHARS = 100


class ScriptRun(NamedTuple):
    """A script with the keys and arguments of one run."""

    script: RedisScript
    keys: tuple[str, ...]
    arguments: tuple[Argument, ...]


_DEFAULT_PORT = 6379
_UNKNOWN_SCRIPT = "NOSCRIPT"
_WRONG_CREDENTIAL = ("WRONGPASS", "NOAUTH", "ERR AUTH", "NOPERM")


class RedisConnection:
    """One pipelined connection, opened on first use and again after it was lost."""

    def __init__(self, settings: Settings) -> None:
        self._address = urlsplit(settings.session_url)
        # Braces make all keys one slot, as scripts with several keys need it in a cluster.
        self._prefix = f"{{{settings.redis_prefix}}}"
        self._timeout_s = settings.redis_timeout_ms / 1000
        self._protocol: RedisProtocol | None = None
        self._opening: asyncio.Task[RedisProtocol] | None = None
        self._paused_until = 0.0
        self._has_failed = False

    @property
    def is_available(self) -> bool:
        """Whether the last command succeeded."""
        return not self._has_failed

    def key(self, *parts: str) -> str:
        return ":".join((self._prefix, *parts))

    @staticmethod
    def digest(value: str | tuple[str | int, ...]) -> str:
        """Returns a part of a key for a value that callers choose, such as a session id, so that no text of theirs can
        form another key."""
        return hashlib.blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    async def call(self, *command: Argument) -> Any:
        """Returns the reply to a command. Raises SharedStateUnavailable."""
        return await self._reply(command)

    async def run(self, script: RedisScript, keys: Sequence[str], *arguments: Argument) -> Any:
        """Runs a script. Raises SharedStateUnavailable."""
        return await self.execute(ScriptRun(script, tuple(keys), arguments))

    async def execute(self, run: ScriptRun) -> Any:
        """Runs a script. Raises SharedStateUnavailable."""
        self._require_no_pause()
        try:
            return await self._checked(self._send(self._command(run)), passes=_UNKNOWN_SCRIPT)
        except RedisReplyError:  # the server no longer has the script; nothing has run
            script, keys, arguments = run
            return await self._reply(("EVAL", script.text, len(keys), *keys, *arguments))

    def post(self, script: RedisScript, keys: Sequence[str], *arguments: Argument) -> bool:
        """Runs a script without waiting for it. It is sent at once, so that it runs before what a client asks for after
        its answer, at whichever process. It is lost if the server does not answer. Returns whether there is a
        connection on which it can be sent."""
        if self._protocol is None or not self._protocol.is_open or time.monotonic() < self._paused_until:
            return False
        run = ScriptRun(script, tuple(keys), arguments)
        self._protocol.send(*self._command(run)).add_done_callback(partial(self._check_posted, run))
        return True

    def _check_posted(self, run: ScriptRun, reply: asyncio.Future[Any]) -> None:
        """If the server refuses what was posted, the next calls say that it is not available."""
        error = None if reply.cancelled() else reply.exception()
        if not isinstance(error, RedisReplyError):
            return
        if str(error).startswith(_UNKNOWN_SCRIPT) and self._protocol is not None:
            self._protocol.scripts.discard(run.script)
            self.post(run.script, run.keys, *run.arguments)
        else:
            self._failed(str(error))

    def _command(self, run: ScriptRun) -> tuple[Argument, ...]:
        """The first use on a connection sends the text: a server that was restarted does not know the script."""
        script, keys, arguments = run
        if self._protocol is None or script in self._protocol.scripts:
            return "EVALSHA", script.digest, len(keys), *keys, *arguments
        self._protocol.scripts.add(script)
        return "EVAL", script.text, len(keys), *keys, *arguments

    async def open(self, on_push: Callable[[Any], None] | None = None) -> RedisProtocol:
        """Opens another connection, for subscriptions. Raises OSError, TimeoutError or RedisReplyError."""
        async with asyncio.timeout(self._timeout_s):
            address, loop = self._address, asyncio.get_running_loop()
            if address.scheme == "unix":
                _, protocol = await loop.create_unix_connection(lambda: RedisProtocol(on_push), unquote(address.path))
            else:
                context = ssl.create_default_context() if address.scheme == "rediss" else None
                host, port = address.hostname or "127.0.0.1", address.port or _DEFAULT_PORT
                _, protocol = await loop.create_connection(lambda: RedisProtocol(on_push), host, port, ssl=context)
            try:
                if address.password:
                    user = (unquote(address.username),) if address.username else ()
                    await protocol.send("AUTH", *user, unquote(address.password))
                database = database_of(address)
                if database:
                    await protocol.send("SELECT", database)
                await protocol.send("PING")
            except BaseException:
                protocol.close()
                raise
        SESSION_SERVER_EVENTS.add("connected")
        return protocol

    async def check(self) -> None:
        """Raises ConfigurationError if the server rejects the credential of the URL. A server that cannot be reached
        is not an error: it may be starting, too."""
        try:
            (await self.open()).close()
        except RedisReplyError as error:
            if str(error).startswith(_WRONG_CREDENTIAL):
                raise ConfigurationError(
                    f"session_url: the server rejects the user or the password: {error}"
                ) from error
            logger.warning("the session server refuses connections: {}", error)
        except (OSError, TimeoutError) as error:
            logger.warning("the session server cannot be reached; serving without it: {}", str(error) or "timeout")

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._protocol is not None:
            self._protocol.close()

    async def _reply(self, command: tuple[Argument, ...]) -> Any:
        self._require_no_pause()
        return await self._checked(self._send(command))

    def _require_no_pause(self) -> None:
        if time.monotonic() < self._paused_until:
            raise SharedStateUnavailable(_PAUSE_S)

    async def _send(self, command: tuple[Argument, ...]) -> Any:
        """Returns the reply to a command, for which it opens a connection if there is none."""
        protocol = self._protocol
        if protocol is None or not protocol.is_open:
            # All callers wait for the same attempt, and none can cancel it for the others.
            if self._opening is None or self._opening.done():
                self._opening = asyncio.create_task(self.open())
            protocol = await asyncio.shield(self._opening)
            self._protocol = protocol
        # A timer that ends the future, and not `asyncio.timeout`, which fails a call whose reply has arrived while the
        # event loop was busy: the loop reads sockets before it runs timers.
        reply = protocol.send(*command)
        if reply.done():
            return reply.result()
        timer = asyncio.get_running_loop().call_later(self._timeout_s, _time_out, reply)
        try:
            return await reply
        finally:
            timer.cancel()

    async def _checked(self, waiting: Awaitable[Any], passes: str = "") -> Any:
        """Waits for a reply. Any error is a failure of the server, except replies that start with `passes`."""
        try:
            reply = await waiting
        except RedisReplyError as error:
            if passes and str(error).startswith(passes):
                raise
            # Out of memory, read-only, still loading: the connection is fine, the command was not executed.
            raise self._failed(str(error)) from error
        except (OSError, TimeoutError) as error:
            raise self._failed(str(error) or "timeout", is_lost=True) from error
        if self._has_failed and time.monotonic() >= self._paused_until:
            self._has_failed = False
            logger.info("the session server answers again")
        return reply

    def _failed(self, reason: str, *, is_lost: bool = False) -> SharedStateUnavailable:
        """After a failure, calls fail at once until the pause is over, so that no call waits for the timeout twice."""
        SESSION_SERVER_EVENTS.add("failed")
        if not self._has_failed:
            logger.warning("the session server does not answer; serving without it: {}", reason)
        self._has_failed = True
        self._paused_until = time.monotonic() + _PAUSE_S
        if is_lost and self._protocol is not None:
            self._protocol.close()
            self._protocol = None
        return SharedStateUnavailable(_PAUSE_S)


def _time_out(reply: asyncio.Future[Any]) -> None:
    if not reply.done():
        reply.set_exception(TimeoutError())


def database_of(address: SplitResult) -> int:
    """Returns the number of the database: the path of the URL, or `?db=` of a socket. Raises ValueError."""
    text = parse_qs(address.query).get("db", ["0"])[0] if address.scheme == "unix" else address.path.strip("/")
    return int(text or "0")


@asynccontextmanager
async def open_redis(settings: Settings) -> AsyncIterator[RedisConnection]:
    connection = RedisConnection(settings)
    await connection.check()
    try:
        yield connection
    finally:
        await connection.close()


# -- stores ------------------------------------------------------------------------------------------------------------
# Used tokens, tickets, rate limits and other short-lived state, shared by all processes through Redis.

_SYNCHRONIZE = RedisScript("redis.call('SET', KEYS[1], ARGV[1], 'NX') return redis.call('GET', KEYS[1])")
_INTERVAL_S = 1.0


@asynccontextmanager
async def open_state_keys(connection: RedisConnection) -> AsyncIterator[StateKeys]:
    keys, key = StateKeys(), connection.key("state secret")

    async def synchronize() -> None:
        with suppress(SharedStateUnavailable):
            keys.replace(await connection.run(_SYNCHRONIZE, [key], keys.secret))

    async def synchronize_periodically() -> None:
        while True:
            await asyncio.sleep(_INTERVAL_S)
            await synchronize()

    await synchronize()
    task = asyncio.create_task(synchronize_periodically())
    try:
        yield keys
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# -- used tokens -------------------------------------------------------------------------------------------------------
# Tokens for one use, remembered in Redis: a second process rejects what a first has accepted. Without the server no
# token is accepted.


class RedisUsedTokens:
    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection

    async def use(self, token: bytes, ttl_s: float) -> bool:
        key = self._connection.key("used", hashlib.sha256(token).hexdigest())
        return await self._connection.call("SET", key, 1, "NX", "PX", max(1, round(ttl_s * 1000))) is not None


# -- tickets -----------------------------------------------------------------------------------------------------------
# WebSocket tickets in Redis: issued by one process, redeemed once, by any. Nothing is accepted without the server.

# The sorted sets count the tickets of a user and of all users, by the time at which they expire.
_ISSUE = RedisScript(
    """
for index = 2, 3 do
  redis.call('ZREMRANGEBYSCORE', KEYS[index], '-inf', now)
  if redis.call('ZCARD', KEYS[index]) >= tonumber(ARGV[index + 1]) then return 0 end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
for index = 2, 3 do
  redis.call('ZADD', KEYS[index], now + ARGV[2] * 1000, KEYS[1])
  redis.call('PEXPIRE', KEYS[index], ARGV[2])
end
return 1
""",
    uses_now=True,
)
_REDEEM = RedisScript("""
local ticket = redis.call('GETDEL', KEYS[1])
if ticket then redis.call('ZREM', KEYS[2], KEYS[1]) end
return ticket
""")
_FORGET = RedisScript("return redis.call('ZREM', KEYS[1], ARGV[1])")
_PRINCIPAL = msgspec.msgpack.Decoder(Principal)


class RedisTickets(Tickets):
    def __init__(self, connection: RedisConnection, settings: Settings) -> None:
        super().__init__(settings)
        self._connection = connection

    async def _add(self, digest: bytes, principal: Principal) -> bool:
        keys = [self._key(digest), self._user_key(principal), self._connection.key("tickets")]
        ttl_ms, content = round(self._ttl_s * 1000), msgspec.msgpack.encode(principal)
        return bool(await self._connection.run(_ISSUE, keys, content, ttl_ms, self._max_per_user, self._max))

    async def _take(self, digest: bytes) -> Principal | None:
        key = self._key(digest)
        content = await self._connection.run(_REDEEM, [key, self._connection.key("tickets")])
        if content is None:
            return None
        principal = _PRINCIPAL.decode(content)
        self._connection.post(_FORGET, [self._user_key(principal)], key)
        return principal

    def _key(self, digest: bytes) -> str:
        return self._connection.key("ticket", digest.hex())

    def _user_key(self, principal: Principal) -> str:
        return self._connection.key("tickets", principal.user_id)


# -- rate limits -------------------------------------------------------------------------------------------------------
# Token buckets in Redis, counted together for all processes. The clock is the server's, because hosts may differ.
#
# While the server does not answer, each process limits by buckets of its own, which take part in no other's count.

# A bucket is the time, in microseconds, at which it will be full again. Returns the wait, 0 if the tokens were taken.
TAKE = RedisScript(
    """
local full_at = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), now) + ARGV[1]
local wait = full_at - now - ARGV[2]
if wait > 0 then return math.ceil(wait) end
redis.call('SET', KEYS[1], string.format('%.0f', full_at), 'PX', math.max(1, math.ceil((full_at - now) / 1000)))
return 0
""",
    uses_now=True,
)
_GIVE_BACK = RedisScript("""
local full_at = redis.call('GET', KEYS[1])
if full_at then redis.call('SET', KEYS[1], string.format('%.0f', full_at - ARGV[1]), 'KEEPTTL') end
""")
_MICROSECONDS = 1_000_000


class RedisTokenBuckets:
    def __init__(self, connection: RedisConnection, rule: LimitRule, fallback: RateLimit) -> None:
        self._connection = connection
        self._rule = rule
        self._fallback = fallback
        self.refusals = 0
        self._interval_us = rule.interval_s * _MICROSECONDS
        self.run_of = lru_cache(RUNS_MAX)(self._run_of)

    async def take(self, key: LimitKey, cost: float = 1) -> None:
        run = self.run_of(key, cost)
        if run is None:
            return
        try:
            wait_us = await self._connection.execute(run)
        except SharedStateUnavailable:
            try:
                await self._fallback.take(key, cost)
            except RateLimited:
                self.refusals += 1
                raise
            return
        if wait_us:
            self.refusals += 1
            raise RateLimited(self._rule.what, wait_us / _MICROSECONDS)

    def _run_of(self, key: LimitKey, cost: float = 1) -> ScriptRun | None:
        """Returns the script that `take` runs, or None if there is no limit."""
        if not self._interval_us:
            return None
        cost_us = round(min(cost, self._rule.burst) * self._interval_us)
        return ScriptRun(TAKE, (self._key(key),), (cost_us, round(self._rule.burst * self._interval_us)))

    async def give_back(self, key: LimitKey, cost: float = 1) -> None:
        if not self._interval_us:
            return
        try:
            await self._connection.run(_GIVE_BACK, [self._key(key)], round(cost * self._interval_us))
        except SharedStateUnavailable:
            await self._fallback.give_back(key, cost)

    def _key(self, key: LimitKey) -> str:
        return self._connection.key("rate", self._rule.name, self._connection.digest(key))


def redis_limits(connection: RedisConnection) -> Callable[[LimitRule], RedisTokenBuckets]:
    fallback = in_process_limits()
    return lambda rule: RedisTokenBuckets(connection, rule, fallback(rule))
