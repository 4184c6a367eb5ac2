"""MCP clients of both eras for tests. They build messages by hand, so that a test can also send invalid ones."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from server.protocol.call import CAPABILITIES_KEY, CLIENT_KEY, VERSION_KEY
from server.protocol.messages import LATEST_LEGACY, MODERN_VERSIONS
from tests.server.http_client import WAIT_MAX_S, HttpResponse, RawConnection, fetch

MODERN = MODERN_VERSIONS[0]
JSON_AND_EVENTS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
ELICITATION: dict[str, dict[str, str]] = {"elicitation": {}}
_NAME_PARAMETERS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def message(method: str, params: Mapping[str, Any] | None = None, request_id: Any = None) -> dict[str, Any]:
    """Builds a request, or a notification if there is no id."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if request_id is not None:
        body["id"] = request_id
    return {**body, "params": params} if params is not None else body


def handshake(
    version: str = LATEST_LEGACY, capabilities: Mapping[str, Any] | None = None, request_id: Any = 0
) -> dict[str, Any]:
    params = {
        "protocolVersion": version,
        "capabilities": capabilities or {},
        "clientInfo": {"name": "sample-client", "version": "1"},
    }
    return message("initialize", params, request_id)


def modern_params(params: Mapping[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    """Adds a modern `_meta` to parameters. A keyword replaces one of its entries, or removes it if None."""
    full = {
        VERSION_KEY: MODERN,
        CAPABILITIES_KEY: {},
        CLIENT_KEY: {"name": "sample-client", "version": "1"},
        **{_META_KEYS.get(key, key): value for key, value in meta.items()},
    }
    return {**(params or {}), "_meta": {key: value for key, value in full.items() if value is not None}}


_META_KEYS = {
    "version": VERSION_KEY,
    "capabilities": CAPABILITIES_KEY,
    "log_level": "io.modelcontextprotocol/logLevel",
    "progress_token": "progressToken",
}


def modern_headers(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    headers = {**JSON_AND_EVENTS, "MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    name = params.get(_NAME_PARAMETERS.get(method, ""))
    return {**headers, "Mcp-Name": name} if isinstance(name, str) else headers


class ReachableServer(Protocol):
    """A server in this process or in others."""

    @property
    def url(self) -> str: ...

    async def bearer(self, name: str) -> dict[str, str]:
        """Returns a credential of the user, who is created if necessary."""
        ...


class LegacyClient:
    """A legacy client of one user; `open` opens its session."""

    def __init__(self, server: ReachableServer, credential: Mapping[str, str]) -> None:
        self.server = server
        self.headers = {**JSON_AND_EVENTS, **credential}
        self._ids = itertools.count(1)

    @classmethod
    async def open(
        cls,
        server: ReachableServer,
        name: str,
        *,
        version: str = LATEST_LEGACY,
        capabilities: Mapping[str, Any] | None = None,
    ) -> "LegacyClient":
        client = cls(server, await server.bearer(name))
        response = await client.post(handshake(version, capabilities))
        client.headers["Mcp-Session-Id"] = response.header("mcp-session-id") or ""
        return client

    @property
    def session_id(self) -> str:
        return self.headers["Mcp-Session-Id"]

    async def post(self, body: Any, headers: Mapping[str, str] | None = None) -> HttpResponse:
        return await fetch(self.server.url, "POST", "/mcp", {**self.headers, **(headers or {})}, _bytes(body))

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, request_id: Any = None
    ) -> HttpResponse:
        return await self.post(message(method, params or {}, request_id or next(self._ids)))

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, request_id: Any = None) -> HttpResponse:
        return await self.request("tools/call", {"name": tool, "arguments": arguments or {}}, request_id)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> HttpResponse:
        return await self.post(message(method, params or {}))

    async def get(self, headers: Mapping[str, str] | None = None) -> HttpResponse:
        return await fetch(self.server.url, "GET", "/mcp", {**self.headers, **(headers or {})})

    async def delete(self) -> HttpResponse:
        return await fetch(self.server.url, "DELETE", "/mcp", self.headers)

    @asynccontextmanager
    async def streaming(self, body: Any) -> AsyncIterator[RawConnection]:
        """Sends a POST whose response is read event by event."""
        async with RawConnection.open(self.server.url) as connection:
            await connection.request("POST", "/mcp", self.headers, _bytes(body))
            yield connection

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[RawConnection]:
        """Opens the GET stream and reads its headers."""
        async with RawConnection.open(self.server.url) as connection:
            await connection.request("GET", "/mcp", self.headers)
            status, _ = await connection.head()
            assert status == 200
            yield connection


class ModernClient:
    """A modern client of one user."""

    def __init__(self, server: ReachableServer, credential: Mapping[str, str]) -> None:
        self.server = server
        self.credential = dict(credential)
        self._ids = itertools.count(1)

    @classmethod
    async def of(cls, server: ReachableServer, name: str) -> "ModernClient":
        return cls(server, await server.bearer(name))

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str | None] | None = None,
        request_id: Any = None,
        **meta: Any,
    ) -> HttpResponse:
        """Sends a request. `headers` replace the client's own, or remove them if None."""
        all_headers = self._headers(method, params or {}, headers or {})
        body = message(method, modern_params(params, **meta), request_id or next(self._ids))
        return await fetch(self.server.url, "POST", "/mcp", all_headers, _bytes(body))

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> HttpResponse:
        params = {"name": tool, "arguments": arguments or {}, **more.pop("extra", {})}
        return await self.request("tools/call", params, **more)

    @asynccontextmanager
    async def streaming(
        self, method: str, params: Mapping[str, Any], request_id: Any = 1, **meta: Any
    ) -> AsyncIterator[RawConnection]:
        async with RawConnection.open(self.server.url) as connection:
            body = message(method, modern_params(params, **meta), request_id)
            await connection.request("POST", "/mcp", self._headers(method, params, {}), _bytes(body))
            yield connection

    def _headers(self, method: str, params: Mapping[str, Any], changes: Mapping[str, str | None]) -> dict[str, str]:
        headers = {**modern_headers(method, params), **self.credential, **changes}
        return {name: value for name, value in headers.items() if value is not None}


class SseClient:
    """A client of the deprecated HTTP+SSE transport, with an open stream."""

    def __init__(
        self, server: ReachableServer, headers: Mapping[str, str], stream: RawConnection, address: str
    ) -> None:
        self.server = server
        self.headers = {**JSON_AND_EVENTS, **headers}
        self.stream = stream
        self.address = address
        self._ids = itertools.count(1)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, server: ReachableServer, headers: Mapping[str, str], path: str = "/mcp/sse"
    ) -> AsyncIterator["SseClient"]:
        async with RawConnection.open(server.url) as stream:
            await stream.request("GET", path, {**headers, "Accept": "text/event-stream"})
            status, _ = await stream.head()
            assert status == 200
            kind, _, address = (await stream.event_block() or "").partition("\ndata: ")
            assert kind == "event: endpoint"
            yield cls(server, headers, stream, address)

    async def post(self, body: Any, headers: Mapping[str, str] | None = None) -> HttpResponse:
        return await fetch(self.server.url, "POST", self.address, {**self.headers, **(headers or {})}, _bytes(body))

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """Sends a request and returns the next message on the stream, which is its response if nothing else runs."""
        assert (await self.post(message(method, params or {}, next(self._ids)))).status == 202
        return await self.stream.event()

    async def initialize(self, version: str = "2024-11-05", capabilities: Mapping[str, Any] | None = None) -> Any:
        assert (await self.post(handshake(version, capabilities))).status == 202
        return await self.stream.event()

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> Any:
        return await self.request("tools/call", {"name": tool, "arguments": arguments or {}})


class WebSocketClient:
    """A WebSocket client that matches responses to requests."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._ids = itertools.count(1)
        self._unread: list[Any] = []

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        headers: Mapping[str, str] | None = None,
        subprotocols: Any = ("mcp",),
        close_timeout_s: float = WAIT_MAX_S,
    ) -> AsyncIterator["WebSocketClient"]:
        opening = connect(
            url,
            additional_headers=dict(headers or {}),
            subprotocols=subprotocols,
            proxy=None,
            open_timeout=WAIT_MAX_S,
            close_timeout=close_timeout_s,
        )
        async with opening as connection:
            yield cls(connection)

    async def send(self, body: Any) -> None:
        await self.connection.send(_bytes(body).decode())

    async def receive(self) -> Any:
        async with asyncio.timeout(WAIT_MAX_S):
            return msgspec.json.decode(await self.connection.recv())

    async def response(self, request_id: Any) -> Any:
        """Returns the response to a request, and keeps other messages for later."""
        while True:
            for body in self._unread:
                if isinstance(body, dict) and body.get("id") == request_id and "method" not in body:
                    self._unread.remove(body)
                    return body
            self._unread.append(await self.receive())

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        request_id = next(self._ids)
        await self.send(message(method, params or {}, request_id))
        return await self.response(request_id)

    async def initialize(self, version: str = LATEST_LEGACY, capabilities: Mapping[str, Any] | None = None) -> Any:
        await self.send(handshake(version, capabilities, "handshake"))
        return await self.response("handshake")

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> Any:
        return await self.request("tools/call", {"name": tool, "arguments": arguments or {}})

    async def close_code(self) -> int:
        """Waits for the server to close the connection, and returns the close code."""
        async with asyncio.timeout(WAIT_MAX_S):
            try:
                while True:
                    await self.connection.recv()
            except ConnectionClosed as closed:
                return closed.rcvd.code if closed.rcvd else 1006


def text_of(result: Mapping[str, Any]) -> str:
    """Returns the text of a tool result."""
    return str(result["content"][0]["text"])


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else msgspec.json.encode(body)
