"""Schemas from Structs and arguments back into them: flat, honest, and helpful to a model that got it wrong."""

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
from tests.server.near_valid import JSON
from tests.server.sample_catalog import RegionInput


class Range(Struct, forbid_unknown_fields=True):
    low: int = 0
    high: int | None = None


class Query(Struct, forbid_unknown_fields=True):
    """A docstring that is no business of a model."""

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


def test_an_optional_argument_is_shown_as_absent_never_as_null() -> None:
    schema = input_schema(Query)

    assert not any(node.get("type") == "null" or "anyOf" in node for node in _nodes(schema))
    assert schema["required"] == ["query"]


def test_class_names_and_docstrings_stay_out_but_a_property_called_title_stays_in() -> None:
    schema = input_schema(Query)

    assert "title" not in schema
    assert "description" not in schema
    assert schema["properties"]["title"] == {"type": "string"}


def test_an_output_schema_keeps_null_because_an_answer_may_hold_it() -> None:
    schema = output_schema(Query)

    assert {"type": "null"} in schema["properties"]["title"]["anyOf"]


def test_a_default_of_nothing_is_left_out_and_any_other_is_told() -> None:
    properties = input_schema(Query)["properties"]

    assert "default" not in properties["tags"]
    assert (properties["limit"]["default"], properties["mode"]["default"]) == (10, "words")
    assert "required" not in properties["range"]


def test_choices_of_words_have_a_type_and_a_property_may_be_called_default() -> None:
    class Odd(Struct):
        default: Any = None
        word: Literal["a", "b"] = "a"
        number: Literal[1, 2] = 1

    assert input_schema(Odd)["properties"] == {
        "default": {},
        "word": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "number": {"enum": [1, 2], "default": 1},
    }


def test_an_outline_names_the_texts_lists_and_objects_that_are_always_there() -> None:
    class HttpResponse(Struct):
        text: str
        hits: list[Range]
        first: Range
        count: int
        more: str | None
        extra: str = ""

    assert outline(output_schema(HttpResponse)) == {
        "type": "object",
        "properties": {"text": {"type": "string"}, "hits": {"type": "array"}, "first": {"type": "object"}},
    }


def test_a_tool_without_arguments_takes_none() -> None:
    class Nothing(Struct, forbid_unknown_fields=True):
        pass

    schema = input_schema(Nothing)

    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert not schema.get("properties")


def test_marked_properties_are_found_with_their_path() -> None:
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


def test_a_mark_on_an_optional_field_survives_the_removal_of_null() -> None:
    found = {mirrored.token: mirrored.type for mirrored in mirrored_parameters(input_schema(RegionInput))}

    assert found == {"Region": "string", "Shelf": "integer"}


def test_what_a_model_plainly_meant_is_read() -> None:
    read = read_arguments({"query": "x", "limit": "7", "range": {"low": "3"}, "title": None}, Query)

    assert (read.limit, read.range and read.range.low, read.title) == (7, 3, None)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
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
    ],
)
def test_a_wrong_argument_gets_a_sentence_with_field_got_and_expected(arguments: Any, sentence: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        read_arguments(arguments, Query)

    assert sentence in refused.value.message


def test_a_long_wrong_value_is_shortened_in_the_sentence() -> None:
    with pytest.raises(InvalidParams) as refused:
        read_arguments({"query": "x" * 10_000}, Query)

    assert "query:" in refused.value.message
    assert len(refused.value.message) < 200


@given(st.dictionaries(st.sampled_from(("query", "limit", "mode", "tags", "range", "title", "other")), JSON))
def test_arguments_are_read_or_refused_and_what_the_schema_allows_is_read(arguments: dict[str, Any]) -> None:
    allowed = jsonschema_rs.validator_for(input_schema(Query)).is_valid(msgspec.to_builtins(arguments))

    try:
        read = read_arguments(arguments, Query)
    except InvalidParams:
        assert not allowed
    else:
        assert isinstance(read, Query)
