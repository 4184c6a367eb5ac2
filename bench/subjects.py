"""What is measured: which server, over which wire, called with which tool by whom. The table is the benchmark."""

import http.client
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from bench.servers import Account, Announcement
from bench.wires import LEGACY, Line, ToolCall, bearer, legacy_line, modern_line, websocket_line

ServerName = Literal["ours", "official_sdk", "floor"]
Wire = Literal["modern", "legacy", "websocket"]
Credential = Literal["token", "key", "none"]

SERVERS: tuple[ServerName, ...] = ("ours", "official_sdk", "floor")
ECHO = ToolCall("echo", {"text": "the quick brown fox jumps over the lazy dog"})
INFO = ToolCall("server_info")
_HANDSHAKE_TIMEOUT_S = 10.0


class Subject(Struct, frozen=True, kw_only=True):
    """`expected` has to stand in the text of every answer."""

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


def _ours(name: str, title: str, wire: Wire, credential: Credential) -> Subject:
    return Subject(name=name, title=title, server="ours", wire=wire, credential=credential)


def _ours_info(name: str, title: str, wire: Wire) -> Subject:
    expected = '"name":"florilegium"'
    return Subject(name=name, title=title, server="ours", wire=wire, credential="token", call=INFO, expected=expected)


def _foreign(name: str, title: str, server: ServerName, wire: Wire) -> Subject:
    return Subject(name=name, title=title, server=server, wire=wire, credential="none")


SUBJECTS = (
    _ours_info("http_info", "ours, HTTP modern, JWT, server_info", "modern"),
    _ours("http_echo", "ours, HTTP modern, JWT, echo", "modern", "token"),
    _ours("http_echo_key", "ours, HTTP modern, API key, echo", "modern", "key"),
    _ours("http_echo_legacy", "ours, HTTP legacy session, JWT, echo", "legacy", "token"),
    _ours_info("ws_info", "ours, WebSocket, JWT, server_info", "websocket"),
    _ours("ws_echo", "ours, WebSocket, JWT, echo", "websocket", "token"),
    _foreign("sdk_echo", "SDK, HTTP modern, no auth, echo", "official_sdk", "modern"),
    _foreign("sdk_echo_legacy", "SDK, HTTP legacy stateless, no auth, echo", "official_sdk", "legacy"),
    _foreign("floor", "floor: Starlette + msgspec, no auth, echo", "floor", "modern"),
)


def lines_of(subject: Subject, announcement: Announcement, connections: int) -> tuple[Line, ...]:
    """One line per connection, the users taking turns."""
    accounts = announcement.accounts or (None,)
    return tuple([_line(subject, announcement.url, accounts[i % len(accounts)]) for i in range(connections)])


def _line(subject: Subject, url: str, account: Account | None) -> Line:
    mcp, credential = f"{url}/mcp", _credential(subject.credential, account)
    match subject.wire:
        case "modern":
            return modern_line(mcp, subject.call, credential)
        case "legacy":
            session = open_session(mcp, credential) if subject.server == "ours" else None
            return legacy_line(mcp, subject.call, credential, session)
        case "websocket":
            return websocket_line(mcp, subject.call, credential)


def _credential(kind: Credential, account: Account | None) -> str | None:
    if account is None or kind == "none":
        return None
    return account.token if kind == "token" else account.key


def open_session(url: str, credential: str | None) -> str:
    """A legacy handshake; the session's id."""
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
    assert session is not None, "the server under test opened no session"
    return session
