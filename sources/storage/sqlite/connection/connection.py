"""One SQLite connection on its own thread. Work is done in jobs: functions that run in one transaction.

There is never an open transaction between two awaits. A job that is cancelled while it waits is never started, and one
that exceeds its deadline is interrupted within its statement and rolled back.
"""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, Self, TypeVar

import aiosqlite
from aiosqlite.core import set_exception

from config.errors import Overloaded, Unavailable
from config.paths import UserId
from sources.storage.job_group import current_job_group
from sources.storage.job_queue import JobLane, JobQueue, QueuedJob
from sources.storage.sqlite.connection.errors import Interrupted, is_busy
from sources.storage.sqlite.index.text_index import TextIndex

T = TypeVar("T")
Work = Callable[["JobConnection"], T]

# How long SQLite waits for the lock of another process. It cannot be interrupted meanwhile, so this is short, and the
# job is retried until its deadline.
BUSY_TIMEOUT_MS = 50
BUSY_PAUSE_S = 0.005
# Virtual machine instructions between two checks of the deadline: a few milliseconds of ranking.
_STEPS_PER_CHECK = 10_000


class Job(Generic[T]):
    """A piece of work and the time it may take, which starts to run when the work does."""

    __slots__ = ("due", "is_stopped", "limit_s", "work")

    def __init__(self, work: Work[T], limit_s: float) -> None:
        self.work = work
        self.limit_s = limit_s
        self.due = float("inf")
        self.is_stopped = False

    def start(self) -> None:
        self.due = time.monotonic() + self.limit_s

    @property
    def is_over(self) -> bool:
        return self.is_stopped or time.monotonic() > self.due


class JobConnection(sqlite3.Connection):
    """A connection that knows which job it is running, so that stopping one job cannot interrupt the next."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._guard = threading.Lock()
        self._job: Job[Any] | None = None
        self._is_closing = False
        # Whether the file was opened as immutable. It must be opened again before it is written to.
        self.is_immutable = False
        # Whether rows lack computed values after an upgrade.
        self.has_outdated_rows = False
        # The schema names of the user's other files, and the full-text indexes in each.
        self.attached: dict[str, tuple[TextIndex, ...]] = {}
        # A second safeguard: it stops a job even while the event loop is too busy to do so.
        self.set_progress_handler(self._must_stop, _STEPS_PER_CHECK)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        # An interrupt between two statements has no effect, so each statement checks before it starts.
        if self._must_stop():
            raise Interrupted
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        if self._must_stop():
            raise Interrupted
        return super().executemany(sql, parameters)

    def run(self, job: Job[T], begin: str) -> T:
        """Runs the job on this connection's thread. Retries while another process holds a lock."""
        job.start()
        while True:
            try:
                return self._run_once(job, begin)
            except sqlite3.OperationalError as error:
                if self._is_closing:
                    raise Unavailable("the library is being closed") from error
                if not is_busy(error):
                    raise
                time.sleep(BUSY_PAUSE_S)
                # Checked after the pause, so that the caller learns of the lock and not only of the timeout.
                if job.is_over:
                    raise

    def stop(self, job: Job[Any]) -> None:
        """Prevents a waiting job from starting or interrupts it if it is running. Can be called from any thread."""
        with self._guard:
            job.is_stopped = True
            if self._job is job:
                self.interrupt()

    def stop_all(self) -> None:
        """Interrupts the running job and prevents all others from starting. Can be called from any thread."""
        with self._guard:
            self._is_closing = True
            if self._job is not None:
                self._job.is_stopped = True
                self.interrupt()

    def _run_once(self, job: Job[T], begin: str) -> T:
        with self._guard:
            if job.is_over or self._is_closing:
                raise Interrupted
            self._job = job
        try:
            self.execute(begin)
            result = job.work(self)
            self.execute("COMMIT")
        finally:
            with self._guard:
                self._job = None
            if self.in_transaction:
                self.rollback()
        return result

    def _must_stop(self) -> bool:
        return self._job is not None and self._job.is_over


class QueuedConnection(aiosqlite.Connection):
    """Gives the event loop access to one connection of a user: one job at a time, in the order of the job queue."""

    def __init__(self, connect: Callable[[], JobConnection], jobs: JobQueue, user_id: UserId, queue_max: int) -> None:
        super().__init__(connect, iter_chunk_size=1)
        # A process that exits without closing must not wait for its connections. To SQLite that is like a crash.
        self._thread.daemon = True
        self._jobs = jobs
        self._user_id = user_id
        self._queue_max = queue_max
        self._lane = JobLane()
        self._pending: dict[QueuedJob, asyncio.Future[Any]] = {}
        self._stopped: asyncio.Future[Any] | None = None

    async def open(self) -> Self:
        try:
            await self
        except BaseException:
            # The thread is ending and will report that to the event loop, which must still be running then.
            if self._stopped is not None:
                await self._stopped
            raise
        return self

    async def read(self, work: Work[T], limit_s: float) -> T:
        """Runs the work on one snapshot. The caller times out even if SQLite is still stopping, and cancelling the
        caller stops the work."""
        job = Job(work, limit_s)
        return await self._run(job, "BEGIN", gives_up=True)

    async def write(self, work: Work[T], limit_s: float) -> T:
        """Runs the work in one transaction, started as a writer so that it can never fail half-way because of a lock.

        Once it runs, only the connection's own thread enforces the limit: the caller must learn whether the transaction
        was committed.
        """
        job = Job(work, limit_s)
        return await self._run(job, "BEGIN IMMEDIATE", gives_up=False)

    async def close(self) -> None:
        """Stops the running job and closes. Otherwise closing would wait for every job in the queue."""
        if isinstance(self._connection, JobConnection):
            self._connection.stop_all()
        for queued in self._jobs.waiting_jobs(self._lane):
            set_exception(self._pending[queued], Unavailable("the library is being closed"))
        await super().close()

    def stop(self) -> asyncio.Future[Any] | None:
        self._stopped = super().stop()
        return self._stopped

    @property
    def is_immutable(self) -> bool:
        return self._raw.is_immutable

    @property
    def has_outdated_rows(self) -> bool:
        """Whether rows lacked computed values when the file was opened."""
        return self._raw.has_outdated_rows

    @property
    def _raw(self) -> JobConnection:
        if not isinstance(self._connection, JobConnection):
            raise Unavailable("the library is closed")
        return self._connection

    async def _run(self, job: Job[T], begin: str, *, gives_up: bool) -> T:
        if len(self._pending) >= self._queue_max:
            raise Overloaded("too many calls are waiting for this library; try again in a moment")
        raw = self._raw
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def run_on_thread() -> T:
            cpu_before_s = time.thread_time()
            try:
                return raw.run(job, begin)
            finally:
                # CPU time, because how long a job takes also depends on what else the machine does.
                queued.cost_s = time.thread_time() - cpu_before_s
                self._jobs.finish(queued)

        def hand_over() -> None:
            self._tx.put_nowait((result, run_on_thread))

        queued = QueuedJob(self._user_id, self._lane, current_job_group(), hand_over)
        self._pending[queued] = result
        self._jobs.add(queued)
        timer = _RunTimer(queued, result, job.limit_s) if gives_up else None
        try:
            return await result
        finally:
            if timer is not None:
                timer.stop()
            del self._pending[queued]
            if not self._jobs.leave(queued):
                raw.stop(job)


class _RunTimer:
    """Raises TimeoutError from the future when the job has run for `limit_s`. The time it waits does not count."""

    def __init__(self, queued: QueuedJob, result: asyncio.Future[Any], limit_s: float) -> None:
        self._queued = queued
        self._result = result
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(limit_s, self._check)

    def stop(self) -> None:
        self._timer.cancel()

    def _check(self) -> None:
        started_at = self._queued.started_at
        left_s = self._limit_s if started_at is None else started_at + self._limit_s - time.monotonic()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._check)
        else:
            set_exception(self._result, TimeoutError())


class LazyConnection:
    """A connection that is opened on first use. Concurrent callers share one attempt, which continues if they are
    cancelled."""

    def __init__(self, open_connection: Callable[[], Coroutine[Any, Any, QueuedConnection]]) -> None:
        self.connection: QueuedConnection | None = None
        self._open_connection = open_connection
        self._opening: asyncio.Task[QueuedConnection] | None = None

    async def open(self) -> QueuedConnection:
        if self.connection is not None:
            return self.connection
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(_retrieve_exception)
        return await asyncio.shield(self._opening)

    async def close(self) -> None:
        if self._opening is not None:
            await asyncio.wait([self._opening])
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()

    async def _open(self) -> QueuedConnection:
        try:
            self.connection = await self._open_connection()
        finally:
            self._opening = None
        return self.connection


def _retrieve_exception(opening: asyncio.Task[QueuedConnection]) -> None:
    """Callers that are still waiting get the exception. If none is, asyncio would log that it was never retrieved."""
    if not opening.cancelled():
        opening.exception()
