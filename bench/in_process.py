"""An ASGI application called as a function: one request in, the whole answer out, without sockets."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Message


class Refused(Exception):
    """An answer other than 200; a figure made from such answers would mean nothing."""


class Request:
    """A request, ready to be sent once: to write it is the client's work, and not what is measured."""

    def __init__(self, app: ASGIApp, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        self._app = app
        self._scope = _scope(method, target, headers)
        self._coming: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        self._told: list[Message] = []

    async def send(self) -> bytes:
        """The body of a good answer."""
        await self._app(self._scope, self._receive, self._take)
        answer = b"".join([event.get("body", b"") for event in self._told])
        if self._told[0]["status"] != 200:
            raise Refused(f"{self._scope['path']}: {self._told[0]['status']} {answer[:500]!r}")
        return answer

    async def _receive(self) -> Message:
        if not self._coming:
            await asyncio.Event().wait()  # the client stays, and says no more
        return self._coming.pop()

    async def _take(self, event: Message) -> None:
        self._told.append(event)


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
