"""The REST surface as one table of routes."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Receive, Scope, Send

from config.errors import NotFound
from server.compat.agentchatbus.routes import bus_operations, health
from server.compat.agentkit.errors import AGENTKIT_ERROR_FORMAT
from server.compat.agentkit.routes import agentkit_operations
from server.rest.errors import DEFAULT_ERROR_FORMAT, ErrorFormat, refuse
from server.rest.handler import RestHandler, answer_if_changed
from server.rest.html import STYLE_PATH, front_page
from server.rest.imports import import_operations
from server.rest.knowledge import knowledge_operations
from server.rest.openapi import openapi_document
from server.rest.operation import Operation
from server.rest.permalink import PERMALINK, ItemPage
from server.rest.reference_page import reference_page
from server.runtime import Runtime
from server.transports.headers import Headers
from server.version import VERSION

_FRONT = {
    "name": "florilegium",
    "version": VERSION,
    "mcp": "/mcp",
    "docs": "/docs",
    "openapi": "/openapi.json",
    "health": "/healthz",
}
# Written for one version of the server, asked for again when it may be another.
_REVALIDATED = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}


def rest_routes(runtime: Runtime) -> list[BaseRoute]:
    operations = rest_operations(runtime)
    reference = Reference(runtime, operations)
    by_path: dict[str, list[Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(operation)
    return [
        # A path of fixed words before one that would take one of them for an id.
        *(Route(path, RestHandler(runtime, by_path[path])) for path in sorted(by_path, key=lambda path: "{" in path)),
        Route("/", reference.front),
        Route("/health", health),
        Route("/openapi.json", reference.document),
        Route("/docs", reference.page),
        Route(STYLE_PATH, reference.style),
        Route(PERMALINK, ItemPage(runtime)),
        Mount("/api", Absent(runtime)),
        Mount("/conversations", Absent(runtime, AGENTKIT_ERROR_FORMAT)),
        Mount("/namespaces", Absent(runtime, AGENTKIT_ERROR_FORMAT)),
    ]


def rest_operations(runtime: Runtime) -> list[Operation]:
    """Everything a REST client can ask for, in the order in which it is documented."""
    return [
        *knowledge_operations(runtime.knowledge),
        *import_operations(runtime),
        *agentkit_operations(runtime.agentkit, runtime.settings),
        *bus_operations(runtime.bus),
    ]


class Reference:
    """What the operations are, for machines and for people. It tells nothing of any user, so it needs no credential."""

    def __init__(self, runtime: Runtime, operations: Sequence[Operation]) -> None:
        self._runtime = runtime
        self._operations = operations
        self._style = Path(__file__).with_name("page.css").read_bytes()

    @cached_property
    def _document(self) -> dict[str, Any]:
        """Made when first asked for: a server starts without it."""
        return openapi_document(self._runtime.settings, self._operations)

    async def front(self, request: Request) -> Response:
        """For whoever came to the bare address: what this is, and where to go."""
        headers = self._checked(request)
        if request.scope["path"] != "/":  # a route also takes its path with a line break behind it
            raise NotFound("path", request.scope["path"])
        wants_page = "text/html" in (headers.get(b"accept") or "").lower()
        response = front_page(VERSION) if wants_page else JSONResponse(_FRONT, headers=_REVALIDATED)
        response.headers["Vary"] = "Accept"
        return response

    async def document(self, request: Request) -> Response:
        headers = self._checked(request)
        body = msgspec.json.encode(self._document)
        return answer_if_changed(Response(body, 200, _REVALIDATED, "application/json"), headers)

    async def page(self, request: Request) -> Response:
        self._checked(request)
        return reference_page(self._document)

    async def style(self, request: Request) -> Response:
        headers = self._checked(request)
        return answer_if_changed(Response(self._style, 200, _REVALIDATED, "text/css"), headers)

    def _checked(self, request: Request) -> Headers:
        headers = Headers(request.scope["headers"])
        self._runtime.origins.check(headers.get(b"host"), headers.get(b"origin"))
        return headers


class Absent:
    """Every other path below one: a program that mistyped it gets the envelope it can read."""

    def __init__(self, runtime: Runtime, error_format: ErrorFormat = DEFAULT_ERROR_FORMAT) -> None:
        self._settings = runtime.settings
        self._error_format = error_format

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"][:200]
        await refuse(self._settings, NotFound("path", path), self._error_format, path)(scope, receive, send)
