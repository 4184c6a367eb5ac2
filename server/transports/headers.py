"""Request headers, and the modern era's rule that the MCP headers must match the body (-32020).

Values are stripped here: httptools keeps trailing whitespace, which RFC 9110 section 5.5 excludes.
"""

import base64
import binascii
import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from aggregator.contract import read_config
from config.errors import HeaderMismatch, InvalidParams, InvalidRequest, OriginRejected, TooLarge
from config.settings import Settings, is_address, is_loopback
from server.protocol.messages import Request
from server.protocol.schema import MirroredParameter

AUTHORIZATION = b"authorization"
# The header in which clients of tldw send a key or token.
API_KEY = b"x-api-key"
COOKIE = b"cookie"
VERSION = b"mcp-protocol-version"
METHOD = b"mcp-method"
NAME = b"mcp-name"
SESSION = b"mcp-session-id"
CONFIG = b"mcp-config"
# In the ASGI scope: the headers by name, with the last value of a repeated one. A dict of them is made only once.
HEADER_VALUES = "florilegium.headers"
# Sent with every response: browsers do not guess its type, and pages of other origins cannot embed it.
SECURITY_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cross-origin-resource-policy", b"same-origin"))
_PARAM_PREFIX = b"mcp-param-"
# If one of these came twice, a proxy could read the first value and the server the last.
_SINGLE = frozenset(
    (AUTHORIZATION, API_KEY, VERSION, METHOD, NAME, SESSION, CONFIG, b"host", b"origin", b"content-length")
)
_NAME_PARAMETERS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_BASE64 = re.compile(r"=\?base64\?(.*)\?=\Z", re.DOTALL)
_JSON = b"application/json"
_CACHED_MAX_BYTES = 256
_ZERO_WEIGHT = re.compile(r"q=0(?:\.0*)?")
_DECIMAL = re.compile(r"-?[0-9]+(?:\.0+)?\Z")


class Headers:
    """The headers of one request. `values` has them by lower-case name, as they arrived. They are decoded when read,
    because most never are."""

    def __init__(self, raw: Collection[tuple[bytes, bytes]], values: dict[bytes, bytes] | None = None) -> None:
        self.values = dict(raw) if values is None else values
        if len(self.values) == len(raw):
            return
        self.values = {}
        for name, value in raw:
            if name in self.values:
                # Joins a repeated header into a list (RFC 9110 section 5.3), or rejects it if it must be unique.
                if name in _SINGLE or name.startswith(_PARAM_PREFIX):
                    raise InvalidRequest(f"header {name.decode('latin-1')}: expected one value, got several")
                self.values[name] = self.values[name].strip(b" \t") + b", " + value.strip(b" \t")
            else:
                self.values[name] = value

    def get(self, name: bytes) -> str | None:
        value = self.values.get(name)
        return None if value is None else value.strip(b" \t").decode("latin-1")

    def get_raw(self, name: bytes) -> bytes:
        """Returns the bytes of a header, or none if it is absent."""
        return self.values.get(name, b"").strip(b" \t")

    def authorization(self) -> str | None:
        """Returns the value of Authorization, or the credential of X-API-KEY in its form. Two credentials that differ
        are rejected: a proxy may have added one of them."""
        authorization = self.get(AUTHORIZATION)
        if API_KEY not in self.values:
            return authorization
        bearer = f"Bearer {self.get(API_KEY)}"
        if authorization is not None and authorization != bearer:
            raise InvalidRequest("Authorization and X-API-KEY: expected one credential, got two that differ")
        return bearer

    def accepts(self, media_type: str) -> bool:
        """Returns whether a media type is acceptable. Without an Accept header all are (RFC 9110 section 12.5.1)."""
        accept = self.values.get(b"accept", b"*/*")
        return (_cached_accepts if len(accept) <= _CACHED_MAX_BYTES else _accepts)(accept, media_type)

    def has_json_body(self) -> bool:
        content_type = self.values.get(b"content-type", b"")
        return content_type == _JSON or content_type.partition(b";")[0].strip().lower() == _JSON


def _accepts(accept: bytes, media_type: str) -> bool:
    """The most specific range decides, and a weight of 0 means "not acceptable" (RFC 9110 section 12.4.2)."""
    acceptable: dict[str, bool] = {}
    for media_range in accept.decode("latin-1").lower().split(","):
        name, *parameters = (part.strip() for part in media_range.split(";"))
        is_refused = any(_ZERO_WEIGHT.fullmatch(parameter) for parameter in parameters)
        acceptable[name] = acceptable.get(name, False) or not is_refused
    ranges = (media_type, f"{media_type.partition('/')[0]}/*", "*/*")
    return next((acceptable[name] for name in ranges if name in acceptable), False)


# Clients repeat their headers.
_cached_accepts = lru_cache(maxsize=256)(_accepts)


def check_headers(headers: Headers, request: Request, version: Any, mirrored: Iterable[MirroredParameter]) -> None:
    """Raises HeaderMismatch unless the MCP headers of a modern request match its body."""
    if (header := headers.get(VERSION)) is None or header != version:
        raise HeaderMismatch("MCP-Protocol-Version does not match the version in params._meta")
    if headers.get(METHOD) != request.method:
        raise HeaderMismatch("Mcp-Method does not match the method of the body")
    parameter_name = _NAME_PARAMETERS.get(request.method)
    if parameter_name is not None and (name := request.params.get(parameter_name)) is not None:
        header = headers.get(NAME)
        if header is not None and header.startswith("="):
            header = _decode_value(header)
        if header != name:
            raise HeaderMismatch(f"Mcp-Name does not match {parameter_name!r} of the body")
    for parameter in mirrored:
        header = headers.get(_PARAM_PREFIX + parameter.token.lower().encode())
        value = request.params.get("arguments")
        for step in parameter.path:
            value = value.get(step) if isinstance(value, dict) else None
        if header is None and value is None:
            continue
        if header is None or value is None or not _is_equal(_decode_value(header), value, parameter.type):
            path = ".".join(parameter.path)
            raise HeaderMismatch(f"Mcp-Param-{parameter.token} does not match the argument {path!r}")


def _is_equal(header: str | None, value: Any, schema_type: str) -> bool:
    if header is None or isinstance(value, dict | list):
        return False
    if isinstance(value, bool):
        return header == ("true" if value else "false")
    if schema_type == "integer" and _DECIMAL.match(header):
        return bool(int(header.partition(".")[0]) == value)
    return header == str(value)


def _decode_value(value: str) -> str | None:
    """Decodes `=?base64?…?=`, which carries text that a header cannot. Returns None if it is malformed."""
    if not value.startswith("=") or (match := _BASE64.match(value)) is None:
        return value
    try:
        raw = base64.b64decode(match[1], validate=True)
        return raw.decode() if base64.b64encode(raw).decode() == match[1] else None
    except ValueError:  # not ASCII, not base64, not UTF-8
        return None


# -- request options ---------------------------------------------------------------------------------------------------
# Request options outside the message: the profile in the address, and `config`, defaults for the call.
#
# A config is a JSON object in base64, standard or URL-safe, padded or not. It can set only the defaults that
# `aggregator.contract` declares.

MCP_PATH = "/mcp"
NO_CONFIG: Mapping[str, Any] = MappingProxyType({})
# Clients repeat their config, so each is decoded once.
_CACHE_MAX = 1024
_QUERY_FIELDS_MAX = 32
_TO_STANDARD = str.maketrans("-_ ", "+/+")  # a form-decoded query turns each plus sign into a space


def profile_in(path: str) -> str | None:
    """Returns the profile in `/mcp/{profile}`, or None for `/mcp`."""
    return None if path == MCP_PATH else path.removeprefix(MCP_PATH).strip("/") or None


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


# -- origin ------------------------------------------------------------------------------------------------------------
# Rejects requests from untrusted browser pages and for unknown host names (DNS rebinding; MCP security warning).
#
# A request without an Origin header does not come from a script of a page and passes, unless the browser says that
# another site caused it. CORS does not cover WebSockets, so their upgrade is checked too.

CACHE_MAX = 1024
_UNKNOWN_HOST = "this host name is not served here; the operator can add it to allowed_hosts or set public_url"
# A host name has at most 253 characters.
CACHED_MAX_BYTES = 300
# A name, or an address in brackets, and a port (RFC 9110 section 7.2). `urlsplit` ignores what follows the brackets.
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:@/?#\\\s]+))(?::[0-9]{0,5})?\Z", re.IGNORECASE)


class OriginGuard:
    """The Host header is checked only on a loopback address, or if the operator configured the host names."""

    def __init__(self, settings: Settings) -> None:
        base_url = urlsplit(settings.base_url)
        self._is_loopback = is_loopback(settings.host)
        # Other ports of this machine may belong to other programs, or to other users. They are trusted only where a
        # credential is needed, and not on a server for others.
        self._trusts_loopback = self._is_loopback and settings.is_auth_configured and not settings.public_url
        self._origins = {origin.lower() for origin in settings.allowed_origins} | {
            f"{base_url.scheme}://{base_url.netloc}".lower()
        }
        hosts = [*settings.allowed_hosts, *([base_url.hostname or ""] if settings.public_url else [])]
        self._hosts = {host.lower() for host in hosts}
        self._checks_host = self._is_loopback or bool(self._hosts)
        # Clients repeat their headers, and parsing addresses is the most expensive check of a request.
        self._problem = lru_cache(maxsize=CACHE_MAX)(self._find_problem)

    def check(self, headers: Headers) -> None:
        values = headers.values
        host, origin = values.get(b"host", b""), values.get(b"origin")
        # Longer headers are unusual, and must not fill the cache: anyone can send them.
        is_short = len(host) <= CACHED_MAX_BYTES and (origin is None or len(origin) <= CACHED_MAX_BYTES)
        if problem := (self._problem if is_short else self._find_problem)(host, origin):
            raise OriginRejected(problem)
        if origin is None and b"sec-fetch-site" in values and headers.get(b"sec-fetch-site") == "cross-site":
            # The user may follow a link: the page opens in a tab, where the other site cannot read it.
            is_navigation = headers.get(b"sec-fetch-mode") == "navigate"
            if not is_navigation or headers.get(b"sec-fetch-dest") != "document":
                raise OriginRejected("requests that other sites cause are not allowed")

    def check_probe(self, headers: Headers) -> None:
        """Checks the host of a request to an operator's endpoint.

        A probe may use the address of the machine instead of a name. DNS rebinding needs a name.
        """
        host = headers.get(b"host") or ""
        if self._checks_host and not self._is_known_host(host) and not is_address(_host_name(host)):
            raise OriginRejected(_UNKNOWN_HOST)

    def _find_problem(self, raw_host: bytes, raw_origin: bytes | None) -> str | None:
        host = raw_host.strip(b" \t").decode("latin-1")
        if self._checks_host and not self._is_known_host(host):
            return _UNKNOWN_HOST
        if raw_origin is None:
            return None
        origin = raw_origin.strip(b" \t").decode("latin-1")
        if not self._is_trusted_origin(origin.lower(), host.lower()):
            return "this origin is not allowed"
        return None

    def _is_known_host(self, host: str) -> bool:
        name = _host_name(host)
        return name in self._hosts or host.lower() in self._hosts or (self._is_loopback and is_loopback(name))

    def _is_trusted_origin(self, origin: str, host: str) -> bool:
        if origin in self._origins:
            return True
        scheme, _, origin_host = origin.partition("://")
        if scheme not in ("http", "https") or not self._is_loopback or not is_loopback(_host_name(origin_host)):
            return False
        # A page of this server itself, under any loopback name.
        return self._trusts_loopback or (scheme == "http" and origin_host == host)


def _host_name(host: str) -> str:
    """Returns the host without its port: `::1` for `[::1]:80`. Malformed text becomes "", which matches no host."""
    match = _HOST.match(host)
    return (match[1] or match[2]).lower() if match else ""
