"""Every 503 says when to try again, whatever answers it."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from config.errors import FlorilegiumError, wait_before_retry
from server.app import RequestLogMiddleware
from tests.live import live, make_settings
from tests.server.clients import handshake, message, modern_headers, modern_params
from tests.server.http_client import HttpResponse, RawConnection, fetch
from tests.server.in_process import call_app
from tests.server.test_middleware import answering_app

# Pages, transports and endpoints that are not in the description of the REST API.
PATHS = (
    *(
        "/",
        "/search",
        "/account",
        "/connections",
        "/readyz",
        "/metrics",
        "/mcp/sse",
        "/v1/chat/completions",
        "/healthz",
    ),
    *("/api/v1/mcp/tools", "/api/v1/mcp/request", "/api/threads", "/api/conversations"),
)
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


def error_classes(base: type[FlorilegiumError] = FlorilegiumError) -> Iterator[type[FlorilegiumError]]:
    for error_class in base.__subclasses__():
        yield error_class
        yield from error_classes(error_class)


def test_every_error_with_status_503_has_a_time_to_wait() -> None:
    unavailable = [error_class for error_class in error_classes() if error_class.status == 503]

    assert len(unavailable) > 5
    for error_class in unavailable:
        error = error_class.__new__(error_class)
        error.retry_after_s = 1.0  # type: ignore[attr-defined]  # of those that have it
        assert wait_before_retry(error) == 1.0, error_class


@pytest.mark.parametrize(("sent", "expected"), [((), ["1"]), (((b"Retry-After", b"7"),), ["7"])])
async def test_a_response_without_the_header_gets_it(
    sent: tuple[tuple[bytes, bytes], ...], expected: list[str]
) -> None:
    """Forms that are shown again with an error, and what an upstream answers."""
    app, _ = answering_app(503, *sent)
    assert isinstance(app, RequestLogMiddleware)

    response = await call_app(app, "GET", "/")

    assert [value for name, value in response.headers if name == "retry-after"] == expected


async def test_other_responses_do_not_get_it() -> None:
    app, _ = answering_app(500)

    assert (await call_app(app, "GET", "/")).header("retry-after") is None


@pytest.mark.sqlite
async def test_every_request_that_is_refused_while_the_control_database_is_locked_says_when_to_retry(
    tmp_path: Path,
) -> None:
    async with live(make_settings(tmp_path)) as server:
        credential = await server.bearer("ada")
        paths = (await fetch(server.url, "GET", "/openapi.json", credential)).json()["paths"]
        described = {(method.upper(), path) for path, methods in paths.items() for method in methods}
        requests = described | {("GET", path) for path in PATHS} | {("POST", path) for path in PATHS}
        refused: dict[tuple[str, str], HttpResponse] = {}

        async def ask(method: str, path: str, headers: dict[str, str], body: bytes | None) -> None:
            sent = {**credential, "Content-Type": "application/json", **headers}
            async with AsyncExitStack() as stack:
                connection = await stack.enter_async_context(RawConnection.open(server.url))
                await connection.request(method, path.replace("{", "").replace("}", ""), sent, body)
                status, received = await connection.head()
            refused[method, f"{path} {headers.get('Mcp-Method', '')}"] = HttpResponse(status, received, b"")

        def post(body: Any, headers: dict[str, str]) -> Any:
            return ask("POST", "/mcp", headers, msgspec.json.encode(body))

        call = modern_params({"name": "server_info", "arguments": {}})
        with closing(sqlite3.connect(tmp_path / "control.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            await asyncio.gather(
                *(ask(method, path, {}, None if method == "GET" else b"{}") for method, path in requests),
                post(handshake(), {"Accept": "application/json, text/event-stream"}),
                post(message("tools/call", call, 1), modern_headers("tools/call", call)),
                ask("GET", "/mcp/ws", UPGRADE, None),
                ask("POST", "/mcp/ticket", {}, b""),
            )

    unavailable = {request: response for request, response in refused.items() if response.status == 503}
    assert {path.split()[0] for _, path in unavailable} >= {"/mcp", "/mcp/ws", "/mcp/ticket", "/mcp/sse", "/readyz"}
    assert len(unavailable) >= len(described) * 3 // 4
    assert {request for request, response in unavailable.items() if not response.header("retry-after")} == set()
