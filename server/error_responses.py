"""How errors are sent to clients: as JSON and as HTTP headers. HTML pages use the same headers; see
`server.rest.handler`."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from starlette.responses import JSONResponse, Response

from auth.rate_limits import challenge
from config import errors
from config.settings import Settings
from server.protocol.messages import short_message
from server.rest.errors import MethodNotAllowed, Unprocessable

# Responses belong to one caller, and so does the fact that something does not exist.
PRIVATE_HEADERS = {"Cache-Control": "private, no-store"}


class ErrorDetail(Struct, frozen=True):
    """`code` is the HTTP status, or the JSON-RPC code that MCP uses for the same error."""

    code: int
    message: str
    data: Mapping[str, Any] | UnsetType = UNSET


class ErrorBody(Struct, frozen=True):
    """The body of an error response."""

    error: ErrorDetail


class FieldError(Struct, frozen=True):
    """An invalid value, in FastAPI's format."""

    type: str
    loc: tuple[str, ...]
    msg: str


class ErrorFormat(Struct, frozen=True):
    """The JSON of error responses: the Struct that describes it, and the function that builds it for a path.

    APIs of other systems keep the format that their clients know.
    """

    body: type[Any]
    render: Callable[[errors.FlorilegiumError, str], Mapping[str, Any]]


def error_body(error: errors.FlorilegiumError, _path: str = "") -> Mapping[str, Any]:
    detail: dict[str, Any] = {"code": error.code, "message": short_message(error)}
    return {"error": {**detail, "data": error.data} if error.data else detail}


DEFAULT_ERROR_FORMAT = ErrorFormat(ErrorBody, error_body)


def field_errors(error: Unprocessable) -> tuple[FieldError, ...]:
    """Returns the `detail` of FastAPI's 422 response."""
    loc = tuple((error.data or {}).get("loc", ()))
    if error.message.endswith(" is missing"):
        return (FieldError("missing", loc, "Field required"),)
    return (FieldError("value_error", loc, error.message),)


def retry_after(error: errors.FlorilegiumError) -> int | None:
    """Returns the value of the header `Retry-After`, or None if a retry cannot succeed."""
    wait_s = errors.wait_before_retry(error)
    return None if wait_s is None else errors.retry_after_seconds(wait_s)


def error_headers(settings: Settings, error: errors.FlorilegiumError, profile: str | None = None) -> dict[str, str]:
    """Returns the headers that the status of an error requires. `profile` is that of an MCP address."""
    headers: dict[str, str] = {}
    if (seconds := retry_after(error)) is not None:
        headers["Retry-After"] = str(seconds)
    match error:
        case errors.Unauthenticated() | errors.Forbidden():
            headers["WWW-Authenticate"] = challenge(settings, error, profile)
        case MethodNotAllowed():
            headers["Allow"] = ", ".join(error.allowed)
        case _:
            pass
    return headers


def raw_error_headers(
    settings: Settings, error: errors.FlorilegiumError, profile: str | None = None
) -> list[tuple[bytes, bytes]]:
    """Returns the same headers in the form of ASGI messages."""
    headers = error_headers(settings, error, profile)
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]


def json_error(
    settings: Settings, error: errors.FlorilegiumError, error_format: ErrorFormat = DEFAULT_ERROR_FORMAT, path: str = ""
) -> Response:
    headers = {**PRIVATE_HEADERS, **error_headers(settings, error)}
    return JSONResponse(error_format.render(error, path), status_code=error.status, headers=headers)
