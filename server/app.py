"""The whole HTTP surface as one table of routes. The runtime is open before the app is built: see server.lifespan."""

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from auth.challenge import challenge
from config.errors import FlorilegiumError, Forbidden, RateLimited, Unauthenticated, Unavailable
from server.doors.http import HttpDoor
from server.doors.websocket import WebSocketDoor
from server.metrics import Metrics
from server.middleware import RequestLine
from server.operations import Operations, error_body
from server.runtime import Runtime


def build_app(runtime: Runtime, metrics: Metrics) -> ASGIApp:
    operations = Operations(runtime, metrics)
    routes = [
        WebSocketRoute("/mcp/ws", WebSocketDoor(runtime)),
        Route("/mcp/ticket", operations.ticket, methods=["POST"]),
        Route("/.well-known/oauth-protected-resource", operations.resource_metadata),
        Route("/.well-known/oauth-protected-resource/mcp", operations.resource_metadata),
        Route("/healthz", operations.healthz),
        Route("/readyz", operations.readyz),
        Route("/metrics", operations.metrics),
    ]

    async def answer_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, FlorilegiumError)
        return _error_response(runtime, error)

    metrics.watch(runtime.sessions, runtime.presence)
    app: ASGIApp = Front(
        HttpDoor(runtime), Starlette(routes=routes, exception_handlers={FlorilegiumError: answer_error})
    )
    if runtime.settings.allowed_origins:
        app = _cross_origin(app, runtime.settings.allowed_origins)
    return RequestLine(app, metrics, runtime.settings.log_requests)


class Front:
    """Sends `/mcp` straight to its door, past routing: it is nearly all of the traffic. `/mcp/` is no redirect,
    because some clients lose the body or the credential on the way."""

    def __init__(self, mcp: ASGIApp, rest: ASGIApp) -> None:
        self._mcp = mcp
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_mcp = scope["type"] == "http" and scope["path"] in ("/mcp", "/mcp/")
        await (self._mcp if is_mcp else self._rest)(scope, receive, send)


def _cross_origin(app: ASGIApp, origins: tuple[str, ...]) -> ASGIApp:
    """Browser clients of the named origins; credentials travel in the Authorization header, so no cookies."""
    return CORSMiddleware(
        app,
        allow_origins=list(origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=["Mcp-Session-Id", "WWW-Authenticate", "X-Request-Id", "Retry-After"],
        max_age=600,
    )


def _error_response(runtime: Runtime, error: FlorilegiumError) -> Response:
    headers: dict[str, str] = {}
    if isinstance(error, Unauthenticated | Forbidden):
        headers["WWW-Authenticate"] = challenge(runtime.settings, error)
    if isinstance(error, RateLimited | Unavailable):
        headers["Retry-After"] = str(max(1, round(error.retry_after_s + 0.5)))
    return JSONResponse(error_body(error), status_code=error.status, headers=headers)
