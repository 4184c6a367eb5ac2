"""Converts errors of PostgreSQL. Their own messages may contain values of rows, so they are never passed on."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import SplitResult, urlsplit

from config.errors import ConfigurationError, DatabaseUnavailable, DiskFull, InvalidParams, StorageError
from config.event_counts import POSTGRES_EVENTS

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_DISK_FULL = "53100"
_LOCK_NOT_AVAILABLE = "55P03"
_QUERY_CANCELED = "57014"
_CHARACTER_NOT_IN_REPERTOIRE = "22021"
_DEADLOCK = "40P01"
# Classes of connection exceptions and interventions of the operator, too many connections, idle for too long.
_UNAVAILABLE = ("08", "57", "53300", "25P03")
_REJECTED = {
    "28P01": "PostgreSQL rejected the user name or the password of storage_url",
    "28000": "PostgreSQL rejected the user name of storage_url",
    "3D000": "the database of storage_url does not exist; create it first",
    "42501": "the PostgreSQL user of storage_url lacks a privilege; it must be able to create schemas in the database",
    "25006": "the PostgreSQL server is read-only; storage_url must name the primary server",
    "53200": "PostgreSQL has no memory left for this; with many users, max_locks_per_transaction must be higher",
    _CHARACTER_NOT_IN_REPERTOIRE: "PostgreSQL cannot store text with NUL characters",
    "53400": "the call exceeds a limit of the PostgreSQL server, such as temp_file_limit",
}


def driver_errors() -> tuple[type[Exception], ...]:
    """Returns the errors that asyncpg and the network raise. asyncpg is not imported before the first connection."""
    asyncpg = sys.modules.get("asyncpg")
    if asyncpg is None:
        return (OSError,)
    return (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


def error_code(error: BaseException | None) -> str:
    """Returns the SQLSTATE of an error, or an empty text."""
    return getattr(error, "sqlstate", None) or ""


def is_lock_timeout(error: BaseException) -> bool:
    return error_code(error) in (_LOCK_NOT_AVAILABLE, _DEADLOCK)


def is_canceled(error: BaseException | None) -> bool:
    """Whether the server stopped the statement, which exceeded its time."""
    return error_code(error) == _QUERY_CANCELED


def is_connection_lost(error: BaseException) -> bool:
    """Whether the connection cannot be used any more, or none could be made."""
    if isinstance(error, OSError | TimeoutError):
        return True
    code = error_code(error)
    if code:
        return code.startswith(_UNAVAILABLE) and code != _QUERY_CANCELED
    asyncpg = sys.modules.get("asyncpg")
    if asyncpg is None:
        return False
    # asyncpg's own errors: it noticed that the connection is closed, or got an answer that it did not expect.
    return isinstance(error, asyncpg.InternalClientError) or (
        isinstance(error, asyncpg.InterfaceError) and "closed" in str(error)
    )


def storage_error(error: BaseException) -> StorageError:
    code = error_code(error)
    if code == _DISK_FULL:
        POSTGRES_EVENTS.add("disk_full")
        return DiskFull()
    if code in _REJECTED:
        return StorageError(_REJECTED[code])
    if is_connection_lost(error):
        if isinstance(error, TimeoutError):
            return DatabaseUnavailable("no answer in time")
        # Errors of the network name the address. Of those of PostgreSQL, only the kind is used.
        kind = f"{type(error).__name__} {code}".rstrip()
        return DatabaseUnavailable(str(error) if isinstance(error, OSError) else kind)
    return StorageError(f"PostgreSQL reported the error {code or type(error).__name__}")


@contextmanager
def postgres_errors() -> Iterator[None]:
    """Converts the errors of asyncpg and of the network to `StorageError`. A text with NUL, which PostgreSQL cannot
    compare or store, is a mistake of the caller."""
    try:
        yield
    except driver_errors() as error:
        if error_code(error) == _CHARACTER_NOT_IN_REPERTOIRE:
            raise InvalidParams("expected text without NUL characters") from error
        if isinstance(cause := error.__cause__, UnicodeEncodeError):
            raise InvalidParams(f"expected arguments in UTF-8, got {cause.object[:40]!r}") from error
        raise storage_error(error) from error


# -- url ---------------------------------------------------------------------------------------------------------------
# The address of a PostgreSQL database. It may contain a password, which no message or log may repeat.

_SCHEMES = ("postgresql", "postgres")
_EXPECTED = "expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE"


def is_postgres_url(text: str) -> bool:
    return text.partition("://")[0] in _SCHEMES and "://" in text


def require_postgres_url(name: str, text: str) -> None:
    """Raises ConfigurationError unless the text is the address of a database."""
    _split(name, text)


def describe_url(text: str) -> str:
    """Returns the hosts with their ports, and the database, for messages and logs."""
    parts = _split("address", text)
    return f"{_hosts(parts) or 'local socket'}{parts.path}"


def has_several_hosts(text: str) -> bool:
    return "," in _hosts(_parts(text))


def _hosts(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _parts(text: str) -> SplitResult:
    """Does what `urlsplit` does, which since Python 3.11.4 rejects the address of an IPv6 host among several."""
    scheme, _, rest = text.partition("://")
    end = min((place for mark in "/?#" if (place := rest.find(mark)) >= 0), default=len(rest))
    return urlsplit(f"{scheme}://{rest[end:]}")._replace(netloc=rest[:end])


def _split(name: str, text: str) -> SplitResult:
    if not is_postgres_url(text):
        raise ConfigurationError(f"{name}: {_EXPECTED}")
    try:
        parts = _parts(text)
        # PostgreSQL's own clients accept several hosts, separated by commas.
        ports = [urlsplit(f"//{host}").port for host in _hosts(parts).split(",")]
    except ValueError:  # its message may contain a part of the password
        raise ConfigurationError(
            f"{name}: {_EXPECTED}; in the password, write /, ?, # and @ as %2F, %3F, %23 and %40"
        ) from None
    if len(parts.path) < 2 or 0 in ports:
        raise ConfigurationError(f"{name}: {_EXPECTED}, got no database")
    return parts
