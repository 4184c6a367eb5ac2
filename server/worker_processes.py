"""Several processes that serve on the same sockets: this one starts them, replaces those that end, passes signals on.
`server.balanced_accept` shares the connections among them.

Each worker is `florilegium serve` with the same arguments. It finds what it inherits in an environment variable,
reports through a pipe that it serves and, from then on, that its event loop still runs, and stops when another pipe is
closed: when the process that started it has ended.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from tempfile import TemporaryDirectory

import msgspec
from loguru import logger
from msgspec import Struct

from config.errors import ConfigurationError
from config.settings import Settings
from server.balanced_accept import WorkerTable

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

    def table(self) -> WorkerTable:
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
                while not (await asyncio.wait([ending], timeout=self._hang_s / _REPORTS))[0]:
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
