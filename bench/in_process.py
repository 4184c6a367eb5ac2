"""Calls an ASGI application in this process, without sockets."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Message


class UnexpectedStatus(Exception):
    """A response other than 200, which would make the measurement meaningless."""


class InProcessRequest:
    """A request that can be sent once. It is prepared in advance, because only the server's work is measured."""

    def __init__(self, app: ASGIApp, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        self._app = app
        self._scope = _scope(method, target, headers)
        self._incoming: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        self._sent: list[Message] = []

    async def send(self) -> bytes:
        """Returns the body of the response."""
        await self._app(self._scope, self._receive, self._record)
        body = b"".join([event.get("body", b"") for event in self._sent])
        if self._sent[0]["status"] != 200:
            raise UnexpectedStatus(f"{self._scope['path']}: {self._sent[0]['status']} {body[:500]!r}")
        return body

    async def _receive(self) -> Message:
        if not self._incoming:
            await asyncio.Event().wait()  # the client stays connected and sends nothing more
        return self._incoming.pop()

    async def _record(self, event: Message) -> None:
        self._sent.append(event)


def _scope(method: str, target: str, headers: Mapping[str, str]) -> dict[str, Any]:
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http",
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "headers": [
            (name.lower().encode(), value.encode()) for name, value in {"Host": "127.0.0.1", **headers}.items()
        ],
    }
