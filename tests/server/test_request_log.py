"""The log line of every request says who made it, which tool was called, what came of it and how long it took."""

import asyncio
import io
import time
from pathlib import Path
from typing import Any

import msgspec

from tests.live import LiveServer, live, make_settings
from tests.server.clients import LegacyClient, ModernClient, SseClient, WebSocketClient, message
from tests.server.http_client import WAIT_MAX_S, RawConnection, fetch
from tests.server.sample_catalog import SampleCatalog
from tests.server.transports.test_stdio import open_pipes

ADA = {"user": "ada", "client": "test-client", "client_name": "sample-client"}


def lines(log: io.StringIO, label: str) -> list[dict[str, Any]]:
    """Returns the lines whose message starts with the label, without the fields that always differ."""
    decoded = [msgspec.json.decode(line) for line in log.getvalue().splitlines()]
    shown = [line for line in decoded if line["message"].startswith(label)]
    for line in shown:
        assert line.pop("ms") >= 0
        assert line.pop("request_id")
        del line["time"], line["level"]
    return shown


async def wait_for_line(log: io.StringIO, text: str) -> None:
    async with asyncio.timeout(WAIT_MAX_S):
        while text not in log.getvalue():
            await asyncio.sleep(0.01)


def call_line(label: str, tool: str, outcome: str, **more: str) -> dict[str, Any]:
    return {"message": label, **ADA, "method": "tools/call", "tool": tool, "outcome": outcome, **more}


async def test_http_requests_of_both_eras(tmp_path: Path, samples: SampleCatalog, log: io.StringIO) -> None:
    async with live(make_settings(tmp_path, log_requests=True), catalog=samples.catalog) as server:
        ada, ben = await ModernClient.of(server, "ada"), await ModernClient.of(server, "ben")
        await ada.call("echo")
        await ben.call("miss")
        await ada.call("canary")
        await ada.request("tools/list")
        legacy = await LegacyClient.open(server, "ada")
        await legacy.call("echo")
        await LegacyClient(server, {}).post(message("ping", {}, 1))

    assert lines(log, "POST /mcp ") == [
        call_line("POST /mcp 200", "echo", "ok"),
        call_line("POST /mcp 200", "miss", "failed", user="ben"),
        {"message": "POST /mcp 400", **ADA, "method": "tools/call", "outcome": "error"},
        {"message": "POST /mcp 200", **ADA, "method": "tools/list", "outcome": "ok"},
        {"message": "POST /mcp 200", **ADA, "method": "initialize", "outcome": "ok"},
        call_line("POST /mcp 200", "echo", "ok"),
        {"message": "POST /mcp 401", "outcome": "error"},
    ]


async def test_calls_over_a_websocket(tmp_path: Path, samples: SampleCatalog, log: io.StringIO) -> None:
    async with live(make_settings(tmp_path, log_requests=True), catalog=samples.catalog) as server:
        async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
            await socket.request("ping")
            await socket.initialize()
            await socket.call("echo")
            await socket.call("canary")
            await socket.send(message("tools/call", {"name": "wait", "arguments": {"gate": "g"}}, 7))
            await asyncio.wait_for(samples.gates["g"].reached.wait(), WAIT_MAX_S)
            await socket.send(message("notifications/cancelled", {"requestId": 7}))
            await wait_for_line(log, '"cancelled"')
        await wait_for_line(log, "WS /mcp/ws closed")

    assert lines(log, "WS /mcp/ws") == [
        {"message": "WS /mcp/ws", "user": "ada", "client": "test-client", "outcome": "ok"},
        {"message": "WS /mcp/ws", **ADA, "method": "initialize", "outcome": "ok"},
        call_line("WS /mcp/ws", "echo", "ok"),
        {"message": "WS /mcp/ws", **ADA, "method": "tools/call", "outcome": "error"},
        call_line("WS /mcp/ws", "wait", "cancelled"),
        {"message": "WS /mcp/ws closed", "user": "ada", "client": "test-client", "outcome": "ok"},
    ]
    assert "canary" not in log.getvalue()


async def test_calls_over_sse_have_the_id_of_their_post(
    tmp_path: Path, samples: SampleCatalog, log: io.StringIO
) -> None:
    async with live(make_settings(tmp_path, log_requests=True), catalog=samples.catalog) as server:
        async with SseClient.open(server, await server.bearer("ada")) as ada:
            await ada.initialize()
            call = message("tools/call", {"name": "echo", "arguments": {}}, 1)
            await ada.post(call, {"X-Request-Id": "from-the-caller"})
            await ada.stream.event()
            session_id = ada.address.partition("=")[2]
        await wait_for_line(log, "GET /mcp/sse 200")

    same_id = [line for line in log.getvalue().splitlines() if '"from-the-caller"' in line]
    assert sorted(msgspec.json.decode(line)["message"] for line in same_id) == ["POST /mcp/sse 202", "SSE /mcp/sse"]
    assert lines(log, "SSE ") == [
        {"message": "SSE /mcp/sse", **ADA, "method": "initialize", "outcome": "ok"},
        call_line("SSE /mcp/sse", "echo", "ok"),
    ]
    assert session_id not in log.getvalue()


async def test_calls_over_stdio(tmp_path: Path, samples: SampleCatalog, log: io.StringIO) -> None:
    async with open_pipes(tmp_path, samples, log_requests=True) as pipes:
        await pipes.send(message("ping", {}, 1))
        await pipes.receive()

    assert lines(log, "stdio") == [{"message": "stdio", "user": "ada", "client": "local", "outcome": "ok"}]


async def test_rest_operations(tmp_path: Path, log: io.StringIO) -> None:
    async with live(make_settings(tmp_path, log_requests=True)) as server:
        await search_over_rest(server, "ada", b'{"query": "canary"}')
        await search_over_rest(server, "ben", b'{"canary": 1}')

    caller = {"client": "test-client", "tool": "search_knowledge"}
    assert lines(log, "POST /api/v1/search") == [
        {"message": "POST /api/v1/search 200", "user": "ada", **caller, "outcome": "ok"},
        {"message": "POST /api/v1/search 400", "user": "ben", **caller, "outcome": "error"},
    ]
    assert "canary" not in log.getvalue()


async def search_over_rest(server: LiveServer, user: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json", **await server.bearer(user)}
    await fetch(server.url, "POST", "/api/v1/search", headers, body)


async def test_nothing_is_logged_if_requests_are_not(tmp_path: Path, samples: SampleCatalog, log: io.StringIO) -> None:
    async with live(make_settings(tmp_path, log_requests=False), catalog=samples.catalog) as server:
        await (await ModernClient.of(server, "ada")).call("echo")
        async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
            await socket.request("ping")

    assert lines(log, "POST") == lines(log, "WS") == []


async def test_a_flood_of_invalid_requests_is_one_line_a_second(tmp_path: Path, log: io.StringIO) -> None:
    async with live(make_settings(tmp_path)) as server:
        started_at = time.monotonic()
        for _ in range(100):
            async with RawConnection.open(server.url) as connection:
                await connection.send(b"no request\r\n\r\n")
                assert (await connection.response()).status == 400
        seconds = time.monotonic() - started_at

    written = [line for line in log.getvalue().splitlines() if "Invalid HTTP request received." in line]
    assert 1 <= len(written) <= 1 + seconds
