"""The reference page of the REST operations, written from the OpenAPI document on the server: no script, no request to
anybody else."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from starlette.responses import Response

from server.rest.html import html_page

_METHODS = ("get", "post", "put", "patch", "delete")
_REF_PREFIX = "#/components/schemas/"


def reference_page(document: Mapping[str, Any]) -> Response:
    info = document["info"]
    operations = "\n".join(_operations(document["paths"]))
    shapes = "\n".join(_shape(name, schema) for name, schema in document["components"]["schemas"].items())
    body = (
        f"<main>\n<h1>{escape(info['title'])} over HTTP</h1>\n"
        f'<p class="meta">version {escape(info["version"])} · <a href="/openapi.json">openapi.json</a></p>\n'
        f"<p>{escape(info['description'])}</p>\n{operations}\n<h2>Answers</h2>\n{shapes}\n</main>"
    )
    return html_page("Reference", body)


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
        f"<p>{escape(operation['description'])}</p>\n{_inputs(operation)}\n{_answers(operation)}\n</section>"
    )


def _inputs(operation: Mapping[str, Any]) -> str:
    rows = [row for p in operation["parameters"] for row in _rows(p["name"], p["in"], {**p["schema"], **p})]
    # A form may be sent in one of several encodings, with the same values.
    for media_type, content in list(operation.get("requestBody", {}).get("content", {}).items())[:1]:
        body = content.get("schema", {})
        for name, schema in body.get("properties", {}).items():
            rows += _rows(name, "body", {**schema, "required": name in body["required"]})
        if not body:
            rows += _rows("the body", "body", {"type": media_type, "required": True})
    return f"<table>\n<tr><th>value</th><th>in</th><th>type</th><th></th></tr>\n{''.join(rows)}</table>"


def _rows(name: str, place: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """A value, and below it the values inside it."""
    needed = ", needed" if schema.get("required") is True else ""
    yield (
        f"<tr><td><code>{escape(name)}</code></td><td>{place}{needed}</td>"
        f"<td>{type_html(schema)}</td><td>{escape(schema.get('description', ''))}</td></tr>\n"
    )
    for inner, declared in schema.get("properties", {}).items():
        yield from _rows(f"{name}.{inner}", place, declared)


def _answers(operation: Mapping[str, Any]) -> str:
    cells = "\n".join(
        f"<tr><td>{escape(status)}</td><td>{escape(answer['description'])}</td><td>{_content(answer)}</td></tr>"
        for status, answer in operation["responses"].items()
    )
    return f"<table>\n<tr><th>status</th><th></th><th>body</th></tr>\n{cells}\n</table>"


def _content(answer: Mapping[str, Any]) -> str:
    """The shape of a body, or its media type where it has none."""
    parts = (
        type_html(content["schema"]) if "schema" in content else escape(media_type)
        for media_type, content in answer.get("content", {}).items()
    )
    return " or ".join(parts)


def _shape(name: str, schema: Mapping[str, Any]) -> str:
    cells = "\n".join(
        f"<tr><td><code>{escape(field)}</code></td><td>{type_html(declared)}</td>"
        f"<td>{escape(declared.get('description', ''))}</td></tr>"
        for field, declared in schema.get("properties", {}).items()
    )
    described = f"<p>{escape(schema.get('description', ''))}</p>" if schema.get("description") else ""
    return (
        f'<section id="{escape(name)}">\n<h3>{escape(name)}</h3>\n{described}\n<table>\n{cells}\n</table>\n</section>'
    )


def type_html(schema: Mapping[str, Any]) -> str:
    """A type in a few words; the name of a shape is a link to it."""
    if reference := schema.get("$ref"):
        name = escape(reference.removeprefix(_REF_PREFIX))
        return f'<a href="#{name}">{name}</a>'
    if options := schema.get("anyOf"):
        return " or ".join(type_html(option) for option in options)
    if choices := schema.get("enum"):
        return " | ".join(f"<code>{escape(str(choice))}</code>" for choice in choices)
    if schema.get("type") == "array":
        return f"list of {type_html(schema.get('items', {}))}"
    return escape(str(schema.get("type", "anything")))
