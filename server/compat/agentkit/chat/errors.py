"""Errors in the format of OpenAI's API, as a response body and as the last event of a stream."""

from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from config.errors import FlorilegiumError
from server.error_responses import ErrorFormat

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class CompletionError(Struct, frozen=True):
    """`code` is the name of the HTTP status in lower case."""

    message: str
    type: str
    param: str | None
    code: str


class CompletionErrorBody(Struct, frozen=True):
    """The body of an error response."""

    error: CompletionError


def completion_error_body(error: FlorilegiumError, _path: str = "") -> dict[str, Any]:
    status = error.status
    kind = _TYPES.get(status) or ("invalid_request_error" if status < 500 else "api_error")
    detail = CompletionError(error.message, kind, None, HTTPStatus(status).name.lower())
    body: dict[str, Any] = msgspec.to_builtins(CompletionErrorBody(detail))
    return body


def completion_error_event(error: FlorilegiumError) -> bytes:
    """Replaces `[DONE]`, so that a client does not mistake a partial answer for a complete one.

    It begins with a blank line because the bytes before it may end inside an event.
    """
    return b"\n\ndata: " + msgspec.json.encode(completion_error_body(error)) + b"\n\n"


COMPLETION_ERROR_FORMAT = ErrorFormat(CompletionErrorBody, completion_error_body)
