"""The OpenAPI document and the documentation pages: valid, complete and accurate."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import jsonschema_rs
import msgspec
import pytest

from server.console.pages import asset_url
from server.http_services import build_http_services
from server.rest.routes import rest_operations
from server.version import VERSION
from tests.cases import each_case
from tests.server.rest.markup import Markup
from tests.server.rest.rest_client import JSON, RestClient, open_rest_client
from tests.sources.source_fixture import SOURCES, LibraryUser

# The parts of OpenAPI 3.1 that the document uses, after the specification's own schema (sections 4.8.1 to 4.8.27).
# A schema object is a JSON Schema of the dialect 2020-12.
_OPENAPI_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["openapi", "info", "paths", "components"],
    "additionalProperties": False,
    "properties": {
        "openapi": {"pattern": r"^3\.1\.\d+$"},
        "info": {
            "type": "object",
            "required": ["title", "version"],
            "additionalProperties": {"type": "string"},
        },
        "servers": {"type": "array", "items": {"type": "object", "required": ["url"]}},
        "security": {"$ref": "#/$defs/security"},
        "tags": {"type": "array", "items": {"type": "object", "required": ["name"]}},
        "paths": {
            "type": "object",
            "propertyNames": {"pattern": "^/"},
            "additionalProperties": {
                "propertyNames": {"enum": ["get", "put", "post", "delete", "patch"]},
                "additionalProperties": {"$ref": "#/$defs/operation"},
            },
        },
        "components": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "schemas": {
                    "propertyNames": {"pattern": r"^[a-zA-Z0-9._-]+$"},
                    "additionalProperties": {"$ref": "https://json-schema.org/draft/2020-12/schema"},
                },
                "securitySchemes": {
                    "additionalProperties": {
                        "type": "object",
                        "required": ["type", "scheme"],
                        "properties": {"type": {"const": "http"}},
                    }
                },
            },
        },
    },
    "$defs": {
        "security": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "array"}}},
        "content": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": "^[a-z]+/[a-z0-9.+-]+$"},
            "properties": {"application/json": {"$ref": "#/$defs/media_type", "required": ["schema"]}},
            "additionalProperties": {"$ref": "#/$defs/media_type"},
        },
        "media_type": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"schema": {"$ref": "https://json-schema.org/draft/2020-12/schema"}},
        },
        "headers": {"additionalProperties": {"type": "object", "required": ["schema"]}},
        "parameter": {
            "type": "object",
            "required": ["name", "in", "schema"],
            "additionalProperties": False,
            "properties": {
                "name": {"type": "string"},
                "in": {"enum": ["query", "path", "header", "cookie"]},
                "required": {"type": "boolean"},
                "description": {"type": "string"},
                "schema": {"$ref": "https://json-schema.org/draft/2020-12/schema"},
            },
            "if": {"properties": {"in": {"const": "path"}}},
            "then": {"properties": {"required": {"const": True}}, "required": ["required"]},
        },
        "operation": {
            "type": "object",
            "required": ["operationId", "summary", "description", "responses"],
            "additionalProperties": False,
            "properties": {
                "operationId": {"pattern": "^[a-z][a-z0-9_]*$"},
                "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                "summary": {"type": "string"},
                "description": {"type": "string"},
                "security": {"$ref": "#/$defs/security"},
                "parameters": {"type": "array", "items": {"$ref": "#/$defs/parameter"}},
                "requestBody": {
                    "type": "object",
                    "required": ["content"],
                    "additionalProperties": False,
                    "properties": {"content": {"$ref": "#/$defs/content"}, "required": {"type": "boolean"}},
                },
                "responses": {
                    "type": "object",
                    "minProperties": 1,
                    "propertyNames": {"pattern": "^[1-5][0-9][0-9]$"},
                    "additionalProperties": {
                        "type": "object",
                        "required": ["description"],
                        "additionalProperties": False,
                        "properties": {
                            "description": {"type": "string"},
                            "headers": {"$ref": "#/$defs/headers"},
                            "content": {"$ref": "#/$defs/content"},
                        },
                    },
                },
            },
        },
    },
}


async def get_document(api: RestClient) -> dict[str, Any]:
    response = await api.get("/openapi.json", None)
    assert (response.status, response.header("content-type")) == (200, "application/json")
    return msgspec.json.decode(response.body, type=dict[str, Any])


def operations_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        operation["operationId"]: {**operation, "path": path, "method": method}
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def references_in(node: Any) -> set[str]:
    if isinstance(node, list):
        return set().union(*map(references_in, node))
    if not isinstance(node, dict):
        return set()
    own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
    return own.union(*map(references_in, node.values()))


async def test_the_document_is_valid_and_all_references_resolve(api: RestClient) -> None:
    document = await get_document(api)

    problems = [f"{e.instance_path}: {e.message}" for e in jsonschema_rs.iter_errors(_OPENAPI_SCHEMA, document)]
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert problems == []
    assert references_in(document) <= known


def test_an_invalid_document_does_not_pass_the_check() -> None:
    parameter = {"name": "id", "in": "path", "schema": {"type": "nonsense"}}
    operation = {"operationId": "x", "summary": "", "description": "", "parameters": [parameter], "responses": {}}
    broken = {"openapi": "3.1.0", "info": {"title": "", "version": ""}, "components": {}, "paths": {"/": operation}}

    assert not jsonschema_rs.is_valid(_OPENAPI_SCHEMA, broken)


async def test_the_document_contains_exactly_the_operations(api: RestClient) -> None:
    described = operations_of(await get_document(api))

    assert list(described)[:2] == ["search_knowledge", "read_item"]
    assert sorted(described) == sorted(
        operation.id for operation in rest_operations(api.server.runtime, build_http_services(api.server.runtime))
    )


async def test_every_operation_is_documented_in_rest_md(api: RestClient) -> None:
    manual = (Path(__file__).parents[3] / "docs" / "rest.md").read_text()

    for operation in operations_of(await get_document(api)).values():
        assert f"`{operation['operationId']}`" in manual
        assert f"`{operation['method'].upper()} {operation['path']}" in manual


async def test_the_variables_of_a_path_are_its_path_parameters(api: RestClient) -> None:
    for operation in operations_of(await get_document(api)).values():
        parameters = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"}
        assert parameters == set(re.findall(r"\{(\w+)\}", operation["path"]))


async def test_inputs_are_inline_and_described(api: RestClient) -> None:
    """Open WebUI passes them to a model unchanged: it resolves no references, and uses operation ids as tool names."""
    for operation in operations_of(await get_document(api)).values():
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        inputs = {p["name"]: {**p["schema"], **p} for p in operation["parameters"]} | body.get("properties", {})

        assert re.fullmatch(r"[a-z][a-z0-9_]{0,39}", operation["operationId"])
        assert 0 < len(operation["description"]) <= 1000
        assert references_in(list(inputs.values())) == set()
        assert [name for name, schema in inputs.items() if "type" not in schema and "enum" not in schema] == []
        assert [name for name, schema in inputs.items() if not schema.get("description")] == []


async def test_a_client_that_uses_operations_as_tools_can_search_and_read(api: RestClient, ada: LibraryUser) -> None:
    """Like Open WebUI, the client knows only the document, and sends all values in the body if there is one."""
    await ada.add_note("Voyage", "a galleon under sail")
    described = operations_of(await get_document(api))

    async def call_tool(tool: str, **values: Any) -> Any:
        operation, path, query = described[tool], described[tool]["path"], {}
        for name, location in ((p["name"], p["in"]) for p in operation["parameters"] if p["name"] in values):
            if location == "path":
                path = path.replace(f"{{{name}}}", quote(str(values[name]), safe=""))
            else:
                query[name] = values[name]
        body = msgspec.json.encode(values) if "requestBody" in operation else b""
        return await api.request(operation["method"].upper(), f"{path}?{urlencode(query)}", "ada", JSON, body)

    (hit,) = (await call_tool("search_knowledge", query="galleon", limit=5, explain=True)).json()["results"]
    note = hit["uri"].removeprefix("notes://")
    by_id = await call_tool("read_item", source=hit["source"], id=note, mode="full", prefer_prechunked=True)
    by_uri = await call_tool("read_item_by_uri", uri=hit["uri"], mode="full")

    assert by_id.json()["content"] == by_uri.json()["content"] == "a galleon under sail"


async def test_sources_and_their_filters_are_enumerated(api: RestClient) -> None:
    described = operations_of(await get_document(api))

    body = described["search_knowledge"]["requestBody"]["content"]["application/json"]["schema"]
    source = next(p for p in described["read_item"]["parameters"] if p["name"] == "source")
    assert body["properties"]["sources"]["items"]["enum"] == source["schema"]["enum"] == list(SOURCES)
    assert "media_types" in body["properties"]["filters"]["properties"]["media"]["properties"]


async def test_a_credential_is_required_except_in_single_user_mode(api: RestClient, tmp_path: Path) -> None:
    async with open_rest_client(tmp_path / "single", jwt_secret="") as single_user:
        document = await get_document(single_user)

    assert (await get_document(api))["security"] == [{"bearer": []}]
    assert document["security"] == [{}, {"bearer": []}]


@pytest.mark.parametrize(("public_url", "server"), [("", "/"), ("https://kb.example.com", "https://kb.example.com")])
async def test_the_server_url_is_the_public_url(tmp_path: Path, public_url: str, server: str) -> None:
    async with open_rest_client(tmp_path, public_url=public_url) as api:
        assert (await get_document(api))["servers"] == [{"url": server}]


async def test_an_unchanged_document_returns_304(api: RestClient) -> None:
    first = await api.get("/openapi.json", None)

    again = await api.get("/openapi.json", None, if_none_match=first.header("etag") or "")

    assert (again.status, again.body) == (304, b"")


async def test_the_index_needs_no_credential(api: RestClient) -> None:
    index = await api.get("/", None)

    assert index.json() == {
        "name": "florilegium",
        "version": VERSION,
        "mcp": "/mcp",
        "docs": "/docs",
        "openapi": "/openapi.json",
        "health": "/healthz",
    }
    assert [(await api.get(index.json()[name], None)).status for name in ("docs", "openapi", "health")] == [200] * 3
    assert index.header("vary") == "Accept"


@each_case("path", ["/", "/openapi.json", "/docs", asset_url("console.css")])
async def test_documentation_is_not_served_for_an_unknown_host(api: RestClient, path: str) -> None:
    assert (await api.get(path, None, host="evil.example")).status == 403


async def test_the_reference_page_shows_all_operations_and_schemas_and_loads_no_foreign_resource(
    api: RestClient,
) -> None:
    document = await get_document(api)
    response = await api.get("/docs", None)
    page = Markup(response.body.decode())

    assert response.header("content-type") == "text/html; charset=utf-8"
    assert (response.header("content-security-policy") or "").startswith("default-src 'none'; style-src 'self';")
    files = ("console.css", "favicon.svg", "icon-192.png", "page.js", "reference.js")
    assert set(page.loads) == {"/manifest.webmanifest", *(asset_url(name) for name in files)}
    assert page.targets <= page.ids
    for operation in operations_of(document).values():
        names = {operation["operationId"], operation["path"], *(p["name"] for p in operation["parameters"])}
        assert [name for name in names if name not in page.text] == []
    assert "filters.media.media_types" in page.text
    assert set(document["components"]["schemas"]) <= page.ids
