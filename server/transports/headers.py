"""The request headers that MCP reads, and the modern era's rule that they say what the body says (-32020).

Values are stripped here: httptools hands over trailing blanks, and RFC 9110 section 5.5 excludes them.
"""

import base64
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from config.errors import HeaderMismatch, InvalidRequest
from server.protocol.messages import Request
from server.protocol.schema import MirroredParameter

AUTHORIZATION = b"authorization"
VERSION = b"mcp-protocol-version"
METHOD = b"mcp-method"
NAME = b"mcp-name"
SESSION = b"mcp-session-id"
CONFIG = b"mcp-config"
_PARAM_PREFIX = b"mcp-param-"
# Two copies of one of these would let a proxy read the first and us the last.
_SINGLE = frozenset((AUTHORIZATION, VERSION, METHOD, NAME, SESSION, CONFIG, b"host", b"origin", b"content-length"))
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_BASE64 = re.compile(r"=\?base64\?(.*)\?=\Z", re.DOTALL)
_DECIMAL = re.compile(r"-?[0-9]+(?:\.0+)?\Z")


class Headers:
    """One request's headers by lower-case name. They are decoded when read: most never are."""

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        self._values: dict[bytes, bytes] = {}
        for name, value in raw:
            if name in self._values:
                self._values[name] = self._join(name, value)
            else:
                self._values[name] = value

    def get(self, name: bytes) -> str | None:
        value = self._values.get(name)
        return value.decode("latin-1").strip(" \t") if value is not None else None

    def accepts(self, media_type: str) -> bool:
        """An absent Accept header accepts everything (RFC 9110 section 12.5.1)."""
        return _accepts(self._values.get(b"accept", b"*/*"), media_type)

    def has_json_body(self) -> bool:
        return _is_json(self._values.get(b"content-type", b""))

    def _join(self, name: bytes, value: bytes) -> bytes:
        """RFC 9110 section 5.3: two lines are one list, where the header may be a list."""
        if name in _SINGLE or name.startswith(_PARAM_PREFIX):
            raise InvalidRequest(f"the header {name.decode('latin-1')} came twice")
        return self._values[name].strip(b" \t") + b", " + value.strip(b" \t")


@lru_cache(maxsize=256)
def _accepts(accept: bytes, media_type: str) -> bool:
    text = accept.decode("latin-1").lower()
    return media_type in text or "*/*" in text or f"{media_type.partition('/')[0]}/*" in text


@lru_cache(maxsize=256)
def _is_json(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip().lower() == b"application/json"


def check_headers(headers: Headers, request: Request, version: Any, mirrored: Iterable[MirroredParameter]) -> None:
    """The modern era's mirrored headers, equal to the body or refused."""
    if headers.get(VERSION) is None or headers.get(VERSION) != version:
        raise HeaderMismatch("MCP-Protocol-Version does not match the version in params._meta")
    if headers.get(METHOD) != request.method:
        raise HeaderMismatch("Mcp-Method does not match the method of the body")
    named_by = _NAMED_BY.get(request.method)
    if named_by is not None and (name := request.params.get(named_by)) is not None:
        sent = headers.get(NAME)
        if sent is None or _decode_value(sent) != name:
            raise HeaderMismatch(f"Mcp-Name does not match {named_by!r} of the body")
    for parameter in mirrored:
        _check_parameter(headers, parameter, request.params.get("arguments"))


def _check_parameter(headers: Headers, parameter: MirroredParameter, arguments: Any) -> None:
    """Header and argument are there together and equal, or absent together."""
    sent = headers.get(_PARAM_PREFIX + parameter.token.lower().encode())
    value = _value_at(arguments, parameter.path)
    if sent is None and value is None:
        return
    if sent is None or value is None or not _is_same(_decode_value(sent), value, parameter.type):
        where = ".".join(parameter.path)
        raise HeaderMismatch(f"Mcp-Param-{parameter.token} does not match the argument {where!r}")


def _value_at(arguments: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        arguments = arguments.get(step) if isinstance(arguments, dict) else None
    return arguments


def _is_same(sent: str | None, value: Any, kind: str) -> bool:
    if sent is None or isinstance(value, dict | list):
        return False
    if isinstance(value, bool):
        return sent == ("true" if value else "false")
    if kind == "integer" and _DECIMAL.match(sent):
        return bool(int(sent.partition(".")[0]) == value)
    return sent == str(value)


def _decode_value(value: str) -> str | None:
    """`=?base64?…?=` carries what a header cannot; a broken one matches nothing."""
    wrapped = _BASE64.match(value)
    if wrapped is None:
        return value
    try:
        raw = base64.b64decode(wrapped[1], validate=True)
        return raw.decode() if base64.b64encode(raw).decode() == wrapped[1] else None
    except ValueError:  # not ASCII, not base64, not UTF-8
        return None
