"""An ASGI application called as a function: one request in, the whole answer out, without sockets."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Message


class Refused(Exception):
    """An answer other than 200; a figure made from such answers would mean nothing."""


async def ask(app: ASGIApp, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """The body of a good answer."""
    told: list[Message] = []
    coming: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not coming:
            await asyncio.Event().wait()  # the client stays, and says no more
        return coming.pop()

    async def send(event: Message) -> None:
        told.append(event)

    await app(_scope(method, target, headers), receive, send)
    answer = b"".join(event.get("body", b"") for event in told)
    if told[0]["status"] != 200:
        raise Refused(f"{method} {target}: {told[0]['status']} {answer[:500]!r}")
    return answer


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
