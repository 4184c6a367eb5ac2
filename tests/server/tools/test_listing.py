"""Every tool must satisfy the restrictions of known clients; the default list has a token budget."""

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from bench.tokenizer import count_tokens
from config.settings import Settings
from server.operations import WITHOUT_TOOLS, operations_of
from server.profiles import profiles_of
from server.protocol.call import DEFAULT_PROFILE
from server.protocol.catalog import Tool
from server.protocol.listing import without_libraries
from server.protocol.schema import input_schema, read_arguments
from tests.cases import each_case
from tests.reference_pages import product_catalog
from tests.server.protocol.dispatcher_fixture import make_principal

CATALOG = product_catalog()
TOOLS = [pytest.param(tool, id=name) for name, tool in CATALOG.tools.items()]
# Cursor hides tools whose name, prefixed with the server name, is longer.
CURSOR_NAME_MAX_CHARS = 60
DESCRIPTION_MAX_CHARS = 1_000
# Keywords that some clients drop or reject.
UNSUPPORTED = {"$ref", "$defs", "oneOf", "allOf", "not", "if", "patternProperties", "prefixItems", "const"}


def schemas(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields a schema and all nested schemas."""
    yield node
    inner = [*node.get("properties", {}).values(), *node.get("anyOf", ())]
    for one in [*inner, *([node["items"]] if "items" in node else ())]:
        yield from schemas(one)


def parameters(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, declared in schema.get("properties", {}).items():
        yield f"{path}{name}", declared
        yield from parameters(declared, f"{path}{name}.")


def example_of(tool: Tool) -> Any:
    return msgspec.json.decode(tool.description.partition("Example: ")[2])


def test_operations_of_subjects_without_tools_are_no_tools() -> None:
    assert [found.id for found in operations_of(*WITHOUT_TOOLS) if found.tool is not None] == []


def test_the_fifteen_default_tools_cost_at_most_4000_tokens() -> None:
    default = profiles_of(Settings()).tools(DEFAULT_PROFILE, CATALOG).listed
    caller = make_principal("ada")
    listed = [without_libraries(tool.as_listed(), caller) for tool in default.values()]
    with_libraries = [tool.as_listed() for tool in default.values()]

    assert len(listed) == 15
    assert count_tokens(msgspec.json.encode({"tools": listed}).decode()) <= 4_000
    # For those who have libraries of others, too.
    assert count_tokens(msgspec.json.encode({"tools": with_libraries}).decode()) <= 4_500


@each_case("tool", TOOLS)
def test_a_name_fits_every_client(tool: Tool) -> None:
    assert len(f"florilegium:{tool.name}") <= CURSOR_NAME_MAX_CHARS
    assert len(tool.name) <= 40
    assert tool.name.replace("_", "").isalnum()
    assert tool.name.islower()


@each_case("tool", TOOLS)
def test_a_description_is_short_and_its_example_is_valid(tool: Tool) -> None:
    example = example_of(tool)

    assert len(tool.description) <= DESCRIPTION_MAX_CHARS
    jsonschema_rs.validate(tool.as_listed()["inputSchema"], example)
    assert isinstance(read_arguments(example, tool.input), tool.input)


@each_case("tool", TOOLS)
def test_every_tool_has_a_title_and_all_four_hints(tool: Tool) -> None:
    listed = tool.as_listed()

    assert listed["title"]
    assert {type(listed["annotations"][name]) for name in ("readOnlyHint", "destructiveHint")} == {bool}
    assert {type(listed["annotations"][name]) for name in ("idempotentHint", "openWorldHint")} == {bool}


@each_case("tool", TOOLS)
def test_schemas_use_only_keywords_that_every_client_supports(tool: Tool) -> None:
    listed = tool.as_listed()
    arguments, answer = listed["inputSchema"], listed.get("outputSchema", {"type": "object"})

    assert arguments["type"] == answer["type"] == "object"
    assert arguments["additionalProperties"] is False
    assert "anyOf" not in arguments
    for schema in (*schemas(arguments), *schemas(answer)):
        assert not UNSUPPORTED & schema.keys()
        assert isinstance(schema.get("type", ""), str), "some clients reject a list of types"


@each_case("tool", TOOLS)
def test_every_parameter_has_a_type_and_a_description(tool: Tool) -> None:
    for name, declared in parameters(tool.as_listed()["inputSchema"]):
        assert declared.get("description"), name
        assert "type" in declared or all("type" in option for option in declared["anyOf"]), name
        assert declared.get("type") != "array" or "type" in declared["items"], name


@each_case("tool", TOOLS)
def test_a_listed_schema_contains_every_argument(tool: Tool) -> None:
    """A listed schema may abbreviate an argument, but never omits one."""
    listed, whole = tool.as_listed()["inputSchema"], input_schema(tool.input)

    assert list(listed.get("properties", ())) == list(whole.get("properties", ()))
    assert listed.get("required") == whole.get("required")
