"""The refusals of the conversations API: the envelope that its clients know, and `detail` for those that expect
FastAPI's. What a person reads in it is our own sentence, save where a client may compare it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from config.errors import FlorilegiumError, NotFound
from config.logging import current_request_id
from config.times import format_time_microseconds
from server.rest.errors import ErrorFormat, FieldError, Unprocessable, field_errors, wait_s

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
_NOT_FOUND = {"conversation": "Conversation not found"}


class RefusalDetails(Struct, frozen=True):
    status_code: int
    path: str


class ConversationProblem(Struct, frozen=True):
    """`retry_after` is in seconds, where trying again may help."""

    code: str
    message: str
    details: RefusalDetails
    timestamp: str
    retry_after: int | None


class ConversationRefusal(Struct, frozen=True, kw_only=True):
    """The body of an answer that is not a success. `detail` is a list where the input could not be read (422)."""

    success: bool = False
    error: ConversationProblem
    request_id: str
    detail: str | tuple[FieldError, ...]


def _write(error: FlorilegiumError, path: str) -> Mapping[str, Any]:
    message = _NOT_FOUND.get(error.kind, error.message) if isinstance(error, NotFound) else error.message
    problem = ConversationProblem(
        code=_CODES.get(error.status) or HTTPStatus(error.status).name,
        message=message,
        details=RefusalDetails(error.status, path),
        timestamp=format_time_microseconds(datetime.now(UTC)),
        retry_after=wait_s(error),
    )
    detail = field_errors(error) if isinstance(error, Unprocessable) else message
    written: dict[str, Any] = msgspec.to_builtins(
        ConversationRefusal(error=problem, request_id=current_request_id(), detail=detail)
    )
    return written


CONVERSATION_ENVELOPE = ErrorFormat(ConversationRefusal, _write)
