"""The OpenAPI 3.1 document, made from the declared operations: nothing in it is written twice.

Inputs are written inline, because tool servers' clients (Open WebUI among them) hand them to a model as they stand;
answers are components.
"""

import http
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from config.settings import Settings
from server.rest.forms import JSON
from server.rest.operation import Operation, Place
from server.version import VERSION

SchemaOf = Mapping[type[Any], Mapping[str, Any]]

OPENAPI_VERSION = "3.1.0"
_REF = "#/components/schemas/{name}"
_ABOUT = (
    "One question to a person's notes, media, chats, characters and prompts. The bearer credential decides whose "
    "library is searched; nothing in a request can name another."
)
_ANY_MAY_ANSWER = frozenset((400, 401, 403, 429, 500, 503))
_WITH_BODY_ALSO = frozenset((413, 415))
_ETAG = {"ETag": {"schema": {"type": "string"}, "description": "Send it back as If-None-Match."}}
_RETRY_AFTER = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait."}}
_CHALLENGE = {"WWW-Authenticate": {"schema": {"type": "string"}, "description": "How to authenticate."}}
_HEADERS_OF = {401: _CHALLENGE, 403: _CHALLENGE, 429: _RETRY_AFTER, 503: _RETRY_AFTER}


def openapi_document(settings: Settings, operations: Sequence[Operation]) -> dict[str, Any]:
    shapes = list({shape: None for operation in operations for shape in _shapes_of(operation)})
    schemas, components = msgspec.json.schema_components(shapes, ref_template=_REF)
    schema_of = dict(zip(shapes, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.public_path, {})[operation.method.lower()] = _described(operation, schema_of)
    return {
        "openapi": OPENAPI_VERSION,
        "info": {"title": "Florilegium", "version": VERSION, "description": _ABOUT},
        "servers": [{"url": settings.public_url or "/"}],
        "security": _security(settings),
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An API key or an access token."}
            },
        },
    }


def _security(settings: Settings) -> list[dict[str, list[str]]]:
    """Where one user sits alone at a loopback address, a credential is allowed but not needed."""
    return [{"bearer": []}] if settings.is_auth_configured else [{}, {"bearer": []}]


def _shapes_of(operation: Operation) -> list[type[Any]]:
    told = [] if isinstance(operation.response, str | tuple) else [operation.response]
    return [*told, operation.error_format.body]


def _described(operation: Operation, schema_of: SchemaOf) -> dict[str, Any]:
    schema, places = operation.input_schema(), operation.places()
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "description": operation.description,
        "parameters": [_parameter(operation, name, place, schema) for name, place in places.items() if place != "body"],
        "responses": _responses(operation, schema_of),
    }
    if operation.has_body:
        body = _part_of(schema, [name for name, place in places.items() if place == "body"])
        accepted = (JSON,) if operation.form is None else operation.form.media_types
        described["requestBody"] = {"required": True, "content": {kind: {"schema": body} for kind in accepted}}
    if operation.upload is not None:
        told = {} if operation.upload.schema is None else {"schema": operation.upload.schema}
        described["requestBody"] = {"required": True, "content": {operation.upload.media_type: told}}
    return described


def _parameter(operation: Operation, name: str, place: Place, schema: Mapping[str, Any]) -> dict[str, Any]:
    declared = dict(schema["properties"][name])
    shown = operation.headers.get(name, name)
    parameter: dict[str, Any] = {"name": shown, "in": place, "required": name in schema.get("required", ())}
    if description := declared.pop("description", None):
        parameter["description"] = description
    return {**parameter, "schema": declared}


def _part_of(schema: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The schema of those properties alone, the ones it needs first."""
    properties = {name: declared for name, declared in schema["properties"].items() if name in names}
    required = [name for name in schema.get("required", ()) if name in names]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": schema.get("additionalProperties", True),
    }


def _responses(operation: Operation, schema_of: SchemaOf) -> dict[str, Any]:
    etag = _ETAG if operation.method == "GET" else {}
    has_body = operation.has_body or operation.upload is not None
    statuses = _ANY_MAY_ANSWER | operation.error_statuses | (_WITH_BODY_ALSO if has_body else frozenset())
    statuses |= {operation.input_error.status}
    refused = _json(schema_of[operation.error_format.body])
    refusals = {str(status): _response(status, refused, _HEADERS_OF.get(status, {})) for status in sorted(statuses)}
    if isinstance(operation.response, str | tuple):
        kinds = (operation.response,) if isinstance(operation.response, str) else operation.response
        told = {kind: {"schema": {"type": "object"}} if kind == "application/json" else {} for kind in kinds}
        return {str(operation.status): _response(operation.status, told, {}), **refusals}
    success = _response(operation.status, _json(schema_of[operation.response]), etag)
    unchanged = {"304": _response(304, {}, etag)} if etag else {}
    return {str(operation.status): success, **unchanged, **refusals}


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _response(status: int, content: Mapping[str, Any], headers: Mapping[str, Any]) -> dict[str, Any]:
    response: dict[str, Any] = {"description": http.HTTPStatus(status).phrase}
    if content:
        response["content"] = dict(content)
    return {**response, "headers": dict(headers)} if headers else response
