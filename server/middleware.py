"""Request ids, security headers, one log line and one count for every HTTP request and WebSocket.

The log line contains method, path and status, and the fields of the request: who made it, the tool, the outcome and the
duration. It contains no query string, header, body or secret of a link. With tracing, every HTTP request is a span with
the same fields.
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from auth.rate_limits import challenge
from config import errors
from config.logging import RequestFields, RequestScope, log_request, new_request_id
from config.settings import Settings
from config.tracing import is_tracing, span
from server.metrics import Metrics
from server.protocol.connection import TEXT_BYTES
from server.protocol.messages import log_failure
from server.rest.errors import MethodNotAllowed, Unprocessable
from server.transports.client_connections import connection_of
from server.transports.headers import MCP_PATH, SECURITY_HEADERS
from server.transports.http_messages import IS_REPEATED

_VALID_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}\Z")
_HEADER = b"x-request-id"
_TRACE_HEADERS = frozenset((b"traceparent", b"tracestate"))
# Links that create an account or set a password contain a secret.
_SECRET_PATH = re.compile(r"(/(?:setup|invitation|reset)/).+", re.DOTALL)
_REFUSALS = frozenset((401, 403, 413, 429))
# The second answers a WebSocket upgrade that is refused.
_RESPONSE_STARTS = frozenset(("http.response.start", "websocket.http.response.start"))


class RequestLogMiddleware:
    """Logs requests. A valid request id from the caller is used, so that its logs and ours can be correlated.

    Counts the memory of a request's body until it is answered, because the decoded body is kept that long. Adds
    `Retry-After` to a 503 that does not have it. Adds `Connection: close` to a refusal, so that a client without access
    cannot send one request after the other. If the body is still arriving, the protocol closes the connection later;
    see `bounded_http`.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, log_requests: bool) -> None:
        self._app = app
        self._metrics = metrics
        self._log_requests = log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        given_id = dict(scope["headers"]).get(_HEADER, b"")
        request_id = given_id.decode() if _VALID_ID.match(given_id) else new_request_id()
        with RequestScope(request_id) as fields:
            if scope["type"] == "http" and is_tracing():
                # A WebSocket has no span of its own, because it can be open for days. Its calls have.
                method, path = scope["method"], _path(scope)
                attributes = {"http.request.method": method, "url.path": path, "florilegium.request_id": request_id}
                # The headers of W3C Trace Context, by which a caller makes a request part of its own trace.
                headers = scope["headers"]
                parent = {name.decode(): value.decode("latin-1") for name, value in headers if name in _TRACE_HEADERS}
                with span(method, attributes, kind="server", parent=parent) as request_span:
                    fields.trace_id = request_span.trace_id
                    status = await self._serve(scope, receive, send, request_id, fields)
                    known: dict[str, str | int] = {
                        "http.response.status_code": status,
                        "florilegium.outcome": fields.outcome,
                        "enduser.id": fields.user,
                        "florilegium.client": fields.client,
                    }
                    route = path if path.startswith(MCP_PATH) else fields.tool
                    request_span.update(known, name=f"{method} {route}".rstrip(), is_failed=status >= 500)
            else:
                await self._serve(scope, receive, send, request_id, fields)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, request_id: str, fields: RequestFields) -> int:
        status, started_at = 0, time.perf_counter()
        header = (_HEADER, request_id.encode())
        connection = connection_of(scope) if scope["type"] == "http" else None

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] in _RESPONSE_STARTS:
                status = message["status"]
                message["headers"] = headers = [*message["headers"], header, *SECURITY_HEADERS]
                is_refusal = status in _REFUSALS or (connection is not None and connection.is_over_limit)
                # Forms that are shown again with an error, and responses of an upstream, come without it.
                if status == errors.Unavailable.status and not any(
                    name.lower() == b"retry-after" for name, _ in headers
                ):
                    headers.append((b"retry-after", b"1"))
                if is_refusal and connection is not None and connection.has_whole_request:
                    headers.append((b"connection", b"close"))
            await send(message)

        async def counting_receive() -> Message:
            message = await receive()
            if connection is not None and (body := message.get("body")):
                connection.hold_part(TEXT_BYTES * len(body))
            return message

        try:
            await self._app(scope, receive if connection is None else counting_receive, send_with_headers)
        except Exception as error:
            # The application has sent the error response; here the exception is logged without its message.
            log_failure(f"{scope.get('method', 'WS')} {_path(scope)}", error)
        finally:
            if connection is not None:
                connection.release_request()
            if scope["type"] == "http":
                self._metrics.record_response(status)
            if self._log_requests and IS_REPEATED not in scope:
                fields.outcome = fields.outcome or ("ok" if status < 400 else "error")
                is_http = scope["type"] == "http"
                method, result = (scope["method"], status or "-") if is_http else ("WS", status or "closed")
                log_request(f"{method} {_path(scope)} {result}", fields, (time.perf_counter() - started_at) * 1000)
        return status


def _path(scope: Scope) -> str:
    """Returns the path without the secret of a link."""
    path: str = scope["path"]
    return path if path == MCP_PATH else _SECRET_PATH.sub(r"\1…", path)


# -- error responses ---------------------------------------------------------------------------------------------------
# How errors are sent to clients: as JSON and as HTTP headers.
#
# HTML pages use the same headers; see `server.rest.handler`.

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
    detail: dict[str, Any] = {"code": error.code, "message": error.message}
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
