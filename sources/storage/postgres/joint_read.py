"""Runs the reads of one call together: in one transaction on one connection, one after the other.

A search reads all sources. If each were a job of its own, each would begin a transaction and read the state of the
index, and every connection would have to load the server's description of the tables, which takes longer than the
search. What the searches begin with is read by one statement. A read that cannot be run with the others becomes a job
of its own: if the transaction fails, or if the reads before it take long, so that a slow source does not hold up the
others.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

from config.errors import FlorilegiumError
from config.postgres.connection import StatementInterrupted
from sources.storage.collections.collection import SearchWork
from sources.storage.job_queue import CallGroup, RunTimer, job_group
from sources.storage.postgres.connection import LibraryConnection, LibraryWork, job_errors
from sources.storage.postgres.index.entries import known_index_state
from sources.storage.postgres.jobs import Result, pass_on

T = TypeVar("T")

# How long a read waits for those before it: less than this, and less than this share of the time of the call.
_HELD_UP_MAX_S = 0.25
_HELD_UP_SHARE = 0.25


class RunAlone(Exception):
    """The read has to be run as a job of its own."""


class ReadPart(Generic[T]):
    """One of the reads. `started_at` is None until it is its turn."""

    __slots__ = ("is_waiting", "limit_s", "result", "started_at", "work")

    def __init__(self, work: LibraryWork[T], limit_s: float) -> None:
        self.work = work
        self.limit_s = limit_s
        self.is_waiting = True
        self.started_at: float | None = None
        self.result: asyncio.Future[T] = asyncio.get_running_loop().create_future()


class JointRead:
    """`run_job` runs work as a job, which has a time limit in seconds. `call` is the group of the job."""

    def __init__(
        self, call: CallGroup, run_job: Callable[[LibraryWork[None], float], Coroutine[Any, Any, None]]
    ) -> None:
        self._call = call
        self._run_job = run_job
        self._held_up_max_s = min(_HELD_UP_MAX_S, call.limit_s * _HELD_UP_SHARE)
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._parts: list[ReadPart[Any]] = []
        # Those that the event loop does not know yet.
        self._results: list[Result[Any]] = []
        self._is_held_up = False
        self._task: asyncio.Task[None] | None = None
        self._watch: asyncio.TimerHandle | None = None

    async def read(self, work: LibraryWork[T], limit_s: float) -> T:
        """Must be called before `start`. Raises RunAlone."""
        part = ReadPart(work, limit_s)
        self._parts.append(part)
        timer = RunTimer(part, part.result, limit_s)
        try:
            return await part.result
        finally:
            timer.stop()
            # Stops the job if it is running a read whose caller has given up, or if no read is left.
            with self._lock:
                part.is_waiting = False
            result = part.result
            is_abandoned = not result.done() or result.cancelled() or isinstance(result.exception(), TimeoutError)
            is_last = all(other.result.done() for other in self._parts)
            if self._task is not None and is_abandoned and (part.started_at is not None or is_last):
                self._task.cancel()

    def start(self) -> None:
        waiting = [part for part in self._parts if part.is_waiting]
        if len(waiting) < 2:
            self._release()
            return
        with job_group(self._call):
            self._task = self._loop.create_task(self._run(max(part.limit_s for part in waiting)))

    async def _run(self, limit_s: float) -> None:
        self._watch = self._loop.call_later(self._held_up_max_s, self._release_if_held_up)
        try:
            # The reads that are left show whether it fails again.
            with suppress(FlorilegiumError, RunAlone, *job_errors()):
                await self._run_job(self._work, limit_s)
        finally:
            if self._watch is not None:
                self._watch.cancel()
            self._release(is_over=True)

    def _work(self, connection: LibraryConnection) -> None:
        """Called by the thread of the job. Results are passed on before the commit, which a transaction that reads does
        not need: those of a small library together, because the event loop would compete with this thread for the
        interpreter, and others at once."""
        assert connection.job is not None
        searches = [part.work for part in self._parts if isinstance(part.work, SearchWork)]
        if searches:
            cast("Any", searches[0].collection).read_ahead(connection, searches)
        try:
            for part in self._parts:
                with self._lock:
                    # The event loop may let the part run alone at the same time.
                    is_mine, part.is_waiting = part.is_waiting, False
                    if is_mine:
                        part.started_at = time.monotonic()
                if not is_mine:
                    continue
                connection.job.start(part.limit_s)
                try:
                    result: Result[Any] = (part.result, part.work(connection), None)
                except StatementInterrupted as error:
                    pass_on((part.result, None, error))
                    raise
                except job_errors():
                    # The transaction has failed: this read and those after it are run again as jobs of their own.
                    raise
                except BaseException as error:
                    result = (part.result, None, error)
                with self._lock:
                    self._results.append(result)
                state = known_index_state(connection)
                if state is None or not state.is_small or self._is_held_up:
                    self._pass_on_results()
        finally:
            self._pass_on_results()

    def _pass_on_results(self) -> None:
        with self._lock:
            results, self._results = self._results, []
        pass_on(*results)

    def _release_if_held_up(self) -> None:
        now = time.monotonic()
        started_at = [part.started_at for part in self._parts if part.started_at is not None]
        left_s = min(started_at, default=now) + self._held_up_max_s - now
        if left_s > 0:
            self._watch = self._loop.call_later(left_s, self._release_if_held_up)
        else:
            self._is_held_up = True
            self._pass_on_results()
            self._release()

    def _release(self, *, is_over: bool = False) -> None:
        """Lets the reads that have not started run alone, and all others that have no result if the job is over."""
        for part in self._parts:
            with self._lock:
                is_released, part.is_waiting = part.is_waiting or is_over, False
            if is_released and not part.result.done():
                part.result.set_exception(RunAlone())


class JointReads:
    """The reads of a library that start together: those that a call starts in the same pass of the event loop."""

    def __init__(self, run_job: Callable[[LibraryWork[None], float], Coroutine[Any, Any, None]]) -> None:
        self._run_job = run_job
        self._next: dict[CallGroup, JointRead] = {}

    async def read(self, call: CallGroup, work: LibraryWork[T], limit_s: float) -> T:
        """Raises RunAlone, for example if the call starts no other read."""
        joint = self._next.get(call)
        if joint is None:
            joint = self._next[call] = JointRead(call, self._run_job)
            asyncio.get_running_loop().call_soon(lambda: self._next.pop(call).start())
        return await joint.read(work, limit_s)
