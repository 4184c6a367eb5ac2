"""Graceful shutdown: no new connections, running calls finish, and streams are closed."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from server.cli.local_library import local_context
from server.lifespan import open_runtime
from server.protocol.messages import MODERN_VERSIONS
from tests.live import LiveServer, live, make_settings
from tests.server.clients import (
    JSON_AND_EVENTS,
    LegacyClient,
    ModernClient,
    WebSocketClient,
    handshake,
    message,
    modern_params,
)
from tests.server.http_client import WAIT_MAX_S, RawConnection, fetch
from tests.server.sample_catalog import SampleCatalog
from tests.server.stubborn_program import TOOLS

WAIT = {"name": "wait", "arguments": {"gate": "g"}}
WRITE = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}


@asynccontextmanager
async def serving(tmp_path: Path, samples: SampleCatalog, **changes: Any) -> AsyncIterator[LiveServer]:
    settings = make_settings(tmp_path, access_recheck_s=0.05, **changes)
    async with live(settings, catalog=samples.catalog) as server:
        yield server


async def _wait_until_not_accepting(server: LiveServer) -> None:
    async with asyncio.timeout(WAIT_MAX_S):
        while True:
            try:
                async with RawConnection.open(server.url):
                    await asyncio.sleep(0.01)
            except OSError:
                return


async def test_a_running_call_is_answered_during_shutdown(tmp_path: Path, samples: SampleCatalog) -> None:
    async with serving(tmp_path, samples) as server:
        ada, modern = await LegacyClient.open(server, "ada"), await ModernClient.of(server, "ada")
        running = [
            asyncio.create_task(ada.call("wait", {"gate": "g"}, 1)),
            asyncio.create_task(modern.call("wait", {"gate": "g"}, request_id=2)),
        ]
        await samples.gates["g"].wait_for_calls(len(running))

        server.runtime.open_streams.stop()
        await _wait_until_not_accepting(server)
        samples.gates["g"].opened.set()

        responses = [(await task).json() for task in running]
    assert [response["result"]["structuredContent"]["user"] for response in responses] == ["ada", "ada"]


async def test_a_running_stream_is_finished_during_shutdown(tmp_path: Path, samples: SampleCatalog) -> None:
    async with serving(tmp_path, samples) as server:
        ada = await LegacyClient.open(server, "ada")
        params = {**WAIT, "_meta": {"progressToken": 1}}
        async with ada.streaming(message("tools/call", params, 1)) as connection:
            await connection.head()
            await connection.event()

            server.runtime.open_streams.stop()
            await _wait_until_not_accepting(server)
            samples.gates["g"].opened.set()

            assert (await connection.event())["result"]["structuredContent"]["user"] == "ada"
            assert await connection.event() is None


async def test_idle_streams_end_at_once(tmp_path: Path, samples: SampleCatalog) -> None:
    async with serving(tmp_path, samples) as server:
        ada, modern = await LegacyClient.open(server, "ada"), await ModernClient.of(server, "ada")
        listen = {"notifications": {"toolsListChanged": True}}
        async with ada.listening() as get_stream, modern.streaming("subscriptions/listen", listen, "s") as subscription:
            await subscription.head()
            await subscription.event()

            server.runtime.open_streams.stop()

            assert await get_stream.event() is None
            assert (await subscription.event())["id"] == "s"
            assert await subscription.event() is None


async def test_an_idle_websocket_is_closed_with_1012(tmp_path: Path, samples: SampleCatalog) -> None:
    async with (
        serving(tmp_path, samples) as server,
        WebSocketClient.open(server.ws, await server.bearer("ada")) as socket,
    ):
        await socket.initialize()

        server.runtime.open_streams.stop()

        assert await socket.close_code() == 1012


async def test_a_websocket_call_is_answered_before_the_connection_closes(
    tmp_path: Path, samples: SampleCatalog
) -> None:
    async with (
        serving(tmp_path, samples) as server,
        WebSocketClient.open(server.ws, await server.bearer("ada")) as socket,
    ):
        await socket.initialize()
        await socket.send(message("tools/call", WAIT, "slow"))
        await asyncio.wait_for(samples.gates["g"].reached.wait(), WAIT_MAX_S)

        server.runtime.open_streams.stop()
        await _wait_until_not_accepting(server)
        rejected = await socket.request("tools/list")
        samples.gates["g"].opened.set()

        assert rejected["error"]["code"] == 503
        assert (await socket.response("slow"))["result"]["structuredContent"]["user"] == "ada"
        assert await socket.close_code() == 1012


@pytest.mark.slow("stops processes")
async def test_a_signal_closes_streams_and_connections_and_ends_the_process(tmp_path: Path) -> None:
    make_settings(tmp_path)  # creates a database if tests use PostgreSQL
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.server.shutdown_program",
        str(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    url, token = (await asyncio.wait_for(process.stdout.readline(), WAIT_MAX_S)).decode().split()
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        WebSocketClient.open(f"{url.replace('http', 'ws', 1)}/mcp/ws", headers) as socket,
        RawConnection.open(url) as connection,
    ):
        await socket.initialize()
        handshake_response = await fetch(
            url, "POST", "/mcp", {**JSON_AND_EVENTS, **headers}, msgspec.json.encode(handshake())
        )
        session = {"Mcp-Session-Id": handshake_response.header("mcp-session-id") or ""}
        await connection.request("GET", "/mcp", {**headers, **session})
        await connection.head()

        process.send_signal(signal.SIGTERM)

        assert await socket.close_code() == 1012
        assert await connection.event() is None
    _, stderr = await asyncio.wait_for(process.communicate(), WAIT_MAX_S)
    assert process.returncode is not None
    # On a busy machine, the server warns that its event loop was blocked.
    assert [line for line in stderr.splitlines() if b"The event loop was blocked" not in line] == []


async def test_a_call_that_exceeds_the_grace_period_is_cancelled(
    tmp_path: Path, samples: SampleCatalog, failures: list[str]
) -> None:
    async with serving(tmp_path, samples, shutdown_grace_s=0) as server:
        ada = await LegacyClient.open(server, "ada")
        async with ada.streaming(message("tools/call", WAIT, 1)) as connection:
            await asyncio.wait_for(samples.gates["g"].reached.wait(), WAIT_MAX_S)

            server.runtime.open_streams.stop()

            await asyncio.wait_for(samples.gates["g"].cancelled.wait(), WAIT_MAX_S)
            await connection.closed()
    assert "timeout graceful shutdown exceeded" in failures[0]
    failures.clear()


@pytest.mark.slow("kills processes")
@pytest.mark.parametrize("tool", list(TOOLS))
async def test_a_signal_ends_the_process_whatever_a_tool_does_and_loses_no_write(tmp_path: Path, tool: str) -> None:
    settings = make_settings(tmp_path)  # creates a database if tests use PostgreSQL
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.server.stubborn_program",
        str(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    url, token = (await asyncio.wait_for(process.stdout.readline(), WAIT_MAX_S)).decode().split()
    headers = {**JSON_AND_EVENTS, "Authorization": f"Bearer {token}"}
    note = {**WRITE, "params": modern_params({"name": "notes_create", "arguments": {"title": "Tea"}})}
    stuck = {**WRITE, "params": modern_params({"name": tool, "arguments": {}})}
    names = {"MCP-Protocol-Version": MODERN_VERSIONS[0], "Mcp-Method": "tools/call"}
    created = await fetch(
        url, "POST", "/mcp", {**headers, **names, "Mcp-Name": "notes_create"}, msgspec.json.encode(note)
    )
    assert "isError" not in created.json()["result"]
    async with RawConnection.open(url) as connection:
        await connection.request("POST", "/mcp", {**headers, **names, "Mcp-Name": tool}, msgspec.json.encode(stuck))
        assert await asyncio.wait_for(process.stdout.readline(), WAIT_MAX_S) == b"called\n"

        process.send_signal(signal.SIGTERM)

        _, stderr = await asyncio.wait_for(process.communicate(), WAIT_MAX_S)
    assert process.returncode == 0
    assert b"the server did not stop within 1 s; ending the process" in stderr
    async with open_runtime(settings) as runtime:
        ada = await runtime.registry.user_by_name("ada")
        assert ada is not None
        async with runtime.libraries.library(local_context(ada, runtime.data_root)) as library:
            assert (await library.notes.list(10, 0)).total == 1
