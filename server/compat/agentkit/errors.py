"""Error responses of the conversations API: AgentKit's envelope, plus `detail` for clients that expect FastAPI's.

Messages are our own sentences, except where clients may compare them ("Conversation not found"; those of namespaces are
in `namespaces`).
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from config.errors import FlorilegiumError, NotFound
from config.logging import current_request_id
from config.times import format_time_microseconds
from server.error_responses import ErrorFormat, FieldError, field_errors, retry_after
from server.rest.errors import Unprocessable

_CODES = {
    400: "VALIDATION_ERROR",
    422: "VALIDATION_ERROR",
    404: "NOT_FOUND",
    409: "CONFLICT",
    413: "FILE_TOO_LARGE",
    415: "UNSUPPORTED_FORMAT",
    429: "RATE_LIMIT_EXCEEDED",
    500: "INTERNAL_ERROR",
}
_NOT_FOUND = {"conversation": "Conversation not found", "namespace": "Namespace '{identity}' not found"}


class AgentKitErrorDetails(Struct, frozen=True):
    status_code: int
    path: str


class AgentKitError(Struct, frozen=True):
    """`retry_after` is in seconds; null if a retry does not help."""

    code: str
    message: str
    details: AgentKitErrorDetails
    timestamp: str
    retry_after: int | None


class AgentKitErrorBody(Struct, frozen=True, kw_only=True):
    """The body of an error response. `detail` is a list if the input is invalid (422)."""

    success: bool = False
    error: AgentKitError
    request_id: str
    detail: str | tuple[FieldError, ...]


def _error_body(error: FlorilegiumError, path: str) -> Mapping[str, Any]:
    message = error.message
    if isinstance(error, NotFound) and error.kind in _NOT_FOUND:
        message = _NOT_FOUND[error.kind].format(identity=error.identity)
    body = AgentKitErrorBody(
        error=AgentKitError(
            code=_CODES.get(error.status) or HTTPStatus(error.status).name,
            message=message,
            details=AgentKitErrorDetails(error.status, path),
            timestamp=format_time_microseconds(datetime.now(UTC)),
            retry_after=retry_after(error),
        ),
        request_id=current_request_id(),
        detail=field_errors(error) if isinstance(error, Unprocessable) else message,
    )
    builtins: dict[str, Any] = msgspec.to_builtins(body)
    return builtins


AGENTKIT_ERROR_FORMAT = ErrorFormat(AgentKitErrorBody, _error_body)
