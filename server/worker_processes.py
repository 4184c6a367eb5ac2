"""Several processes that serve on the same sockets: this one starts them, replaces those that end, passes signals on.
They share new connections evenly.

Each worker is `florilegium serve` with the same arguments. It finds what it inherits in an environment variable,
reports through a pipe that it serves and, from then on, that its event loop still runs, and stops when another pipe is
closed: when the process that started it has ended.
"""

import asyncio
import mmap
import os
import select
import signal
import socket
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from loguru import logger
from msgspec import Struct

from config.errors import ConfigurationError
from config.settings import Settings

_VARIABLE = "_FLORILEGIUM_WORKER"
# If every worker ends this often in a row before it serves, and none has ever served, none ever would.
_STARTS_MAX = 3
# A worker that does not serve by then is killed. It opens the databases and loads no model.
_START_MAX_S = 60.0
_PAUSE_S = 0.2
_PAUSE_MAX_S = 30.0
# How often a worker reports in the time after which it is replaced, so that it is killed at most a tenth late.
_REPORTS = 10


class WorkerPlace(Struct, frozen=True):
    """What a worker inherits: its number, the descriptors of its listening sockets, of the socket of the data directory
    and of both pipes, and a directory in which the workers reach each other. `is_first` is set for the first start of
    the first worker, which prints what the server has to say. `report_s` is the time between two of its reports."""

    number: int
    count: int
    sockets: tuple[int, ...]
    local: int | None
    ready: int
    lifeline: int
    directory: str
    is_first: bool
    report_s: float

    def report_ready(self) -> None:
        """Reports that this worker serves, and then at regular intervals while its event loop runs."""
        with suppress(OSError):  # the pipe is full or closed, because the other process is stopped or has ended
            os.write(self.ready, b"1")
        asyncio.get_running_loop().call_later(self.report_s, self.report_ready)

    def table(self) -> "WorkerTable":
        return WorkerTable(self.directory, self.count)

    def local_socket(self) -> socket.socket | None:
        return socket.socket(fileno=self.local) if self.local is not None else None

    @contextmanager
    def stop_with_parent(self) -> Iterator[None]:
        """Stops this process as SIGTERM does if its parent ends without stopping it."""
        loop = asyncio.get_running_loop()

        def stop() -> None:
            loop.remove_reader(self.lifeline)
            os.kill(os.getpid(), signal.SIGTERM)

        loop.add_reader(self.lifeline, stop)
        try:
            yield
        finally:
            loop.remove_reader(self.lifeline)


def worker_place(environ: MutableMapping[str, str]) -> WorkerPlace | None:
    """Returns what this process inherits if it is a worker."""
    text = environ.pop(_VARIABLE, "")
    if not text:
        return None
    place = msgspec.json.decode(text, type=WorkerPlace)
    for descriptor in (*place.sockets, place.local, place.ready, place.lifeline):
        if descriptor is not None:
            os.set_inheritable(descriptor, False)
    # A report must not hold up the event loop if the parent does not read it.
    os.set_blocking(place.ready, False)
    return place


def require_shared_state(settings: Settings) -> None:
    """Raises ConfigurationError if several processes cannot serve with these settings."""
    if not settings.storage_url:
        raise ConfigurationError(
            f"workers: expected 1, got {settings.workers}, because only one process can use a data directory with "
            "SQLite databases; set storage_url to a PostgreSQL database and session_url to a Redis or Valkey server"
        )
    if not settings.session_url:
        raise ConfigurationError(
            f"workers: expected 1 without session_url, got {settings.workers}, because workers share sessions and "
            "limits through it; set it to a Redis or Valkey server"
        )


class _Reports(Struct):
    """What a worker has reported. `last_at` is the time of its start before it serves."""

    last_at: float
    has_served: bool = False


class WorkerProcesses:
    """`on_ready` is called once, when the first worker serves. A worker that has served and is silent for `hang_s` is
    killed and replaced, and so is one that does not serve within a minute."""

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        sockets: Sequence[socket.socket],
        local_socket: socket.socket | None,
        on_ready: Callable[[], None],
        hang_s: float,
    ) -> None:
        self._hang_s = hang_s
        # Starts of each worker in a row after which it has not served.
        self._failures = [0] * count
        self._command = command
        self._count = count
        self._sockets = tuple(listener.fileno() for listener in sockets)
        self._local = local_socket.fileno() if local_socket is not None else None
        self._on_ready = on_ready
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._is_stopping = False
        self._has_served = False
        self._directory = ""
        self._table: WorkerTable

    async def run(self) -> None:
        """Returns when all workers have ended after SIGTERM or SIGINT. Raises ConfigurationError if they do not
        start; they have logged why."""
        # Nothing is ever written to this pipe. If this process ends, however it ends, the system closes the end that it
        # holds, and the workers notice.
        loop, (lifeline, held) = asyncio.get_running_loop(), os.pipe()
        loop.add_signal_handler(signal.SIGHUP, self._pass_on, signal.SIGHUP)
        for stopping in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(stopping, partial(self._pass_on, stopping, is_last=True))
        try:
            with TemporaryDirectory(prefix="florilegium-workers-") as self._directory:
                self._table = WorkerTable(self._directory, self._count)
                keepers = [asyncio.create_task(self._keep_running(number, lifeline)) for number in range(self._count)]
                try:
                    await asyncio.gather(*keepers)
                finally:
                    self._pass_on(signal.SIGTERM, is_last=True)
                    await asyncio.gather(*keepers, return_exceptions=True)
        finally:
            for handled in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(handled)
            os.close(lifeline)
            os.close(held)

    async def _keep_running(self, number: int, lifeline: int) -> None:
        while not self._is_stopping:
            self._table.begin(number)
            is_first = number == 0 and self._table.starts(number) == 1
            has_served, code = await self._run_once(number, lifeline, is_first=is_first)
            self._table.end(number)
            if self._is_stopping:
                return
            failures = self._failures[number] = 0 if has_served else self._failures[number] + 1
            # Once a worker has served, the others are started for ever: what keeps them from it, such as a database
            # that does not answer, can pass, and workers that serve must not end because of one that does not.
            if not self._has_served and min(self._failures) >= _STARTS_MAX:
                raise ConfigurationError(f"workers do not start; the last one ended with code {code}, see the log")
            logger.warning("worker {} ended with code {}; starting another", number, code)
            # At once after a worker that has served; otherwise after 0.2 s, 0.6 s, 1.4 s and so on.
            await asyncio.sleep(min(_PAUSE_MAX_S, _PAUSE_S * (2**failures - 1)))

    async def _run_once(self, number: int, lifeline: int, *, is_first: bool) -> tuple[bool, int]:
        """Returns whether the worker has served, and its exit code."""
        reading, ready = os.pipe()
        report_s, sockets = self._hang_s / _REPORTS, self._sockets
        place = WorkerPlace(
            number, self._count, sockets, self._local, ready, lifeline, self._directory, is_first, report_s
        )
        environment = {**os.environ, _VARIABLE: msgspec.json.encode(place).decode()}
        inherited = (*sockets, *([self._local] if self._local is not None else []), ready, lifeline)
        try:
            process = await asyncio.create_subprocess_exec(*self._command, env=environment, pass_fds=inherited)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(ready)
        self._processes[number] = process
        if self._is_stopping:  # the signal came before the process existed
            process.terminate()
        try:
            with self._listen(reading) as reports:
                clock, ending = asyncio.get_running_loop().time, asyncio.create_task(process.wait())
                checked_at = clock()
                while not (await asyncio.wait([ending], timeout=report_s))[0]:
                    # While this process could not run, as on a paused machine, the worker could not report either.
                    reports.last_at += max(0.0, clock() - checked_at - report_s)
                    checked_at = clock()
                    limit_s = self._hang_s if reports.has_served else _START_MAX_S
                    if clock() - reports.last_at > limit_s and not self._is_stopping:
                        logger.error("worker {} has not responded for {:g} s and is killed", number, limit_s)
                        process.kill()
            return reports.has_served, ending.result()
        finally:
            del self._processes[number]

    @contextmanager
    def _listen(self, reading: int) -> Iterator[_Reports]:
        loop = asyncio.get_running_loop()
        reports = _Reports(loop.time())

        def receive() -> None:
            if not os.read(reading, 1024):
                loop.remove_reader(reading)
                return
            reports.has_served, reports.last_at = True, loop.time()
            if not self._has_served:
                self._has_served = True
                self._on_ready()

        loop.add_reader(reading, receive)
        try:
            yield reports
        finally:
            loop.remove_reader(reading)
            os.close(reading)

    def _pass_on(self, number: signal.Signals, *, is_last: bool = False) -> None:
        self._is_stopping = self._is_stopping or is_last
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.send_signal(number)


# -- shares of connections ---------------------------------------------------------------------------------------------
# All workers watch the same listening sockets, and the system would let whichever wakes up first accept everything: one
# of three workers served all calls of a measured run. So each worker publishes how many connections it has, in a file
# that all of them map into memory, and leaves a new connection to a worker that has fewer. A worker that hangs accepts
# nothing, and the others take its share after a moment. No process stands between the clients and the workers.

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
_REFUSED_PAUSE_S = 1.0


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

    async def wait_closed(self) -> None:
        """Waits for the connections that were accepted before."""
        await asyncio.gather(*self._connecting)

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
            self._pause(_REFUSED_PAUSE_S)
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
