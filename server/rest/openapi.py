"""The OpenAPI 3.1 document, generated from the declared operations.

Inputs are written inline, because clients that use operations as tools (such as Open WebUI) pass their schemas to a
model unchanged. Response bodies are components.
"""

import http
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from auth.principal import ADMIN
from config.settings import Settings
from server.rest.forms import JSON
from server.rest.operation import Location, Operation
from server.version import VERSION

Schemas = Mapping[type[Any], Mapping[str, Any]]

OPENAPI_VERSION = "3.1.0"
_REF = "#/components/schemas/{name}"
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
_COMMON_ERROR_STATUSES = frozenset((400, 401, 403, 429, 500, 503))
_BODY_ERROR_STATUSES = frozenset((413, 415))
_ETAG = {"ETag": {"schema": {"type": "string"}, "description": "Send it back as If-None-Match."}}
_RETRY_AFTER = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait."}}
_CHALLENGE = {"WWW-Authenticate": {"schema": {"type": "string"}, "description": "How to authenticate."}}
_ERROR_HEADERS = {401: _CHALLENGE, 403: _CHALLENGE, 429: _RETRY_AFTER, 503: _RETRY_AFTER}


def openapi_document(settings: Settings, operations: Sequence[Operation]) -> dict[str, Any]:
    types = list({type_: None for operation in operations for type_ in _body_types(operation)})
    references, components = msgspec.json.schema_components(types, ref_template=_REF)
    schemas = dict(zip(types, references, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.public_path, {})[operation.method.lower()] = _operation(operation, schemas)
    groups = dict.fromkeys(_group(operation) for operation in operations)
    return {
        "openapi": OPENAPI_VERSION,
        "info": {"title": "Florilegium", "version": VERSION, "description": _DESCRIPTION},
        "servers": [{"url": settings.public_url or "/"}],
        "security": _security(settings),
        "tags": [{"name": name} for name in (*_GROUPS, _OTHERS) if name in groups],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An API key or an access token."}
            },
        },
    }


def _group(operation: Operation) -> str:
    """Returns the name under which the reference lists the operation."""
    if operation.scope == ADMIN:
        return _ADMINISTRATION
    paths = ((group, path) for group, paths in _GROUPS.items() for path in paths)
    return next((group for group, path in paths if operation.path.startswith(path)), _OTHERS)


def _security(settings: Settings) -> list[dict[str, list[str]]]:
    """In single-user mode a credential is optional."""
    return [{"bearer": []}] if settings.is_auth_configured else [{}, {"bearer": []}]


def _body_types(operation: Operation) -> list[type[Any]]:
    """Returns the Structs of the response bodies of an operation."""
    response = [] if isinstance(operation.response, str | tuple) else [operation.response]
    return [*response, operation.error_format.body]


def _operation(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    schema, locations = operation.input_schema(), operation.locations()
    described: dict[str, Any] = {
        "operationId": operation.id,
        "tags": [_group(operation)],
        "summary": operation.summary,
        "description": operation.description,
        "parameters": [
            _parameter(operation, name, location, schema) for name, location in locations.items() if location != "body"
        ],
        "responses": _responses(operation, schemas),
    }
    if operation.has_body:
        body = _select_properties(schema, [name for name, location in locations.items() if location == "body"])
        media_types = (JSON,) if operation.form is None else operation.form.media_types
        content = {media_type: {"schema": body} for media_type in media_types}
        described["requestBody"] = {"required": True, "content": content}
    if operation.upload is not None:
        upload = {} if operation.upload.schema is None else {"schema": operation.upload.schema}
        described["requestBody"] = {"required": True, "content": {operation.upload.media_type: upload}}
    return described


def _parameter(operation: Operation, name: str, location: Location, schema: Mapping[str, Any]) -> dict[str, Any]:
    declared = dict(schema["properties"][name])
    public_name = operation.headers.get(name, name)
    parameter: dict[str, Any] = {"name": public_name, "in": location, "required": name in schema.get("required", ())}
    if description := declared.pop("description", None):
        parameter["description"] = description
    return {**parameter, "schema": declared}


def _select_properties(schema: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Returns the schema of those properties only."""
    properties = {name: declared for name, declared in schema["properties"].items() if name in names}
    required = [name for name in schema.get("required", ()) if name in names]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": schema.get("additionalProperties", True),
    }


def _responses(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    errors = _error_responses(operation, schemas)
    if isinstance(operation.response, str | tuple):
        media_types = (operation.response,) if isinstance(operation.response, str) else operation.response
        content = {kind: {"schema": {"type": "object"}} if kind == JSON else {} for kind in media_types}
        return {str(operation.status): _response(operation.status, content, {}), **errors}
    etag = _ETAG if operation.method == "GET" else {}
    success = _response(operation.status, _json(schemas[operation.response]), etag)
    not_modified = {"304": _response(304, {}, etag)} if etag else {}
    return {str(operation.status): success, **not_modified, **errors}


def _error_responses(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    has_body = operation.has_body or operation.upload is not None
    statuses = _COMMON_ERROR_STATUSES | operation.error_statuses | {operation.input_error.status}
    statuses |= _BODY_ERROR_STATUSES if has_body else frozenset()
    content = _json(schemas[operation.error_format.body])
    return {str(status): _response(status, content, _ERROR_HEADERS.get(status, {})) for status in sorted(statuses)}


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {JSON: {"schema": schema}}


def _response(status: int, content: Mapping[str, Any], headers: Mapping[str, Any]) -> dict[str, Any]:
    response: dict[str, Any] = {"description": http.HTTPStatus(status).phrase}
    if content:
        response["content"] = dict(content)
    return {**response, "headers": dict(headers)} if headers else response
