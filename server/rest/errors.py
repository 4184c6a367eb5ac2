"""Errors as HTTP answers: a JSON envelope, with the headers that a status asks for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from starlette.responses import JSONResponse, Response

from auth.challenge import challenge
from config.errors import (
    FlorilegiumError,
    Forbidden,
    InvalidParams,
    RateLimited,
    SourceTimeout,
    Unauthenticated,
    Unavailable,
    retry_after_seconds,
)
from config.settings import Settings

# Answers are one caller's own, and so is the knowledge that something is not there.
PRIVATE = {"Cache-Control": "private, no-store", "X-Content-Type-Options": "nosniff"}


class MethodNotAllowed(FlorilegiumError):
    """The path is served, the method is not (RFC 9110 section 15.5.6 wants the others named)."""

    status = 405
    code = 405

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        super().__init__(f"method: got {method[:20]!r}, expected {' or '.join(allowed)}")
        self.allowed = tuple(allowed)


class UnsupportedMediaType(FlorilegiumError):
    """A body that is not declared as what is read. It also keeps out the posts that a browser sends across sites
    unasked."""

    status = 415
    code = 415

    def __init__(self, got: str, expected: str = "application/json") -> None:
        super().__init__(f"Content-Type: got {got[:60]!r}, expected {expected}")


class Unprocessable(InvalidParams):
    """An input that cannot be read, for clients that know 422 as its status. `data` holds `loc`: place and name."""

    status = 422


class OutsideProfile(FlorilegiumError):
    """A key that is bound to a profile, at an operation that none of the profile's tools amounts to."""

    status = 403
    code = 403

    def __init__(self, operation: str, profile: str | None) -> None:
        super().__init__(f"{operation} is not part of the profile {profile!r} of this API key")


class ErrorDetail(Struct, frozen=True):
    """`code` is the HTTP status, or the JSON-RPC code of the same mistake in MCP; `message` is a sentence."""

    code: int
    message: str
    data: Mapping[str, Any] | UnsetType = UNSET


class ErrorBody(Struct, frozen=True):
    """The body of an answer that is not a success."""

    error: ErrorDetail


class FieldError(Struct, frozen=True):
    """A value that cannot be read, as FastAPI tells it."""

    type: str
    loc: tuple[str, ...]
    msg: str


def field_errors(error: Unprocessable) -> tuple[FieldError, ...]:
    """The `detail` of FastAPI's 422, for clients that were written for it."""
    loc = tuple((error.data or {}).get("loc", ()))
    if error.message.endswith(" is missing"):
        return (FieldError("missing", loc, "Field required"),)
    return (FieldError("value_error", loc, error.message),)


class ErrorFormat(Struct, frozen=True):
    """How a refusal at a path is written, and the Struct that describes it. Operations that another system's clients
    know keep that system's."""

    body: type[Any]
    render: Callable[[FlorilegiumError, str], Mapping[str, Any]]


def error_body(error: FlorilegiumError) -> dict[str, object]:
    return {
        "error": {
            "code": error.code,
            "message": error.message,
            **({"data": error.data} if error.data else {}),
        }
    }


DEFAULT_ERROR_FORMAT = ErrorFormat(ErrorBody, lambda error, _path: error_body(error))


def refuse(
    settings: Settings, error: FlorilegiumError, error_format: ErrorFormat = DEFAULT_ERROR_FORMAT, path: str = ""
) -> Response:
    return JSONResponse(
        error_format.render(error, path), status_code=error.status, headers=refusal_headers(settings, error)
    )


def retry_after_s(error: RateLimited | Unavailable) -> int:
    return retry_after_seconds(error.retry_after_s)


def wait_s(error: FlorilegiumError) -> int | None:
    """After how many seconds the same call may succeed, where it may."""
    match error:
        case RateLimited() | Unavailable():
            return retry_after_s(error)
        case SourceTimeout():
            return 1
        case _:
            return None


def refusal_headers(settings: Settings, error: FlorilegiumError) -> dict[str, str]:
    headers = dict(PRIVATE)
    if (seconds := wait_s(error)) is not None:
        headers["Retry-After"] = str(seconds)
    match error:
        case Unauthenticated() | Forbidden():
            headers["WWW-Authenticate"] = challenge(settings, error)
        case MethodNotAllowed():
            headers["Allow"] = ", ".join(error.allowed)
        case _:
            pass
    return headers


@contextmanager
def rename_fields(names: Mapping[str, str]) -> Iterator[None]:
    """What storage refuses is told by the name that the caller gave it."""
    try:
        yield
    except InvalidParams as error:
        name, _, rest = error.message.partition(":")
        raise InvalidParams(f"{names.get(name, name)}:{rest}", error.data) from error
