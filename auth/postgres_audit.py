"""The audit log as a table of the control data in PostgreSQL."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from auth.audit import (
    DELETE_ROWS,
    OLDER_EVENTS,
    READ_ACTION,
    READS_OF_USER,
    AuditEvent,
    AuditFilter,
    delete_events,
    insert_events,
    select_events,
)
from auth.postgres_schema import CONTROL_SCHEMA_NAME
from config.errors import StorageError
from config.paths import UserId
from config.postgres.connection import ConnectionOptions, PostgresConnection, StatementInterrupted, Transaction
from config.postgres.errors import postgres_errors
from config.postgres.threads import ConnectionThreads

T = TypeVar("T")

_TIMEOUT_MS = 5_000
_TRANSACTION = Transaction(
    schema=CONTROL_SCHEMA_NAME,
    statement_timeout_ms=_TIMEOUT_MS,
    lock_timeout_ms=_TIMEOUT_MS,
    idle_timeout_ms=2 * _TIMEOUT_MS,
)
# Writers take turns, because each id must be greater than all others. Readers do not wait.
_LOCK = "SELECT pg_advisory_xact_lock(7305126185)"


class PostgresAuditLog:
    """Has one connection, which is opened on first use. The tables must exist: a registry creates them."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._threads = ConnectionThreads(options, 1, "audit-log")

    def append(self, events: Iterable[AuditEvent]) -> None:
        def work(connection: PostgresConnection) -> None:
            connection.execute(_LOCK)
            insert_events(connection, events)

        self._run(work)

    def select(self, where: AuditFilter, limit: int) -> list[AuditEvent]:
        return self._run(lambda connection: select_events(connection, where, limit))

    def delete_before(self, time_s: float) -> int:
        return self._delete(OLDER_EVENTS, time_s)

    def delete_reads(self, user_id: UserId) -> int:
        return self._delete(READS_OF_USER, user_id, READ_ACTION)

    def close(self) -> None:
        self._threads.close_now()

    def _delete(self, condition: str, *values: object) -> int:
        deleted = 0
        while True:
            count = self._run(lambda connection: delete_events(connection, condition, values))
            deleted += count
            if count < DELETE_ROWS:
                return deleted

    def _run(self, work: Callable[[PostgresConnection], T]) -> T:
        with postgres_errors():
            try:
                return self._threads.submit(_TRANSACTION, work).result()
            except StatementInterrupted:
                raise StorageError("the audit log did not respond in time") from None
