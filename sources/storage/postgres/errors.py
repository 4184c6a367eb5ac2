"""Converts the errors of a job. The messages are shown to clients, so they contain no SQL and no address."""

from config.errors import FlorilegiumError, SourceTimeout, StorageError, Unavailable
from config.postgres.connection import StatementInterrupted
from config.postgres.errors import (
    driver_errors,
    error_code,
    is_canceled,
    is_connection_lost,
    is_lock_timeout,
    storage_error,
)

_DEADLOCK_OR_SERIALIZATION = ("40001", "40P01")
# The schema or a table does not exist: another process has removed the library.
_UNDEFINED = ("3F000", "42P01")
# A cached statement selects columns that a migration has changed since.
_OUTDATED_STATEMENT = "0A000"


class UnconfirmedWrite(StorageError):
    """The connection was lost while a write was being committed."""

    status = 503
    code = 503

    def __init__(self) -> None:
        super().__init__(
            "the connection to PostgreSQL was lost while the write was being confirmed: it may or may not have been "
            "stored; repeat it with the same idempotency key, or read before you repeat it"
        )


class StatementTimeout(SourceTimeout):
    """One statement of a call took longer than the setting allows, before the call's own deadline."""

    def __init__(self, source: str, limit_ms: int) -> None:
        super().__init__(source, limit_ms)
        self.message = f"{source}: a statement took longer than {limit_ms} ms (postgres_statement_timeout_ms)"


def job_errors() -> tuple[type[Exception], ...]:
    """Returns the errors that a job can fail with, apart from those that its work raises itself."""
    return (StatementInterrupted, TimeoutError, *driver_errors())


def is_repeatable(error: BaseException) -> bool:
    """Whether a job that failed with this error, before it was committed, may succeed if it is run again."""
    return is_connection_lost(error) or error_code(error) in (*_DEADLOCK_OR_SERIALIZATION, _OUTDATED_STATEMENT)


def is_removed_library(error: BaseException) -> bool:
    return error_code(error) in _UNDEFINED


def translate(
    error: Exception, source: str, deadline_ms: int, statement_timeout_ms: int | None = None
) -> FlorilegiumError:
    """Returns the error to raise for a failed read or write of `source`, which had `deadline_ms` to finish, and
    `statement_timeout_ms` for each statement if that is less."""
    if statement_timeout_ms is not None and is_canceled(error.__cause__):
        return StatementTimeout(source, statement_timeout_ms)
    if isinstance(error, StatementInterrupted | TimeoutError):
        return SourceTimeout(source, deadline_ms)
    if is_lock_timeout(error):
        return Unavailable(f"{source} is busy; try again in a moment")
    return storage_error(error)
