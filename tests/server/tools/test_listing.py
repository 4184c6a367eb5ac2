"""Every tool of the product, held against what the known clients refuse or cut; and what the usual list costs them."""

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from bench.tokens_counting import count_tokens
from config.settings import Settings
from server.profiles import profiles_of
from server.protocol.call import DEFAULT
from server.protocol.catalog import Tool
from server.protocol.schema import input_schema, read_arguments
from server.reference import product_catalog

CATALOG = product_catalog()
TOOLS = [pytest.param(tool, id=name) for name, tool in CATALOG.tools.items()]
# Cursor hides a tool whose name is longer with the server's name before it.
CURSOR_NAME_MAX_CHARS = 60
DESCRIPTION_MAX_CHARS = 1_000
# Keywords that converters to other hosts' schemas drop or refuse.
FOREIGN = {"$ref", "$defs", "oneOf", "allOf", "not", "if", "patternProperties", "prefixItems", "const"}


def schemas(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A schema and all inside it."""
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


def test_the_fifteen_tools_of_the_usual_list_cost_at_most_4000_tokens() -> None:
    usual = profiles_of(Settings()).surface(DEFAULT, CATALOG).tools
    listed = [tool.as_listed() for tool in usual.values()]

    assert len(listed) == 15
    assert count_tokens(msgspec.json.encode({"tools": listed}).decode()) <= 4_000


@pytest.mark.parametrize("tool", TOOLS)
def test_a_name_fits_every_client(tool: Tool) -> None:
    assert len(f"florilegium:{tool.name}") <= CURSOR_NAME_MAX_CHARS
    assert len(tool.name) <= 40
    assert tool.name.replace("_", "").isalnum()
    assert tool.name.islower()


@pytest.mark.parametrize("tool", TOOLS)
def test_a_description_is_short_and_its_example_is_a_good_call(tool: Tool) -> None:
    example = example_of(tool)

    assert len(tool.description) <= DESCRIPTION_MAX_CHARS
    jsonschema_rs.validate(tool.as_listed()["inputSchema"], example)
    assert isinstance(read_arguments(example, tool.input), tool.input)


@pytest.mark.parametrize("tool", TOOLS)
def test_title_and_all_four_hints_are_given(tool: Tool) -> None:
    listed = tool.as_listed()

    assert listed["title"]
    assert {type(listed["annotations"][name]) for name in ("readOnlyHint", "destructiveHint")} == {bool}
    assert {type(listed["annotations"][name]) for name in ("idempotentHint", "openWorldHint")} == {bool}


@pytest.mark.parametrize("tool", TOOLS)
def test_schemas_keep_to_what_every_host_can_convert(tool: Tool) -> None:
    listed = tool.as_listed()
    arguments, answer = listed["inputSchema"], listed.get("outputSchema", {"type": "object"})

    assert arguments["type"] == answer["type"] == "object"
    assert arguments["additionalProperties"] is False
    assert "anyOf" not in arguments
    for schema in (*schemas(arguments), *schemas(answer)):
        assert not FOREIGN & schema.keys()
        assert isinstance(schema.get("type", ""), str), "a list of types is refused by some hosts"


@pytest.mark.parametrize("tool", TOOLS)
def test_every_parameter_has_a_type_and_says_what_it_is_for(tool: Tool) -> None:
    for name, declared in parameters(tool.as_listed()["inputSchema"]):
        assert declared.get("description"), name
        assert "type" in declared or all("type" in option for option in declared["anyOf"]), name
        assert declared.get("type") != "array" or "type" in declared["items"], name


@pytest.mark.parametrize("tool", TOOLS)
def test_a_listed_schema_leaves_out_no_argument(tool: Tool) -> None:
    """To stay small a list may say less of an argument, but it names them all."""
    listed, whole = tool.as_listed()["inputSchema"], input_schema(tool.input)

    assert list(listed.get("properties", ())) == list(whole.get("properties", ()))
    assert listed.get("required") == whole.get("required")
