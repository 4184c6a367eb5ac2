"""The reference page of the REST operations, generated on the server from the OpenAPI document."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from starlette.responses import Response

from server.console.pages import render_page

_METHODS = ("get", "post", "put", "patch", "delete")
_REF_PREFIX = "#/components/schemas/"


def reference_page(document: Mapping[str, Any]) -> Response:
    info = document["info"]
    operations = "\n".join(_operations(document["paths"]))
    schemas = "\n".join(_schema(name, schema) for name, schema in document["components"]["schemas"].items())
    body = (
        f"<h1>{escape(info['title'])} REST API</h1>\n"
        f'<p class="meta">version {escape(info["version"])} · <a href="/openapi.json">openapi.json</a></p>\n'
        f"<p>{escape(info['description'])}</p>\n{operations}\n<h2>Response bodies</h2>\n{schemas}"
    )
    return render_page("reference.html", title="REST API reference", body=body)


def _operations(paths: Mapping[str, Any]) -> Iterator[str]:
    for path, methods in paths.items():
        for method in _METHODS:
            if method in methods:
                yield _operation(method, path, methods[method])


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    name = escape(operation["operationId"])
    return (
        f'<section id="{name}">\n<h2>{escape(operation["summary"])}</h2>\n'
        f"<p><code>{method.upper()} {escape(path)}</code> · <code>{name}</code></p>\n"
        f"<p>{escape(operation['description'])}</p>\n{_parameters(operation)}\n{_responses(operation)}\n</section>"
    )


def _parameters(operation: Mapping[str, Any]) -> str:
    rows = [row for p in operation["parameters"] for row in _rows(p["name"], p["in"], {**p["schema"], **p})]
    # A form can be sent in several encodings, with the same fields.
    for media_type, content in list(operation.get("requestBody", {}).get("content", {}).items())[:1]:
        body = content.get("schema", {})
        for name, schema in body.get("properties", {}).items():
            rows += _rows(name, "body", {**schema, "required": name in body["required"]})
        if not body:
            rows += _rows("the body", "body", {"type": media_type, "required": True})
    return f"<table>\n<tr><th>name</th><th>in</th><th>type</th><th></th></tr>\n{''.join(rows)}</table>"


def _rows(name: str, location: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """Yields a row for a parameter, and below it the rows of its nested fields."""
    required = ", required" if schema.get("required") is True else ""
    yield (
        f"<tr><td><code>{escape(name)}</code></td><td>{location}{required}</td>"
        f"<td>{type_html(schema)}</td><td>{escape(schema.get('description', ''))}</td></tr>\n"
    )
    for field, declared in schema.get("properties", {}).items():
        yield from _rows(f"{name}.{field}", location, declared)


def _responses(operation: Mapping[str, Any]) -> str:
    rows = "\n".join(
        f"<tr><td>{escape(status)}</td><td>{escape(response['description'])}</td><td>{_content(response)}</td></tr>"
        for status, response in operation["responses"].items()
    )
    return f"<table>\n<tr><th>status</th><th></th><th>body</th></tr>\n{rows}\n</table>"


def _content(response: Mapping[str, Any]) -> str:
    """Returns the schema of a body, or its media type if it has no schema."""
    parts = (
        type_html(content["schema"]) if "schema" in content else escape(media_type)
        for media_type, content in response.get("content", {}).items()
    )
    return " or ".join(parts)


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    rows = "\n".join(
        f"<tr><td><code>{escape(field)}</code></td><td>{type_html(declared)}</td>"
        f"<td>{escape(declared.get('description', ''))}</td></tr>"
        for field, declared in schema.get("properties", {}).items()
    )
    description = f"<p>{escape(schema.get('description', ''))}</p>" if schema.get("description") else ""
    return (
        f'<section id="{escape(name)}">\n<h3>{escape(name)}</h3>\n{description}\n<table>\n{rows}\n</table>\n</section>'
    )


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
