"""The ASGI application: MCP, the endpoints for operators, and what is done for every request. All other routes are in
`server.web_routes`. The runtime must be open before; see `server.lifespan`."""

import asyncio
import gc
import re
import time
from collections.abc import Awaitable, Sequence
from itertools import chain

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, ExceptionHandler, Message, Receive, Scope, Send

from auth.oauth import clients
from config.errors import FlorilegiumError, Unavailable
from config.logging import begin_request, current_request_id, log_request, request_fields
from config.settings import Settings
from config.tracing import span
from server.error_responses import json_error
from server.metrics import Metrics
from server.protocol.messages import log_failure
from server.rest.errors import MethodNotAllowed
from server.runtime import Runtime
from server.service_endpoints import ServiceEndpoints
from server.transports.client_connections import connection_of
from server.transports.headers import HEADER_VALUES, MCP_PATH, SECURITY_HEADERS
from server.transports.http import IS_REPEATED, HttpTransport
from server.transports.sse import SseTransport, is_sse_path
from server.transports.websocket import WebSocketTransport
from sources.installed import COMPATIBILITY, load_points

TICKET_PATH = "/mcp/ticket"
# The response headers that scripts of other origins may read.
_EXPOSED_HEADERS = (
    *("Mcp-Session-Id", "WWW-Authenticate", "X-Request-Id", "Retry-After"),
    *("ETag", "X-Conversation-Id", "X-Has-More", "Link"),
)
_PUBLIC_PATHS = frozenset(
    (clients.DEVICE_AUTHORIZATION_PATH, clients.REGISTRATION_PATH, clients.REVOCATION_PATH, clients.TOKEN_PATH)
)
_PUBLIC_PREFIXES = (clients.METADATA_PATH, "/.well-known/oauth-protected-resource", "/v0.1/servers")


def build_app(runtime: Runtime, metrics: Metrics) -> ASGIApp:
    service, websocket = ServiceEndpoints(runtime, metrics), WebSocketTransport(runtime)
    # APIs of other distributions are loaded at start-up, so that the log then says which of them failed.
    added = list(chain.from_iterable(load_points(COMPATIBILITY, lambda make_routes: list(make_routes(runtime)))))
    web = WebRoutes(runtime, metrics, service, added)
    routes = [
        WebSocketRoute("/mcp/ws", websocket),
        WebSocketRoute("/mcp/{profile}/ws", websocket),
        Route(TICKET_PATH, service.ticket, methods=["POST"]),
        Route("/healthz", service.healthz),
        Route("/readyz", service.readyz),
        Route("/metrics", service.metrics),
    ]
    metrics.watch(runtime)
    starlette = Starlette(routes=routes, exception_handlers=ErrorHandlers(runtime.settings, web).by_type())
    starlette.router.default = web
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
    if runtime.settings.tracing_endpoint:
        app = TracingMiddleware(app)
    return RequestLogMiddleware(app, metrics, runtime.settings.log_requests)


class WebRoutes:
    """The routes of `server.web_routes`: REST, pages, sign-in and the APIs of other systems.

    They are loaded by the first request for one of them. Many servers only ever get MCP calls, for which their modules
    would take 4.6 MB. Importing them takes 0.1 s, in a thread, because other calls are served meanwhile.
    """

    def __init__(
        self, runtime: Runtime, metrics: Metrics, service: ServiceEndpoints, added: Sequence[BaseRoute]
    ) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._service = service
        self._added = added
        self._router: Router | None = None
        self._loading = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._router is None:
            async with self._loading:
                if self._router is None:
                    self._router = await asyncio.to_thread(self._load)
        await self._router(scope, receive, send)

    def _load(self) -> Router:
        from server.web_routes import web_routes  # noqa: PLC0415 - see above

        router = Router(web_routes(self._runtime, self._metrics, self._service, self._added))
        # As `server.serving` does with what exists at the start.
        gc.freeze()
        return router

    def unknown_path(self, request: Request) -> Response:
        """Also for any path with a line break, which no route matches. The routes are loaded when none of them does."""
        from server.web_routes import unknown_path  # noqa: PLC0415 - see above

        return unknown_path(self._runtime.settings, request)


_VALID_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}\Z")
_REQUEST_ID = b"x-request-id"
_TRACE_HEADERS = frozenset((b"traceparent", b"tracestate"))
# Links that create an account, set a password or make someone a member of a group contain a secret.
_SECRET_PATH = re.compile(r"(/(?:setup|invitation|reset|join)/).+", re.DOTALL)
_REFUSALS = frozenset((401, 403, 413, 429))
# The second answers a WebSocket upgrade that is refused.
_RESPONSE_STARTS = frozenset(("http.response.start", "websocket.http.response.start"))


class RequestLogMiddleware:
    """Request ids, security headers, one log line and one count for every HTTP request and WebSocket.

    The log line contains method, path and status, and the fields of the request: who made it, the tool, the outcome and
    the duration. It contains no query string, header, body or secret of a link. A valid request id from the caller is
    used, so that its logs and ours can be correlated.

    Releases the memory of a request's body when it is answered. Adds `Retry-After` to a 503 that does not have it. Adds
    `Connection: close` to a refusal, so that a client without access cannot send one request after the other. If the
    body is still arriving, the protocol closes the connection later; see `bounded_http`.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, log_requests: bool) -> None:
        self._app = app
        self._metrics = metrics
        self._log_requests = log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        started_at, status, is_http = time.perf_counter(), 0, scope["type"] == "http"
        values = scope[HEADER_VALUES] = dict(scope["headers"])
        given_id = values.get(_REQUEST_ID)
        fields = begin_request(given_id.decode() if given_id is not None and _VALID_ID.match(given_id) else "")
        own_headers = ((_REQUEST_ID, fields.request_id.encode()), *SECURITY_HEADERS)
        connection = connection_of(scope) if is_http else None
        method, path = scope["method"] if is_http else "WS", scope["path"]
        if path != MCP_PATH:
            path = _SECRET_PATH.sub(r"\1…", path)

        # Not a coroutine, as in `McpRouter`: one that only passes a call on would cost more than it does itself.
        def send_with_headers(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] in _RESPONSE_STARTS:
                status = message["status"]
                message["headers"] = headers = [*message["headers"], *own_headers]
                is_refusal = status in _REFUSALS or (connection is not None and connection.is_over_limit)
                # Forms that are shown again with an error, and responses of an upstream, come without it.
                if status == Unavailable.status and not any(name.lower() == b"retry-after" for name, _ in headers):
                    headers.append((b"retry-after", b"1"))
                if is_refusal and connection is not None and connection.has_whole_request:
                    headers.append((b"connection", b"close"))
            return send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception as error:
            # The application has sent the error response; here the exception is logged without its message.
            log_failure(f"{method} {path}", error)
        finally:
            if connection is not None:
                connection.release_request()
            if is_http:
                self._metrics.responses[status] += 1
            if self._log_requests and IS_REPEATED not in scope:
                fields.outcome = fields.outcome or ("ok" if status < 400 else "error")
                result = status or ("-" if is_http else "closed")
                log_request(f"{method} {path} {result}", fields, (time.perf_counter() - started_at) * 1000)


class TracingMiddleware:
    """With tracing, every HTTP request is a span with the fields of its log line. A WebSocket has no span of its own,
    because it can be open for days. Its calls have."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        fields, method, path, status = request_fields(), scope["method"], _SECRET_PATH.sub(r"\1…", scope["path"]), 0
        attributes = {"http.request.method": method, "url.path": path, "florilegium.request_id": fields.request_id}
        # The headers of W3C Trace Context, by which a caller makes a request part of its own trace.
        headers = scope["headers"]
        parent = {name.decode(): value.decode("latin-1") for name, value in headers if name in _TRACE_HEADERS}

        async def send_and_note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        with span(method, attributes, kind="server", parent=parent) as request_span:
            fields.trace_id = request_span.trace_id
            try:
                await self._app(scope, receive, send_and_note)
            finally:
                known: dict[str, str | int] = {
                    "http.response.status_code": status,
                    "florilegium.outcome": fields.outcome or ("ok" if status < 400 else "error"),
                    "enduser.id": fields.user,
                    "florilegium.client": fields.client,
                }
                route = path if path.startswith(MCP_PATH) else fields.tool
                request_span.update(known, name=f"{method} {route}".rstrip(), is_failed=status >= 500)


class ErrorHandlers:
    """Starlette's exception handlers, for errors that no route has handled."""

    def __init__(self, settings: Settings, web: WebRoutes) -> None:
        self._settings = settings
        self._web = web

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
        return self._web.unknown_path(request)

    async def method_not_allowed(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        allowed = sorted((error.headers or {}).get("Allow", "GET").split(", "))
        return json_error(self._settings, MethodNotAllowed(request.method, allowed))


class PublicPaths:
    """Sends requests for public endpoints to `public`, and all others to `other`, which has its own rules for CORS."""

    def __init__(self, public: ASGIApp, other: ASGIApp) -> None:
        self._public = public
        self._other = other

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_public = scope["type"] == "http" and (
            scope["path"] in _PUBLIC_PATHS or scope["path"].startswith(_PUBLIC_PREFIXES)
        )
        await (self._public if is_public else self._other)(scope, receive, send)


class McpRouter:
    """Sends `/mcp` and the profiles below it directly to the MCP transports, which serve nearly all requests.

    `/mcp/` is served and not redirected, because some clients lose the body or the credential in a redirect.
    """

    def __init__(self, mcp: ASGIApp, sse: ASGIApp, other: ASGIApp) -> None:
        self._mcp = mcp
        self._sse = sse
        self._other = other

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        path = scope["path"]
        if scope["type"] != "http":
            app = self._other
        elif path == MCP_PATH:
            app = self._mcp
        elif not path.startswith(f"{MCP_PATH}/") or path == TICKET_PATH:
            app = self._other
        else:
            app = self._sse if is_sse_path(path) else self._mcp
        return app(scope, receive, send)
