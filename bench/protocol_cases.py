"""The cases of the protocol benchmark: server, protocol version and framing, credential, and tool."""

import http.client
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from bench.request_templates import (
    LEGACY,
    RequestTemplate,
    ToolCall,
    bearer,
    legacy_request,
    modern_request,
    websocket_request,
)
from bench.servers import Account, Announcement

ServerName = Literal["ours", "official_sdk", "floor"]
Wire = Literal["modern", "legacy", "websocket"]
Credential = Literal["token", "key", "none"]

SERVERS: tuple[ServerName, ...] = ("ours", "official_sdk", "floor")
ECHO = ToolCall("echo", {"text": "the quick brown fox jumps over the lazy dog"})
INFO = ToolCall("server_info")
_HANDSHAKE_TIMEOUT_S = 10.0


class Case(Struct, frozen=True, kw_only=True):
    """`expected` must be in the text of every response."""

    name: str
    title: str
    server: ServerName
    wire: Wire
    credential: Credential
    call: ToolCall = ECHO
    expected: str = "the quick brown fox"

    @property
    def framing(self) -> Literal["http", "websocket"]:
        return "websocket" if self.wire == "websocket" else "http"


def _ours(name: str, title: str, wire: Wire, credential: Credential) -> Case:
    return Case(name=name, title=title, server="ours", wire=wire, credential=credential)


def _ours_info(name: str, title: str, wire: Wire) -> Case:
    expected = '"name":"florilegium"'
    return Case(name=name, title=title, server="ours", wire=wire, credential="token", call=INFO, expected=expected)


def _other(name: str, title: str, server: ServerName, wire: Wire) -> Case:
    return Case(name=name, title=title, server=server, wire=wire, credential="none")


CASES = (
    _ours_info("http_info", "ours, HTTP modern, JWT, server_info", "modern"),
    _ours("http_echo", "ours, HTTP modern, JWT, echo", "modern", "token"),
    _ours("http_echo_key", "ours, HTTP modern, API key, echo", "modern", "key"),
    _ours("http_echo_legacy", "ours, HTTP legacy session, JWT, echo", "legacy", "token"),
    _ours_info("ws_info", "ours, WebSocket, JWT, server_info", "websocket"),
    _ours("ws_echo", "ours, WebSocket, JWT, echo", "websocket", "token"),
    _other("sdk_echo", "SDK, HTTP modern, no auth, echo", "official_sdk", "modern"),
    _other("sdk_echo_legacy", "SDK, HTTP legacy stateless, no auth, echo", "official_sdk", "legacy"),
    _other("floor", "floor: Starlette + msgspec, no auth, echo", "floor", "modern"),
)


def requests_for(case: Case, announcement: Announcement, connections: int) -> tuple[RequestTemplate, ...]:
    """Returns one request per connection, alternating between the users."""
    accounts = announcement.accounts or (None,)
    return tuple([_request(case, announcement.url, accounts[i % len(accounts)]) for i in range(connections)])


def _request(case: Case, url: str, account: Account | None) -> RequestTemplate:
    mcp, credential = f"{url}/mcp", _credential(case.credential, account)
    match case.wire:
        case "modern":
            return modern_request(mcp, case.call, credential)
        case "legacy":
            session = open_session(mcp, credential) if case.server == "ours" else None
            return legacy_request(mcp, case.call, credential, session)
        case "websocket":
            return websocket_request(mcp, case.call, credential)


def _credential(kind: Credential, account: Account | None) -> str | None:
    if account is None or kind == "none":
        return None
    return account.token if kind == "token" else account.key


def open_session(url: str, credential: str | None) -> str:
    """Performs a legacy handshake and returns the session id."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.netloc, timeout=_HANDSHAKE_TIMEOUT_S)
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    headers = {"Content-Type": "application/json", **bearer(credential)}
    try:
        connection.request("POST", address.path, msgspec.json.encode(message), headers)
        session = connection.getresponse().getheader("Mcp-Session-Id")
    finally:
        connection.close()
    assert session is not None, "the server returned no session id"
    return session
