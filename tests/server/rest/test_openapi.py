"""The OpenAPI document and the pages around it: valid, complete, and what the operations really are."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import jsonschema_rs
import msgspec
import pytest

from server.rest.routes import rest_operations
from server.version import VERSION
from tests.server.rest.markup import Markup
from tests.server.rest.rest_client import JSON, RestClient, open_rest_client
from tests.sources.source_fixture import SOURCES, LibraryUser

# What OpenAPI 3.1 asks of a document, as far as ours goes: written after the specification's own schema (sections
# 4.8.1 to 4.8.27). A schema object is a JSON Schema of the dialect 2020-12.
_SHAPE: dict[str, Any] = {
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


async def document_of(api: RestClient) -> dict[str, Any]:
    answer = await api.get("/openapi.json", None)
    assert (answer.status, answer.header("content-type")) == (200, "application/json")
    return msgspec.json.decode(answer.body, type=dict[str, Any])


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


async def test_the_document_is_valid_and_every_reference_in_it_leads_somewhere(api: RestClient) -> None:
    document = await document_of(api)

    problems = [f"{e.instance_path}: {e.message}" for e in jsonschema_rs.iter_errors(_SHAPE, document)]
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert problems == []
    assert references_in(document) <= known


def test_the_check_of_the_document_can_fail() -> None:
    parameter = {"name": "id", "in": "path", "schema": {"type": "nonsense"}}
    operation = {"operationId": "x", "summary": "", "description": "", "parameters": [parameter], "responses": {}}
    broken = {"openapi": "3.1.0", "info": {"title": "", "version": ""}, "components": {}, "paths": {"/": operation}}

    assert not jsonschema_rs.is_valid(_SHAPE, broken)


async def test_every_operation_is_in_the_document_and_nothing_else(api: RestClient) -> None:
    described = operations_of(await document_of(api))

    assert list(described)[:3] == ["search_knowledge", "read_item", "read_item_by_uri"]
    assert sorted(described) == sorted(operation.id for operation in rest_operations(api.server.runtime))


async def test_every_operation_is_in_the_manual(api: RestClient) -> None:
    manual = (Path(__file__).parents[3] / "docs" / "rest.md").read_text()

    for operation in operations_of(await document_of(api)).values():
        assert f"`{operation['operationId']}`" in manual
        assert f"`{operation['method'].upper()} {operation['path']}" in manual


async def test_a_path_names_exactly_its_path_parameters(api: RestClient) -> None:
    for operation in operations_of(await document_of(api)).values():
        named = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)\}", operation["path"]))


async def test_inputs_are_inline_flat_and_described_as_tool_servers_need_them(api: RestClient) -> None:
    """Open WebUI hands them to a model as they stand: it looks into no reference of a parameter, and takes the name of
    the operation for the name of the tool."""
    for operation in operations_of(await document_of(api)).values():
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        inputs = {p["name"]: {**p["schema"], **p} for p in operation["parameters"]} | body.get("properties", {})

        assert re.fullmatch(r"[a-z][a-z0-9_]{0,39}", operation["operationId"])
        assert 0 < len(operation["description"]) <= 1000
        assert references_in(list(inputs.values())) == set()
        assert [name for name, schema in inputs.items() if "type" not in schema and "enum" not in schema] == []
        assert [name for name, schema in inputs.items() if not schema.get("description")] == []


async def test_a_client_that_takes_operations_for_tools_searches_and_reads(api: RestClient, ada: LibraryUser) -> None:
    """It knows nothing but the document, as Open WebUI does: values by the place that is described, and all in the
    body where there is one."""
    await ada.add_note("Voyage", "a galleon under sail")
    described = operations_of(await document_of(api))

    async def use(tool: str, **values: Any) -> Any:
        operation, path, query = described[tool], described[tool]["path"], {}
        for name, place in ((p["name"], p["in"]) for p in operation["parameters"] if p["name"] in values):
            if place == "path":
                path = path.replace(f"{{{name}}}", quote(str(values[name]), safe=""))
            else:
                query[name] = values[name]
        body = msgspec.json.encode(values) if "requestBody" in operation else b""
        return await api.request(operation["method"].upper(), f"{path}?{urlencode(query)}", "ada", JSON, body)

    (hit,) = (await use("search_knowledge", query="galleon", limit=5, explain=True)).json()["results"]
    read = await use("read_item", source=hit["source"], id=hit["id"], mode="full", prefer_prechunked=True)
    by_uri = await use("read_item_by_uri", uri=hit["uri"], mode="full")

    assert read.json()["content"] == by_uri.json()["content"] == "a galleon under sail"


async def test_the_sources_there_are_and_their_filters_are_named(api: RestClient) -> None:
    described = operations_of(await document_of(api))

    body = described["search_knowledge"]["requestBody"]["content"]["application/json"]["schema"]
    source = next(p for p in described["read_item"]["parameters"] if p["name"] == "source")
    assert body["properties"]["sources"]["items"]["enum"] == source["schema"]["enum"] == list(SOURCES)
    assert "media_types" in body["properties"]["filters"]["properties"]["media"]["properties"]


async def test_the_bearer_scheme_is_required_unless_one_user_sits_alone(api: RestClient, tmp_path: Path) -> None:
    async with open_rest_client(tmp_path / "alone", jwt_secret="") as alone:
        open_to_all = await document_of(alone)

    assert (await document_of(api))["security"] == [{"bearer": []}]
    assert open_to_all["security"] == [{}, {"bearer": []}]


@pytest.mark.parametrize(("public_url", "server"), [("", "/"), ("https://kb.example.com", "https://kb.example.com")])
async def test_the_server_of_the_document_is_the_address_clients_use(
    tmp_path: Path, public_url: str, server: str
) -> None:
    async with open_rest_client(tmp_path, public_url=public_url) as api:
        assert (await document_of(api))["servers"] == [{"url": server}]


async def test_the_document_is_not_sent_twice(api: RestClient) -> None:
    first = await api.get("/openapi.json", None)

    again = await api.get("/openapi.json", None, if_none_match=first.header("etag") or "")

    assert (again.status, again.body) == (304, b"")


async def test_the_bare_address_says_what_this_is_to_anybody_and_nothing_of_any_user(api: RestClient) -> None:
    await api.server.user("ada")
    told = await api.get("/", None)
    page = await api.get("/", None, accept="text/html,application/xhtml+xml")
    shown = Markup(page.body.decode())

    assert told.json() == {
        "name": "florilegium",
        "version": VERSION,
        "mcp": "/mcp",
        "docs": "/docs",
        "openapi": "/openapi.json",
        "health": "/healthz",
    }
    assert [(await api.get(told.json()[name], None)).status for name in ("docs", "openapi", "health")] == [200] * 3
    assert page.header("content-type") == "text/html; charset=utf-8"
    assert {told.header("vary"), page.header("vary")} == {"Accept"}
    assert shown.loads == ["/static/page.css"]
    assert [path for path in ("/mcp", "/docs", "/healthz") if path not in shown.text] == []
    assert b"ada" not in told.body + page.body


@pytest.mark.parametrize("path", ["/", "/openapi.json", "/docs", "/static/page.css"])
async def test_the_documentation_is_not_served_under_a_foreign_name(api: RestClient, path: str) -> None:
    assert (await api.get(path, None, host="evil.example")).status == 403


async def test_the_reference_page_shows_every_operation_value_and_shape_and_loads_nothing_foreign(
    api: RestClient,
) -> None:
    document = await document_of(api)
    answer = await api.get("/docs", None)
    page = Markup(answer.body.decode())

    assert answer.header("content-type") == "text/html; charset=utf-8"
    assert (answer.header("content-security-policy") or "").startswith("default-src 'none'; style-src 'self';")
    assert page.loads == ["/static/page.css"]
    assert "script" not in page.tags
    assert page.targets <= page.ids
    for operation in operations_of(document).values():
        names = {operation["operationId"], operation["path"], *(p["name"] for p in operation["parameters"])}
        assert [name for name in names if name not in page.text] == []
    assert "filters.media.media_types" in page.text
    assert set(document["components"]["schemas"]) <= page.ids


async def test_the_style_is_served(api: RestClient) -> None:
    answer = await api.get("/static/page.css", None)

    assert (answer.status, answer.header("content-type")) == (200, "text/css; charset=utf-8")
