"""JSON Schema for tool arguments and results, and decoding of arguments against it.

Schemas are written inline: several clients reject `$ref`, and models read a flat schema better. Arguments are coerced
where the meaning is unambiguous; otherwise the error message tells the model what to correct.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from cachetools import cached
from msgspec import Struct

from config.errors import InvalidParams

T = TypeVar("T")
_REF = "#/$defs/"
_OUTLINE_TYPES = frozenset(("string", "array", "object"))
# The messages of msgspec.ValidationError.
_WRONG_CHOICE = re.compile(r"^Invalid enum value (?P<got>.+?) - at `\$\.?(?P<path>[^`]*)`$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<field>[^`]+)`(?: - at `\$\.?(?P<path>[^`]*)`)?")
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<field>[^`]+)`(?: - at `\$\.?(?P<path>[^`]*)`)?")
_ANY_PATH = re.compile(r"`\$\.?([^`]*)`")


def input_schema(declared: type[Any]) -> dict[str, Any]:
    """Returns the schema of a tool's arguments, required ones first.

    `null` is removed everywhere, because a null argument is treated as an absent one. The caller may change the schema.
    """
    return msgspec.json.decode(_encoded_input_schema(declared), type=dict[str, Any])


# Cached as bytes: decoding gives every caller a schema of its own, which it may change.
@cached({})
def _encoded_input_schema(declared: type[Any]) -> bytes:
    schema: dict[str, Any] = _tidy(_without_null(_inline(declared)))
    required = {name: schema["properties"][name] for name in schema.get("required", [])}
    return msgspec.json.encode({**schema, "properties": required | schema.get("properties", {})})


def output_schema(declared: type[Any]) -> Mapping[str, Any]:
    """Returns the schema of a result. It is shared and must not be changed."""
    return _inline(declared)


def outline(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a looser schema that names only the required strings, arrays and objects of a result.

    Clients pay for every listed tool on every turn, so `tools/list` carries the outline and the documentation the
    full schema.
    """
    properties = schema.get("properties", {})
    types = {name: properties[name].get("type") for name in schema.get("required", ())}
    return {
        "type": "object",
        "properties": {name: {"type": type_} for name, type_ in types.items() if type_ in _OUTLINE_TYPES},
    }


class MirroredParameter(Struct, frozen=True):
    """A property marked `x-mcp-header`: a modern client repeats its value in the header `Mcp-Param-<token>`."""

    path: tuple[str, ...]
    token: str
    type: str


def mirrored_parameters(schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[MirroredParameter]:
    properties = schema.get("properties")
    for name, declared in properties.items() if isinstance(properties, Mapping) else ():
        property_path = (*path, name)
        if isinstance(token := declared.get("x-mcp-header"), str):
            yield MirroredParameter(property_path, token, declared.get("type", ""))
        yield from mirrored_parameters(declared, property_path)


@cached({})
def _inline(declared: type[Any]) -> dict[str, Any]:
    """Cached, because inspecting a Struct takes milliseconds, and tools, operations and error messages share them."""
    (schema,), components = msgspec.json.schema_components([declared], ref_template=_REF + "{name}")
    inlined = _resolve(schema, components)
    assert isinstance(inlined, dict)
    inlined.pop("description", None)  # the Struct's docstring; the tool has its own description
    return inlined


def _resolve(node: Any, components: Mapping[str, Any]) -> Any:
    """Replaces references with their targets. A recursive Struct would fail here, at start-up; none is declared."""
    if isinstance(node, list):
        return [_resolve(item, components) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _resolve(components[node["$ref"].removeprefix(_REF)], components)
    # "title" is the name of a Python class at this level, but may be the name of a property inside "properties".
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
    schema = {key: _without_null(value) for key, value in node.items() if not (key == "default" and value is None)}
    options = schema.get("anyOf")
    if isinstance(options, list) and {"type": "null"} in options:
        remaining = [option for option in options if option != {"type": "null"}]
        del schema["anyOf"]
        schema = {**remaining[0], **schema} if len(remaining) == 1 else {**schema, "anyOf": remaining}
    return schema


def _tidy(node: Any) -> Any:
    """Drops empty defaults and empty `required` lists, and adds the type of enums, which some hosts require."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    values = node.get("enum")
    is_text = isinstance(values, list) and all(isinstance(item, str) for item in values)
    return ({"type": "string"} if is_text else {}) | {
        # The names of properties are not keywords: one may be called "default".
        key: {name: _tidy(item) for name, item in value.items()} if key == "properties" else _tidy(value)
        for key, value in node.items()
        if value or key not in ("default", "required")
    }


def read_arguments(arguments: Mapping[str, Any], declared: type[T]) -> T:
    """Converts arguments to the declared Struct. Nulls are dropped and "10" is accepted for 10.

    Raises InvalidParams with a message of the form `<field>: expected <what>, got <value>`.
    """
    values = arguments
    if None in arguments.values():
        values = {name: value for name, value in arguments.items() if value is not None}
    try:
        return msgspec.convert(values, declared, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidParams(_error_message(str(error), values, input_schema(declared))) from error


def read_values(arguments: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    """Converts arguments whose types are known by name, as `read_arguments` does for those of a Struct."""
    read = {}
    for name, value in arguments.items():
        if value is None:
            continue
        if name not in types:
            raise InvalidParams(_unknown_argument(None, name, list(types)))
        try:
            read[name] = msgspec.convert(value, types[name], strict=False)
        except (msgspec.ValidationError, RecursionError) as error:
            problem, _, path = str(error).partition(" - at `$")
            schema = {"properties": {name: _inline(types[name])}}
            message = f"{problem} - at `$.{name}{path or '`'}"
            raise InvalidParams(_error_message(message, arguments, schema)) from error
    return read


def _error_message(problem: str, values: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if match := _MISSING.match(problem):
        return f"{_join_path(match['path'], match['field'])}: required argument is missing"
    if match := _UNKNOWN.match(problem):
        known = list(_schema_at(schema, match["path"] or "").get("properties", ()))
        return _unknown_argument(match["path"], match["field"], known)
    if match := _WRONG_CHOICE.match(problem):
        choices = ", ".join(map(str, _schema_at(schema, match["path"]).get("enum", ())))
        return f"{match['path']}: expected one of {choices}, got {_shorten(match['got'])}"
    if problem.startswith("Expected "):
        # "Expected `int`, got `str` - at `$.limit`". A constraint such as "Expected `int` >= 1" has no `got`.
        description, _, at = problem.removeprefix("Expected ").partition(" - at `$")
        expected, _, got = description.partition(", got ")
        if path := at.removeprefix(".").removesuffix("`"):
            value = values.get(path.split(".")[0].split("[")[0])
            return f"{path}: expected {expected}, got {got or f'`{_shorten(value)}`'}"
    match = _ANY_PATH.search(problem)
    return f"{match[1]}: {problem}" if match and match[1] else problem


def _schema_at(schema: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Returns the schema at a path in msgspec's notation: `filters.fields[1]`, or `filters[...]` for dictionaries."""
    for step in re.findall(r"\[\.\.\.\]|[^.\[\]]+", path):
        if step == "[...]":
            schema = schema.get("additionalProperties") or schema.get("items") or {}
        elif step.isdigit():
            schema = schema.get("items", {})
        else:
            schema = schema.get("properties", {}).get(step, {})
        if "properties" not in schema:
            schema = next((option for option in schema.get("anyOf", ()) if "properties" in option), schema)
    return schema


def _unknown_argument(path: str | None, name: str, known: list[str]) -> str:
    import difflib  # noqa: PLC0415 - only such errors need it

    close_matches = difflib.get_close_matches(name, known, n=1)
    hint = f" did you mean {_join_path(path, close_matches[0])!r}?" if close_matches else ""
    allowed = f"expected one of {', '.join(known)}" if known else "expected none"
    return f"{_join_path(path, _shorten(name))}: unknown argument;{hint} {allowed}"


def _join_path(path: str | None, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shorten(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
