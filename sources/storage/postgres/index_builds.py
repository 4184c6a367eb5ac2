"""Builds indexes of large tables with CREATE INDEX CONCURRENTLY, so that reads and writes go on.

That is not possible in a transaction, so each build has a connection of its own. An interrupted build leaves an invalid
index, which PostgreSQL does not use; it is dropped before the next attempt.
"""

import asyncio
import threading

from config.postgres.connection import ConnectionOptions, PostgresConnection, StatementInterrupted
from config.postgres.errors import driver_errors


class IndexBuilds:
    """The builds of a process."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._connections: set[PostgresConnection] = set()
        self._is_stopped = False

    async def run(self, statement: str) -> bool:
        """Returns whether the index was built."""
        return await asyncio.to_thread(self._build, statement)

    def stop(self) -> None:
        """Interrupts all builds."""
        with self._lock:
            self._is_stopped = True
            for connection in self._connections:
                connection.interrupt()

    def _build(self, statement: str) -> bool:
        try:
            connection = PostgresConnection.connect(self._options)
        except driver_errors():
            return False
        try:
            with self._lock:
                if self._is_stopped:
                    return False
                self._connections.add(connection)
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
