"""The whole HTTP surface as one table of routes. The runtime is open before the app is built: see server.lifespan."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from config.errors import FlorilegiumError, NotFound
from config.logging import current_request_id
from server.metrics import Metrics
from server.middleware import RequestLine
from server.operations import Operations
from server.rest.errors import MethodNotAllowed, refuse
from server.rest.routes import rest_routes
from server.runtime import Runtime
from server.transports.http import HttpTransport
from server.transports.request_options import MCP_PATH
from server.transports.websocket import WebSocketTransport

TICKET_PATH = "/mcp/ticket"


def build_app(runtime: Runtime, metrics: Metrics) -> ASGIApp:
    operations, socket = Operations(runtime, metrics), WebSocketTransport(runtime)
    routes = [
        WebSocketRoute("/mcp/ws", socket),
        WebSocketRoute("/mcp/{profile}/ws", socket),
        Route(TICKET_PATH, operations.ticket, methods=["POST"]),
        Route("/.well-known/oauth-protected-resource", operations.resource_metadata),
        Route("/.well-known/oauth-protected-resource/mcp", operations.resource_metadata),
        # RFC 9728 section 3.1: a client at `/mcp/research` looks for it below the path that it was given.
        Route("/.well-known/oauth-protected-resource/mcp/{profile}", operations.resource_metadata),
        Route("/healthz", operations.healthz),
        Route("/readyz", operations.readyz),
        Route("/metrics", operations.metrics),
        *rest_routes(runtime),
    ]

    async def answer_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, FlorilegiumError)
        return refuse(runtime.settings, error)

    async def answer_failure(request: Request, error: Exception) -> Response:
        return refuse(runtime.settings, FlorilegiumError(f"internal error (request {current_request_id()})"))

    async def answer_absent(request: Request, error: Exception) -> Response:
        """What no route takes, among it any path with a line break: a route's `.*` ends there."""
        return refuse(runtime.settings, NotFound("path", request.scope["path"][:200]))

    async def answer_refused_method(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        allowed = sorted((error.headers or {}).get("Allow", "GET").split(", "))
        return refuse(runtime.settings, MethodNotAllowed(request.method, allowed))

    metrics.watch(runtime.sessions, runtime.open_streams)
    handlers = {
        FlorilegiumError: answer_error,
        404: answer_absent,
        405: answer_refused_method,
        Exception: answer_failure,
    }
    app: ASGIApp = McpRouter(HttpTransport(runtime), Starlette(routes=routes, exception_handlers=handlers))
    if runtime.settings.allowed_origins:
        app = _cross_origin(app, runtime.settings.allowed_origins)
    return RequestLine(app, metrics, runtime.settings.log_requests)


class McpRouter:
    """Sends `/mcp` and the profiles below it straight to their door, past routing: it is nearly all of the traffic.
    `/mcp/` is no redirect, because some clients lose the body or the credential on the way."""

    def __init__(self, mcp: ASGIApp, rest: ASGIApp) -> None:
        self._mcp = mcp
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_mcp = scope["type"] == "http" and _is_mcp(scope["path"])
        await (self._mcp if is_mcp else self._rest)(scope, receive, send)


def _is_mcp(path: str) -> bool:
    return path == MCP_PATH or (path.startswith(f"{MCP_PATH}/") and path != TICKET_PATH)


def _cross_origin(app: ASGIApp, origins: tuple[str, ...]) -> ASGIApp:
    """Browser clients of the named origins; credentials travel in the Authorization header, so no cookies."""
    return CORSMiddleware(
        app,
        allow_origins=list(origins),
        allow_methods=["GET", "POST", "PUT", "DELETE"],
        allow_headers=["*"],
        expose_headers=[
            "Mcp-Session-Id",
            "WWW-Authenticate",
            "X-Request-Id",
            "Retry-After",
            "ETag",
            "X-Conversation-Id",
        ],
        max_age=600,
    )
