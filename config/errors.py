"""Every error Florilegium raises on purpose, in one tree; nothing here knows how an answer is sent.

    FlorilegiumError
    |-- ConfigurationError          the process refuses to start
    |-- Unauthenticated             401  no credential, or one we do not accept
    |-- Forbidden                   403  a good credential that lacks a scope
    |-- OriginRejected               403  a browser page or host name we do not trust
    |-- NotFound                    404  absent, or somebody else's: the same answer
    |   `-- SessionNotFound         404
    |-- Conflict                    409  the thing exists already, or changed meanwhile
    |-- TooLarge                    413  over a size limit
    |-- RateLimited                 429  over a rate, with the seconds to wait
    |-- Unavailable                 503  full, or shutting down
    |-- StorageError                500  the control database or a library cannot be used
    |   |-- DiskFull                507  nothing was written; what was there can still be read
    |   `-- SourceTimeout             503  a source did not answer within its deadline
    `-- ProtocolError               a JSON-RPC message we cannot serve
        |-- ParseError              -32700
        |-- InvalidRequest          -32600
        |-- MethodNotFound          -32601
        |-- InvalidParams           -32602
        |-- ResourceNotFound         -32002  the legacy era's code for an absent resource
        |-- HeaderMismatch          -32020
        |-- MissingCapability       -32021
        `-- UnsupportedVersion      -32022

Each class fixes its HTTP status and its JSON-RPC code. Application errors use the HTTP status as their code: the
band -32768..-32000 belongs to JSON-RPC and MCP. A message is written for a stranger: it names no path, no SQL and
no secret.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, ClassVar


class FlorilegiumError(Exception):
    """The root: a sentence for the caller, and optional data that goes with it."""

    status: ClassVar[int] = 500
    code: ClassVar[int] = -32603

    def __init__(self, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


class ConfigurationError(FlorilegiumError):
    """A setting that cannot be honoured; the message says what was expected and how to fix it."""


class Unauthenticated(FlorilegiumError):
    """No credential or a bad one. `presented` decides between a plain challenge and `invalid_token`."""

    status = 401
    code = 401

    def __init__(self, message: str = "authentication required", *, presented: bool = False) -> None:
        super().__init__(message)
        self.presented = presented


class Forbidden(FlorilegiumError):
    """The principal is known but lacks `scope`."""

    status = 403
    code = 403

    def __init__(self, scope: str) -> None:
        super().__init__(f"this needs the scope {scope!r}", {"scope": scope})
        self.scope = scope


class OriginRejected(FlorilegiumError):
    """A request whose Origin or Host header is not on the list (DNS rebinding)."""

    status = 403
    code = 403


class NotFound(FlorilegiumError):
    """Nothing under that id, or nothing that is the caller's."""

    status = 404
    code = 404

    def __init__(self, kind: str, identity: str) -> None:
        super().__init__(f"{kind} {identity!r} not found")
        self.kind = kind
        self.identity = identity


class SessionNotFound(NotFound):
    """An unknown, ended or foreign session: which of the three is nobody's business."""

    def __init__(self) -> None:
        FlorilegiumError.__init__(self, "session not found")
        self.kind = "session"
        self.identity = ""


class Conflict(FlorilegiumError):
    """What is to be made exists already, or what is to be changed is no longer what the caller saw."""

    status = 409
    code = 409


class TooLarge(FlorilegiumError):
    """A body, frame or line over its limit."""

    status = 413
    code = 413

    def __init__(self, what: str, limit_bytes: int) -> None:
        super().__init__(f"{what} is larger than {limit_bytes} bytes", {"limit_bytes": limit_bytes})
        self.limit_bytes = limit_bytes


def retry_after_seconds(wait_s: float) -> int:
    """As `Retry-After` and sentences tell a wait: never so few that it is too early, and never none."""
    return max(1, ceil(wait_s))


class RateLimited(FlorilegiumError):
    """A bucket is empty; `retry_after_s` is when a token will be there."""

    status = 429
    code = 429

    def __init__(self, what: str, retry_after_s: float) -> None:
        super().__init__(
            f"rate limit for {what} reached, retry after {retry_after_seconds(retry_after_s)} s",
            {"retry_after_s": round(retry_after_s, 3)},
        )
        self.what = what
        self.retry_after_s = retry_after_s


class Unavailable(FlorilegiumError):
    """A capacity is used up or the process is stopping; the same call may succeed later."""

    status = 503
    code = 503

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message, {"retry_after_s": retry_after_s})
        self.retry_after_s = retry_after_s


class StorageError(FlorilegiumError):
    """A database cannot be opened, read or written."""


class DiskFull(StorageError):
    """There is no room for what was to be written; the write was undone."""

    status = 507
    code = 507

    def __init__(self) -> None:
        super().__init__("the disk is full; nothing was written")


class SourceTimeout(StorageError):
    """A source took longer than it was given; the same call may succeed later, or with a longer deadline."""

    status = 503
    code = 503

    def __init__(self, source: str, deadline_ms: int) -> None:
        super().__init__(
            f"{source} did not answer within {deadline_ms} ms", {"source": source, "deadline_ms": deadline_ms}
        )
        self.source = source
        self.deadline_ms = deadline_ms


class ProtocolError(FlorilegiumError):
    """A JSON-RPC message that cannot be served, with the code its era prescribes."""

    status = 400


class ParseError(ProtocolError):
    code = -32700


class InvalidRequest(ProtocolError):
    code = -32600


class MethodNotFound(ProtocolError):
    status = 404
    code = -32601

    def __init__(self, method: str) -> None:
        super().__init__(f"method {method!r} not found")
        self.method = method


class InvalidParams(ProtocolError):
    code = -32602


class ResourceNotFound(ProtocolError):
    """Legacy only: from 2026-07-28 on an absent resource is InvalidParams with the URI as data."""

    status = 404
    code = -32002


class HeaderMismatch(ProtocolError):
    code = -32020


class MissingCapability(ProtocolError):
    """The call needs a client capability that the request did not declare."""

    code = -32021

    def __init__(self, capability: str) -> None:
        super().__init__(
            f"this call needs the client capability {capability!r}",
            {"requiredCapabilities": {capability: {}}},
        )
        self.capability = capability


class UnsupportedVersion(ProtocolError):
    code = -32022

    def __init__(self, requested: str, supported: Sequence[str]) -> None:
        super().__init__(
            f"protocol version {requested!r} is not supported",
            {"supported": list(supported), "requested": requested},
        )
        self.requested = requested
