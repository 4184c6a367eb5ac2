"""MCP over WebSocket: both eras on one connection, limits, and close codes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from server.protocol.catalog import Change
from tests.cases import each_case
from tests.live import LiveServer, live, make_settings
from tests.server.clients import MODERN, WebSocketClient, handshake, message, modern_params, text_of
from tests.server.http_client import WAIT_MAX_S, fetch
from tests.server.sample_catalog import Gate, SampleCatalog


@asynccontextmanager
async def _open_socket(
    tmp_path: Path, samples: SampleCatalog, user: str = "ada", **changes: Any
) -> AsyncIterator[tuple[LiveServer, WebSocketClient]]:
    """Opens a connection to a server with its own settings."""
    settings = make_settings(tmp_path, access_recheck_s=0.05, **changes)
    async with (
        live(settings, catalog=samples.catalog) as server,
        WebSocketClient.open(server.ws, await server.bearer(user)) as socket,
    ):
        yield server, socket


async def test_both_eras_are_served_on_one_connection(server: LiveServer) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        legacy = await socket.initialize()
        modern = await socket.request("server/discover", modern_params())
        call = await socket.request("tools/call", modern_params({"name": "echo", "arguments": {"text": "hi"}}))

    assert legacy["result"]["protocolVersion"] == "2025-11-25"
    assert modern["result"]["supportedVersions"] == [MODERN]
    assert call["result"]["structuredContent"] == {"text": "hi", "user": "ada"}
    assert call["result"]["resultType"] == "complete"


async def test_a_legacy_request_requires_a_handshake(server: LiveServer) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        assert (await socket.request("tools/list"))["error"]["code"] == -32600
        await socket.initialize()
        assert (await socket.request("tools/list"))["result"]["tools"]


@each_case(("offered", "selected"), [(["mcp"], "mcp"), (["x", "mcp"], "mcp"), (["x"], None), (None, None)])
async def test_the_subprotocol_is_selected_if_offered(server: LiveServer, offered: Any, selected: str | None) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("ada"), offered) as socket:
        assert socket.connection.subprotocol == selected
        assert (await socket.initialize())["result"]


async def test_responses_are_sent_when_ready(server: LiveServer, gate: Gate) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        await socket.initialize()
        await socket.send(message("tools/call", {"name": "wait", "arguments": {"gate": "g"}}, "slow"))
        await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)
        await socket.send(message("ping", {}, "fast"))

        assert (await socket.receive())["id"] == "fast"
        gate.opened.set()
        assert (await socket.receive())["id"] == "slow"


@each_case("params", [{}, {"_meta": None}])
async def test_a_cancelled_call_is_stopped_and_gets_no_response(
    server: LiveServer, gate: Gate, params: dict[str, Any]
) -> None:
    call = {"name": "wait", "arguments": {"gate": "g"}}
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        await socket.initialize()
        await socket.send(message("tools/call", modern_params(call) if params else call, "c"))
        await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)

        await socket.send(message("notifications/cancelled", {"requestId": "c"}))
        await asyncio.wait_for(gate.cancelled.wait(), WAIT_MAX_S)
        await socket.send(message("ping", {}, "p"))

        assert (await socket.receive())["id"] == "p"


async def test_calls_over_the_limit_are_rejected_and_the_others_continue(
    tmp_path: Path, samples: SampleCatalog
) -> None:
    async with _open_socket(tmp_path, samples, connection_in_flight_max=2) as (_, socket):
        await socket.initialize()
        for request_id in ("a", "b", "c"):
            await socket.send(message("tools/call", {"name": "wait", "arguments": {"gate": "g"}}, request_id))

        rejected = await socket.receive()
        samples.gates["g"].opened.set()
        response_ids = {(await socket.receive())["id"], (await socket.receive())["id"]}

    assert (rejected["id"], rejected["error"]["code"]) == ("c", 503)
    assert response_ids == {"a", "b"}


async def test_elicitations_and_progress_are_sent_over_the_connection(server: LiveServer) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        await socket.initialize(capabilities={"elicitation": {}})
        await socket.send(message("tools/call", {"name": "ask_name", "arguments": {"text": "hi"}}, 1))
        elicitation = await socket.receive()
        await socket.send({"jsonrpc": "2.0", "id": elicitation["id"], "result": {"content": {"name": "Ada"}}})
        response = await socket.response(1)
        await socket.send(message("tools/call", {"name": "report", "_meta": {"progressToken": 5}}, 2))
        received = [(await socket.receive()).get("method") for _ in range(6)]

    assert "Ada: hi" in text_of(response["result"])
    assert received == ["notifications/progress", *["notifications/message"] * 3, "notifications/progress", None]


async def test_changes_are_sent_until_the_subscription_is_cancelled(tmp_path: Path, samples: SampleCatalog) -> None:
    async with _open_socket(tmp_path, samples) as (_, socket):
        requested = modern_params({"notifications": {"toolsListChanged": True}})
        await socket.send(message("subscriptions/listen", requested, "s"))
        acknowledgement = await socket.receive()
        samples.catalog.changes.publish(Change("tools"))
        change = await socket.receive()
        await socket.send(message("notifications/cancelled", {"requestId": "s"}))
        assert (await socket.request("ping"))["result"] == {}
        samples.catalog.changes.publish(Change("tools"))
        await socket.send(message("ping", {}, "p"))

        assert (await socket.receive())["id"] == "p"

    assert acknowledgement["method"] == "notifications/subscriptions/acknowledged"
    assert change["method"] == "notifications/tools/list_changed"


async def test_an_expired_token_closes_the_connection(tmp_path: Path, samples: SampleCatalog) -> None:
    settings = make_settings(tmp_path, jwt_leeway_s=0, access_recheck_s=0.05)
    async with live(settings, catalog=samples.catalog) as server:
        token = await server.token("ada", lifetime_s=0.5)
        async with WebSocketClient.open(server.ws, {"Authorization": f"Bearer {token}"}) as socket:
            assert (await socket.initialize())["result"]

            assert await socket.close_code() == 4401


async def test_a_rate_limited_request_does_not_close_the_connection(tmp_path: Path, samples: SampleCatalog) -> None:
    async with _open_socket(tmp_path, samples, rate_user_per_minute=1, rate_user_burst=2) as (server, ada):
        await ada.initialize()
        first, second = await ada.request("ping"), await ada.request("ping")
        async with WebSocketClient.open(server.ws, await server.bearer("ben")) as ben:
            other_user = await ben.initialize()

    assert first["result"] == {}
    assert second["error"]["code"] == 429
    assert second["error"]["data"]["retry_after_s"] > 0
    assert other_user["result"]


async def test_too_many_connections_of_one_user_are_refused_with_503(tmp_path: Path, samples: SampleCatalog) -> None:
    async with _open_socket(tmp_path, samples, stream_max_per_user=1) as (server, first):
        await first.initialize()
        with pytest.raises(InvalidStatus) as refused:
            async with WebSocketClient.open(server.ws, await server.bearer("ada")):
                pass
        assert refused.value.response.status_code == 503
        async with WebSocketClient.open(server.ws, await server.bearer("ben")) as other:
            assert (await other.initialize())["result"]


async def test_a_closed_connection_no_longer_counts(tmp_path: Path, samples: SampleCatalog) -> None:
    async with live(make_settings(tmp_path, stream_max_per_user=1), catalog=samples.catalog) as server:
        for _ in range(3):
            async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
                assert (await socket.initialize())["result"]
            async with asyncio.timeout(WAIT_MAX_S):
                while len(server.runtime.open_streams):
                    await asyncio.sleep(0.01)


async def test_the_session_ends_with_the_connection(tmp_path: Path, samples: SampleCatalog) -> None:
    async with live(make_settings(tmp_path), catalog=samples.catalog) as server:
        async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
            await socket.initialize()
            assert len(server.runtime.sessions) == 1
        async with asyncio.timeout(WAIT_MAX_S):
            while len(server.runtime.sessions):
                await asyncio.sleep(0.01)


async def test_plain_http_requests_are_rejected(server: LiveServer) -> None:
    headers = await server.bearer("ada")

    assert (await fetch(server.url, "GET", "/mcp/ws", headers)).status in (404, 405, 426)
    assert (await fetch(server.url, "POST", "/mcp/ws", headers, b"{}")).status in (404, 405, 426)


@each_case("path", ["/mcp", "/", "/mcp/ws/x", "/metrics"])
async def test_other_paths_accept_no_websocket(server: LiveServer, path: str) -> None:
    url = f"{server.url.replace('http', 'ws', 1)}{path}"

    with pytest.raises((InvalidStatus, ConnectionClosed)):
        async with connect(url, additional_headers=await server.bearer("ada"), proxy=None) as socket:
            await socket.recv()


async def test_two_authorization_headers_reject_the_upgrade(server: LiveServer) -> None:
    token = (await server.bearer("ada"))["Authorization"]

    with pytest.raises(InvalidStatus) as rejected:
        async with connect(
            server.ws, additional_headers=[("Authorization", token), ("Authorization", token)], proxy=None
        ):
            pass

    assert rejected.value.response.status_code == 400


async def test_a_rate_limited_tool_reports_when_to_retry(tmp_path: Path, samples: SampleCatalog) -> None:
    async with _open_socket(tmp_path, samples, rate_tool_per_minute=1, rate_tool_burst=1) as (_, socket):
        await socket.initialize()
        await socket.call("echo")
        rejected = (await socket.call("echo"))["result"]

    assert rejected["isError"] is True
    assert "retry after" in text_of(rejected)
    assert rejected["_meta"]["florilegium/retryAfterS"] > 0


async def test_a_second_handshake_opens_a_new_session(server: LiveServer) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        await socket.initialize("2025-03-26")
        await socket.send([handshake(request_id=1)])
        rejected = await socket.receive()
        again = await socket.initialize("2025-06-18")

    assert rejected[0]["error"]["code"] == -32600
    assert again["result"]["protocolVersion"] == "2025-06-18"
