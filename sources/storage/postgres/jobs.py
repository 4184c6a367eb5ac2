"""Runs the jobs of all libraries on threads that each own a connection, in the order of the job queue.

A job is one transaction. If the connection is lost before it is committed, or the server ends it because of other
transactions, it is run again. Whether a job was committed is never guessed: see `UnconfirmedWrite`.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from config.errors import Unavailable
from config.event_counts import POSTGRES_EVENTS
from config.paths import UserId
from config.postgres.connection import (
    ConnectionOptions,
    ConnectionThreads,
    PostgresConnection,
    Transaction,
)
from config.postgres.errors import driver_errors, is_connection_lost
from sources.storage.job_queue import JobLane, JobQueue
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

_RETRY_PAUSE_S = 0.05
# How long a job waits for a server that restarts. Longer would hold up the jobs of all users. A job also fails before
# its time is over, so that its caller learns why: a search that is late counts as a failure of its source.
_RETRY_MAX_S = 3.0
_RETRY_SHARE = 0.5
_CLOSE_MAX_S = 5.0


class JobThreads(ConnectionThreads):
    """`jobs` decides which job runs next. It may start more jobs than it has slots, so there are more threads."""

    def __init__(self, options: ConnectionOptions, jobs: JobQueue, count: int, lane_max: int) -> None:
        super().__init__(options, count, "library", LibraryConnection.connect)
        self.jobs = jobs
        self._lane_max = lane_max
        self._running: set[LibraryJob[Any]] = set()

    async def run_job(
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
        if self.is_closed:
            raise Unavailable("the server is stopping")
        job = LibraryJob(work, limit_s, is_repeatable=is_repeatable)
        self._running.add(job)
        try:
            return await self.jobs.submit(
                user_id,
                lane,
                job,
                partial(self._run_job, job, transaction),
                self._hand_over,
                lambda _: job.stop(),
                lane_max=self._lane_max,
                gives_up=gives_up,
            )
        finally:
            self._running.discard(job)

    def _hand_over(self, work: tuple[asyncio.Future[T], Callable[[], T]]) -> None:
        self.start(partial(_run_and_settle, *work))

    def _run_job(self, job: LibraryJob[T], transaction: Callable[[int], Transaction]) -> T:
        """Runs a job until it is committed, cannot succeed, or its time is over."""
        job.check()
        job.start()
        retry_until = time.monotonic() + min(_RETRY_MAX_S, job.limit_s * _RETRY_SHARE)
        is_lost = False
        while True:
            try:
                # Others that are idle may be lost for the same reason.
                with self.connection(is_new=is_lost) as connection:
                    assert isinstance(connection, LibraryConnection)
                    return _run_once(job, transaction(job.remaining_ms), connection)
            except driver_errors() as error:
                if not job.is_repeatable:
                    raise
                time.sleep(_RETRY_PAUSE_S)
                if not is_repeatable(error) or time.monotonic() > retry_until:
                    raise
                job.check()
                is_lost = is_connection_lost(error)

    async def close(self) -> None:
        """Stops running jobs and closes the connections."""
        for job in list(self._running):
            job.stop()
        await asyncio.to_thread(self.close_now, _CLOSE_MAX_S)


def _run_and_settle(result: asyncio.Future[T], run: Callable[[], T]) -> None:
    try:
        settle = partial(_settle, result, run(), None)
    except BaseException as error:
        settle = partial(_settle, result, None, error)
    with suppress(RuntimeError):  # the event loop was closed
        result.get_loop().call_soon_threadsafe(settle)
    # It may refer to an error, which refers to this frame.
    del settle


def _settle(result: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
    if result.done():  # the caller has given up
        return
    if error is None:
        result.set_result(value)
    else:
        result.set_exception(error)


def _run_once(job: LibraryJob[T], transaction: Transaction, connection: LibraryConnection) -> T:
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
