"""Runs the reads of one call together: in one transaction on one connection, one after the other.

A search reads all sources. If each were a job of its own, each would begin a transaction and read the state of the
index, and every connection would have to load the server's description of the tables, which takes longer than the
search. A read that cannot be run with the others becomes a job of its own: if the transaction fails, or if the reads
before it take long, so that a slow source does not hold up the others.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from config.errors import FlorilegiumError
from config.postgres.connection import PostgresConnection, Row, StatementInterrupted
from sources.storage.job_queue import CallGroup, RunTimer, job_group
from sources.storage.postgres.connection import LibraryConnection, LibraryWork, job_errors
from sources.storage.postgres.jobs import pass_on
from sources.storage.tables.sql import Statement

# -- joint statements --------------------------------------------------------------------------------------------------
# Statements that the reads of a call run together, as one statement of the server.
#
# A search reads all sources in one transaction. Each source first decides how to search, from counts that all of them
# share, and then reads its best entries. Such a statement takes the server little time, but two messages and their
# answers. Therefore a read stops at this statement. When all have done so, the statements are run as one, and the
# reads are run again, which then find their rows.

_JOINT_STATEMENTS = "joint statements"


class StatementPostponed(Exception):
    """A read needs the rows of a statement that is run later."""


class JointStatements:
    """The statements of the current transaction of a connection."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._is_collecting = True
        self._rows: dict[Statement, Sequence[Row]] = {}
        connection.known[_JOINT_STATEMENTS] = self

    def fetch(self, statement: Statement) -> Sequence[Row]:
        """Raises StatementPostponed until `run` is called."""
        if self._is_collecting:
            self._rows[statement] = ()
            raise StatementPostponed
        rows = self._rows.get(statement)
        return self._connection.execute(*statement).fetchall() if rows is None else rows

    def run(self) -> None:
        """Runs the statements that were postponed."""
        self._is_collecting = False
        statements, self._rows = list(self._rows), {}
        if len(statements) > 1:
            self._rows = dict(zip(statements, self._connection.fetch_together(statements), strict=True))


def fetch_jointly(connection: PostgresConnection, statement: Statement) -> Sequence[Row]:
    """Returns the rows of a statement that can be run together with those of other reads of the same call."""
    joint: JointStatements | None = connection.known.get(_JOINT_STATEMENTS)
    return connection.execute(*statement).fetchall() if joint is None else joint.fetch(statement)


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
        """Called by the thread of the job. Results are passed on at once: a transaction that reads needs no commit."""
        assert connection.job is not None
        statements = JointStatements(connection)
        postponed: list[ReadPart[Any]] = []
        for part in self._parts:
            with self._lock:
                # The event loop may let the part run alone at the same time.
                is_mine, part.is_waiting = part.is_waiting, False
                if is_mine:
                    part.started_at = time.monotonic()
            if is_mine:
                connection.job.start(part.limit_s)
                try:
                    self._run_part(part, connection)
                except StatementPostponed:
                    postponed.append(part)
        statements.run()
        for part in postponed:
            if not part.result.done():
                self._run_part(part, connection)

    def _run_part(self, part: ReadPart[Any], connection: LibraryConnection) -> None:
        try:
            value = part.work(connection)
        except StatementPostponed:
            raise
        except StatementInterrupted as error:
            pass_on(part.result, None, error)
            raise
        except job_errors():
            # The transaction has failed: this read and those after it are run again as jobs of their own.
            raise
        except BaseException as error:
            pass_on(part.result, None, error)
        else:
            pass_on(part.result, value, None)

    def _release_if_held_up(self) -> None:
        now = time.monotonic()
        started_at = [part.started_at for part in self._parts if part.started_at is not None]
        left_s = min(started_at, default=now) + self._held_up_max_s - now
        if left_s > 0:
            self._watch = self._loop.call_later(left_s, self._release_if_held_up)
        else:
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
