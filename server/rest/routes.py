"""The REST routes: one table of operations, the pages that document them, and permalinks."""

from collections.abc import AsyncIterator, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from auth.context import ADMIN, WRITE, RequestContext
from config.errors import ConfigurationError, FlorilegiumError, InvalidParams, NotFound
from server.compat.agentchatbus.routes import health
from server.compat.agentkit.schemas import AGENTKIT_ERROR_FORMAT
from server.console.page_handler import PageHandler
from server.error_responses import DEFAULT_ERROR_FORMAT, ErrorFormat, json_error
from server.http_services import HttpServices
from server.long_commands import LONG_COMMANDS, LongWork, StartWork, run_work
from server.operations import operations_of
from server.operations.operation import Operation, StreamedFile
from server.operations.status import status_operation
from server.rest.handler import RestHandler, with_etag
from server.rest.openapi import ReferencePage, openapi_document
from server.runtime import Runtime
from server.transports.client_connections import connection_of
from server.transports.headers import Headers

# -- local commands ----------------------------------------------------------------------------------------------------
# Runs long commands (`server.long_commands`) in the server, for the operator. The response has the progress and then
# the result, one JSON value per line.
#
# These operations exist only on the socket of the data directory. Elsewhere their addresses are unknown, and no
# documentation of the API has them.

PATH = "/api/v1/local/"
JSON_LINES = "application/x-ndjson"


class LocalOnly:
    """An application for the socket of the data directory, next to one for all other callers."""

    def __init__(self, app: ASGIApp, elsewhere: ASGIApp) -> None:
        self._app = app
        self._elsewhere = elsewhere

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope)
        app = self._app if connection is not None and connection.is_operator else self._elsewhere
        await app(scope, receive, send)


def local_operations() -> Sequence[Operation]:
    return [_operation(name, *command) for name, command in LONG_COMMANDS.items()]


def _operation(name: str, input_type: type[Struct], start: StartWork) -> Operation:
    async def handler(context: RequestContext, runtime: Runtime, request: Any) -> StreamedFile:
        return StreamedFile(_lines(start(context, runtime, request)), JSON_LINES)

    return Operation(
        id=f"local_{name}",
        method="POST",
        path=PATH + name,
        summary=name,
        description="",
        input=input_type,
        response=JSON_LINES,
        tools=(name,),
        handler=handler,
        scope=ADMIN if name == "migrate" else WRITE,
    )


async def _lines(work: LongWork) -> AsyncIterator[bytes]:
    try:
        async for event, value in run_work(work):
            yield msgspec.json.encode({event: value}) + b"\n"
    except FlorilegiumError as error:
        is_usage_error = isinstance(error, InvalidParams | ConfigurationError)
        yield msgspec.json.encode({"error": {"message": error.message, "is_usage_error": is_usage_error}}) + b"\n"


# These responses depend only on the server's version, so clients revalidate them by ETag.
_REVALIDATE = {"Cache-Control": "no-cache"}
# The modules with the operations of other systems' APIs.
_COMPATIBLE_APIS = (
    "server.compat.agentkit.conversations",
    "server.compat.agentkit.chat.service",
    "server.compat.agentchatbus.routes",
)


def rest_routes(runtime: Runtime, services: HttpServices) -> list[BaseRoute]:
    operations = rest_operations(runtime, services)

    @cache  # built on first use, to keep start-up fast
    def document() -> dict[str, Any]:
        return openapi_document(runtime.settings, operations)

    # It holds no user data and needs no credential.
    async def openapi(request: Request) -> Response:
        headers = Headers(request.scope["headers"])
        runtime.admission.check_origin(headers)
        body = msgspec.json.encode(document())
        return with_etag(Response(body, 200, _REVALIDATE, "application/json"), headers)

    reference = ReferencePage(runtime, services.browser, document)
    by_path: dict[str, list[Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(operation)
    # Literal paths come before paths with variables, which would match them too; a variable that matches several
    # segments comes last.
    paths = sorted(by_path, key=lambda path: (":path}" in path, "{" in path))
    return [
        *(Route(path, RestHandler(runtime, services.browser, by_path[path])) for path in paths),
        *(
            Route(one.path, LocalOnly(RestHandler(runtime, services.browser, [one]), NotFoundHandler(runtime)))
            for one in local_operations()
        ),
        Route("/health", health),
        Route("/openapi.json", openapi),
        Route("/docs", PageHandler(runtime.settings, services.browser, get=reference.show)),
        # Unknown paths get an error in the format of the API that they seem to belong to.
        Mount("/api", NotFoundHandler(runtime)),
        Mount("/conversations", NotFoundHandler(runtime, AGENTKIT_ERROR_FORMAT)),
        Mount("/namespaces", NotFoundHandler(runtime, AGENTKIT_ERROR_FORMAT)),
    ]


def rest_operations(runtime: Runtime, services: HttpServices) -> list[Operation]:
    """Returns all REST operations in the order of the documentation, without those of sources that are switched off."""
    operations = [*operations_of(), status_operation(services.metrics), *operations_of(*_COMPATIBLE_APIS)]
    # As the tools of such a source, its operations do not exist.
    sources_off = runtime.settings.sources_off
    return [one.at(runtime) for one in operations if one.path and one.source not in sources_off]


class NotFoundHandler:
    """Answers unknown paths below a prefix, in the error format of that API."""

    def __init__(self, runtime: Runtime, error_format: ErrorFormat = DEFAULT_ERROR_FORMAT) -> None:
        self._settings = runtime.settings
        self._error_format = error_format

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"][:200]
        await json_error(self._settings, NotFound("path", path), self._error_format, path)(scope, receive, send)
