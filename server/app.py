"""The whole HTTP surface as one table of routes. The runtime is open before the app is built: see server.lifespan."""

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute

from auth.challenge import challenge
from config.errors import FlorilegiumError, Forbidden, RateLimited, Unauthenticated, Unavailable
from server.doors.http import HttpDoor
from server.doors.websocket import WebSocketDoor
from server.metrics import Metrics
from server.middleware import RequestLine
from server.operations import Operations, error_body
from server.runtime import Runtime


def build_app(runtime: Runtime, metrics: Metrics) -> Starlette:
    mcp, operations = HttpDoor(runtime), Operations(runtime, metrics)
    routes = [
        Route("/mcp", mcp),
        # No redirect: some clients lose the body or the credential on the way.
        Route("/mcp/", mcp),
        WebSocketRoute("/mcp/ws", WebSocketDoor(runtime)),
        Route("/mcp/ticket", operations.ticket, methods=["POST"]),
        Route("/.well-known/oauth-protected-resource", operations.resource_metadata),
        Route("/.well-known/oauth-protected-resource/mcp", operations.resource_metadata),
        Route("/healthz", operations.healthz),
        Route("/readyz", operations.readyz),
        Route("/metrics", operations.metrics),
    ]
    middleware = [Middleware(RequestLine, metrics=metrics, log_requests=runtime.settings.log_requests)]
    if runtime.settings.allowed_origins:
        middleware.append(_cross_origin(runtime.settings.allowed_origins))
    metrics.watch(runtime.sessions, runtime.presence)

    async def answer_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, FlorilegiumError)
        return _error_response(runtime, error)

    return Starlette(routes=routes, middleware=middleware, exception_handlers={FlorilegiumError: answer_error})


def _cross_origin(origins: tuple[str, ...]) -> Middleware:
    """Browser clients of the named origins; credentials travel in the Authorization header, so no cookies."""
    return Middleware(
        CORSMiddleware,
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
