"""A connection that runs one job of a library at a time, and writes the rows of item tables."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from msgspec import field

from config.errors import Conflict, FlorilegiumError, InvalidParams, SourceTimeout, StorageError, Unavailable
from config.event_counts import POSTGRES_EVENTS
from config.postgres.connection import (
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
from sources.storage.job_queue import Job
from sources.storage.postgres.statements import tenant_statement
from sources.storage.postgres.tables import LIBRARY_SCHEMA, TENANT_ROLE, TENANT_SETTING
from sources.storage.tables.dialect import POSTGRES
from sources.storage.tables.sql import Delete, Insert, PendingConflict, SqlValue, Update

if TYPE_CHECKING:
    from sources.storage.postgres.index.entries import IndexState

# -- pending rows ------------------------------------------------------------------------------------------------------
# Rows that a job has not sent yet. They are sent together before its next statement, because each statement waits for
# the server, and an import writes many rows.

_ROWS_PER_STATEMENT = 500
# PostgreSQL accepts up to 1 GiB, but needs several times the memory.
_CHARS_PER_STATEMENT = 4_000_000
_ItemRow = Mapping[str, SqlValue]


def _batches(rows: Iterable[_ItemRow]) -> Iterator[list[_ItemRow]]:
    """Yields the rows of one statement at a time."""
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
    # Pending rows: items by table, and the parameters of other statements by their SQL.
    _items: dict[str, list[_ItemRow]]
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
        """The first row of a job is inserted at once, which returns its rowid. Those of later ones follow from it, so
        that they can be sent together."""
        rowid = self._next_id(table, values)
        if rowid is not None:
            values = {**values, "id": rowid}
            pending = self._items.get(table)
            if pending and pending[0].keys() != values.keys():
                self._send_pending()  # one statement inserts rows with the same columns
            self._items.setdefault(table, []).append(values)
        else:
            row = self.execute(_insert_sql(table, tuple(values)), tuple(values.values())).fetchone()
            if row is None:
                return None
            rowid = int(row[0])
            if "id" not in values:
                self._next_ids[table] = rowid + 1
        self.add_changes(table, (rowid,))
        return rowid

    def update_row(self, table: str, rowid: int, values: Mapping[str, SqlValue]) -> None:
        assignments = ", ".join(f"{name} = ?" for name in values)
        self.execute(Update(table, assignments, "id = ?"), (*values.values(), rowid))
        self.add_changes(table, (rowid,))

    def restore_row(self, table: str, rowid: int, values: Mapping[str, SqlValue]) -> None:
        self.update_row(table, rowid, values)

    def delete_row(self, table: str, rowid: int) -> None:
        self.execute(_save_last_id(table))
        self.execute(Delete(table, "id = ?"), (rowid,))
        self.add_changes(table, (rowid,))

    def run_job(self, job: LibraryJob[T], transaction: Transaction) -> T:
        """Runs the work of a job. Its result is not committed yet."""
        self.job, self.changes, self._items, self._parameters, self._next_ids = job, {}, {}, {}, {}
        job.set_connection(self)
        try:
            self.begin(transaction)
            job.check()  # an interruption before the transaction began had no effect
            try:
                try:
                    result = job.work(self)
                except FlorilegiumError:
                    # An item that was to be inserted before may exist already, which is then the first error.
                    self._send_pending()
                    raise
                self._send_pending()
            except PendingConflict as error:
                raise Conflict(str(error)) from None
            return result
        finally:
            job.set_connection(None)
            self.job = None

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
        if not self._items and not self._parameters:
            return
        # First, because each statement sends what is pending.
        items, self._items = self._items, {}
        parameters, self._parameters = self._parameters, {}
        for table in sorted(items, key=lambda table: table == _MESSAGES):
            for batch in _batches(items[table]):
                columns = ", ".join(batch[0])
                record = f"json_populate_recordset(CAST(NULL AS {LIBRARY_SCHEMA}.{table}), CAST(? AS JSON))"
                insert = Insert(table, columns, f"{columns} FROM {record}", key="*", returning="id")
                inserted = {rowid for (rowid,) in self.execute(insert, (msgspec.json.encode(batch).decode(),))}
                for values in batch:
                    if values["id"] not in inserted:
                        raise PendingConflict(table, values["uuid"])
        for sql, listed in parameters.items():
            self.executemany(sql, listed)

    def _next_id(self, table: str, values: Mapping[str, SqlValue]) -> int | None:
        """Returns the rowid of a new row. None means that the row must be inserted at once: its rowid is unknown, or
        another conversation may have its session. Messages come with their rowid."""
        is_known = table in self._next_ids or table == _MESSAGES
        if not is_known or (table == _CONVERSATIONS and values["session_id"]):
            return None
        rowid = values["id"] if "id" in values else self._next_ids[table]
        assert isinstance(rowid, int)
        self._next_ids[table] = max(rowid + 1, self._next_ids.get(table, 0))
        return rowid

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
