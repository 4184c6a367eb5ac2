"""The legacy era over HTTP: handshake, sessions, streams, batches and cancellation."""

import asyncio
from pathlib import Path
from typing import Any

from server.protocol.catalog import Change
from server.protocol.messages import BATCH_VERSION, LEGACY_VERSIONS
from server.transports.http import WATCH_AFTER_S
from tests.cases import each_case
from tests.live import LiveServer, live, make_settings
from tests.server.clients import ELICITATION, JSON_AND_EVENTS, LegacyClient, handshake, message, text_of
from tests.server.http_client import WAIT_MAX_S, fetch
from tests.server.sample_catalog import Gate, SampleCatalog

UNKNOWN_SESSION = {"Mcp-Session-Id": "no-such-session"}


# -- handshake and session --------------------------------------------------------------------------------------


@each_case("version", [*LEGACY_VERSIONS, "2024-10-07", "2026-07-28", "", "latest"])
async def test_the_handshake_returns_the_requested_or_the_latest_legacy_version(
    server: LiveServer, version: str
) -> None:
    response = await LegacyClient(server, await server.bearer("ada")).post(handshake(version))

    result = response.json()["result"]
    assert result["protocolVersion"] == (version if version in LEGACY_VERSIONS else "2025-11-25")
    assert result["serverInfo"]["name"] == "florilegium"
    assert {"tools", "resources", "prompts", "logging", "completions"} <= set(result["capabilities"])
    assert len(response.header("mcp-session-id") or "") >= 43


async def test_a_handshake_without_parameters_is_rejected_under_its_id(server: LiveServer) -> None:
    response = await LegacyClient(server, await server.bearer("ada")).post(message("initialize", {}, "i"))

    assert response.status == 400
    assert (response.json()["id"], response.json()["error"]["code"]) == ("i", -32602)
    assert response.header("mcp-session-id") is None


async def test_a_session_can_list_and_call_tools(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    assert (await ada.notify("notifications/initialized")).status == 202
    assert "echo" in {tool["name"] for tool in (await ada.request("tools/list")).json()["result"]["tools"]}
    assert text_of((await ada.call("echo", {"text": "hi"})).json()["result"]) == '{"text":"hi","user":"ada"}'


async def test_ping_returns_an_empty_result(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    assert (await ada.request("ping", request_id="p")).json() == {"jsonrpc": "2.0", "id": "p", "result": {}}


async def test_a_request_without_a_session_is_rejected_with_400(server: LiveServer) -> None:
    response = await LegacyClient(server, await server.bearer("ada")).request("tools/list", request_id=5)

    assert response.status == 400
    assert (response.json()["id"], response.json()["error"]["code"]) == (5, -32600)


@each_case("method", ["POST", "GET", "DELETE"])
async def test_an_unknown_session_is_not_found(server: LiveServer, method: str) -> None:
    headers = {**JSON_AND_EVENTS, **await server.bearer("ada"), **UNKNOWN_SESSION}
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}' if method == "POST" else None

    assert (await fetch(server.url, method, "/mcp", headers, body)).status == 404


async def test_a_deleted_session_is_not_found(server: LiveServer) -> None:
    ada, other = await LegacyClient.open(server, "ada"), await LegacyClient.open(server, "ada")

    assert (await ada.delete()).status == 204
    assert (await ada.delete()).status == 404
    assert (await ada.request("ping")).status == 404
    assert (await ada.get()).status == 404
    assert (await other.request("ping")).status == 200


@each_case("method", ["GET", "DELETE"])
async def test_get_and_delete_without_a_session_are_not_allowed(server: LiveServer, method: str) -> None:
    response = await fetch(server.url, method, "/mcp", await server.bearer("ada"))

    assert response.status == 405
    assert response.header("allow") == "POST, GET, DELETE"


@each_case("method", ["PUT", "PATCH", "OPTIONS", "HEAD"])
async def test_other_methods_are_not_allowed(server: LiveServer, method: str) -> None:
    assert (await fetch(server.url, method, "/mcp", await server.bearer("ada"))).status == 405


async def test_a_trailing_slash_is_served_without_a_redirect(server: LiveServer) -> None:
    headers = {**JSON_AND_EVENTS, **await server.bearer("ada")}

    response = await fetch(server.url, "POST", "/mcp/", headers, b'{"jsonrpc":"2.0","id":1,"method":"ping"}')

    assert response.status == 400
    assert "Mcp-Session-Id" in response.json()["error"]["message"]


@each_case("version", ["2025-11-26", "latest", "1", ""])
async def test_an_unknown_version_header_is_rejected_with_400(server: LiveServer, version: str) -> None:
    ada = await LegacyClient.open(server, "ada")

    response = await ada.post(message("ping", {}, 1), {"MCP-Protocol-Version": version})

    assert response.status == 400
    assert response.json()["id"] == 1
    assert response.json()["error"]["data"]["requested"] == version


@each_case("version", LEGACY_VERSIONS)
async def test_each_legacy_version_header_is_accepted(server: LiveServer, version: str) -> None:
    ada = await LegacyClient.open(server, "ada", version=version)

    assert (await ada.post(message("ping", {}, 1), {"MCP-Protocol-Version": version})).status == 200


async def test_an_expired_session_is_not_found(tmp_path: Path, samples: SampleCatalog) -> None:
    async with live(make_settings(tmp_path, session_ttl_s=0.02), catalog=samples.catalog) as server:
        ada = await LegacyClient.open(server, "ada")
        async with asyncio.timeout(WAIT_MAX_S):
            while len(server.runtime.sessions):
                await asyncio.sleep(0.01)

        assert (await ada.request("ping")).status == 404


async def test_a_session_over_the_total_limit_is_rejected_with_retry_after(
    tmp_path: Path, samples: SampleCatalog
) -> None:
    async with live(make_settings(tmp_path, session_max=1), catalog=samples.catalog) as server:
        ada = await LegacyClient.open(server, "ada")

        rejected = await LegacyClient(server, await server.bearer("ben")).post(handshake(request_id=3))

        assert rejected.status == 503
        assert rejected.json()["id"] == 3
        assert int(rejected.header("retry-after") or 0) >= 1
        assert (await ada.request("ping")).status == 200


# -- responses --------------------------------------------------------------------------------------------------


async def test_a_call_without_notifications_returns_plain_json(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    response = await ada.call("echo")

    assert response.header("content-type") == "application/json"
    assert response.header("mcp-session-id") is None


@each_case("request_id", [0, 1, -7, 2**53, 2**80, "", "a", "日本", "\x00", "x" * 1000])
async def test_any_request_id_is_returned_unchanged(server: LiveServer, request_id: Any) -> None:
    ada = await LegacyClient.open(server, "ada")

    assert (await ada.post(message("ping", {}, request_id))).json()["id"] == request_id


@each_case("method", ["no/such", "server/discover/x", "subscriptions/listen", "rpc.discover", ""])
async def test_an_unknown_method_is_an_error_with_status_200(server: LiveServer, method: str) -> None:
    ada = await LegacyClient.open(server, "ada")

    response = await ada.request(method, request_id="m")

    assert response.status == 200
    assert (response.json()["id"], response.json()["error"]["code"]) == ("m", -32601)


async def test_an_unexpected_error_is_reported_under_the_request_id(server: LiveServer, failures: list[str]) -> None:
    ada = await LegacyClient.open(server, "ada")

    response = await ada.request("resources/read", {"uri": "test://broken"}, "r")

    assert response.status == 500
    assert (response.json()["id"], response.json()["error"]["code"]) == ("r", -32603)
    assert (response.header("x-request-id") or "?") in response.json()["error"]["message"]
    assert "RuntimeError" in failures.pop()


@each_case(
    "body",
    [
        message("notifications/initialized"),
        message("notifications/unknown", {"a": 1}),
        {"jsonrpc": "2.0", "id": "unexpected", "result": {}},
        {"jsonrpc": "2.0", "id": "unexpected", "error": {"code": 1, "message": "m"}},
    ],
)
async def test_notifications_and_unexpected_responses_are_accepted_with_an_empty_body(
    server: LiveServer, body: Any
) -> None:
    ada = await LegacyClient.open(server, "ada")

    response = await ada.post(body)

    assert (response.status, response.body) == (202, b"")


# -- streams ----------------------------------------------------------------------------------------------------


async def test_progress_and_log_messages_turn_the_response_into_a_stream(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    params = {"name": "report", "arguments": {}, "_meta": {"progressToken": 7}}
    response = await ada.request("tools/call", params, "t")

    assert response.header("content-type") == "text/event-stream"
    assert response.header("x-accel-buffering") == "no"
    assert [event.get("method", "response") for event in response.events()] == [
        "notifications/progress",
        *["notifications/message"] * 3,
        "notifications/progress",
        "response",
    ]
    assert response.events()[-1]["id"] == "t"


async def test_a_log_level_applies_to_its_session_only(server: LiveServer) -> None:
    ada, ben = await LegacyClient.open(server, "ada"), await LegacyClient.open(server, "ben")
    assert (await ada.request("logging/setLevel", {"level": "error"})).json()["result"] == {}

    received = [[e["params"]["level"] for e in (await c.call("report")).events() if "method" in e] for c in (ada, ben)]

    assert received == [["error"], ["debug", "info", "error"]]


async def test_a_client_without_event_streams_gets_only_the_result(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    response = await ada.post(message("tools/call", {"name": "report"}, 1), {"Accept": "application/json"})

    assert response.header("content-type") == "application/json"
    assert "reported" in text_of(response.json()["result"])


async def test_an_elicitation_is_sent_over_the_stream_and_answered_by_a_post(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada", capabilities=ELICITATION)

    async with ada.streaming(message("tools/call", {"name": "ask_name", "arguments": {"text": "hi"}}, 1)) as connection:
        assert (await connection.head())[0] == 200
        elicitation = await connection.event()
        result = {"action": "accept", "content": {"name": "Ada"}}
        accepted = await ada.post({"jsonrpc": "2.0", "id": elicitation["id"], "result": result})
        response = await connection.event()
        assert await connection.event() is None

    assert accepted.status == 202
    assert elicitation["method"] == "elicitation/create"
    assert "Ada: hi" in text_of(response["result"])


async def test_an_elicitation_without_the_capability_is_an_error(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    response = await ada.call("ask_name")

    assert response.json()["error"]["code"] == -32021


async def test_an_elicitation_to_a_client_without_event_streams_is_an_error(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada", capabilities=ELICITATION)

    response = await ada.post(message("tools/call", {"name": "ask_name"}, 1), {"Accept": "application/json"})

    assert response.header("content-type") == "application/json"
    assert response.json()["error"]["code"] == -32021


async def test_changes_are_sent_over_the_get_stream_of_their_user(tmp_path: Path, samples: SampleCatalog) -> None:
    async with live(make_settings(tmp_path, access_recheck_s=0.05), catalog=samples.catalog) as server:
        ada, ben = await LegacyClient.open(server, "ada"), await LegacyClient.open(server, "ben")
        for client in (ada, ben):
            await client.request("resources/subscribe", {"uri": "test://plain"})
        async with ada.listening() as to_ada, ben.listening() as to_ben:
            samples.catalog.changes.publish(Change("updated", "test://plain", (await server.user("ada")).id))
            samples.catalog.changes.publish(Change("tools"))

            received = [(await to_ada.event())["method"], (await to_ada.event())["method"]]
            assert received == ["notifications/resources/updated", "notifications/tools/list_changed"]
            assert (await to_ben.event())["method"] == "notifications/tools/list_changed"


# -- cancellation -----------------------------------------------------------------------------------------------


async def test_a_cancelled_call_ends_without_a_response(server: LiveServer, gate: Gate) -> None:
    ada = await LegacyClient.open(server, "ada")
    running = asyncio.create_task(ada.call("wait", {"gate": "g"}, "w"))
    await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)

    assert (await ada.notify("notifications/cancelled", {"requestId": "w"})).status == 202

    response = await running
    assert (response.status, response.body) == (202, b"")
    assert gate.cancelled.is_set()
    assert (await ada.request("ping")).status == 200


async def test_a_cancelled_stream_ends_without_a_response(server: LiveServer, gate: Gate) -> None:
    ada = await LegacyClient.open(server, "ada")
    params = {"name": "wait", "arguments": {"gate": "g"}, "_meta": {"progressToken": 1}}

    async with ada.streaming(message("tools/call", params, "w")) as connection:
        await connection.head()
        assert (await connection.event())["method"] == "notifications/progress"
        await ada.notify("notifications/cancelled", {"requestId": "w"})

        assert await connection.event() is None
    assert gate.cancelled.is_set()


async def test_a_disconnect_does_not_cancel_a_legacy_call(server: LiveServer, gate: Gate) -> None:
    ada = await LegacyClient.open(server, "ada")

    async with ada.streaming(message("tools/call", {"name": "wait", "arguments": {"gate": "g"}}, 1)):
        await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)
    await asyncio.sleep(2 * WATCH_AFTER_S)  # longer than a modern call would need to notice

    assert not gate.cancelled.is_set()
    gate.opened.set()
    assert (await ada.request("ping")).status == 200


# -- batches ----------------------------------------------------------------------------------------------------


async def test_a_batch_gets_one_response_in_the_version_that_has_batches(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada", version=BATCH_VERSION)
    batch = [
        message("ping", {}, 1),
        message("notifications/initialized"),
        {"jsonrpc": "2.0", "id": 2},
        message("no/such", {}, 3),
        handshake(request_id=4),
        message("tools/call", {"name": "echo", "arguments": {"text": "x"}}, 5),
    ]

    response = await ada.post(batch)

    codes = [(one["id"], one.get("error", {}).get("code")) for one in response.json()]
    assert codes == [(1, None), (2, -32600), (3, -32601), (4, -32600), (5, None)]


async def test_a_cancellation_in_a_batch_ends_the_call(server: LiveServer, gate: Gate) -> None:
    ada = await LegacyClient.open(server, "ada", version=BATCH_VERSION)
    running = asyncio.create_task(ada.call("wait", {"gate": "g"}, "w"))
    await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)

    await ada.post([message("notifications/cancelled", {"requestId": "w"})])

    assert (await running).status == 202
    assert gate.cancelled.is_set()


async def test_a_batch_without_requests_is_accepted(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada", version=BATCH_VERSION)

    response = await ada.post([message("notifications/initialized"), {"jsonrpc": "2.0", "id": "x", "result": {}}])

    assert (response.status, response.body) == (202, b"")


@each_case("version", [version for version in LEGACY_VERSIONS if version != BATCH_VERSION])
async def test_a_batch_is_rejected_in_every_other_version(server: LiveServer, version: str) -> None:
    ada = await LegacyClient.open(server, "ada", version=version)

    response = await ada.post([message("ping", {}, 1)])

    assert (response.status, response.json()["error"]["code"]) == (400, -32600)


@each_case("count", [0, 33])
async def test_an_empty_or_too_large_batch_is_rejected(server: LiveServer, count: int) -> None:
    ada = await LegacyClient.open(server, "ada", version=BATCH_VERSION)

    response = await ada.post([message("ping", {}, n) for n in range(count)])

    assert (response.status, response.json()["error"]["code"]) == (400, -32600)


async def test_every_message_of_a_batch_counts_against_the_rate_limit(tmp_path: Path, samples: SampleCatalog) -> None:
    limited = make_settings(tmp_path, rate_user_per_minute=1, rate_user_burst=10)
    async with live(limited, catalog=samples.catalog) as server:
        ada = await LegacyClient.open(server, "ada", version=BATCH_VERSION)
        assert (await ada.post([message("ping", {}, n) for n in range(6)])).status == 200

        rejected = await ada.post([message("ping", {}, n) for n in range(6)])

        assert rejected.status == 429


async def test_an_unexpected_error_in_a_batch_does_not_affect_the_other_calls(
    server: LiveServer, failures: list[str]
) -> None:
    ada = await LegacyClient.open(server, "ada", version=BATCH_VERSION)

    response = await ada.post([message("resources/read", {"uri": "test://broken"}, 1), message("ping", {}, 2)])

    assert [one["id"] for one in response.json()] == [1, 2]
    assert response.json()[0]["error"]["code"] == -32603
    assert "RuntimeError" in failures.pop()
