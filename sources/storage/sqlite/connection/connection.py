"""One SQLite connection on its own thread. Work is done in jobs: functions that run in one transaction.

There is never an open transaction between two awaits. A job that is cancelled while it waits is never started, and one
that exceeds its deadline is interrupted within its statement and rolled back.
"""

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import uuid4

import aiosqlite
from aiosqlite.core import set_exception
from loguru import logger
from msgspec import Struct

from config.errors import (
    Conflict,
    FlorilegiumError,
    StorageError,
    Unavailable,
    is_undecodable_text,
    replace_undecodable,
)
from config.paths import UserId
from sources.storage import job_queue
from sources.storage.job_queue import Job, retrieve_exception
from sources.storage.sqlite.connection.errors import Interrupted, RowConnection, is_busy
from sources.storage.tables.sql import PendingConflict, TextIndex

T = TypeVar("T")
Work = Callable[["JobConnection"], T]

# How long SQLite waits for the lock of another process. It cannot be interrupted meanwhile, so this is short, and the
# job is retried until its deadline.
BUSY_TIMEOUT_MS = 50
BUSY_PAUSE_S = 0.005
# Virtual machine instructions between two checks of the deadline: a few milliseconds of ranking.
_STEPS_PER_CHECK = 10_000
# Connections of one file that may be busy with jobs that do not stop. Each of them occupies a thread.
_STUCK_MAX = 2
_STUCK_RETRY_S = 10.0
_NO_TRANSACTION = "SELECT 1"


class FileReplaced(StorageError):
    """Somebody deleted or replaced a file while it was open, or a job could not attach it. Nothing was written."""

    def __init__(self, path: Path) -> None:
        super().__init__("the file of this library was deleted or replaced; try again")
        self.path = path


class AttachedFile(Struct):
    """A file of a reader, the names of its full-text indexes, and those in which terms are counted."""

    names: frozenset[str]
    indexes: tuple[TextIndex, ...]
    # It must be opened again before it is written to.
    is_immutable: bool = False
    # Rows lack computed values after an upgrade.
    has_outdated_rows: bool = False
    # Terms are weighted without it.
    is_damaged: bool = False


class JobConnection(RowConnection):
    """A connection that knows which job it is running, so that stopping one job cannot interrupt the next."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._guard = threading.Lock()
        self._job: Job[Any] | None = None
        self._is_closing = False
        # Tells connections apart, also those of earlier processes.
        self.id = uuid4().hex
        # The files that were opened. One stays usable after it was deleted, but what is written to it then is lost.
        self._files: dict[Path, os.stat_result] = {}
        self._data_versions: dict[str, int] = {}
        # Changes with every job.
        self.job_number = 0
        # The files of a reader, which has no other. The schema of a file is named like its kind.
        self.attached: dict[str, AttachedFile] = {}
        # Attaches files that no call has needed yet.
        self.pending: dict[str, Callable[[JobConnection], None]] = {}
        # Files that SQLite may have attached, but that cannot be used.
        self.unusable: set[str] = set()
        # The temporary tables that were created since the last rollback, which would have removed them.
        self.temporary_tables: set[str] = set()
        # A second safeguard: it stops a job even while the event loop is too busy to do so.
        self.set_progress_handler(self._must_stop, _STEPS_PER_CHECK)

    def watch_file(self, path: Path) -> None:
        """Makes every job fail with FileReplaced once another file, or none, has this path."""
        self._files[path] = path.stat()

    def attach_pending(self, kind: str) -> None:
        """Attaches a file of `pending`, if that is possible."""
        self.pending[kind](self)
        del self.pending[kind]

    def data_version(self, schema: str) -> int:
        """Returns a number that changes with every write to a file. It is read once in each job."""
        version = self._data_versions.get(schema)
        if version is None:
            [version] = self.execute(f"PRAGMA {schema}.data_version").fetchone()
            self._data_versions[schema] = version
        return version

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        # An interrupt between two statements has no effect, so each statement checks before it starts.
        if self._must_stop():
            raise Interrupted
        if self._has_pending:
            self.write_pending()
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        if self._must_stop():
            raise Interrupted
        if self._has_pending:
            self.write_pending()
        return super().executemany(sql, parameters)

    def run(self, job: Job[T], begin: str) -> T:
        """Runs the job on this connection's thread. Retries while another process holds a lock."""
        job.due = time.monotonic() + job.limit_s
        if job.pace is not None:
            job.pace.start()
        while True:
            try:
                return self._run_once(job, begin)
            except sqlite3.OperationalError as error:
                if self._is_closing:
                    raise Unavailable("the library is being closed") from error
                if is_undecodable_text(error) and self.text_factory is str:
                    # Only such files pay for the slower conversion.
                    logger.warning("A library has texts that are not UTF-8; `florilegium check` names the library")
                    self.text_factory = replace_undecodable
                    continue
                if not is_busy(error):
                    raise
                time.sleep(BUSY_PAUSE_S)
                # Checked after the pause, so that the caller learns of the lock and not only of the timeout.
                if job.is_stopped or time.monotonic() > job.due:
                    raise

    def restart_clock(self, limit_s: float) -> None:
        """Implements `TimedConnection`."""
        assert self._job is not None
        self._job.due = time.monotonic() + limit_s

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
            if job.is_stopped or self._is_closing:
                raise Interrupted
            self._job = job
        self._data_versions.clear()
        self.job_number += 1
        try:
            for path, opened in self._files.items():
                try:
                    is_same = os.path.samestat(path.stat(), opened)
                except OSError:
                    is_same = False
                if not is_same:
                    raise FileReplaced(path)
            self.execute(begin)
            try:
                result = job.work(self)
            except FlorilegiumError:
                # An item that was to be inserted before may exist already, which is then the first error.
                self.write_pending()
                raise
            if self.in_transaction:
                self.execute("COMMIT")
        except PendingConflict as error:
            raise Conflict(str(error)) from None
        finally:
            if self._has_pending:
                self.discard_pending()
            with self._guard:
                self._job = None
            if self.in_transaction:
                self.temporary_tables.clear()
                self.rollback()
        return result

    def _must_stop(self) -> bool:
        job = self._job
        if job is None:
            return False
        if job.pace is not None:
            job.pace.pause_if_due()
        return job.is_stopped or time.monotonic() > job.due


class ConnectionStuck(Exception):
    """The job before this one does not stop. The connection was given up, and the job can be run on another one."""


class QueuedConnection(aiosqlite.Connection):
    """Gives the event loop access to one connection of a user: one job at a time, in the order of the job queue.

    SQLite cannot interrupt everything: an FTS5 function on a long text runs to its end. If a job is still running
    `stop_s` after its caller gave up, the connection is left to it and `on_stuck` is called.
    """

    def __init__(
        self,
        connect: Callable[[], JobConnection],
        jobs: job_queue.JobQueue,
        user_id: UserId,
        queue_max: int,
        stop_s: float = 1.0,
    ) -> None:
        super().__init__(connect, iter_chunk_size=1)
        # A process that exits without closing must not wait for its connections. To SQLite that is like a crash.
        self._thread.daemon = True
        self._jobs = jobs
        self._user_id = user_id
        self._queue_max = queue_max
        self._lane = job_queue.JobLane()
        self._stopped: asyncio.Future[Any] | None = None
        self._stop_s = stop_s
        self._abandoned: Job[Any] | None = None
        self.joint_reads = job_queue.JointReads(self._read_jointly)
        # Those of the connection, once it is open.
        self.attached: dict[str, AttachedFile] = {}
        self.pending: dict[str, Callable[[JobConnection], None]] = {}
        self.on_stuck: Callable[[QueuedConnection], None] | None = None
        self.is_discarded = False

    @property
    def is_busy_without_caller(self) -> bool:
        return self._abandoned is not None and not self._abandoned.is_finished

    async def open(self) -> Self:
        try:
            await self
        except BaseException:
            # The thread is ending and will report that to the event loop, which must still be running then.
            if self._stopped is not None:
                await self._stopped
            raise
        assert isinstance(self._connection, JobConnection)
        self.attached, self.pending = self._connection.attached, self._connection.pending
        return self

    def read(self, work: Work[T], limit_s: float) -> asyncio.Future[T]:
        """Runs the work on one snapshot. The caller times out even if SQLite is still stopping, and cancelling the
        caller stops the work."""
        return self._submit(work, limit_s, "BEGIN", gives_up=True)

    def _read_jointly(self, joint: job_queue.JointRead) -> asyncio.Future[None]:
        """Each part restarts the clock of the job, and has a timer of its own."""
        return self._submit(joint.work, joint.parts[0].limit_s, "BEGIN", gives_up=False)

    async def write(self, work: Work[T], limit_s: float) -> T:
        """Runs the work in one transaction, started as a writer so that it can never fail half-way because of a lock.

        Once it runs, only the connection's own thread enforces the limit: the caller must learn whether the transaction
        was committed.
        """
        return await self._submit(work, limit_s, "BEGIN IMMEDIATE", gives_up=False)

    async def flush(self, limit_s: float) -> None:
        """Writes the log to the file, and both to the disk. Skips what a reader still needs."""

        def checkpoint(writer: JobConnection) -> None:
            writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

        # A checkpoint is not possible within a transaction.
        await self._submit(checkpoint, limit_s, _NO_TRANSACTION, gives_up=False)

    async def close(self) -> None:
        """Stops the running job and closes. Otherwise closing would wait for every job in the queue."""
        if isinstance(self._connection, JobConnection):
            self._connection.stop_all()
        self._fail_waiting_jobs(Unavailable("the library is being closed"))
        due = time.monotonic() + self._stop_s
        while self.is_busy_without_caller and time.monotonic() < due:  # noqa: ASYNC110 - a thread changes it
            await asyncio.sleep(BUSY_PAUSE_S)
        if not self.is_busy_without_caller:
            await super().close()
        else:
            logger.warning("A library is closed while a job that cannot be interrupted is still running")
            self.stop()

    def _fail_waiting_jobs(self, error: Exception) -> None:
        for queued in self._jobs.waiting_jobs(self._lane):
            if queued.result is not None:
                set_exception(queued.result, error)

    def _give_up_if_stuck(self, job: Job[Any]) -> None:
        if job.is_finished or not self._running:
            return
        logger.warning("A job that cannot be interrupted is still running; its connection is replaced")
        if self.on_stuck is not None:
            self.on_stuck(self)
        self._fail_waiting_jobs(ConnectionStuck())
        # Closes the connection when the job ends.
        self.stop()

    def stop(self) -> asyncio.Future[Any] | None:
        self._stopped = super().stop()
        return self._stopped

    async def attach(self, work: Work[None], limit_s: float) -> None:
        """Attaches a file, which SQLite does not permit within a transaction."""
        await self._submit(work, limit_s, _NO_TRANSACTION, gives_up=True)

    def _submit(self, work: Work[T], limit_s: float, begin: str, *, gives_up: bool) -> asyncio.Future[T]:
        """Queues a job. Cancelling the future that it returns stops the job, or keeps it from being started."""
        raw = self._connection
        if not isinstance(raw, JobConnection):
            closed: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            closed.set_exception(Unavailable("the library is closed"))
            return closed
        job: Job[T] = Job(work, limit_s)
        return self._jobs.submit(
            self._user_id,
            self._lane,
            job,
            partial(raw.run, job, begin),
            self._tx.put_nowait,
            partial(self._abandon, raw),
            lane_max=self._queue_max,
            gives_up=gives_up,
        )

    def _abandon(self, raw: JobConnection, job: Job[Any]) -> None:
        """Called when the caller of a running job gave up."""
        raw.stop(job)
        self._abandoned = job
        asyncio.get_running_loop().call_later(self._stop_s, self._give_up_if_stuck, job)


class LazyConnection:
    """A connection that is opened on first use. Concurrent callers share one attempt, which continues if they are
    cancelled. A connection that is stuck is replaced, as long as there are few of them."""

    def __init__(self, open_connection: Callable[[], Coroutine[Any, Any, QueuedConnection]]) -> None:
        self.connection: QueuedConnection | None = None
        self._open_connection = open_connection
        self._opening: asyncio.Task[QueuedConnection] | None = None
        self._stuck: list[QueuedConnection] = []

    async def open(self) -> QueuedConnection:
        if self.connection is not None:
            return self.connection
        self._stuck = [connection for connection in self._stuck if connection.is_busy_without_caller]
        if len(self._stuck) >= _STUCK_MAX:
            raise Unavailable("earlier calls to this library cannot be interrupted; try again later", _STUCK_RETRY_S)
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(retrieve_exception)
        return await asyncio.shield(self._opening)

    async def close(self) -> None:
        if self._opening is not None:
            await asyncio.wait([self._opening])
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()

    async def discard(self, connection: QueuedConnection | None) -> None:
        """Closes a connection that cannot be used, unless another call has done so: the one that is open now is not
        affected. Reads that it fails can be run on that one."""
        if connection is not None and self.connection is connection:
            self.connection, connection.is_discarded = None, True
            await connection.close()

    async def _open(self) -> QueuedConnection:
        try:
            self.connection = await self._open_connection()
        finally:
            self._opening = None
        self.connection.on_stuck = self._replace
        return self.connection

    def _replace(self, stuck: QueuedConnection) -> None:
        self._stuck.append(stuck)
        if self.connection is stuck:
            self.connection = None
