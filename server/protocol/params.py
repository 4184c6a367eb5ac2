"""Type checks for JSON-RPC parameters, with one wording for all of their errors."""

from collections.abc import Mapping
from typing import Any

from config.errors import InvalidParams


def require_string(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise wrong_type(name, "a string", value)
    return value


def require_object(params: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = params.get(name)
    if not isinstance(value, dict):
        raise wrong_type(name, "an object", value)
    return value


def wrong_type(name: str, expected: str, value: Any) -> InvalidParams:
    return InvalidParams(f"{name}: expected {expected}, got {json_type(value)}")


def json_type(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"
