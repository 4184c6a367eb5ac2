"""Everything a server can be asked for, as the server itself lists it: tools, routes and protocol methods.

New tools and routes are attacked without a change here, because their arguments are generated from their schemas. The
sample requests of the compatibility tests are used in addition, because they are known to reach the data.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from server.console.item_page import PERMALINK
from tests.compatibility.sample_requests import ROUTES, TOOLS, SampleRequest
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import SOURCES

JsonSchema = Mapping[str, Any]
# The methods of the protocol that name something of a user, with the schema of their parameters. The tools are listed
# by the server, and a test compares these names with its dispatcher.
TEXT: JsonSchema = {"type": "string"}
CURSOR: JsonSchema = {"type": "object", "properties": {"cursor": TEXT}}
URI: JsonSchema = {"type": "object", "properties": {"uri": TEXT}, "required": ["uri"]}
REFERENCE: JsonSchema = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"type": {"const": "ref/prompt"}, "name": TEXT},
            "required": ["type", "name"],
        },
        {
            "type": "object",
            "properties": {"type": {"const": "ref/resource"}, "uri": TEXT},
            "required": ["type", "uri"],
        },
    ]
}
ARGUMENT: JsonSchema = {"type": "object", "properties": {"name": TEXT, "value": TEXT}, "required": ["name", "value"]}
METHODS: Mapping[str, JsonSchema] = {
    "tools/list": CURSOR,
    "resources/list": CURSOR,
    "resources/templates/list": CURSOR,
    "resources/read": URI,
    "resources/subscribe": URI,
    "resources/unsubscribe": URI,
    "prompts/list": CURSOR,
    "prompts/get": {"type": "object", "properties": {"name": TEXT}, "required": ["name"]},
    "completion/complete": {
        "type": "object",
        "properties": {"ref": REFERENCE, "argument": ARGUMENT},
        "required": ["ref", "argument"],
    },
    "modules/list": {"type": "object"},
    "server/discover": {"type": "object"},
    "subscriptions/listen": {
        "type": "object",
        "properties": {
            "notifications": {
                "type": "object",
                "properties": {"resourceSubscriptions": {"type": "array", "items": TEXT}},
                "required": ["resourceSubscriptions"],
            }
        },
        "required": ["notifications"],
    },
    "ping": {"type": "object"},
    "logging/setLevel": {"type": "object", "properties": {"level": {"enum": ["debug"]}}, "required": ["level"]},
}


class Parameter(Struct, frozen=True):
    name: str
    place: Literal["path", "query", "header"]
    schema: JsonSchema
    is_required: bool


class RouteTarget(Struct, frozen=True):
    """A method and path of REST. `body` is the schema of a JSON body, or None."""

    name: str
    method: str
    path: str
    parameters: tuple[Parameter, ...] = ()
    body: JsonSchema | None = None
    samples: tuple[SampleRequest, ...] = ()


class ToolTarget(Struct, frozen=True):
    name: str
    schema: JsonSchema
    is_read_only: bool
    samples: tuple[Mapping[str, Any], ...] = ()


class MethodTarget(Struct, frozen=True):
    """A method of the protocol other than `tools/call`."""

    name: str
    schema: JsonSchema


Target = RouteTarget | ToolTarget | MethodTarget


class Surface(Struct, frozen=True):
    """`definitions` are the schemas that others refer to."""

    targets: tuple[Target, ...]
    definitions: Mapping[str, JsonSchema]


async def read_surface(api: RestClient, user: str) -> Surface:
    document = (await api.get("/openapi.json", None)).json()
    owner = await api.library_user(user)
    tools: list[Target] = []
    cursor: dict[str, str] = {}
    while True:
        listed = await owner.request("tools/list", **cursor)
        tools += [_tool(tool) for tool in listed["tools"]]
        if "nextCursor" not in listed:
            break
        cursor = {"cursor": listed["nextCursor"]}
    methods: list[Target] = [MethodTarget(name, schema) for name, schema in METHODS.items()]
    targets = (*tools, *methods, *_routes(document), *_permalinks())
    return Surface(targets, document.get("components", {}).get("schemas", {}))


def _tool(listed: Mapping[str, Any]) -> ToolTarget:
    name, is_read_only = listed["name"], listed.get("annotations", {}).get("readOnlyHint", False)
    return ToolTarget(name, listed["inputSchema"], is_read_only, TOOLS.get(name, ()))


def is_reading(target: Target) -> bool:
    match target:
        case RouteTarget():
            return target.method == "GET"
        case ToolTarget():
            return target.is_read_only
        case MethodTarget():
            return target.name.endswith(("list", "read", "get"))


def _routes(document: Mapping[str, Any]) -> Iterator[RouteTarget]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {})
            name = operation["operationId"]
            yield RouteTarget(
                name,
                method.upper(),
                path,
                tuple(_parameters(operation.get("parameters", ()))),
                content.get("application/json", {}).get("schema"),
                ROUTES.get(name, ()),
            )


def _parameters(declared: Sequence[Mapping[str, Any]]) -> Iterator[Parameter]:
    for parameter in declared:
        yield Parameter(
            parameter["name"], parameter["in"], parameter.get("schema", TEXT), parameter.get("required", False)
        )


def _permalinks() -> Iterator[RouteTarget]:
    """Yields the pages of items, which are not in the OpenAPI document."""
    path = PERMALINK.replace("{id:path}", "{id}")
    source = Parameter("source", "path", {"enum": list(SOURCES)}, is_required=True)
    item = Parameter("id", "path", TEXT, is_required=True)
    yield RouteTarget("permalink", "GET", path, (source, item))
    yield RouteTarget("end_session", "DELETE", "/mcp", (Parameter("Mcp-Session-Id", "header", TEXT, is_required=True),))
