"""Calls an ASGI application in the process, without sockets: one request in, one response out."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Message

from tests.server.http_client import WAIT_MAX_S, HttpResponse
from tests.transport_requests import TRANSPORT_REQUESTS


async def call_app(
    app: ASGIApp, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> HttpResponse:
    """Returns the response. Fails if the application sends none or more than one."""
    TRANSPORT_REQUESTS.add()
    messages: list[Any] = []
    body_parts = [body[:7], body[7:]]

    async def receive() -> Message:
        if not body_parts:
            await asyncio.Event().wait()
        part = body_parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(body_parts)}

    async def send(message: Message) -> None:
        messages.append(message)

    await asyncio.wait_for(app(_scope(method, path, headers or {}), receive, send), WAIT_MAX_S)
    starts = [message for message in messages if message["type"] == "http.response.start"]
    ends = [m for m in messages if m["type"] == "http.response.body" and not m.get("more_body")]
    assert (len(starts), len(ends)) == (1, 1)
    response_headers = tuple((name.decode().lower(), value.decode("latin-1")) for name, value in starts[0]["headers"])
    return HttpResponse(starts[0]["status"], response_headers, b"".join(m.get("body", b"") for m in messages))


def _scope(method: str, path: str, headers: Mapping[str, str]) -> dict[str, Any]:
    all_headers = {"host": "127.0.0.1", **headers}
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
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in all_headers.items()],
    }
