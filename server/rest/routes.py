"""The REST routes: one table of operations, the pages that document them, and permalinks."""

import asyncio
import http
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from html import escape
from typing import Any

import msgspec
from markupsafe import Markup
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from auth.context import ADMIN, WRITE, RequestContext
from config.errors import ConfigurationError, FlorilegiumError, InvalidParams, NotFound
from config.settings import Settings
from server.compat.agentchatbus.routes import health
from server.compat.agentkit.schemas import AGENTKIT_ERROR_FORMAT
from server.console.browser import BrowserGuard
from server.console.page_handler import LibraryPage, PageHandler
from server.console.pages import render_text
from server.error_responses import DEFAULT_ERROR_FORMAT, ErrorFormat, json_error
from server.http_services import HttpServices
from server.long_commands import LONG_COMMANDS, LongWork, StartWork, run_work
from server.operations import operations_of
from server.operations.account import get_account
from server.operations.operation import Location, Operation, StreamedFile
from server.operations.status import status_operation
from server.rest.forms import JSON
from server.rest.handler import RestHandler, with_etag
from server.runtime import Runtime
from server.transports.client_connections import connection_of
from server.transports.headers import Headers
from server.version import VERSION

# -- OpenAPI -----------------------------------------------------------------------------------------------------------
# The OpenAPI 3.1 document, generated from the declared operations.
#
# Inputs are written inline, because clients that use operations as tools (such as Open WebUI) pass their schemas to a
# model unchanged. Response bodies are components.

Schemas = Mapping[type[Any], Mapping[str, Any]]

OPENAPI_VERSION = "3.1.0"
_REF_PREFIX = "#/components/schemas/"
_REF = _REF_PREFIX + "{name}"
_DESCRIPTION = (
    "Search and read a user's notes, media, chats, characters and prompts. The bearer credential decides whose library "
    "is used; nothing else in a request can."
)
_ADMINISTRATION = "Administration"
_OTHERS = "Others"
# The groups of the reference, and the beginnings of their paths.
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Search, read and write": ("/api/v1/search", "/api/v1/items", "/api/v1/library"),
    "Import and export": ("/api/v1/import", "/api/v1/export", "/api/v1/follow"),
    "Conversations and chat": ("/conversations", "/namespaces", "/chat", "/v1/", "/models"),
    "Message bus": ("/api/search", "/api/agents", "/api/threads"),
    "Account": ("/api/v1/",),
    _ADMINISTRATION: (),
}
# Any operation can return these: invalid input, the credential, the rate limit, our mistakes, and overload.
_COMMON_ERROR_STATUSES = frozenset((400, 401, 403, 429, 500, 503))
_BODY_ERROR_STATUSES = frozenset((413, 415))
_ETAG = {"ETag": {"schema": {"type": "string"}, "description": "Send it back as If-None-Match."}}
_RETRY_AFTER = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait."}}
_CHALLENGE = {"WWW-Authenticate": {"schema": {"type": "string"}, "description": "How to authenticate."}}
_ERROR_HEADERS = {401: _CHALLENGE, 403: _CHALLENGE, 429: _RETRY_AFTER, 503: _RETRY_AFTER}


def openapi_document(settings: Settings, operations: Sequence[Operation]) -> dict[str, Any]:
    # The Structs of response bodies become components, each once.
    bodies = (body for one in operations for body in (one.response, _error_format(one).body))
    types = list(dict.fromkeys(body for body in bodies if not isinstance(body, str | tuple)))
    references, components = msgspec.json.schema_components(types, ref_template=_REF)
    schemas = dict(zip(types, references, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    # Schemas of inputs are split: what is in the address is a parameter each, the rest is one schema for the body.
    for operation in operations:
        schema, locations = operation.input_schema(), operation.locations()
        described: dict[str, Any] = {
            "operationId": operation.id,
            "tags": [_group(operation)],
            "summary": operation.summary,
            "description": operation.description,
            "parameters": [
                _parameter(operation, name, location, schema)
                for name, location in locations.items()
                if location != "body"
            ],
            "responses": _responses(operation, schemas),
        }
        if operation.has_body:
            in_body = [name for name, location in locations.items() if location == "body"]
            body = {
                "type": "object",
                "properties": {name: one for name, one in schema["properties"].items() if name in in_body},
                "required": [name for name in schema.get("required", ()) if name in in_body],
                "additionalProperties": schema.get("additionalProperties", True),
            }
            media_types = (JSON,) if operation.form is None else operation.form.media_types
            content = {media_type: {"schema": body} for media_type in media_types}
            described["requestBody"] = {"required": True, "content": content}
        if operation.upload is not None:
            upload = {} if operation.upload.schema is None else {"schema": operation.upload.schema}
            described["requestBody"] = {"required": True, "content": {operation.upload.media_type: upload}}
        paths.setdefault(operation.public_path, {})[operation.method.lower()] = described
    groups = dict.fromkeys(_group(operation) for operation in operations)
    return {
        "openapi": OPENAPI_VERSION,
        "info": {"title": "Florilegium", "version": VERSION, "description": _DESCRIPTION},
        "servers": [{"url": settings.public_url or "/"}],
        # In single-user mode a credential is optional.
        "security": [{"bearer": []}] if settings.is_auth_configured else [{}, {"bearer": []}],
        "tags": [{"name": name} for name in (*_GROUPS, _OTHERS) if name in groups],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An API key or an access token."}
            },
        },
    }


def _error_format(operation: Operation) -> ErrorFormat:
    return operation.error_format or DEFAULT_ERROR_FORMAT


def _group(operation: Operation) -> str:
    """Returns the name under which the reference lists the operation."""
    # The first group whose path matches: "Account" has the prefix of all operations of ours and comes last.
    if operation.scope == ADMIN:
        return _ADMINISTRATION
    paths = ((group, path) for group, paths in _GROUPS.items() for path in paths)
    return next((group for group, path in paths if operation.path.startswith(path)), _OTHERS)


def _parameter(operation: Operation, name: str, location: Location, schema: Mapping[str, Any]) -> dict[str, Any]:
    declared = dict(schema["properties"][name])
    public_name = operation.headers.get(name, name)
    parameter: dict[str, Any] = {"name": public_name, "in": location, "required": name in schema.get("required", ())}
    if description := declared.pop("description", None):
        parameter["description"] = description
    return {**parameter, "schema": declared}


def _responses(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    has_body = operation.has_body or operation.upload is not None
    statuses = _COMMON_ERROR_STATUSES | operation.error_statuses | {operation.input_error.status}
    statuses |= _BODY_ERROR_STATUSES if has_body else frozenset()
    error = {JSON: {"schema": schemas[_error_format(operation).body]}}
    errors = {str(status): _response(status, error, _ERROR_HEADERS.get(status, {})) for status in sorted(statuses)}
    if isinstance(operation.response, str | tuple):
        media_types = (operation.response,) if isinstance(operation.response, str) else operation.response
        content = {kind: {"schema": {"type": "object"}} if kind == JSON else {} for kind in media_types}
        return {str(operation.status): _response(operation.status, content, {}), **errors}
    etag = _ETAG if operation.method == "GET" else {}
    success = _response(operation.status, {JSON: {"schema": schemas[operation.response]}}, etag)
    not_modified = {"304": _response(304, {}, etag)} if etag else {}
    return {str(operation.status): success, **not_modified, **errors}


def _response(status: int, content: Mapping[str, Any], headers: Mapping[str, Any]) -> dict[str, Any]:
    response: dict[str, Any] = {"description": http.HTTPStatus(status).phrase}
    if content:
        response["content"] = dict(content)
    return {**response, "headers": dict(headers)} if headers else response


# -- reference page ----------------------------------------------------------------------------------------------------
# The reference of the REST operations, generated on the server from the OpenAPI document.
#
# It is readable without a script. With one, people who are signed in can also send requests; see `reference.js`.

_METHODS = ("get", "post", "put", "patch", "delete")


class ReferencePage(LibraryPage):
    """Everyone may read it: it holds no user data."""

    def __init__(self, runtime: Runtime, browser: BrowserGuard, document: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__(runtime, browser)
        # Called on first use: building the document takes a while.
        self._document = document

    @cached_property
    def _body(self) -> Markup:
        """Rendered once: it depends only on the version of the server."""
        return Markup(reference_body(self._document()))  # noqa: S704 - the template escapes all values

    async def show(self, request: Request) -> Response:
        viewer = await self.find_viewer(request, get_account)
        # Rendering takes long enough to hold up the calls of others.
        body = await asyncio.to_thread(lambda: self._body)
        return await self._browser.render(
            request, "reference.html", viewer=viewer, info=self._document()["info"], body=body, section="docs"
        )


def reference_body(document: Mapping[str, Any]) -> str:
    """Returns the contents, the operations by group, and the schemas as HTML."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, methods in document["paths"].items():
        for method in (method for method in _METHODS if method in methods):
            operation = methods[method]
            responses = []
            for status, response in operation["responses"].items():
                # The schema of a body, or its media type if it has no schema.
                bodies = (
                    type_html(content["schema"]) if "schema" in content else escape(media_type)
                    for media_type, content in response.get("content", {}).items()
                )
                body = Markup(" or ".join(bodies))  # noqa: S704 - escaped
                responses.append((status, response["description"], body))
            [group] = operation["tags"]
            texts = {"summary": operation["summary"], "description": operation["description"]}
            parts = {"fields": list(_fields(operation)), "responses": responses}
            entry = {"id": operation["operationId"], "method": method, "path": path, **texts, **parts}
            groups.setdefault(group, []).append(entry)
    schemas = []
    for name, schema in document["components"]["schemas"].items():
        required = schema.get("required", ())
        # Nested fields are left out: they are in the schema that the type links to.
        rows = [
            next(_rows(field, "", {**declared, "required": field in required}))
            for field, declared in schema.get("properties", {}).items()
        ]
        schemas.append({"name": name, "description": schema.get("description", ""), "fields": rows})
    order = [tag["name"] for tag in document["tags"]]
    ordered = {group: groups[group] for group in sorted(groups, key=order.index)}
    return render_text("reference-body.html", groups=ordered, schemas=schemas)


def _fields(operation: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for parameter in operation["parameters"]:
        yield from _rows(parameter["name"], parameter["in"], {**parameter["schema"], **parameter})
    # A form can be sent in several encodings, with the same fields.
    for media_type, content in list(operation.get("requestBody", {}).get("content", {}).items())[:1]:
        body = content.get("schema", {})
        for name, schema in body.get("properties", {}).items():
            yield from _rows(name, "body", {**schema, "required": name in body["required"]})
        if not body:
            yield from _rows("the body", "body", {"type": media_type, "required": True})


def _rows(name: str, location: str, schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields a row for a parameter, and below it the rows of its nested fields."""
    yield {
        "name": name,
        "location": location,
        "type": Markup(type_html(schema)),  # noqa: S704 - escaped
        "description": schema.get("description", ""),
        "is_required": schema.get("required") is True,
    }
    for field, declared in schema.get("properties", {}).items():
        yield from _rows(f"{name}.{field}", location, declared)


def type_html(schema: Mapping[str, Any]) -> str:
    """Returns a short description of a type. The name of a schema is a link to it."""
    if reference := schema.get("$ref"):
        name = escape(reference.removeprefix(_REF_PREFIX))
        return f'<a href="#{name}">{name}</a>'
    if options := schema.get("anyOf"):
        return " or ".join(type_html(option) for option in options)
    if choices := schema.get("enum"):
        return " | ".join(f"<code>{escape(str(choice))}</code>" for choice in choices)
    if schema.get("type") == "array":
        return f"list of {type_html(schema.get('items', {}))}"
    return escape(str(schema.get("type", "any")))


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


# -- routes ------------------------------------------------------------------------------------------------------------

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
            for one in [_operation(name, *command) for name, command in LONG_COMMANDS.items()]
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
