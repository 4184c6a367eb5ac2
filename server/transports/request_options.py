"""Request options outside the message: the profile in the address, and `config`, defaults for the call.

A config is a JSON object in base64, standard or URL-safe, padded or not. It can set only the defaults that
`aggregator.defaults` declares.
"""

import base64
import binascii
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs

import msgspec

from aggregator.defaults import read_config
from config.errors import InvalidParams, InvalidRequest, TooLarge
from server.transports.headers import CONFIG, Headers

MCP_PATH = "/mcp"
NO_CONFIG: Mapping[str, Any] = MappingProxyType({})
# Clients repeat their config, so each is decoded once.
_CACHE_MAX = 1024
_QUERY_FIELDS_MAX = 32
_TO_STANDARD = str.maketrans("-_ ", "+/+")  # a form-decoded query turns each plus sign into a space


def profile_in(path: str) -> str | None:
    """Returns the profile in `/mcp/{profile}`, or None for `/mcp`."""
    return path.removeprefix(MCP_PATH).strip("/") or None


def query_values(query: bytes, name: str) -> list[str]:
    if not query:
        return []
    try:
        return parse_qs(query.decode("latin-1"), max_num_fields=_QUERY_FIELDS_MAX).get(name, [])
    except ValueError as error:
        raise InvalidRequest(f"query string: expected at most {_QUERY_FIELDS_MAX} parameters") from error


def query_value(query: bytes, name: str) -> str | None:
    """Returns a query parameter. Rejects a repeated one: a proxy might read the first and the server the last."""
    values = query_values(query, name)
    if len(values) > 1:
        raise InvalidRequest(f"{name}: expected one value in the query string, got {len(values)}")
    return values[0] if values else None


def request_config(headers: Headers, query: bytes, max_bytes: int) -> Mapping[str, Any]:
    """Returns the config from the header or the query string; empty if there is none."""
    header, parameter = headers.get(CONFIG), query_value(query, "config")
    if header is not None and parameter is not None:
        raise InvalidRequest("config: expected it in the header Mcp-Config or in the query string, got both")
    text = parameter if header is None else header
    return NO_CONFIG if text is None else decode_config(text, max_bytes)


def decode_config(text: str, max_bytes: int) -> Mapping[str, Any]:
    if len(text) > max_bytes:
        raise TooLarge("the config", max_bytes)
    return _decode_config(text)


@lru_cache(maxsize=_CACHE_MAX)
def _decode_config(text: str) -> Mapping[str, Any]:
    standard = text.translate(_TO_STANDARD).rstrip("=")
    try:
        raw = base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
        return read_config(msgspec.json.decode(raw))
    except (binascii.Error, ValueError) as error:  # includes msgspec's errors and non-ASCII text
        raise InvalidParams("config: expected a base64-encoded JSON object") from error
    except RecursionError as error:
        raise InvalidParams("config: expected an object of plain values, got deeply nested JSON") from error
