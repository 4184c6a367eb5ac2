"""Schemas derived from Structs, and decoding of arguments with helpful errors."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from config.errors import InvalidParams
from server.protocol.schema import (
    MirroredParameter,
    input_schema,
    mirrored_parameters,
    outline,
    output_schema,
    read_arguments,
)
from tests.cases import each_case
from tests.server.mutated_messages import JSON
from tests.server.sample_catalog import RegionInput


class Range(Struct, forbid_unknown_fields=True):
    low: int = 0
    high: int | None = None


class Query(Struct, forbid_unknown_fields=True):
    """A docstring that must not appear in the schema."""

    query: Annotated[str, Meta(description="What to look for.", max_length=100)]
    limit: Annotated[int, Meta(ge=1, le=50)] = 10
    mode: Literal["words", "exact"] = "words"
    tags: list[str] = []
    range: Range | None = None
    title: str | None = None


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _nodes(value)


def test_a_nested_schema_is_written_inline() -> None:
    schema = input_schema(Query)

    assert not any("$ref" in node or "$defs" in node for node in _nodes(schema))
    assert schema["properties"]["range"]["properties"]["low"]["type"] == "integer"
    assert schema["properties"]["range"]["additionalProperties"] is False


def test_an_optional_argument_is_not_nullable() -> None:
    schema = input_schema(Query)

    assert not any(node.get("type") == "null" or "anyOf" in node for node in _nodes(schema))
    assert schema["required"] == ["query"]


def test_class_names_and_docstrings_are_omitted_but_a_property_called_title_is_kept() -> None:
    schema = input_schema(Query)

    assert "title" not in schema
    assert "description" not in schema
    assert schema["properties"]["title"] == {"type": "string"}


def test_an_output_schema_keeps_null() -> None:
    schema = output_schema(Query)

    assert {"type": "null"} in schema["properties"]["title"]["anyOf"]


def test_empty_defaults_are_omitted_and_others_are_kept() -> None:
    properties = input_schema(Query)["properties"]

    assert "default" not in properties["tags"]
    assert (properties["limit"]["default"], properties["mode"]["default"]) == (10, "words")
    assert "required" not in properties["range"]


def test_string_enums_have_a_type_and_a_property_may_be_called_default() -> None:
    class Odd(Struct):
        default: Any = None
        word: Literal["a", "b"] = "a"
        number: Literal[1, 2] = 1

    assert input_schema(Odd)["properties"] == {
        "default": {},
        "word": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "number": {"enum": [1, 2], "default": 1},
    }


def test_an_outline_contains_the_required_strings_arrays_and_objects() -> None:
    class Output(Struct):
        text: str
        hits: list[Range]
        first: Range
        count: int
        more: str | None
        extra: str = ""

    assert outline(output_schema(Output)) == {
        "type": "object",
        "properties": {"text": {"type": "string"}, "hits": {"type": "array"}, "first": {"type": "object"}},
    }


def test_the_schema_of_a_tool_without_arguments_allows_none() -> None:
    class Nothing(Struct, forbid_unknown_fields=True):
        pass

    schema = input_schema(Nothing)

    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert not schema.get("properties")


def test_mirrored_parameters_are_found_with_their_path() -> None:
    nested = {
        "properties": {
            "where": {
                "type": "object",
                "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
            },
            "shelf": {"type": "integer", "x-mcp-header": "Shelf"},
            "plain": {"type": "string"},
        }
    }

    assert list(mirrored_parameters(nested)) == [
        MirroredParameter(("where", "region"), "Region", "string"),
        MirroredParameter(("shelf",), "Shelf", "integer"),
    ]


def test_an_optional_field_can_be_mirrored() -> None:
    types = {parameter.token: parameter.type for parameter in mirrored_parameters(input_schema(RegionInput))}

    assert types == {"Region": "string", "Shelf": "integer"}


def test_arguments_are_coerced_where_the_meaning_is_unambiguous() -> None:
    query = read_arguments({"query": "x", "limit": "7", "range": {"low": "3"}, "title": None}, Query)

    assert (query.limit, query.range and query.range.low, query.title) == (7, 3, None)


@each_case(
    ("arguments", "expected_message"),
    [
        ({}, "query: required argument is missing"),
        ({"query": None}, "query: required argument is missing"),
        ({"querry": "x", "query": "y"}, "querry: unknown argument; did you mean 'query'? expected one of query, limit"),
        ({"query": "x", "zzz": 1}, "zzz: unknown argument; expected one of query, limit, mode"),
        ({"query": "x", "limit": "many"}, "limit: expected `int`, got `str`"),
        ({"query": "x", "limit": 99}, "limit: expected `int` <= 50, got `99`"),
        ({"query": "x", "mode": "fuzzy"}, "mode:"),
        ({"query": "x", "tags": ["a", 5]}, "tags[1]:"),
        ({"query": "x", "range": {"low": []}}, "range.low:"),
        ({"query": ["x"]}, "query: expected `str`, got `array`"),
        ({"query": "x", "range": {"lwo": 1}}, "range.lwo: unknown argument; did you mean 'range.low'? expected one of"),
        ({"query": "x", "range": {"query": 1}}, "range.query: unknown argument; expected one of low"),
    ],
)
def test_an_invalid_argument_is_reported_with_field_and_expectation(arguments: Any, expected_message: str) -> None:
    with pytest.raises(InvalidParams) as error:
        read_arguments(arguments, Query)

    assert expected_message in error.value.message


def test_a_long_value_is_truncated_in_the_message() -> None:
    with pytest.raises(InvalidParams) as error:
        read_arguments({"query": "x" * 10_000}, Query)

    assert "query:" in error.value.message
    assert len(error.value.message) < 200


@given(st.dictionaries(st.sampled_from(("query", "limit", "mode", "tags", "range", "title", "other")), JSON))
def test_arguments_that_the_schema_allows_are_accepted(arguments: dict[str, Any]) -> None:
    allowed = jsonschema_rs.validator_for(input_schema(Query)).is_valid(msgspec.to_builtins(arguments))

    try:
        query = read_arguments(arguments, Query)
    except InvalidParams:
        assert not allowed
    else:
        assert isinstance(query, Query)
