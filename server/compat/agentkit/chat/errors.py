"""Errors in the form that clients of OpenAI's API read, as a body and as the last event of a stream."""

from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from config.errors import FlorilegiumError

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class CompletionProblem(Struct, frozen=True):
    """`code` is the name of the HTTP status in lower case."""

    message: str
    type: str
    param: str | None
    code: str


class CompletionRefusal(Struct, frozen=True):
    """The body of an answer that is not a success."""

    error: CompletionProblem


def problem_body(error: FlorilegiumError) -> dict[str, Any]:
    status = error.status
    kind = _TYPES.get(status) or ("invalid_request_error" if status < 500 else "api_error")
    problem = CompletionProblem(error.message, kind, None, HTTPStatus(status).name.lower())
    written: dict[str, Any] = msgspec.to_builtins(CompletionRefusal(problem))
    return written


def problem_event(error: FlorilegiumError) -> bytes:
    """Instead of `[DONE]`: a client must not take a part for the whole. What came before may end within an event."""
    return b"\n\ndata: " + msgspec.json.encode(problem_body(error)) + b"\n\n"
