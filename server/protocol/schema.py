"""JSON Schema from Structs, written inline: several clients refuse `$ref`, and models read a flat schema better.

Also the way back: arguments as a model sent them, coerced where the meaning is plain, or a sentence that lets the
model correct itself.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from config.errors import InvalidParams

T = TypeVar("T")
_REF = "#/$defs/"
_CARRIERS = frozenset(("string", "array", "object"))
_WRONG_TYPE = re.compile(r"^Expected (?P<expected>.+?)(?:, got (?P<got>.+?))?(?: - at `\$\.?(?P<where>[^`]*)`)?$")
_NOT_A_CHOICE = re.compile(r"^Invalid enum value (?P<got>.+?) - at `\$\.?(?P<where>[^`]*)`$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<field>[^`]+)`")
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<field>[^`]+)`")


def input_schema(declared: type[Any]) -> dict[str, Any]:
    """The schema of a tool's arguments, those it needs first. Null is dropped everywhere: for us an argument of null is
    an absent one."""
    schema: dict[str, Any] = _tidy(_without_null(_inline(declared)))
    required = schema.get("required", [])
    needed = {name: schema["properties"][name] for name in required}
    return {**schema, "properties": needed | schema.get("properties", {})}


def output_schema(declared: type[Any]) -> dict[str, Any]:
    return _inline(declared)


def outline(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The texts, lists and objects that an answer consists of, by name and type: each client pays for a listed tool on
    each turn, and what is left out is only made looser. The whole schema is in the documentation."""
    properties = schema.get("properties", {})
    kinds = {name: properties[name].get("type") for name in schema.get("required", ())}
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in kinds.items() if kind in _CARRIERS}}


class MirroredParameter(Struct, frozen=True):
    """A property marked `x-mcp-header`: a modern client repeats its value in the header `Mcp-Param-<token>`."""

    path: tuple[str, ...]
    token: str
    kind: str


def mirrored_parameters(schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[MirroredParameter]:
    properties = schema.get("properties")
    for name, declared in properties.items() if isinstance(properties, Mapping) else ():
        here = (*path, name)
        if isinstance(token := declared.get("x-mcp-header"), str):
            yield MirroredParameter(here, token, declared.get("type", ""))
        yield from mirrored_parameters(declared, here)


def _inline(declared: type[Any]) -> dict[str, Any]:
    (schema,), components = msgspec.json.schema_components([declared], ref_template=_REF + "{name}")
    inlined = _resolve(schema, components)
    assert isinstance(inlined, dict)
    inlined.pop("description", None)  # the Struct's docstring; the tool has a description of its own
    return inlined


def _resolve(node: Any, components: Mapping[str, Any]) -> Any:
    """Replaces references by what they name. Our Structs do not recurse; a recursive one would fail at start-up."""
    if isinstance(node, list):
        return [_resolve(item, components) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _resolve(components[node["$ref"].removeprefix(_REF)], components)
    # "title" is the name of a Python class at this level, but may be a property's name inside "properties".
    return {
        key: {name: _resolve(item, components) for name, item in value.items()}
        if key == "properties"
        else _resolve(value, components)
        for key, value in node.items()
        if key != "title"
    }


def _without_null(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_null(item) for item in node]
    if not isinstance(node, dict):
        return node
    cleaned = {key: _without_null(value) for key, value in node.items() if not (key == "default" and value is None)}
    options = cleaned.get("anyOf")
    if isinstance(options, list) and {"type": "null"} in options:
        rest = [option for option in options if option != {"type": "null"}]
        del cleaned["anyOf"]
        cleaned = {**rest[0], **cleaned} if len(rest) == 1 else {**cleaned, "anyOf": rest}
    return cleaned


def _tidy(node: Any) -> Any:
    """Without what says nothing (a default of nothing, a list of no required names), and with the type of choices,
    which some hosts refuse to guess."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    typed = {"type": "string"} if _are_words(node.get("enum")) else {}
    return typed | {
        # The names of properties are not keywords: one may be called "default".
        key: {name: _tidy(item) for name, item in value.items()} if key == "properties" else _tidy(value)
        for key, value in node.items()
        if value or key not in ("default", "required")
    }


def _are_words(choices: Any) -> bool:
    return isinstance(choices, list) and all(isinstance(choice, str) for choice in choices)


def read_arguments(arguments: Mapping[str, Any], declared: type[T]) -> T:
    """Arguments to the declared Struct: nulls dropped, "10" read as 10; else a sentence with field, got, expected."""
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        return msgspec.convert(given, declared, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidParams(_correction(str(error), given, declared)) from error


def _correction(problem: str, given: Mapping[str, Any], declared: type[Any]) -> str:
    if match := _MISSING.match(problem):
        return f"argument {match['field']!r} is missing"
    if match := _UNKNOWN.match(problem):
        return _unknown_argument(match["field"], [field.encode_name for field in msgspec.structs.fields(declared)])
    if match := _NOT_A_CHOICE.match(problem):
        choices = ", ".join(map(str, _choices(input_schema(declared), match["where"])))
        return f"argument {match['where']!r}: got {_shorten(match['got'])}, expected one of {choices}"
    if (match := _WRONG_TYPE.match(problem)) and match["where"]:
        value = given.get(match["where"].split(".")[0].split("[")[0])
        got = match["got"] or f"`{_shorten(value)}`"
        return f"argument {match['where']!r}: got {got}, expected {match['expected']}"
    where = re.search(r"`\$\.?([^`]*)`", problem)
    return f"argument {where[1]!r}: {problem}" if where and where[1] else problem


def _choices(schema: Mapping[str, Any], where: str) -> list[Any]:
    """What may stand at a place in the arguments, written as msgspec writes it: `filters.fields[1]`."""
    for step in re.findall(r"[^.\[\]]+", where):
        schema = schema.get("items", {}) if step.isdigit() else schema.get("properties", {}).get(step, {})
    return list(schema.get("enum", ()))


def _unknown_argument(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    expected = ", ".join(known) if known else "none"
    return f"argument {name!r} is unknown; {hint}expected: {expected}"


def _shorten(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
