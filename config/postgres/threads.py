"""Threads that each own a connection to PostgreSQL. Work on rows thereby never holds up the event loop."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from config.errors import DatabaseUnavailable
from config.postgres.connection import ConnectionOptions, PostgresConnection, Transaction
from config.postgres.errors import driver_errors, is_connection_lost

T = TypeVar("T")
Work = Callable[[PostgresConnection], T]


class ConnectionThreads:
    """Connections are opened on first use, and replaced when they are lost or have been used for long."""

    def __init__(self, options: ConnectionOptions, count: int, name: str) -> None:
        self._options = options
        self._local = threading.local()
        self._guard = threading.Lock()
        self._connections: set[PostgresConnection] = set()
        self._executor = ThreadPoolExecutor(count, thread_name_prefix=name)

    async def run(self, transaction: Transaction, work: Work[T]) -> T:
        """Runs the work in a transaction on one of the threads. Once it has started, cancelling the caller does not
        stop it: whether it was committed must not depend on that."""
        return await asyncio.wrap_future(self.submit(transaction, work))

    def submit(self, transaction: Transaction, work: Work[T]) -> Future[T]:
        try:
            return self._executor.submit(self._run, transaction, work)
        except RuntimeError:
            raise DatabaseUnavailable from None

    async def close(self) -> None:
        """Waits for what is running, and closes the connections."""
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """Like `close`, for callers that cannot await it."""
        self._executor.shutdown(wait=True, cancel_futures=True)
        # On a thread, because the caller may be on that of an event loop, where no other loop can run.
        closing = threading.Thread(target=self._close_connections)
        closing.start()
        closing.join()

    def _close_connections(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def _run(self, transaction: Transaction, work: Work[T]) -> T:
        connection = self._begin(transaction)
        try:
            result = work(connection)
        except BaseException:
            connection.rollback()
            raise
        connection.commit()
        return result

    def _begin(self, transaction: Transaction) -> PostgresConnection:
        """Begins a transaction. If the server was restarted since the last one, that fails, and can be repeated."""
        connection = self._connection()
        try:
            connection.begin(transaction)
        except driver_errors() as error:
            if not is_connection_lost(error):
                connection.rollback()
                raise
            connection = self._connection()
            connection.begin(transaction)
        return connection

    def _connection(self) -> PostgresConnection:
        """Returns the connection of this thread."""
        connection: PostgresConnection | None = getattr(self._local, "connection", None)
        if connection is not None and connection.is_due(self._options.queries_max):
            self._discard(connection)
            connection = None
        if connection is None:
            connection = self._local.connection = PostgresConnection.connect(self._options)
            with self._guard:
                self._connections.add(connection)
        return connection

    def _discard(self, connection: PostgresConnection) -> None:
        self._local.connection = None
        with self._guard:
            self._connections.discard(connection)
        connection.close()
