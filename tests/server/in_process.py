"""An ASGI application called as a function: one request in, one response out, without sockets."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Message

from tests.server.http_client import PATIENCE_S, HttpResponse


async def ask(
    app: ASGIApp, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> HttpResponse:
    """The one response of the application; a second one, or none, is an error of the application."""
    told: list[Any] = []
    pieces = [body[:7], body[7:]]

    async def receive() -> Message:
        if not pieces:
            await asyncio.Event().wait()
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(event: Message) -> None:
        told.append(event)

    await asyncio.wait_for(app(_scope(method, path, headers or {}), receive, send), PATIENCE_S)
    starts = [event for event in told if event["type"] == "http.response.start"]
    ends = [event for event in told if event["type"] == "http.response.body" and not event.get("more_body")]
    assert (len(starts), len(ends)) == (1, 1)
    named = tuple((name.decode().lower(), value.decode("latin-1")) for name, value in starts[0]["headers"])
    return HttpResponse(starts[0]["status"], named, b"".join(event.get("body", b"") for event in told))


def _scope(method: str, path: str, headers: Mapping[str, str]) -> dict[str, Any]:
    named = {"host": "127.0.0.1", **headers}
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in named.items()],
    }
