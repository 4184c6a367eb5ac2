"""The bytes of a call, written once before the clock starts: all that changes from call to call is the id.

The id is always seven digits, so lengths are known ahead and the load generator only joins three pieces.
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
# RFC 6455 section 1.3: the key proves nothing about the client, so any will do.
_UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Protocol": "mcp",
}
# A frame must be masked, and unmasking costs the server the same for every mask; this one leaves the text readable.
_MASK = bytes(4)


class Line(Struct, frozen=True):
    """One connection's words: what opens it, and its call, before and after the id."""

    before: bytes
    after: bytes
    opening: bytes = b""


class ToolCall(Struct, frozen=True):
    name: str
    arguments: Mapping[str, Any] = {}

    def params(self, *, modern: bool) -> dict[str, Any]:
        meta = {"_meta": _META} if modern else {}
        return {"name": self.name, "arguments": self.arguments, **meta}


def bearer(credential: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {credential}"} if credential else {}


def modern_line(url: str, call: ToolCall, credential: str | None) -> Line:
    mirrored = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": call.name}
    return _post(url, {**bearer(credential), **mirrored}, call.params(modern=True))


def legacy_line(url: str, call: ToolCall, credential: str | None, session: str | None) -> Line:
    """Without a session: the SDK's stateless server takes a legacy call that no handshake came before."""
    named = {"Mcp-Session-Id": session} if session else {}
    return _post(url, {**bearer(credential), "MCP-Protocol-Version": LEGACY, **named}, call.params(modern=False))


def websocket_line(url: str, call: ToolCall, credential: str | None) -> Line:
    before, after = _message(call.params(modern=True))
    opening = _head(f"GET {urlsplit(url).path}/ws", url, {**_UPGRADE, **bearer(credential)})
    return Line(_frame_head(len(before) + _ID_DIGITS + len(after)) + before, after, opening)


def _post(url: str, headers: Mapping[str, str], params: Mapping[str, Any]) -> Line:
    before, after = _message(params)
    sent = {
        "Accept": "application/json, text/event-stream",
        "Accept-Encoding": "gzip, deflate",
        "Content-Type": "application/json",
        "Content-Length": str(len(before) + _ID_DIGITS + len(after)),
        "User-Agent": "florilegium-bench",
        **headers,
    }
    return Line(_head(f"POST {urlsplit(url).path}", url, sent) + before, after)


def _message(params: Mapping[str, Any]) -> tuple[bytes, bytes]:
    return b'{"jsonrpc":"2.0","id":', b',"method":"tools/call","params":' + msgspec.json.encode(params) + b"}"


def _head(target: str, url: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{target} HTTP/1.1", f"Host: {urlsplit(url).netloc}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def _frame_head(length: int) -> bytes:
    """RFC 6455 section 5.2: a final, masked text frame; every call here needs the 16-bit length."""
    assert 126 <= length < 65_536
    return b"\x81\xfe" + length.to_bytes(2, "big") + _MASK
