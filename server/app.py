"""The ASGI application: all HTTP routes in one table. The runtime must be open before; see `server.lifespan`."""

from itertools import chain

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, ExceptionHandler, Receive, Scope, Send

from config.errors import FlorilegiumError, NotFound
from config.logging import current_request_id
from config.settings import Settings
from server.compat.tldw.endpoints import tldw_routes
from server.console.language import use_preferences
from server.console.routes import console_routes, library_page_routes
from server.http_services import build_http_services
from server.metrics import Metrics
from server.middleware import RequestLogMiddleware, json_error
from server.oauth.code_request import PublicEndpoint, PublicPaths
from server.oauth.endpoints import oauth_routes
from server.registry_entry import ICON_PATH
from server.rest.errors import MethodNotAllowed
from server.rest.handler import html_error
from server.rest.routes import rest_routes
from server.runtime import Runtime
from server.service_endpoints import ServiceEndpoints
from server.transports.headers import MCP_PATH
from server.transports.http import HttpTransport
from server.transports.sse import SseTransport, is_sse_path
from server.transports.websocket import WebSocketTransport
from sources.installed import COMPATIBILITY, load_points

TICKET_PATH = "/mcp/ticket"
# The response headers that scripts of other origins may read.
_EXPOSED_HEADERS = (
    *("Mcp-Session-Id", "WWW-Authenticate", "X-Request-Id", "Retry-After"),
    *("ETag", "X-Conversation-Id", "X-Has-More", "Link"),
)


def build_app(runtime: Runtime, metrics: Metrics) -> ASGIApp:
    service, websocket = ServiceEndpoints(runtime, metrics), WebSocketTransport(runtime)
    services = build_http_services(runtime, metrics)
    resource_metadata = PublicEndpoint("GET", service.resource_metadata)
    routes = [
        WebSocketRoute("/mcp/ws", websocket),
        WebSocketRoute("/mcp/{profile}/ws", websocket),
        Route(TICKET_PATH, service.ticket, methods=["POST"]),
        Route("/.well-known/oauth-protected-resource", resource_metadata),
        Route("/.well-known/oauth-protected-resource/mcp", resource_metadata),
        # RFC 9728 section 3.1: a client of `/mcp/research` looks for the metadata below that path.
        Route("/.well-known/oauth-protected-resource/mcp/sse", resource_metadata),
        Route("/.well-known/oauth-protected-resource/mcp/{profile}", resource_metadata),
        Route("/.well-known/oauth-protected-resource/mcp/{profile}/sse", resource_metadata),
        Route("/v0.1/servers", PublicEndpoint("GET", service.registry_list)),
        # A name has a slash, which clients encode.
        Route("/v0.1/servers/{name:path}/versions", PublicEndpoint("GET", service.registry_server)),
        Route("/v0.1/servers/{name:path}/versions/{version}", PublicEndpoint("GET", service.registry_server)),
        Route(ICON_PATH, PublicEndpoint("GET", service.icon)),
        Route("/healthz", service.healthz),
        Route("/readyz", service.readyz),
        Route("/metrics", service.metrics),
        *tldw_routes(runtime, metrics),
        *oauth_routes(runtime, services),
        *console_routes(runtime, services),
        *library_page_routes(runtime, services),
        *rest_routes(runtime, services),
        # APIs of other distributions. A path that is above comes first.
        *chain.from_iterable(load_points(COMPATIBILITY, lambda make_routes: list(make_routes(runtime)))),
    ]
    metrics.watch(runtime)
    errors = ErrorHandlers(runtime.settings)
    starlette = Starlette(routes=routes, exception_handlers=errors.by_type())
    app: ASGIApp = McpRouter(HttpTransport(runtime, metrics), SseTransport(runtime), starlette)
    if runtime.settings.allowed_origins:
        # Allows browser clients of these origins. Credentials are sent in the Authorization header, not in cookies.
        with_cors = CORSMiddleware(
            app,
            allow_origins=list(runtime.settings.allowed_origins),
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["*"],
            expose_headers=_EXPOSED_HEADERS,
            max_age=600,
        )
        app = PublicPaths(app, with_cors)
    return RequestLogMiddleware(app, metrics, runtime.settings.log_requests)


class ErrorHandlers:
    """Starlette's exception handlers, for errors that no route has handled."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def by_type(self) -> dict[int | type[Exception], ExceptionHandler]:
        return {
            FlorilegiumError: self.expected_error,
            404: self.unknown_path,
            405: self.method_not_allowed,
            Exception: self.unexpected_error,
        }

    async def expected_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, FlorilegiumError)
        return json_error(self._settings, error)

    async def unexpected_error(self, request: Request, error: Exception) -> Response:
        return json_error(self._settings, FlorilegiumError(f"internal error (request {current_request_id()})"))

    async def unknown_path(self, request: Request, error: Exception) -> Response:
        """Also handles any path with a line break, which no route matches."""
        missing = NotFound("path", request.scope["path"][:200])
        # Browsers ask for HTML. Programs get JSON.
        if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            use_preferences(request.scope)
            return html_error(self._settings, missing)
        return json_error(self._settings, missing)

    async def method_not_allowed(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        allowed = sorted((error.headers or {}).get("Allow", "GET").split(", "))
        return json_error(self._settings, MethodNotAllowed(request.method, allowed))


class McpRouter:
    """Sends `/mcp` and the profiles below it directly to the MCP transports, which serve nearly all requests.

    `/mcp/` is served and not redirected, because some clients lose the body or the credential in a redirect.
    """

    def __init__(self, mcp: ASGIApp, sse: ASGIApp, other: ASGIApp) -> None:
        self._mcp = mcp
        self._sse = sse
        self._other = other

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if scope["type"] != "http":
            app = self._other
        elif path == MCP_PATH:
            app = self._mcp
        elif not path.startswith(f"{MCP_PATH}/") or path == TICKET_PATH:
            app = self._other
        else:
            app = self._sse if is_sse_path(path) else self._mcp
        await app(scope, receive, send)
