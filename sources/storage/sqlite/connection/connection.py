"""One SQLite connection on its own thread. Work is done in whole jobs: a function that runs in one transaction.

Between two awaits there is never an open transaction. A job that was cancelled while it waited is never begun, and
one that is over its deadline is stopped within its statement and undone.
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

# SQLite waits this long for another process's lock; it cannot be interrupted while it does, so it is short and the
# job is tried again until its deadline.
BUSY_TIMEOUT_MS = 50
_BUSY_PAUSE_S = 0.005
# Instructions of SQLite's machine between two looks at the clock: a few milliseconds of ranking.
_STEPS_PER_LOOK = 10_000


class Job(Generic[T]):
    """A piece of work and the moment (of `time.monotonic`) when it must be over."""

    __slots__ = ("due", "stopped", "work")

    def __init__(self, work: Work[T], due: float) -> None:
        self.work = work
        self.due = due
        self.stopped = False

    @property
    def is_over(self) -> bool:
        return self.stopped or time.monotonic() > self.due


class JobConnection(sqlite3.Connection):
    """A connection that knows which job it runs, so that one can be stopped without hitting the next."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._guard = threading.Lock()
        self._job: Job[Any] | None = None
        self._closing = False
        # Set where the file was opened as one that never changes; then it is opened again before it does.
        self.is_frozen = False
        self.segment_version = 0
        # The schemas under which other files of the same user can be read, and the full-text tables in each.
        self.attached: dict[str, tuple[TextIndex, ...]] = {}
        # The second belt: it stops a job even while the event loop is too busy to do so.
        self.set_progress_handler(self._has_to_stop, _STEPS_PER_LOOK)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        # An interrupt between two statements has no effect, so each asks before it starts.
        if self._has_to_stop():
            raise Interrupted
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        if self._has_to_stop():
            raise Interrupted
        return super().executemany(sql, parameters)

    def perform(self, job: Job[T], begin: str) -> T:
        """Run the job on this connection's thread, again when another process is in the way."""
        while True:
            try:
                return self._attempt(job, begin)
            except sqlite3.OperationalError as error:
                if self._closing:
                    raise Unavailable("the library is being closed") from error
                if not is_busy(error) or job.is_over:
                    raise
            time.sleep(_BUSY_PAUSE_S)

    def stop(self, job: Job[Any]) -> None:
        """From any thread: a job that waits is never begun, one that runs is interrupted, one that is done is left."""
        with self._guard:
            job.stopped = True
            if self._job is job:
                self.interrupt()

    def stop_all(self) -> None:
        """From any thread: the running job is interrupted and none is begun again. Only closing is left to do."""
        with self._guard:
            self._closing = True
            if self._job is not None:
                self._job.stopped = True
                self.interrupt()

    def _attempt(self, job: Job[T], begin: str) -> T:
        with self._guard:
            if job.is_over or self._closing:
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

    def _has_to_stop(self) -> bool:
        return self._job is not None and self._job.is_over


class Channel(aiosqlite.Connection):
    """The way from the event loop to one connection: one job at a time, a bounded number waiting."""

    def __init__(self, connect: Callable[[], JobConnection], slots: asyncio.Semaphore, queue_max: int) -> None:
        super().__init__(connect, iter_chunk_size=1)
        # A process that ends without closing must not wait for its connections: to SQLite that is a crash like any.
        self._thread.daemon = True
        self._turn = asyncio.Lock()
        self._slots = slots
        self._queue_max = queue_max
        self._queued = 0
        self._stopped: asyncio.Future[Any] | None = None

    @classmethod
    async def open(cls, connect: Callable[[], JobConnection], slots: asyncio.Semaphore, queue_max: int) -> Self:
        channel = cls(connect, slots, queue_max)
        try:
            await channel
        except BaseException:
            # The thread was told to end; it reports that to the event loop, which must still be there.
            if channel._stopped is not None:
                await channel._stopped
            raise
        return channel

    async def read(self, work: Work[T], due: float) -> T:
        """Run the work on one snapshot. A caller that stops waiting stops the work."""
        return await self._run(Job(work, due), "BEGIN", _nothing)

    async def write(self, work: Work[T], due: float, begun: Callable[[], None]) -> T:
        """Run the work in one transaction, begun as a writer so that it can never fail half-way for a lock.

        Once `begun` was called, its own thread keeps the deadline: the caller must hear whether it was committed.
        """
        return await self._run(Job(work, due), "BEGIN IMMEDIATE", begun)

    async def close(self) -> None:
        """Stop what runs and close. Without the first step this would wait for every job in the queue."""
        if isinstance(self._connection, JobConnection):
            self._connection.stop_all()
        await super().close()

    def stop(self) -> asyncio.Future[Any] | None:
        self._stopped = super().stop()
        return self._stopped

    @property
    def is_frozen(self) -> bool:
        return self._raw.is_frozen

    @property
    def segment_version(self) -> int:
        """Of the texts in this file's index, when it was opened."""
        return self._raw.segment_version

    @property
    def _raw(self) -> JobConnection:
        if not isinstance(self._connection, JobConnection):
            raise Unavailable("the library is closed")
        return self._connection

    async def _run(self, job: Job[T], begin: str, begun: Callable[[], None]) -> T:
        if self._queued >= self._queue_max:
            raise Unavailable("too many calls are waiting for this library; try again in a moment")
        raw = self._raw
        self._queued += 1
        try:
            # The turn first: a slot held by a job that waits for its own connection would keep a core idle.
            async with self._turn, self._slots:
                begun()
                result: T = await self._execute(raw.perform, job, begin)  # type: ignore[no-untyped-call]  # there
                return result
        finally:
            self._queued -= 1
            raw.stop(job)


def _nothing() -> None:
    """What a read does when it begins."""


class LazyChannel:
    """A channel that is opened when it is first used, once for all who wait for it and whether or not they still do."""

    def __init__(self, open_channel: Callable[[], Coroutine[Any, Any, Channel]]) -> None:
        self.channel: Channel | None = None
        self._open_channel = open_channel
        self._opening: asyncio.Task[Channel] | None = None

    async def open(self) -> Channel:
        if self.channel is not None:
            return self.channel
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(_note_failure)
        return await asyncio.shield(self._opening)

    async def close(self) -> None:
        if self._opening is not None:
            await asyncio.wait([self._opening])
        channel, self.channel = self.channel, None
        if channel is not None:
            await channel.close()

    async def _open(self) -> Channel:
        try:
            self.channel = await self._open_channel()
        finally:
            self._opening = None
        return self.channel


def _note_failure(opening: asyncio.Task[Channel]) -> None:
    """Whoever waits hears of it; where nobody does any more, asyncio would complain."""
    if not opening.cancelled():
        opening.exception()
