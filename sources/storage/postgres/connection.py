"""Jobs of libraries, the connections that run one at a time and write the rows of item tables, and their threads."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from msgspec import field

from config.errors import Conflict, FlorilegiumError, InvalidParams, SourceTimeout, StorageError, Unavailable
from config.event_counts import POSTGRES_EVENTS
from config.paths import UserId
from config.postgres.connection import (
    ConnectionOptions,
    ConnectionThreads,
    Parameters,
    PostgresConnection,
    Rows,
    Statement,
    StatementInterrupted,
    Transaction,
)
from config.postgres.errors import (
    driver_errors,
    error_code,
    is_connection_lost,
    is_lock_timeout,
    storage_error,
)
from sources.storage.job_queue import Job, JobLane, JobQueue
from sources.storage.postgres.statements import tenant_statement
from sources.storage.postgres.tables import LIBRARY_SCHEMA, TENANT_ROLE, TENANT_SETTING
from sources.storage.tables.dialect import POSTGRES
from sources.storage.tables.sql import Delete, Insert, PendingConflict, SqlValue, Update

if TYPE_CHECKING:
    from sources.storage.postgres.database import PostgresDatabase
    from sources.storage.postgres.index.entries import IndexState

# -- pending rows ------------------------------------------------------------------------------------------------------
# Rows that a job has not sent yet. They are sent together before its next statement, because each statement waits for
# the server, and an import writes many rows.

_ROWS_PER_STATEMENT = 500
# PostgreSQL accepts up to 1 GiB, but needs several times the memory.
_CHARS_PER_STATEMENT = 4_000_000
_ItemRow = Mapping[str, SqlValue]


def _batches(rows: Iterable[_ItemRow]) -> Iterator[list[_ItemRow]]:
    batch: list[_ItemRow] = []
    chars = 0
    for row in rows:
        batch.append(row)
        chars += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(batch) == _ROWS_PER_STATEMENT or chars >= _CHARS_PER_STATEMENT:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


T = TypeVar("T")
TransactionMode = Literal["read", "write", "vectors"]
LibraryWork = Callable[["LibraryConnection"], T]

# Where a library counts its writes. Its row is also the lock that lets the writers of a library take turns.
WRITES = "writes"
_LAST_ID = "last_id:"
_CONVERSATIONS, _MESSAGES = "conversations", "messages"
_STATE = f"{LIBRARY_SCHEMA}.state"
# A connection plans a statement once. PostgreSQL does not know how few entries have the lexemes of a tenant: it would
# make a new plan for each search, which takes longer than the search, or use several processes or a compiler.
_PLANNING = (
    "SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off"
)
_TENANT = re.compile("[a-z2-7]{7}")


class LibraryTransaction(Transaction, frozen=True, kw_only=True):
    """A transaction of one library. It has the role of tenants, unless the server's own role has to be enough: one that
    row-level security applies to, too."""

    tenant: str
    has_role: bool = True
    # "vectors" lets writers wait, but is none of them: vectors are no content of the library.
    mode: TransactionMode = "read"
    # The number of writes when the caller last read the state of the library, if it did.
    known_version: str = ""

    def begin(self) -> str:
        """The message ends with a statement that finds the library. Without a row, another process has removed it. A
        write counts itself there, and thereby locks the library. For a read, a second row says that there was no write
        since the version that is known: of a message without parameters, asyncpg returns only the number of rows."""
        own_row = f"WHERE tenant_id = '{self.tenant}' AND name = '{WRITES}'"
        match self.mode:
            case "read":
                rows = "1"
                if self.known_version:
                    rows = f"unnest(CASE value WHEN '{int(self.known_version):d}' THEN ARRAY[1, 1] ELSE ARRAY[1] END)"
                find = f"SELECT {rows} FROM {_STATE} {own_row}"
            case "write":
                find = f"UPDATE {_STATE} SET value = CAST(CAST(value AS BIGINT) + 1 AS TEXT) {own_row}"
            case "vectors":
                find = f"SELECT 1 FROM {_STATE} {own_row} FOR UPDATE"
        return f"{super().begin()}; {set_tenant(self.tenant, has_role=self.has_role)}; {find}"


def set_tenant(tenant: str, *, has_role: bool) -> str:
    """The statements that restrict the rest of a transaction to one library."""
    if not _TENANT.fullmatch(tenant):  # never derived from texts of users
        raise StorageError("the id of a library is invalid")
    role = f"SET LOCAL ROLE {TENANT_ROLE}; " if has_role else ""
    return f"{role}SET LOCAL {TENANT_SETTING} = '{tenant}'; {_PLANNING}"


class LibraryRemoved(Exception):
    """Another process has removed the library."""


class NoLibrary(Unavailable):
    """The user has no library, and background work does not create one."""


class LibraryJob(Job[T], eq=False, kw_only=True):
    """With `is_repeatable`, it is run again if the connection is lost."""

    is_repeatable: bool = True
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _connection: "LibraryConnection | None" = None

    def start(self, limit_s: float | None = None) -> None:
        """Starts the time of the work, or of a part of it that has a limit of its own."""
        self.due = time.monotonic() + (self.limit_s if limit_s is None else limit_s)
        if self.pace is not None:
            self.pace.start()

    @property
    def remaining_ms(self) -> int:
        return max(1, int((self.due - time.monotonic()) * 1000))

    def check(self) -> None:
        """Called by the thread of the job before each statement. Raises StatementInterrupted if it must stop."""
        if self.pace is not None:
            self.pace.pause_if_due()
        if self.is_stopped or time.monotonic() > self.due:
            raise StatementInterrupted

    def set_connection(self, connection: "LibraryConnection | None") -> None:
        with self._guard:
            self._connection = connection

    def stop(self) -> None:
        """Prevents the job from starting or interrupts it. Can be called from any thread."""
        with self._guard:
            self.is_stopped = True
            if self._connection is not None:
                self._connection.interrupt()


class LibraryConnection(PostgresConnection):
    """Implements `SqlConnection`. `changes` are the rows of item tables that the current job has written: the rowids
    by table, from which full-text indexes are updated."""

    dialect = POSTGRES
    job: LibraryJob[Any] | None = None
    # Whose library the transaction uses. None in one of the control data, which cannot use any.
    tenant: str | None = None
    # Whether the library has the version that its reader knows, and the state of its index, once it is known.
    is_unchanged: bool = False
    index_state: "IndexState | None" = None
    changes: dict[str, set[int]]
    # Pending rows: those of item tables, and the parameters of other statements by their SQL.
    _rows: list[tuple[str, _ItemRow]]
    _parameters: dict[str, list[Parameters]]
    # The rowids of the next new rows, by table, once the job has inserted one: no other job can write meanwhile.
    _next_ids: dict[str, int]

    def begin(self, transaction: Transaction) -> str:
        self.tenant = transaction.tenant if isinstance(transaction, LibraryTransaction) else None
        self.index_state = None
        status = super().begin(transaction)
        if self.tenant is not None and status.endswith(" 0"):
            raise LibraryRemoved
        self.is_unchanged = self.tenant is not None and status == "SELECT 2"
        return status

    def enter_library(self, tenant: str, *statements: str, has_role: bool) -> None:
        """Lets a transaction of the control data continue as one of a library, in which the statements are run."""
        script = ("SET LOCAL search_path = ''", set_tenant(tenant, has_role=has_role), *statements)
        self.run_script("; ".join(script))
        self.tenant = tenant

    def leave_library(self) -> None:
        self.run_script(f"RESET ROLE; SET LOCAL {TENANT_SETTING} = ''; SET LOCAL search_path = 'florilegium'")
        self.tenant = None

    def execute(self, sql: str, parameters: Parameters = (), /) -> Rows:
        self._prepare_statement()
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Parameters], /) -> Rows:
        self._prepare_statement()
        return super().executemany(sql, parameters)

    def _statement(self, sql: str, parameters: Parameters) -> tuple[Statement, Sequence[Any]]:
        if self.tenant is None:
            return super()._statement(sql, parameters)
        statement = tenant_statement(sql)
        return statement, (self.tenant, *parameters) if statement.has_tenant else parameters

    def executemany_later(self, sql: str, parameters: Iterable[Parameters], /) -> None:
        self._parameters.setdefault(sql, []).extend(parameters)

    def insert_row(self, table: str, values: Mapping[str, SqlValue]) -> int | None:
        """The first row of a job is inserted at once, which returns its rowid. Those of later ones follow from it, and
        messages come with theirs, so that they can be sent together."""
        next_id = self._next_ids.get(table)
        rowid = values.get("id", next_id)
        # Another conversation may have its session.
        if rowid is None or (table == _CONVERSATIONS and values["session_id"]):
            row = self.execute(_insert_sql(table, tuple(values)), tuple(values.values())).fetchone()
            if row is None:
                return None
            [rowid] = row
            next_id = next_id if "id" in values else rowid
        else:
            self._rows.append((table, {**values, "id": rowid}))
        assert isinstance(rowid, int)
        if next_id is not None:
            self._next_ids[table] = max(rowid + 1, next_id)
        self.add_changes(table, (rowid,))
        return rowid

    def update_row(self, table: str, rowid: int, values: Mapping[str, SqlValue]) -> None:
        assignments = ", ".join(f"{name} = ?" for name in values)
        self.execute(Update(table, assignments, "id = ?"), (*values.values(), rowid))
        self.add_changes(table, (rowid,))

    restore_row = update_row

    def delete_row(self, table: str, rowid: int) -> None:
        self.execute(_save_last_id(table))
        self.execute(Delete(table, "id = ?"), (rowid,))
        self.add_changes(table, (rowid,))

    def run_job(self, job: LibraryJob[T], transaction: Transaction) -> T:
        """Runs the work of a job and commits it. The commit cannot be interrupted. After an error, the caller rolls
        back."""
        self.job, self.changes, self._rows, self._parameters, self._next_ids = job, {}, [], {}, {}
        job.set_connection(self)
        try:
            self.begin(transaction)
            job.check()  # an interruption before the transaction began had no effect
            try:
                result = job.work(self)
            except FlorilegiumError:
                # An item that was to be inserted before may exist already, which is then the first error.
                self._send_pending()
                raise
            self._send_pending()
            job.set_connection(None)
            self.commit_job(transaction)
        except PendingConflict as error:
            raise Conflict(str(error)) from None
        finally:
            job.set_connection(None)
            self.job = None
        return result

    def commit_job(self, transaction: Transaction) -> None:
        try:
            self.commit()
        except driver_errors() as error:
            # The server may have committed before the connection was lost, so the job must not be run again.
            if transaction.is_read_only or not is_connection_lost(error):
                raise
            POSTGRES_EVENTS.add("unconfirmed")
            raise UnconfirmedWrite from error

    def restart_clock(self, limit_s: float) -> None:
        """Implements `TimedConnection`."""
        assert self.job is not None
        self.job.start(limit_s)

    def _prepare_statement(self) -> None:
        if self.job is not None:
            self.job.check()
            self._send_pending()

    def _send_pending(self) -> None:
        """Items are sent before the rows that refer to them, of items messages last. Raises PendingConflict
        if an item exists already."""
        if not self._rows and not self._parameters:
            return
        # First, because each statement sends what is pending.
        rows, self._rows = sorted(self._rows, key=lambda row: row[0] == _MESSAGES), []
        parameters, self._parameters = self._parameters, {}
        for (table, columns), group in groupby(rows, lambda row: (row[0], ", ".join(row[1]))):
            record = f"json_populate_recordset(CAST(NULL AS {LIBRARY_SCHEMA}.{table}), CAST(? AS JSON))"
            insert = Insert(table, columns, f"{columns} FROM {record}", key="*", returning="id")
            for batch in _batches(values for _, values in group):
                inserted = {rowid for (rowid,) in self.execute(insert, (msgspec.json.encode(batch).decode(),))}
                for values in batch:
                    if values["id"] not in inserted:
                        raise PendingConflict(table, values["uuid"])
        for sql, listed in parameters.items():
            self.executemany(sql, listed)

    def add_changes(self, table: str, rowids: Iterable[int]) -> None:
        """Adds rows whose index entries must be made again."""
        self.changes.setdefault(table, set()).update(rowids)


@lru_cache
def _save_last_id(table: str) -> Insert:
    rows = f"'{_LAST_ID}{table}', CAST(max(id) AS TEXT) FROM {table}"
    is_higher = "CAST(state.value AS BIGINT) < CAST(excluded.value AS BIGINT)"
    return Insert("state", "name, value", rows, key="name", condition=is_higher)


@lru_cache
def _insert_sql(table: str, columns: tuple[str, ...]) -> Insert:
    names, values = ", ".join(columns), ", ".join("?" * len(columns))
    if "id" not in columns:
        # One more than the highest id that was ever used, which `delete_row` has saved.
        next_id = (
            f"SELECT 1 + greatest(coalesce((SELECT max(id) FROM {table}), 0), "
            f"coalesce((SELECT CAST(value AS BIGINT) FROM state WHERE name = '{_LAST_ID}{table}'), 0))"
        )
        names, values = f"id, {names}", f"({next_id}), {values}"
    return Insert(table, names, values=values, key="*", returning="id")


# -- errors ------------------------------------------------------------------------------------------------------------
# Converts the errors of a job. The messages are shown to clients, so they contain no SQL and no address.

_DEADLOCK_OR_SERIALIZATION = ("40001", "40P01")
# A cached statement selects columns that a migration has changed since.
_OUTDATED_STATEMENT = "0A000"
# A text takes more than a third of a page of an index, even compressed. Tsvectors are made to fit.
_LIMIT_EXCEEDED = "54000"
_INDEXED_MAX_BYTES = 2_600


class UnconfirmedWrite(StorageError):
    """The connection was lost while a write was being committed."""

    status = 503
    code = 503

    def __init__(self) -> None:
        super().__init__(
            "the connection to PostgreSQL was lost while the write was being confirmed: it may or may not have been "
            "stored; repeat it with the same idempotency key, or read before you repeat it"
        )


def job_errors() -> tuple[type[Exception], ...]:
    """Returns the errors that a job can fail with, apart from those that its work raises itself."""
    return (StatementInterrupted, TimeoutError, LibraryRemoved, *driver_errors())


def is_repeatable(error: BaseException) -> bool:
    """Whether a job that failed with this error, before it was committed, may succeed if it is run again."""
    return is_connection_lost(error) or error_code(error) in (*_DEADLOCK_OR_SERIALIZATION, _OUTDATED_STATEMENT)


def translate(error: Exception, source: str, deadline_ms: int) -> FlorilegiumError:
    """Returns the error to raise for a failed read or write of `source`, which had `deadline_ms` to finish."""
    if isinstance(error, StatementInterrupted | TimeoutError):
        return SourceTimeout(source, deadline_ms)
    if is_lock_timeout(error):
        POSTGRES_EVENTS.add("busy")
        return Unavailable(f"{source} is busy; try again in a moment")
    if error_code(error) == _LIMIT_EXCEEDED:
        return InvalidParams(
            f"{source}: a name, path or another value that items are looked up by is too long: PostgreSQL can index "
            f"{_INDEXED_MAX_BYTES:,} bytes"
        )
    return storage_error(error)


# -- threads -----------------------------------------------------------------------------------------------------------
# Runs the jobs of all libraries, in the order of the job queue.
#
# A job is one transaction. If the connection is lost before it is committed, or the server ends it because of other
# transactions, it is run again. Whether a job was committed is never guessed: see `UnconfirmedWrite`.

_RETRY_PAUSE_S = 0.05
# How long a job waits for a server that restarts. Longer would hold up the jobs of all users. A job also fails before
# its time is over, so that its caller learns why: a search that is late counts as a failure of its source.
_RETRY_MAX_S = 3.0
_RETRY_SHARE = 0.5
_CLOSE_MAX_S = 5.0
_STOPPING = "the server is stopping"


class JobThreads(ConnectionThreads):
    """`jobs` decides which job runs next. It may start more jobs than it has slots, so there are more threads."""

    def __init__(self, options: ConnectionOptions, jobs: JobQueue, count: int, lane_max: int) -> None:
        super().__init__(options, count, "library", LibraryConnection.connect)
        self.jobs = jobs
        self._lane_max = lane_max
        self._results: dict[LibraryJob[Any], asyncio.Future[Any]] = {}

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
            raise Unavailable(_STOPPING)
        job = LibraryJob(work, limit_s, is_repeatable=is_repeatable)
        result: asyncio.Future[T] = self.jobs.submit(
            user_id,
            lane,
            job,
            partial(self._run_job, job, transaction),
            self._hand_over,
            lambda _: job.stop(),
            lane_max=self._lane_max,
            gives_up=gives_up,
        )
        self._results[job] = result
        try:
            return await result
        finally:
            del self._results[job]

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
                    return connection.run_job(job, transaction(job.remaining_ms))
            except driver_errors() as error:
                if not job.is_repeatable:
                    raise
                time.sleep(_RETRY_PAUSE_S)
                if not is_repeatable(error) or time.monotonic() > retry_until:
                    raise
                job.check()
                is_lost = is_connection_lost(error)

    async def close(self) -> None:
        self.is_closed = True
        for job, result in self._results.items():
            job.stop()
            # The threads may have ended when it is its turn.
            if job.due == float("inf") and not result.done():
                result.set_exception(Unavailable(_STOPPING))
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
