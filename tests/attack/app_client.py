"""Sends requests to an application in the process, or to a server over sockets, and returns everything it answers."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import unquote

from msgspec import Struct
from starlette.types import ASGIApp, Message

from tests.server.http_client import HttpResponse, RawConnection, fetch

ANSWER_TIMEOUT_S = 60.0


class AttackRequest(Struct, frozen=True):
    """`listen_s` is the time after which the client of an endless stream disconnects; 0 waits for the end."""

    target: str
    method: str
    path: str
    headers: Mapping[str, str] = {}
    body: bytes = b""
    listen_s: float = 0.0


class Client(Protocol):
    async def send(self, request: AttackRequest, credential: Mapping[str, str]) -> HttpResponse: ...


class InProcessClient:
    """Calls the ASGI application directly, which is several times faster than a socket."""

    def __init__(self, app: ASGIApp, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._app = app
        self._timeout_s = timeout_s

    async def send(self, request: AttackRequest, credential: Mapping[str, str]) -> HttpResponse:
        exchange = _Exchange(request, self._timeout_s)
        async with asyncio.timeout(self._timeout_s):
            await self._app(_scope(request, {**request.headers, **credential}), exchange.receive, exchange.send)
        return exchange.response()


class _Exchange:
    """The messages of one request."""

    def __init__(self, request: AttackRequest, timeout_s: float) -> None:
        self._connected_s = request.listen_s or timeout_s
        self._incoming: list[Message] = [{"type": "http.request", "body": request.body, "more_body": False}]
        self._sent: list[Message] = []

    async def receive(self) -> Message:
        if self._incoming:
            return self._incoming.pop()
        await asyncio.sleep(self._connected_s)
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self._sent.append(message)

    def response(self) -> HttpResponse:
        if not self._sent:
            return HttpResponse(0, (), b"")
        start = self._sent[0]
        headers = tuple((name.decode().lower(), value.decode("latin-1")) for name, value in start["headers"])
        return HttpResponse(start["status"], headers, b"".join(message.get("body", b"") for message in self._sent))


class SocketClient:
    """Opens a connection for each request."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def send(self, request: AttackRequest, credential: Mapping[str, str]) -> HttpResponse:
        headers = {name: value.encode("ascii", "ignore").decode() for name, value in request.headers.items()}
        path = request.path.encode("ascii", "ignore").decode()
        if request.listen_s:
            return await self._listen(request, path, {**headers, **credential})
        return await fetch(self._url, request.method, path, {**headers, **credential}, request.body)

    async def _listen(self, request: AttackRequest, path: str, headers: Mapping[str, str]) -> HttpResponse:
        """Returns the events that arrive while it listens."""
        async with RawConnection.open(self._url) as connection:
            await connection.request(request.method, path, headers, request.body)
            status, response_headers = await connection.head()
            named = dict(response_headers)
            if named.get("transfer-encoding") != "chunked":
                return HttpResponse(status, response_headers, await connection.raw(int(named["content-length"])))
            blocks: list[str] = []
            with suppress(TimeoutError):
                async with asyncio.timeout(request.listen_s):
                    while (block := await connection.event_block()) is not None:
                        blocks.append(block)
            return HttpResponse(status, response_headers, "\n\n".join(blocks).encode())


def _scope(request: AttackRequest, headers: Mapping[str, str]) -> dict[str, Any]:
    path, _, query = request.path.partition("?")
    all_headers = {"Host": "127.0.0.1", "Content-Length": str(len(request.body)), **headers}
    return {
        "type": "http",
        "http_version": "1.1",
        "method": request.method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http",
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "headers": [(name.lower().encode(), value.encode("utf-8")) for name, value in all_headers.items()],
    }
