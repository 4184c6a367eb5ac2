"""What an address and a header ask for beside the message: a profile, and defaults for the call (`config`).

A config is base64 of a JSON object, standard or URL-safe, padded or not. It can hold habits and nothing else; see
`aggregator.defaults`.
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
# Clients repeat themselves; what one sends is known after its first request.
_CONFIGS_MAX = 1024
_QUERY_FIELDS_MAX = 32
_TO_STANDARD = str.maketrans("-_ ", "+/+")  # a form-decoded query has made a blank of each plus sign


def profile_in(path: str) -> str | None:
    """The profile that `/mcp/{profile}` names; none at `/mcp`."""
    return path.removeprefix(MCP_PATH).strip("/") or None


def query_values(query: bytes, name: str) -> list[str]:
    if not query:
        return []
    try:
        return parse_qs(query.decode("latin-1"), max_num_fields=_QUERY_FIELDS_MAX).get(name, [])
    except ValueError as error:
        raise InvalidRequest(f"the query of the address has more than {_QUERY_FIELDS_MAX} parts") from error


def query_value(query: bytes, name: str) -> str | None:
    """The one value of a query parameter: of two, a proxy might read the first and we the last."""
    values = query_values(query, name)
    if len(values) > 1:
        raise InvalidRequest(f"the query of the address names {name} twice; expected it once")
    return values[0] if values else None


def config_of(headers: Headers, query: bytes, max_bytes: int) -> Mapping[str, Any]:
    """The config in the header or in the query; empty if there is none."""
    sent, asked = headers.get(CONFIG), query_value(query, "config")
    if sent is not None and asked is not None:
        raise InvalidRequest("config came in the header Mcp-Config and in the query; expected it once")
    text = asked if sent is None else sent
    return NO_CONFIG if text is None else decode_config(text, max_bytes)


def decode_config(text: str, max_bytes: int) -> Mapping[str, Any]:
    if len(text) > max_bytes:
        raise TooLarge("the config", max_bytes)
    return _decoded(text)


@lru_cache(maxsize=_CONFIGS_MAX)
def _decoded(text: str) -> Mapping[str, Any]:
    standard = text.translate(_TO_STANDARD).rstrip("=")
    try:
        raw = base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
        return read_config(msgspec.json.decode(raw))
    except (binascii.Error, ValueError) as error:  # msgspec's errors, and text beyond ASCII, are ValueErrors too
        raise InvalidParams("config: got something else, expected base64 of a JSON object") from error
    except RecursionError as error:
        raise InvalidParams("config: got JSON nested too deeply, expected an object of plain values") from error
