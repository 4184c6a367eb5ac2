"""Shares new connections evenly among the workers of a server.

All workers watch the same listening sockets, and the system would let whichever wakes up first accept everything: one
of three workers served all calls of a measured run. So each worker publishes how many connections it has, in a file
that all of them map into memory, and leaves a new connection to a worker that has fewer. A worker that hangs accepts
nothing, and the others take its share after a moment. No process stands between the clients and the workers.
"""

import asyncio
import mmap
import os
import select
import socket
from collections.abc import Callable
from pathlib import Path

from loguru import logger

_TABLE_FILE = "table"
_CELL_BYTES = 8
# Two cells for each worker: its open connections, or this if it does not accept any, and how often it was started.
_CELLS = 2
_NOT_SERVING = -1
# How often a worker looks whether the connection that it has left to others was accepted, how long it waits for them
# in vain, and how long it then accepts connections without waiting. Others that are alive take a connection within a
# few milliseconds on idle cores; after 50 ms, workers on busy cores were passed over too often.
_POLL_S = 0.002
_YIELD_S = 0.25
_HURRY_S = 0.1
# How long no connection is accepted after the system has refused one, for want of descriptors or memory; as asyncio.
_PAUSE_S = 1.0


class WorkerTable:
    """The numbers that workers share, in a file in the directory of the workers. Only its parent process creates it. A
    cell has one writer at a time: the worker, or its parent while the worker does not run."""

    def __init__(self, directory: str, count: int) -> None:
        path = Path(directory, _TABLE_FILE)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, count * _CELLS * _CELL_BYTES)
            self._cells = memoryview(mmap.mmap(descriptor, count * _CELLS * _CELL_BYTES)).cast("q")
        finally:
            os.close(descriptor)
        self._count = count

    def begin(self, number: int) -> None:
        """Counts a start of the worker, which does not accept connections yet."""
        self.end(number)
        self._cells[number * _CELLS + 1] += 1

    def end(self, number: int) -> None:
        self._cells[number * _CELLS] = _NOT_SERVING

    def set_connections(self, number: int, connections: int) -> None:
        self._cells[number * _CELLS] = connections

    def starts(self, number: int) -> int:
        return self._cells[number * _CELLS + 1]

    def lowest_other(self, number: int) -> int | None:
        """Returns the fewest connections that another worker has; None if no other accepts connections."""
        others = (self._cells[other * _CELLS] for other in range(self._count) if other != number)
        return min((connections for connections in others if connections != _NOT_SERVING), default=None)


class ConnectionShare:
    """What one worker publishes: the connections that it has, and those that it has accepted and not set up yet."""

    def __init__(self, table: WorkerTable, number: int) -> None:
        self._table = table
        self._number = number
        self._open = self._accepted = 0
        self._is_stopped = False

    def set_open(self, connections: int) -> None:
        self._open = connections
        self._publish()

    def add_accepted(self, connections: int) -> None:
        self._accepted += connections
        self._publish()

    def stop(self) -> None:
        """Says that this worker accepts no more connections."""
        self._is_stopped = True
        self._table.end(self._number)

    def lowest_other(self) -> int | None:
        """Returns the fewest connections of another worker if these are fewer than this worker has; otherwise None."""
        lowest = self._table.lowest_other(self._number)
        return lowest if lowest is not None and self._open + self._accepted > lowest else None

    def _publish(self) -> None:
        if not self._is_stopped:
            self._table.set_connections(self._number, self._open + self._accepted)


class BalancedListener:
    """Accepts connections of one listening socket in place of an asyncio server, as far as uvicorn uses one."""

    def __init__(
        self, listener: socket.socket, share: ConnectionShare, make_protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        self.sockets = (listener,)
        self._listener = listener
        self._share = share
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        # The fewest connections of another worker while this one waits for it, and until when it does.
        self._lowest: int | None = None
        self._yields_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._watch()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._share.stop()
        self._loop.remove_reader(self._listener)
        if self._timer is not None:
            self._timer.cancel()

    def _watch(self) -> None:
        self._loop.add_reader(self._listener, self._accept_or_yield)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener)
        self._timer = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        if not poll.poll(0):
            self._lowest = None  # another worker has accepted it
        self._watch()

    def _accept_or_yield(self) -> None:
        lowest, now = self._share.lowest_other(), self._loop.time()
        if lowest is not None:
            # While the number changes, others accept connections, and this worker goes on waiting.
            if lowest != self._lowest or now > self._yields_until + _HURRY_S:
                self._lowest, self._yields_until = lowest, now + _YIELD_S
            if now < self._yields_until:
                self._pause(_POLL_S)
                return
        else:
            self._lowest = None
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):  # another worker was faster
            return
        except OSError as error:
            logger.error("no connection can be accepted: {}", error.strerror)
            self._pause(_PAUSE_S)
            return
        connection.setblocking(False)
        self._share.add_accepted(1)
        task = self._loop.create_task(self._connect(connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, connection)
        except OSError:  # the client has disconnected
            connection.close()
        finally:
            self._share.add_accepted(-1)
