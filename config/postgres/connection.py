"""A connection to PostgreSQL that is synchronous for its caller, like one of SQLite.

It is used by one thread at a time and has an event loop of its own, on which asyncpg runs. Work is done in
transactions. Each begins with one message that also sets its time limits and the search path: with SET LOCAL, which
ends with the transaction, so that a connection pooler can give the server's connection to another client afterwards.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self, TypeVar

from msgspec import Struct
from msgspec.json import Decoder

from config.errors import ConfigurationError, DatabaseUnavailable
from config.event_counts import POSTGRES_EVENTS
from config.postgres.errors import driver_errors, has_several_hosts, is_canceled, is_connection_lost

if TYPE_CHECKING:
    import asyncpg

T = TypeVar("T")
Row = tuple[Any, ...]
Parameters = Sequence[Any]

# -- statements --------------------------------------------------------------------------------------------------------
# Statements for PostgreSQL. Their parameters are written as SQLite has them (`?`, or `?1` if one is used twice),
# because most statements are the same on both engines.

_READING = ("SELECT", "WITH", "VALUES", "SHOW", "EXPLAIN")
_DIGITS = "0123456789"
_decode_rows = Decoder(list[dict[str, Any]]).decode


class Statement(Struct, frozen=True):
    """`returns_rows` says whether to fetch rows or only their number. `has_tenant` says that the first parameter is the
    tenant."""

    text: str
    returns_rows: bool
    has_tenant: bool = False


@lru_cache(maxsize=5_000)
def plain_statement(sql: str) -> Statement:
    return Statement(number_parameters(sql), sql.lstrip().startswith(_READING) or "RETURNING" in sql)


def number_parameters(sql: str, first: int = 1, mark: str = "$") -> str:
    """Returns the SQL with numbers that begin with `first`. No constant in it may contain a question mark."""
    start, *parts = sql.split("?")
    numbered = [start]
    for position, part in enumerate(parts):
        rest = part.lstrip(_DIGITS)
        number = int(part[: len(part) - len(rest)] or position + 1)
        numbered.append(f"{mark}{number + first - 1}{rest}")
    return "".join(numbered)


def rows_as_json(queries: Iterable[tuple[str, int]], first: int = 1) -> list[str]:
    """Returns an expression for each query and its number of parameters, so that one statement reads the rows of all:
    a JSON array, or NULL if there are none. As JSON, because PostgreSQL does not accept anonymous records as input:
    Citus could not pass them on."""
    expressions = []
    for sql, parameters in queries:
        query = number_parameters(sql, first, "?")
        # Several columns may have the same name. Those of ROW are numbered.
        expressions.append(f"(SELECT CAST(json_agg(ROW(part.*)) AS TEXT) FROM ({query}) AS part)")  # noqa: S608 - a constant
        first += parameters
    return expressions


def decode_rows(text: str | None) -> Sequence[Row]:
    """Reads rows that were selected as JSON."""
    return [tuple(row.values()) for row in _decode_rows(text)] if text is not None else []


# -- connection --------------------------------------------------------------------------------------------------------

# A server that does not answer must not hold up the end of the process.
_CLOSE_TIMEOUT_S = 2.0
_CANCEL_MAX_S = 1.0


# Prepares statements unless there is a connection pooler.
AUTOMATIC = -1
_STATEMENT_CACHE = 1_000


class ConnectionOptions(Struct, frozen=True, kw_only=True):
    """`statement_cache` is the number of statements that stay prepared, or `AUTOMATIC`. It must be 0 behind a pooler
    that does not support them. A connection is replaced after `lifetime_s`, so that connections move to a server that
    was added behind the address. It counts as lost if a statement gets no answer for `silence_max_s` after its time
    limit."""

    url: str
    connect_timeout_s: float = 5.0
    statement_cache: int = 0
    lifetime_s: float = 600.0
    silence_max_s: float = 5.0


class Transaction(Struct, frozen=True, kw_only=True):
    """How a transaction is begun. One that only reads sees one state of the database. 0 means no limit. Tables are
    looked up in `schema`, a constant; without it, every name of a table needs one."""

    schema: str = ""
    is_read_only: bool = False
    statement_timeout_ms: int = 0
    lock_timeout_ms: int = 0
    idle_timeout_ms: int = 0

    def begin(self) -> str:
        mode = "ISOLATION LEVEL REPEATABLE READ, READ ONLY" if self.is_read_only else "READ WRITE"
        return (
            f"BEGIN {mode}; SET LOCAL search_path = '{self.schema}'; "
            f"SET LOCAL statement_timeout = {self.statement_timeout_ms:d}; "
            f"SET LOCAL lock_timeout = {self.lock_timeout_ms:d}; "
            f"SET LOCAL idle_in_transaction_session_timeout = {self.idle_timeout_ms:d}"
        )


class StatementInterrupted(Exception):
    """Another thread stopped the transaction, or a statement exceeded its time. Nothing was changed."""


class Rows(list[Row]):
    """The rows of a statement, with the methods of a cursor of SQLite. `rowcount` is the number of changed rows."""

    rowcount = -1

    def fetchone(self) -> Row | None:
        return self.pop(0) if self else None

    def fetchall(self) -> list[Row]:
        rows = self.copy()
        self.clear()
        return rows

    def close(self) -> None:
        """For callers that close the cursors of SQLite. All rows have been read already."""


class PostgresConnection:
    """Must be used by one thread at a time. Only `interrupt` may be called from others."""

    def __init__(
        self, connection: "asyncpg.Connection[Any]", loop: asyncio.AbstractEventLoop, options: ConnectionOptions
    ) -> None:
        self._connection = connection
        self._loop = loop
        self._guard = threading.Lock()
        self._task: asyncio.Task[Any] | None = None
        self._is_interrupted = self._is_lost = False
        self._expires_at = time.monotonic() + options.lifetime_s
        self._silence_max_s = options.silence_max_s
        # The time in which the server must answer. Unlimited if the transaction is.
        self._answer_max_s: float | None = None
        self.statements = 0
        # What is known in the current transaction and cannot change before it ends.
        self.known: dict[Hashable, Any] = {}

    @classmethod
    def connect(cls, options: ConnectionOptions) -> Self:
        # Not uvloop, which takes 171 instead of 130 µs for a statement: it takes longer to start and stop for each.
        loop = asyncio.new_event_loop()
        try:
            connection = cls(loop.run_until_complete(_connect(options)), loop, options)
        except BaseException as error:
            POSTGRES_EVENTS.add("refused")
            _close_loop(loop)
            if isinstance(error, TimeoutError):  # not that of the work
                raise ConnectionError("connecting to PostgreSQL took too long") from error
            raise
        POSTGRES_EVENTS.add("connected")
        return connection

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed()

    @property
    def is_due(self) -> bool:
        return self.is_closed or time.monotonic() >= self._expires_at

    def run(self, transaction: Transaction, work: Callable[[Self], T]) -> T:
        """Runs the work in a transaction, which is committed unless the work raises."""
        try:
            self.begin(transaction)
            result = work(self)
            self.commit()
        except BaseException:
            self.rollback()
            raise
        return result

    def begin(self, transaction: Transaction) -> str:
        """Returns the status of the last statement of the message that begins the transaction."""
        with self._guard:
            self._is_interrupted = False
        self.known = {}
        limit_s = transaction.statement_timeout_ms / 1000
        self._answer_max_s = limit_s + self._silence_max_s if limit_s else None
        return self.run_script(transaction.begin())

    def commit(self) -> None:
        self.run_script("COMMIT")

    def rollback(self) -> None:
        """Never raises: a connection that cannot be rolled back is closed, which has the same effect."""
        with self._guard:
            self._is_interrupted = False
        try:
            self.run_script("ROLLBACK")
        except StatementInterrupted:
            self._connection.terminate()
        except driver_errors():
            self._connection.terminate()

    def execute(self, sql: str, parameters: Parameters = (), /) -> Rows:
        """Runs one statement, with parameters as in SQLite."""
        statement, arguments = self._statement(sql, parameters)
        if not statement.returns_rows:
            status = self.wait(self._connection.execute(statement.text, *arguments))
            # Such as `DELETE 3`. Statements that change no rows have no number.
            count = status.rpartition(" ")[2]
            rows = Rows()
            rows.rowcount = int(count) if count.isdigit() else -1
            return rows
        return Rows(map(tuple, self.wait(self._connection.fetch(statement.text, *arguments))))

    def executemany(self, sql: str, parameters: Iterable[Parameters], /) -> Rows:
        """Runs a statement for many rows in one round trip. Their number is not known."""
        statements = [self._statement(sql, row) for row in parameters]
        if statements:
            rows = [arguments for _, arguments in statements]
            self.wait(self._connection.executemany(statements[0][0].text, rows))
        return Rows()

    def iterate(self, sql: str, batch_rows: int) -> Iterator[Row]:
        """Reads the rows of a query in batches, so that a large table need not fit into memory."""
        statement, arguments = self._statement(sql, ())
        # A name of its own, because a statement that stays prepared reads only the columns that it had at first.
        cursor = f"batches_{self.statements:d}"
        self.wait(self._connection.execute(f"DECLARE {cursor} NO SCROLL CURSOR FOR {statement.text}", *arguments))
        try:
            while records := self.wait(self._connection.fetch(f"FETCH {batch_rows:d} FROM {cursor}")):
                yield from map(tuple, records)
        finally:
            # After an error the transaction has failed. Closing the cursor fails, too, which must not hide the error.
            if not self.is_closed:
                with suppress(*driver_errors()):
                    self.run_script(f"CLOSE {cursor}")

    def _statement(self, sql: str, parameters: Parameters) -> tuple[Statement, Sequence[Any]]:
        return plain_statement(sql), parameters

    def run_script(self, sql: str) -> str:
        """Runs statements without parameters, in one message. Returns the status of the last one."""
        return self.wait(self._connection.execute(sql))

    def interrupt(self) -> None:
        """Stops the current transaction: its running statement and all others fail. Can be called from any thread, but
        not during the commit, whose outcome would be unknown."""
        with self._guard:
            self._is_interrupted = True
            if self._task is not None:
                self._loop.call_soon_threadsafe(self._cancel, self._task)

    def close(self) -> None:
        POSTGRES_EVENTS.add("closed")
        try:
            if not self.is_closed:
                self._loop.run_until_complete(self._connection.close(timeout=_CLOSE_TIMEOUT_S))
        except driver_errors():  # the server may be gone
            self._connection.terminate()
        finally:
            _close_loop(self._loop)

    def wait(self, operation: Coroutine[Any, Any, T]) -> T:
        """Runs an operation of asyncpg to its end, or until it is interrupted."""
        with self._guard:
            if self._is_interrupted:
                operation.close()
                raise StatementInterrupted
            task = self._task = self._loop.create_task(operation)
        self.statements += 1
        limit_s = self._answer_max_s
        watch = self._loop.call_later(limit_s, self._give_up, task) if limit_s is not None else None
        try:
            result: T = self._loop.run_until_complete(task)
        except asyncio.CancelledError:
            if self.is_closed:
                raise ConnectionError("PostgreSQL does not answer") from None
            raise StatementInterrupted from None
        except driver_errors() as error:
            if is_canceled(error):
                raise StatementInterrupted from error
            if is_connection_lost(error):
                self._lose()
            raise
        finally:
            if watch is not None:
                watch.cancel()
            with self._guard:
                self._task = None
        return result

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        task.cancel()
        # While asyncpg waits for the server to accept more rows, it ignores the cancellation: it would wait for ever.
        self._loop.call_later(_CANCEL_MAX_S, self._give_up, task)

    def _give_up(self, task: asyncio.Task[Any]) -> None:
        """The server stops a statement that takes too long, but only if it is alive and can be reached."""
        if not task.done():
            self._lose()
            task.cancel()

    def _lose(self) -> None:
        if not self._is_lost:
            POSTGRES_EVENTS.add("lost")
        self._is_lost = True
        self._connection.terminate()


def _close_loop(loop: asyncio.AbstractEventLoop) -> None:
    # Lets what asyncpg has cancelled end, and a connection that it has ended close its socket.
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


async def _connect(options: ConnectionOptions) -> "asyncpg.Connection[Any]":
    """Planning the statement of a search takes the server five times as long as running it, so statements should stay
    prepared. A pooler that shares connections may not support that. It has process ids of its own for cancelling."""
    try:
        import asyncpg  # noqa: PLC0415 - an extra
        from asyncpg.connect_utils import SessionAttribute  # noqa: PLC0415 - as above
    except ImportError:
        raise ConfigurationError(
            "storage_url: PostgreSQL needs the package asyncpg; install the extra postgres of florilegium"
        ) from None
    has_choice, is_automatic = has_several_hosts(options.url), options.statement_cache == AUTOMATIC

    async def connect(statement_cache: int) -> "asyncpg.Connection[Any]":
        return await asyncpg.connect(
            options.url,
            timeout=options.connect_timeout_s,
            statement_cache_size=statement_cache,
            # The statement of a search is long, and is needed as long as the connection is used.
            max_cacheable_statement_size=0,
            max_cached_statement_lifetime=0,
            # Of several servers, one is the primary; which one can change.
            target_session_attrs=SessionAttribute.read_write if has_choice else None,
        )

    # asyncpg itself runs statements to choose a server, which must not stay prepared in a pooler.
    statement_cache = (0 if has_choice else _STATEMENT_CACHE) if is_automatic else options.statement_cache
    connection = await connect(statement_cache)
    if is_automatic:
        is_own = f"SELECT WHERE pg_backend_pid() = {connection.get_server_pid():d}"
        try:
            status = await connection.execute(is_own, timeout=options.connect_timeout_s)
        except BaseException:
            connection.terminate()
            raise
        wanted = _STATEMENT_CACHE if status == "SELECT 1" else 0
        if wanted != statement_cache:
            await connection.close(timeout=_CLOSE_TIMEOUT_S)
            connection = await connect(wanted)
    return connection


# -- threads -----------------------------------------------------------------------------------------------------------
# Threads that use connections to PostgreSQL. Work on rows thereby never holds up the event loop.

Work = Callable[[PostgresConnection], T]
# What a thread runs. It never raises.
Task = Callable[[], None]


class ConnectionThreads:
    """Work gets the connection that was used last, which has prepared most statements; connections that are not needed
    are not opened. There may be more tasks than threads."""

    def __init__(
        self,
        options: ConnectionOptions,
        count: int,
        name: str,
        connect: Callable[[ConnectionOptions], PostgresConnection] = PostgresConnection.connect,
    ) -> None:
        self._connect = partial(connect, options)
        self._lock = threading.Lock()
        # Most recently used last.
        self._idle: list[PostgresConnection] = []
        # None ends a thread.
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self.is_closed = False
        # A process that exits without closing must not wait for its connections.
        self._threads = [threading.Thread(target=self._run_tasks, name=name, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    async def run(self, transaction: Transaction, work: Work[T]) -> T:
        """Runs the work in a transaction on one of the threads. Once it has started, cancelling the caller does not
        stop it: whether it was committed must not depend on that."""
        return await asyncio.wrap_future(self.submit(transaction, work))

    def submit(self, transaction: Transaction, work: Work[T]) -> Future[T]:
        future: Future[T] = Future()

        def task() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self._run_transaction(transaction, work))
                except BaseException as error:
                    future.set_exception(error)

        with self._lock:
            if self.is_closed:
                raise DatabaseUnavailable
            self.start(task)
        return future

    def start(self, task: Task) -> None:
        """Tasks are run in order, until the threads have ended."""
        self._tasks.put(task)

    def _run_tasks(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            del task  # it refers to the result, with the texts of all hits
        while (connection := self._take_idle()) is not None:
            connection.close()

    def _run_transaction(self, transaction: Transaction, work: Work[T]) -> T:
        with self.connection() as connection:
            try:
                connection.begin(transaction)
            except driver_errors() as error:
                if not is_connection_lost(error):
                    raise
            else:
                result = work(connection)
                connection.commit()
                return result
        # The server may have been restarted since the last transaction. Nothing was done in this one yet.
        with self.connection(is_new=True) as connection:
            return connection.run(transaction, work)

    @contextmanager
    def connection(self, *, is_new: bool = False) -> Iterator[PostgresConnection]:
        """Opened if none is idle, and closed when it was lost or has been used for long. Rolled back after any error,
        even of the begin or the commit: what runs next may be for another user."""
        connection = None if is_new else self._take_idle()
        if connection is not None and connection.is_due:
            connection.close()
            connection = None
        connection = connection or self._connect()
        try:
            yield connection
        except BaseException:
            connection.rollback()
            raise
        finally:
            if connection.is_closed:
                connection.close()
            else:
                with self._lock:
                    self._idle.append(connection)

    def _take_idle(self) -> PostgresConnection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    async def close(self) -> None:
        await asyncio.to_thread(self.close_now)

    def close_now(self, limit_s: float | None = None) -> None:
        """Waits for the tasks, and lets the threads close the connections."""
        with self._lock:
            self.is_closed = True
        for _ in self._threads:
            self._tasks.put(None)
        due = None if limit_s is None else time.monotonic() + limit_s
        for thread in self._threads:
            thread.join(None if due is None else max(0.0, due - time.monotonic()))


async def run_outside_transaction(options: ConnectionOptions, statements: Iterable[str]) -> bool:
    """Runs statements that a transaction cannot have, on a connection of their own. Returns False if one of them
    failed. Cancelling the caller interrupts them."""
    try:
        connection = await _connect(options)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            with suppress(*driver_errors()):  # the server may be gone
                await connection.close(timeout=_CLOSE_TIMEOUT_S)
    except driver_errors():
        return False
    return True
