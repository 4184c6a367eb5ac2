"""Runs the jobs of all libraries on threads that each own a connection, in the order of the job queue.

A job is one transaction. If the connection is lost before it is committed, or the server ends it because of other
transactions, it is run again. Whether a job was committed is never guessed: see `UnconfirmedWrite`.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from config.errors import Unavailable
from config.event_counts import POSTGRES_EVENTS
from config.paths import UserId
from config.postgres.connection import ConnectionOptions, PostgresConnection, StatementInterrupted, Transaction
from config.postgres.errors import driver_errors, is_connection_lost
from sources.storage.job_queue import Job, JobLane, JobQueue
from sources.storage.postgres.connection import (
    LibraryConnection,
    LibraryJob,
    LibraryWork,
    UnconfirmedWrite,
    is_repeatable,
)
from sources.storage.tables.sql import Delete, Insert

if TYPE_CHECKING:
    from sources.storage.postgres.database import PostgresDatabase

T = TypeVar("T")
# A future, and what returns its result.
ThreadWork = tuple["asyncio.Future[Any]", Callable[["LibraryThread"], Any]]

_RETRY_PAUSE_S = 0.05
# How long a job waits for a server that restarts. Longer would hold up the jobs of all users. A job also fails before
# its time is over, so that its caller learns why: a search that is late counts as a failure of its source.
_RETRY_MAX_S = 3.0
_RETRY_SHARE = 0.5
_CLOSE_MAX_S = 5.0


class JobThreads:
    """`jobs` decides which job runs next. It may start more jobs than it has slots, so there are more threads. A job
    goes to the thread that was busy last, whose connection has prepared most statements; connections that are not
    needed stay unused."""

    def __init__(self, options: ConnectionOptions, jobs: JobQueue, count: int, lane_max: int) -> None:
        self.jobs = jobs
        self._lane_max = lane_max
        self._lock = threading.Lock()
        # Most recently used last.
        self._idle: list[LibraryThread] = []
        # More jobs may have started than there are threads.
        self._backlog: deque[ThreadWork] = deque()
        self._running: set[LibraryJob[Any]] = set()
        self._is_closed = False
        self._threads = [LibraryThread(options, self) for _ in range(count)]

    async def run(
        self,
        user_id: UserId,
        lane: JobLane,
        work: LibraryWork[T],
        limit_s: float,
        transaction: Callable[[int], Transaction],
        *,
        gives_up: bool,
        is_repeatable: bool = True,
    ) -> T:
        """Runs the work in the transaction that `transaction` returns for the remaining milliseconds. With `gives_up`,
        the caller times out even if the server is still stopping the statement; a writer must learn the outcome."""
        if self._is_closed:
            raise Unavailable("the server is stopping")
        job = LibraryJob(work, limit_s, is_repeatable=is_repeatable)

        def run_on(thread: LibraryThread) -> T:
            job.check()
            return thread.run_job(job, transaction)

        self._running.add(job)
        try:
            return await self.jobs.submit(
                user_id, lane, job, run_on, self._hand_over, _stop, lane_max=self._lane_max, gives_up=gives_up
            )
        finally:
            self._running.discard(job)

    async def close(self) -> None:
        """Stops running jobs and closes the connections."""
        for job in list(self._running):
            job.stop()
        with self._lock:
            self._is_closed = True
            for thread in self._idle:
                thread.inbox.put(None)
            self._idle.clear()
        due = time.monotonic() + _CLOSE_MAX_S
        for thread in self._threads:
            await asyncio.to_thread(thread.join, max(0.0, due - time.monotonic()))

    def next_work(self, thread: "LibraryThread") -> ThreadWork | None:
        """Called by a thread without work, which waits until there is some. Returns None if it is to end."""
        with self._lock:
            if self._backlog:
                return self._backlog.popleft()
            if self._is_closed:
                return None
            self._idle.append(thread)
        return thread.inbox.get()

    def _hand_over(self, work: ThreadWork) -> None:
        with self._lock:
            if self._idle:
                self._idle.pop().inbox.put(work)
            else:
                self._backlog.append(work)


def _stop(job: Job[Any]) -> None:
    assert isinstance(job, LibraryJob)
    job.stop()


class LibraryThread(threading.Thread):
    """Runs jobs on one connection, which is opened on first use and replaced when it is lost or was used for long."""

    def __init__(self, options: ConnectionOptions, threads: JobThreads) -> None:
        # A process that exits without closing must not wait for its connections.
        super().__init__(name="library", daemon=True)
        self.inbox: SimpleQueue[ThreadWork | None] = SimpleQueue()
        self._options = options
        self._threads = threads
        self._connection: LibraryConnection | None = None
        self.start()

    def run(self) -> None:
        while (work := self._threads.next_work(self)) is not None:
            result, run_on = work
            try:
                outcome = partial(_settle, result, run_on(self))
            except BaseException as error:
                outcome = partial(_settle, result, None, error)
            with suppress(RuntimeError):  # the event loop was closed
                result.get_loop().call_soon_threadsafe(outcome)
            # They refer to the result, with the texts of all hits.
            del work, result, run_on, outcome
        self._close_connection()

    def run_job(self, job: LibraryJob[T], transaction: Callable[[int], Transaction]) -> T:
        """Runs a job until it is committed, cannot succeed, or its time is over."""
        job.start()
        retry_until = time.monotonic() + min(_RETRY_MAX_S, job.limit_s * _RETRY_SHARE)
        while True:
            try:
                return self._run_once(job, transaction(job.remaining_ms))
            except driver_errors() as error:
                if not job.is_repeatable:
                    raise
                time.sleep(_RETRY_PAUSE_S)
                if not is_repeatable(error) or time.monotonic() > retry_until:
                    raise
                job.check()

    def _run_once(self, job: LibraryJob[T], transaction: Transaction) -> T:
        connection = self._open_connection()
        try:
            result = connection.run_job(job, transaction)
        except BaseException:
            connection.rollback()
            raise
        try:
            connection.commit()
        except BaseException as error:
            connection.rollback()
            # The server may have committed before the connection was lost, so the job must not be run again.
            if not transaction.is_read_only and is_connection_lost(error):
                POSTGRES_EVENTS.add("unconfirmed")
                raise UnconfirmedWrite from error
            raise
        return result

    def _open_connection(self) -> LibraryConnection:
        if self._connection is not None and self._connection.is_due:
            self._close_connection()
        if self._connection is None:
            try:
                self._connection = LibraryConnection.connect(self._options)
            except TimeoutError as error:  # not that of the job
                raise ConnectionError("connecting to PostgreSQL took too long") from error
        return self._connection

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _settle(future: asyncio.Future[Any], value: object, error: BaseException | None = None) -> None:
    if future.done():  # the caller has given up
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


# -- leases ------------------------------------------------------------------------------------------------------------
# Leases on work that one process at a time does for a library. They are rows of the library's table `state`, because a
# lock of a session does not work behind a connection pooler.

_NOW_S = "extract(epoch FROM clock_timestamp())"
_END_S = "CAST(split_part(state.value, ' ', 2) AS DOUBLE PRECISION)"
_CLAIM = Insert(
    "state",
    "name, value",
    values=f"?1, CAST(?2 AS TEXT) || ' ' || CAST({_NOW_S} + CAST(?3 AS INTEGER) AS TEXT)",
    key="name",
    condition=f"split_part(state.value, ' ', 1) = ?2 OR {_END_S} < {_NOW_S}",
    returning="name",
)
_IS_HELD = f"SELECT 1 FROM state WHERE name = ? AND {_END_S} > {_NOW_S}"


def claim(connection: PostgresConnection, name: str, owner: str, lease_s: int) -> bool:
    """Returns False if another process holds the lease. One that ends without releasing it keeps others from the work
    until the lease ends."""
    return connection.execute(_CLAIM, (name, owner, lease_s)).fetchone() is not None


def is_held(connection: PostgresConnection, name: str) -> bool:
    """Whether a process, which may be this one, holds the lease."""
    return connection.execute(_IS_HELD, (name,)).fetchone() is not None


def release(connection: PostgresConnection, name: str, owner: str) -> None:
    connection.execute(Delete("state", "name = ? AND split_part(value, ' ', 1) = ?"), (name, owner))


# -- index builds ------------------------------------------------------------------------------------------------------
# Builds indexes of large tables with CREATE INDEX CONCURRENTLY, so that reads and writes go on.
#
# That is not possible in a transaction, and not with the role of tenants, so each build has a connection of its own. An
# interrupted build leaves an invalid index, which PostgreSQL does not use; it is dropped before the next attempt.


class IndexBuilds:
    """The builds of a process."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._connections: set[PostgresConnection] = set()
        self._is_stopped = False

    async def run(self, statements: Sequence[str]) -> bool:
        """Returns whether the index was built."""
        return await asyncio.to_thread(self._build, statements)

    def stop(self) -> None:
        """Interrupts all builds."""
        with self._lock:
            self._is_stopped = True
            for connection in self._connections:
                connection.interrupt()

    def _build(self, statements: Sequence[str]) -> bool:
        try:
            connection = PostgresConnection.connect(self._options)
        except driver_errors():
            return False
        try:
            with self._lock:
                if self._is_stopped:
                    return False
                self._connections.add(connection)
            for statement in statements:
                connection.run_script(statement)
        except StatementInterrupted:
            return False
        except driver_errors():
            return False
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()
        return True


# -- index tasks -------------------------------------------------------------------------------------------------------


class IndexTask:
    """Work on an index of one library, in the background, at most once at a time. Subclasses add `start`, which says
    when there is work."""

    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def wait_until_finished(self) -> None:
        if self._task is not None:
            await self._task

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
