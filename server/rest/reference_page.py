"""The reference of the REST operations, generated on the server from the OpenAPI document.

It is readable without a script. With one, people who are signed in can also send requests; see `reference.js`.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from html import escape
from typing import Any

from markupsafe import Markup
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from server.console.browser import BrowserGuard
from server.console.pages import render_text
from server.console.viewer import LibraryPage
from server.rest.account import account_operations
from server.runtime import Runtime

_METHODS = ("get", "post", "put", "patch", "delete")
_REF_PREFIX = "#/components/schemas/"


class FieldRow(Struct, frozen=True, kw_only=True):
    """A parameter, or a field of a body."""

    name: str
    location: str
    type: str
    description: str
    is_required: bool


class OperationEntry(Struct, frozen=True, kw_only=True):
    id: str
    method: str
    path: str
    summary: str
    description: str
    fields: Sequence[FieldRow]
    responses: Sequence[tuple[str, str, str]]


class SchemaEntry(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    fields: Sequence[FieldRow]


class ReferencePage(LibraryPage):
    """Everyone may read it: it holds no user data."""

    def __init__(self, runtime: Runtime, browser: BrowserGuard, document: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__(runtime, browser)
        # Called on first use: building the document takes a while.
        self._document = document
        self._account = next(operation for operation in account_operations(runtime) if operation.id == "get_account")

    @cached_property
    def _body(self) -> Markup:
        """Rendered once: it depends only on the version of the server."""
        return Markup(reference_body(self._document()))  # noqa: S704 - the template escapes all values

    async def show(self, request: Request) -> Response:
        viewer = await self.find_viewer(request, self._account)
        body = await asyncio.to_thread(lambda: self._body)
        return await self._browser.render(
            request,
            "reference.html",
            viewer=viewer,
            info=self._document()["info"],
            body=body,
            section="docs",
        )


def reference_body(document: Mapping[str, Any]) -> str:
    """Returns the contents, the operations by group, and the schemas as HTML."""
    groups: dict[str, list[OperationEntry]] = {}
    for path, methods in document["paths"].items():
        for method in (method for method in _METHODS if method in methods):
            [group] = methods[method]["tags"]
            groups.setdefault(group, []).append(_operation(method, path, methods[method]))
    schemas = [_schema(name, schema) for name, schema in document["components"]["schemas"].items()]
    order = [tag["name"] for tag in document["tags"]]
    ordered = {group: groups[group] for group in sorted(groups, key=order.index)}
    return render_text("reference-body.html", groups=ordered, schemas=schemas)


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> OperationEntry:
    return OperationEntry(
        id=operation["operationId"],
        method=method,
        path=path,
        summary=operation["summary"],
        description=operation["description"],
        fields=list(_fields(operation)),
        responses=[
            (status, response["description"], Markup(_content(response)))  # noqa: S704 - escaped
            for status, response in operation["responses"].items()
        ],
    )


def _fields(operation: Mapping[str, Any]) -> Iterator[FieldRow]:
    for parameter in operation["parameters"]:
        yield from _rows(parameter["name"], parameter["in"], {**parameter["schema"], **parameter})
    # A form can be sent in several encodings, with the same fields.
    for media_type, content in list(operation.get("requestBody", {}).get("content", {}).items())[:1]:
        body = content.get("schema", {})
        for name, schema in body.get("properties", {}).items():
            yield from _rows(name, "body", {**schema, "required": name in body["required"]})
        if not body:
            yield from _rows("the body", "body", {"type": media_type, "required": True})


def _rows(name: str, location: str, schema: Mapping[str, Any]) -> Iterator[FieldRow]:
    """Yields a row for a parameter, and below it the rows of its nested fields."""
    yield FieldRow(
        name=name,
        location=location,
        type=Markup(type_html(schema)),  # noqa: S704 - escaped
        description=schema.get("description", ""),
        is_required=schema.get("required") is True,
    )
    for field, declared in schema.get("properties", {}).items():
        yield from _rows(f"{name}.{field}", location, declared)


def _content(response: Mapping[str, Any]) -> str:
    """Returns the schema of a body, or its media type if it has no schema."""
    parts = (
        type_html(content["schema"]) if "schema" in content else escape(media_type)
        for media_type, content in response.get("content", {}).items()
    )
    return " or ".join(parts)


def _schema(name: str, schema: Mapping[str, Any]) -> SchemaEntry:
    required = schema.get("required", ())
    fields = [
        row
        for field, declared in schema.get("properties", {}).items()
        for row in list(_rows(field, "", {**declared, "required": field in required}))[:1]
    ]
    return SchemaEntry(name=name, description=schema.get("description", ""), fields=fields)


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
