"""The errors that all packages share. Errors of a single protocol or API are subclasses defined next to it.

    FlorilegiumError
    |-- ConfigurationError          the process does not start
    |-- Unauthenticated             401  no credential, or an invalid one
    |-- Forbidden                   403  the credential lacks a scope
    |-- OriginRejected              403  the Origin or Host header is not allowed
    |-- NotFound                    404  does not exist, or belongs to another user
    |   `-- SessionNotFound         404
    |-- Conflict                    409  already exists, or was changed by someone else
    |-- TooLarge                    413  over a size limit
    |-- RateLimited                 429  over a rate limit, with the time to wait
    |-- QuotaExceeded               507  the user's quota is reached; nothing was written
    |-- Unavailable                 503  at capacity, or shutting down
    |   |-- Overloaded              503  refused because too many calls are waiting
    |   |-- SharedStateUnavailable  503  the session server (Redis, Valkey) does not answer
    |   `-- SearchFailed            503  no source could be searched
    |-- StorageError                500  the control database or a library cannot be used
    |   |-- DiskFull                507  nothing was written; existing data can still be read
    |   |-- DatabaseUnavailable     503  the PostgreSQL server cannot be reached
    |   |-- ControlDatabaseLocked   503  another process holds the lock of the control database
    |   `-- SourceTimeout           503  a source did not respond within its deadline
    `-- ProtocolError               400  a JSON-RPC message that cannot be processed
        |-- ParseError              -32700
        |-- InvalidRequest          -32600
        |-- MethodNotFound          -32601
        |-- InvalidParams           -32602
        |-- ResourceNotFound        -32002  legacy protocol versions only
        |-- HeaderMismatch          -32020
        |-- MissingCapability       -32021
        `-- UnsupportedVersion      -32022

Each class defines its HTTP status and its JSON-RPC code. Application errors use the HTTP status as their code, because
-32768..-32000 is reserved for JSON-RPC and MCP. Messages may be shown to any caller: they contain no paths, SQL or
secrets.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, ClassVar


class FlorilegiumError(Exception):
    """Base class: a message for the caller, and optional data that is sent with it."""

    status: ClassVar[int] = 500
    code: ClassVar[int] = -32603

    def __init_subclass__(cls, *, status: int | None = None, code: int | None = None, **others: Any) -> None:
        """A class names what differs from its base: `class Conflict(FlorilegiumError, status=409)`."""
        super().__init_subclass__(**others)
        if status is not None:
            cls.status = status
            cls.code = status
        if code is not None:
            cls.code = code

    def __init__(self, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


class ConfigurationError(FlorilegiumError):
    """An invalid setting. The message says what was expected and how to fix it."""


class Unauthenticated(FlorilegiumError, status=401):
    """No credential, or an invalid one. `presented` selects between a plain challenge and `invalid_token`. `reason` is
    for the owner of the token and the operator, never for the caller."""

    def __init__(self, message: str = "authentication required", *, presented: bool = False, reason: str = "") -> None:
        super().__init__(message)
        self.presented = presented
        self.reason = reason


class Forbidden(FlorilegiumError, status=403):
    """The principal lacks a scope."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"scope {scope!r} required", {"scope": scope})
        self.scope = scope


class OriginRejected(FlorilegiumError, status=403):
    """The Origin or Host header is not allowed, which prevents DNS rebinding."""


class NotFound(FlorilegiumError, status=404):
    """The object does not exist or belongs to another user; callers cannot distinguish the two."""

    def __init__(self, kind: str, identity: str) -> None:
        super().__init__(f"{kind} {identity!r} not found")
        self.kind = kind
        self.identity = identity


class SessionNotFound(NotFound):
    """The session is unknown, has ended or belongs to another owner; callers cannot distinguish these."""

    def __init__(self) -> None:
        FlorilegiumError.__init__(self, "session not found")
        self.kind = "session"
        self.identity = ""


class Conflict(FlorilegiumError, status=409):
    """The object already exists, or has changed since the caller read it."""


class TooLarge(FlorilegiumError, status=413):
    """A body, frame, line or file is over its size limit."""

    def __init__(self, what: str, limit_bytes: int, explanation: str = "") -> None:
        message = f"{what} is larger than {limit_bytes} bytes{explanation and f' ({explanation})'}"
        super().__init__(message, {"limit_bytes": limit_bytes})
        self.limit_bytes = limit_bytes


def retry_after_seconds(wait_s: float) -> int:
    """Rounds a wait up to whole seconds, at least 1, for `Retry-After` headers and messages."""
    return max(1, ceil(wait_s))


class RateLimited(FlorilegiumError, status=429):
    """A token bucket is empty; `retry_after_s` is the time until a token is available."""

    def __init__(self, what: str, retry_after_s: float) -> None:
        super().__init__(
            f"rate limit for {what} reached; retry after {retry_after_seconds(retry_after_s)} s",
            {"retry_after_s": round(retry_after_s, 3)},
        )
        self.what = what
        self.retry_after_s = retry_after_s


class QuotaExceeded(FlorilegiumError, status=507):
    """The user has reached a quota: of bytes or items."""

    def __init__(self, unit: str, used: int, quota: int) -> None:
        super().__init__(
            f"the quota of {quota:,} {unit} is reached ({used:,} are used); delete items, or ask the operator for a "
            "larger quota",
            {"unit": unit, "used": used, "quota": quota},
        )


class Unavailable(FlorilegiumError, status=503):
    """A capacity limit is reached or the process is stopping. The call may succeed later."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message, {"retry_after_s": retry_after_s})
        self.retry_after_s = retry_after_s


class SharedStateUnavailable(Unavailable):
    """The server of `session_url` does not answer, and the call cannot be served safely without it."""

    def __init__(self, retry_after_s: float = 1.0) -> None:
        seconds = retry_after_seconds(retry_after_s)
        super().__init__(f"the session server does not answer; try again in {seconds} s", seconds)


class Overloaded(Unavailable):
    """A call was not served because it would have waited too long. Nothing is wrong with its source.

    `is_repeatable` is set if the same call by the same user would be refused again until `retry_after_s` has passed.
    """

    def __init__(self, message: str, retry_after_s: float = 1.0, *, is_repeatable: bool = False) -> None:
        super().__init__(message, retry_after_s)
        self.is_repeatable = is_repeatable

    @classmethod
    def until_served(cls, retry_after_s: float, *, is_repeatable: bool = True) -> "Overloaded":
        """Returns the error for a queue that will be short enough in `retry_after_s`."""
        seconds = retry_after_seconds(retry_after_s)
        return cls(f"too many calls are waiting; try again in {seconds} s", seconds, is_repeatable=is_repeatable)


class SearchFailed(Unavailable):
    """No source could be searched. `reports` says why, by source."""

    def __init__(self, reports: Mapping[str, str], retry_after_s: float) -> None:
        reasons = "; ".join(f"{source}: {reason}" for source, reason in reports.items())
        super().__init__(f"no source could be searched: {reasons}", retry_after_s)
        self.reports = reports
        self.data = {"retry_after_s": retry_after_s, "sources": dict(reports)}


class StorageError(FlorilegiumError):
    """A database cannot be opened, read or written."""


class DiskFull(StorageError, status=507):
    """The disk is full and the write was rolled back."""

    def __init__(self) -> None:
        super().__init__("the disk is full; nothing was written")


class DatabaseUnavailable(StorageError, status=503):
    """The PostgreSQL server cannot be reached, or ended the connection. The call may succeed later. `reason` names
    addresses: it is for the operator, never for the caller."""

    def __init__(self, reason: str = "") -> None:
        super().__init__("the PostgreSQL server cannot be reached; try again", {"retry_after_s": 1.0})
        self.reason = reason


class ControlDatabaseLocked(StorageError, status=503):
    """Another process holds the lock of the control database. The call may succeed later."""

    def __init__(self) -> None:
        super().__init__("the control database is busy; try again in a moment", {"retry_after_s": 1.0})


class SourceTimeout(StorageError, status=503):
    """A source exceeded its deadline. The call may succeed later, or with a longer deadline."""

    def __init__(self, source: str, deadline_ms: int) -> None:
        super().__init__(
            f"{source} did not respond within {deadline_ms} ms", {"source": source, "deadline_ms": deadline_ms}
        )
        self.source = source
        self.deadline_ms = deadline_ms


def wait_before_retry(error: FlorilegiumError) -> float | None:
    """Returns after how many seconds a retry may succeed, or None if it cannot."""
    if isinstance(error, RateLimited | Unavailable):
        return error.retry_after_s
    return 1.0 if error.status == Unavailable.status else None


class ProtocolError(FlorilegiumError):
    """A JSON-RPC message that cannot be processed, with the code that the specification assigns."""

    status = 400


class ParseError(ProtocolError, code=-32700):
    pass


class InvalidRequest(ProtocolError, code=-32600):
    pass


class MethodNotFound(ProtocolError, status=404, code=-32601):
    def __init__(self, method: str) -> None:
        super().__init__(f"method {method!r} not found")
        self.method = method


class InvalidParams(ProtocolError, code=-32602):
    pass


class ResourceNotFound(ProtocolError, status=404, code=-32002):
    """Legacy versions only. From 2026-07-28 on, a missing resource is InvalidParams with the URI as data."""


class HeaderMismatch(ProtocolError, code=-32020):
    pass


class MissingCapability(ProtocolError, code=-32021):
    """The call needs a client capability that the request did not declare."""

    def __init__(self, capability: str) -> None:
        super().__init__(
            f"client capability {capability!r} required",
            {"requiredCapabilities": {capability: {}}},
        )
        self.capability = capability


class UnsupportedVersion(ProtocolError, code=-32022):
    def __init__(self, requested: str, supported: Sequence[str]) -> None:
        super().__init__(
            f"protocol version {requested!r} is not supported",
            {"supported": list(supported), "requested": requested},
        )
        self.requested = requested


# -- sqlite errors -----------------------------------------------------------------------------------------------------
# Errors of SQLite, and texts that it cannot have stored.

# SQLite quotes a damaged schema in its message. If that is not UTF-8, Python's module fails to decode it and raises a
# UnicodeDecodeError in place of its own error.
DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
# Python's module has no code for a text that is not UTF-8.
_UNDECODABLE = "Could not decode to UTF-8"


def result_code(error: BaseException) -> int:
    """Returns SQLite's extended result code, or 0 for an error that Python's module raised itself."""
    if isinstance(error, UnicodeDecodeError):
        return sqlite3.SQLITE_CORRUPT
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code


def is_undecodable_text(error: sqlite3.Error) -> bool:
    """Whether a statement read a text that is not UTF-8, which only a damaged file has."""
    return str(error).startswith(_UNDECODABLE)


def replace_undecodable(raw: bytes) -> str:
    """The `text_factory` of connections that read such texts."""
    return raw.decode("utf-8", "replace")
