"""Runs the reads that a call starts at the same time in one job: those of the sources of a search.

They share a transaction, the counts of their terms and the hand-over to a thread. A read becomes a job of its own if
the job fails before it, or if those before it take long, so that a slow source does not hold up the others.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from sources.storage.job_queue import CallGroup, job_group

T = TypeVar("T")

# How long the results of reads wait for the others: less than this, and less than this share of the time of the call.
_HELD_UP_MAX_S = 0.25
_HELD_UP_SHARE = 0.25


class RunAlone(Exception):
    """The read has to be run as a job of its own."""


class TimedConnection(Protocol):
    def restart_clock(self, limit_s: float) -> None:
        """Gives the running job this much time from now on. Called by its thread."""
        ...


class ReadPart(Generic[T]):
    """One of the reads. `started_at` and `outcome`, which has what it returned, are set by the thread of the job."""

    __slots__ = ("limit_s", "outcome", "result", "started_at", "work")

    def __init__(self, work: Callable[[Any], T], limit_s: float) -> None:
        self.work = work
        self.limit_s = limit_s
        self.started_at: float | None = None
        self.outcome: tuple[T] | None = None
        self.result: asyncio.Future[T] = asyncio.get_running_loop().create_future()


class JointRead:
    def __init__(self, call: CallGroup) -> None:
        self.parts: list[ReadPart[Any]] = []
        self._call = call
        self._held_up_max_s = min(_HELD_UP_MAX_S, call.limit_s * _HELD_UP_SHARE)
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, run_job: Callable[["JointRead"], Coroutine[Any, Any, None]]) -> None:
        self.parts = [part for part in self.parts if not part.result.done()]
        if len(self.parts) < 2:
            self.pass_on()
            return
        with job_group(self._call):
            self._task = self._loop.create_task(run_job(self))
        self._task.add_done_callback(self._finish)
        self._check_time()

    def work(self, connection: TimedConnection) -> None:
        """Called by the thread of the job, again if it has to be repeated."""
        for part in self.parts:
            if part.outcome is None and not part.result.done():
                part.started_at = time.monotonic()
                connection.restart_clock(part.limit_s)
                part.outcome = (part.work(connection),)

    def pass_on_soon(self) -> None:
        """Called by the thread of a job that takes a while to end."""
        self._loop.call_soon_threadsafe(self.pass_on)

    def pass_on(self) -> None:
        """Returns what has been read. Reads that were not started run alone: time in a queue would not count as
        theirs, but that of the reads before them does."""
        for part in self.parts:
            if part.result.done():
                continue
            if part.outcome is not None:
                part.result.set_result(part.outcome[0])
            elif part.started_at is None:
                part.result.set_exception(RunAlone())

    def leave(self, part: ReadPart[Any]) -> None:
        """Stops the job if nobody waits for the read that is running, or for any. Those that are left run alone."""
        part.result.cancel()
        if self._task is None or part.outcome is not None:
            return
        if part.started_at is not None or all(other.result.done() for other in self.parts):
            self._task.cancel()

    def _check_time(self) -> None:
        """Does not wait for a slow read any longer, and ends the wait for one at its own limit."""
        now = time.monotonic()
        started = [part for part in self.parts if part.started_at is not None]
        dues = [(started[0].started_at or now if started else now) + self._held_up_max_s]
        if dues[0] <= now:
            self.pass_on()
            dues = []
        for part in started:
            if part.outcome is None and not part.result.done():
                due = (part.started_at or now) + part.limit_s
                dues.append(due)
                if due <= now:
                    part.result.set_exception(TimeoutError())
        later = [due for due in dues if due > now]
        if later:
            self._timer = self._loop.call_later(min(later) - now, self._check_time)

    def _finish(self, task: asyncio.Task[None]) -> None:
        # It is cancelled if the caller of the read that was running gave up.
        error = None if task.cancelled() else task.exception()
        if self._timer is not None:
            self._timer.cancel()
        if error is None or any(part.started_at is not None for part in self.parts):
            self.pass_on()
        for part in self.parts:
            if not part.result.done():
                part.result.set_exception(error or RunAlone())


class JointReads:
    """The reads of a library that start together: those that a call starts in the same pass of the event loop. If
    `run_job` raises, the read that was running fails with that error."""

    def __init__(self, run_job: Callable[[JointRead], Coroutine[Any, Any, None]]) -> None:
        self._run_job = run_job
        self._next: dict[CallGroup, JointRead] = {}

    async def read(self, call: CallGroup, work: Callable[[Any], T], limit_s: float) -> T:
        """Raises RunAlone, for example if the call starts no other read."""
        joint = self._next.get(call)
        part = ReadPart(work, limit_s)
        if joint is None:
            joint = self._next[call] = JointRead(call)
            # The other sources of the search get as far as this in the same pass of the event loop.
            asyncio.get_running_loop().call_soon(lambda: self._next.pop(call).start(self._run_job))
        joint.parts.append(part)
        try:
            return await part.result
        finally:
            joint.leave(part)
