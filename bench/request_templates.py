"""The bytes of a call, prepared before the measurement starts. Only the id differs from call to call.

The id always has seven digits, so lengths are known in advance and the load generator only joins three parts.
"""

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

Framing = Literal["http", "websocket"]

FIRST_ID = 1_000_000
_ID_DIGITS = 7
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
# RFC 6455 section 1.3: the key does not authenticate the client, so any value is valid.
_UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Protocol": "mcp",
}
# Client frames must be masked. Unmasking costs the same for every mask; this one leaves the text unchanged.
_MASK = bytes(4)


class RequestTemplate(Struct, frozen=True):
    """The call of one connection, before and after the id, and the bytes that open the connection."""

    before_id: bytes
    after_id: bytes
    opening: bytes = b""

    def render(self, request_id: int) -> bytes:
        return b"%b%d%b" % (self.before_id, request_id, self.after_id)


class ToolCall(Struct, frozen=True):
    name: str
    arguments: Mapping[str, Any] = {}

    def params(self, *, modern: bool) -> dict[str, Any]:
        meta = {"_meta": _META} if modern else {}
        return {"name": self.name, "arguments": self.arguments, **meta}


def bearer(credential: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {credential}"} if credential else {}


def modern_request(url: str, call: ToolCall, credential: str | None) -> RequestTemplate:
    mirrored = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": call.name}
    return _post(url, {**bearer(credential), **mirrored}, call.params(modern=True))


def legacy_request(url: str, call: ToolCall, credential: str | None, session: str | None) -> RequestTemplate:
    """`session` is None for the SDK's stateless server, which accepts legacy calls without a handshake."""
    headers = {"Mcp-Session-Id": session} if session else {}
    return _post(url, {**bearer(credential), "MCP-Protocol-Version": LEGACY, **headers}, call.params(modern=False))


def websocket_request(url: str, call: ToolCall, credential: str | None) -> RequestTemplate:
    before, after = _message(call.params(modern=True))
    opening = _head(f"GET {urlsplit(url).path}/ws", url, {**_UPGRADE, **bearer(credential)})
    return RequestTemplate(_frame_head(len(before) + _ID_DIGITS + len(after)) + before, after, opening)


def _post(url: str, headers: Mapping[str, str], params: Mapping[str, Any]) -> RequestTemplate:
    before, after = _message(params)
    all_headers = {
        "Accept": "application/json, text/event-stream",
        "Accept-Encoding": "gzip, deflate",
        "Content-Type": "application/json",
        "Content-Length": str(len(before) + _ID_DIGITS + len(after)),
        "User-Agent": "florilegium-bench",
        **headers,
    }
    return RequestTemplate(_head(f"POST {urlsplit(url).path}", url, all_headers) + before, after)


def _message(params: Mapping[str, Any]) -> tuple[bytes, bytes]:
    return b'{"jsonrpc":"2.0","id":', b',"method":"tools/call","params":' + msgspec.json.encode(params) + b"}"


def _head(target: str, url: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{target} HTTP/1.1", f"Host: {urlsplit(url).netloc}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def _frame_head(length: int) -> bytes:
    """Returns the head of a final, masked text frame (RFC 6455 section 5.2). Every call needs a 16-bit length."""
    assert 126 <= length < 65_536
    return b"\x81\xfe" + length.to_bytes(2, "big") + _MASK
