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

from config.errors import Unavailable
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
    """A piece of work and its deadline (`due`, in the time of `time.monotonic`)."""

    __slots__ = ("due", "is_stopped", "work")

    def __init__(self, work: Work[T], due: float) -> None:
        self.work = work
        self.due = due
        self.is_stopped = False

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
        self.segment_version = 0
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
    """Gives the event loop access to one connection: one job at a time, with a bounded number waiting."""

    def __init__(self, connect: Callable[[], JobConnection], slots: asyncio.Semaphore, queue_max: int) -> None:
        super().__init__(connect, iter_chunk_size=1)
        # A process that exits without closing must not wait for its connections. To SQLite that is like a crash.
        self._thread.daemon = True
        self._turn = asyncio.Lock()
        self._slots = slots
        self._queue_max = queue_max
        self._queued = 0
        self._stopped: asyncio.Future[Any] | None = None

    @classmethod
    async def open(cls, connect: Callable[[], JobConnection], slots: asyncio.Semaphore, queue_max: int) -> Self:
        connection = cls(connect, slots, queue_max)
        try:
            await connection
        except BaseException:
            # The thread is ending and will report that to the event loop, which must still be running then.
            if connection._stopped is not None:
                await connection._stopped
            raise
        return connection

    async def read(self, work: Work[T], due: float) -> T:
        """Runs the work on one snapshot. Cancelling the caller stops the work."""
        return await self._run(Job(work, due), "BEGIN", _ignore)

    async def write(self, work: Work[T], due: float, on_start: Callable[[], None]) -> T:
        """Runs the work in one transaction, started as a writer so that it can never fail half-way because of a lock.

        After `on_start` was called, the connection's own thread enforces the deadline: the caller must learn whether
        the transaction was committed.
        """
        return await self._run(Job(work, due), "BEGIN IMMEDIATE", on_start)

    async def close(self) -> None:
        """Stops the running job and closes. Otherwise closing would wait for every job in the queue."""
        if isinstance(self._connection, JobConnection):
            self._connection.stop_all()
        await super().close()

    def stop(self) -> asyncio.Future[Any] | None:
        self._stopped = super().stop()
        return self._stopped

    @property
    def is_immutable(self) -> bool:
        return self._raw.is_immutable

    @property
    def segment_version(self) -> int:
        """The segmentation version of the file when it was opened."""
        return self._raw.segment_version

    @property
    def _raw(self) -> JobConnection:
        if not isinstance(self._connection, JobConnection):
            raise Unavailable("the library is closed")
        return self._connection

    async def _run(self, job: Job[T], begin: str, on_start: Callable[[], None]) -> T:
        if self._queued >= self._queue_max:
            raise Unavailable("too many calls are waiting for this library; try again in a moment")
        raw = self._raw
        self._queued += 1
        try:
            # The turn first: a slot held by a job that waits for its own connection would leave a core idle.
            async with self._turn, self._slots:
                on_start()
                result: T = await self._execute(raw.run, job, begin)  # type: ignore[no-untyped-call]  # in aiosqlite
                return result
        finally:
            self._queued -= 1
            raw.stop(job)


def _ignore() -> None:
    """A read does nothing when it starts."""


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
