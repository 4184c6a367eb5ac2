"""The modern era over HTTP: self-contained requests whose headers match their body."""

import asyncio
import base64
import gc
from pathlib import Path
from typing import Any

import msgspec

from server.protocol.catalog import SUBSCRIPTION_KEY, Change
from server.protocol.dispatcher import SERVER_INFO_KEY
from server.transports.http import WATCH_AFTER_S, DisconnectWatch
from tests.cases import each_case
from tests.live import LiveServer, live, make_settings
from tests.server.clients import ELICITATION, MODERN, ModernClient, message, modern_headers, modern_params, text_of
from tests.server.http_client import WAIT_MAX_S, HttpResponse, fetch
from tests.server.sample_catalog import Gate, SampleCatalog

REMOVED = ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "roots/list")
LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
ECHO = {"name": "echo", "arguments": {"text": "hi"}}


def _error(response: HttpResponse) -> tuple[int, Any, int]:
    body = response.json()
    return response.status, body["id"], body["error"]["code"]


# -- self-contained requests ----------------------------------------------------------------------------------


async def test_discovery_returns_server_info_and_supported_versions(server: LiveServer) -> None:
    response = await (await ModernClient.of(server, "ada")).request("server/discover")

    result = response.json()["result"]
    assert response.status == 200
    assert result["supportedVersions"] == [MODERN]
    assert result["_meta"][SERVER_INFO_KEY]["name"] == "florilegium"
    assert (result["resultType"], result["cacheScope"]) == ("complete", "private")
    assert response.header("mcp-session-id") is None


async def test_a_call_needs_no_handshake_and_creates_no_session(server: LiveServer) -> None:
    ada = await ModernClient.of(server, "ada")

    response = await ada.call("echo", {"text": "hi"}, request_id="c")

    assert response.json()["id"] == "c"
    assert response.json()["result"]["structuredContent"] == {"text": "hi", "user": "ada"}
    assert response.json()["result"]["resultType"] == "complete"
    assert len(server.runtime.sessions) == 0


@each_case("method", LISTS)
async def test_a_list_is_cacheable_by_its_caller_only(server: LiveServer, method: str) -> None:
    result = (await (await ModernClient.of(server, "ada")).request(method)).json()["result"]

    assert result["cacheScope"] == "private"
    assert result["ttlMs"] == server.runtime.dispatcher.options.list_ttl_ms
    assert result["resultType"] == "complete"
    assert SERVER_INFO_KEY in result["_meta"]


async def test_a_session_header_is_ignored(server: LiveServer) -> None:
    response = await (await ModernClient.of(server, "ada")).request(
        "tools/list", headers={"Mcp-Session-Id": "anything"}
    )

    assert response.status == 200
    assert response.header("mcp-session-id") is None


@each_case("method", ["GET", "DELETE"])
async def test_get_and_delete_are_not_allowed(server: LiveServer, method: str) -> None:
    headers = {**await server.bearer("ada"), "MCP-Protocol-Version": MODERN, "Mcp-Session-Id": "anything"}

    assert (await fetch(server.url, method, "/mcp", headers)).status == 405


@each_case("method", [*REMOVED, "no/such"])
async def test_a_removed_or_unknown_method_is_not_found(server: LiveServer, method: str) -> None:
    response = await (await ModernClient.of(server, "ada")).request(method, request_id="m")

    assert _error(response) == (404, "m", -32601)


async def test_a_notification_is_accepted_and_a_response_is_rejected(server: LiveServer) -> None:
    headers = {**modern_headers("notifications/x", {}), **await server.bearer("ada")}

    notification = await fetch(server.url, "POST", "/mcp", headers, msgspec.json.encode(message("notifications/x", {})))
    rejected = await fetch(server.url, "POST", "/mcp", headers, b'{"jsonrpc":"2.0","id":1,"result":{}}')

    assert (notification.status, notification.body) == (202, b"")
    assert rejected.status == 400


# -- meta and headers -------------------------------------------------------------------------------------------


@each_case(
    "meta",
    [
        {"version": None, "capabilities": None},
        {"capabilities": None},
        {"capabilities": "none"},
        {"log_level": "loud"},
    ],
)
async def test_incomplete_meta_is_rejected_as_invalid_params(server: LiveServer, meta: dict[str, Any]) -> None:
    response = await (await ModernClient.of(server, "ada")).request("tools/list", request_id=3, **meta)

    assert _error(response) == (400, 3, -32602)


@each_case("params", [{}, {"_meta": None}, {"_meta": []}])
async def test_a_request_without_meta_is_rejected_as_invalid_params(server: LiveServer, params: dict[str, Any]) -> None:
    headers = {**modern_headers("tools/list", {}), **await server.bearer("ada")}

    response = await fetch(server.url, "POST", "/mcp", headers, msgspec.json.encode(message("tools/list", params, 3)))

    assert _error(response) == (400, 3, -32602)


@each_case("version", ["2099-01-01", "2025-11-25", "draft"])
async def test_an_unsupported_version_is_rejected_with_the_supported_ones(server: LiveServer, version: str) -> None:
    ada = await ModernClient.of(server, "ada")

    response = await ada.request("tools/list", headers={"MCP-Protocol-Version": version}, version=version, request_id=1)

    assert _error(response) == (400, 1, -32022)
    assert response.json()["error"]["data"] == {"supported": [MODERN], "requested": version}


@each_case(
    "headers",
    [
        {"MCP-Protocol-Version": None},
        {"MCP-Protocol-Version": "2025-11-25"},
        {"Mcp-Method": None},
        {"Mcp-Method": "tools/list"},
        {"Mcp-Method": "TOOLS/CALL"},
        {"Mcp-Name": None},
        {"Mcp-Name": ""},
        {"Mcp-Name": "report"},
        {"Mcp-Name": "ECHO"},
        {"Mcp-Name": "=?base64?dGVsbA==?="},
        {"Mcp-Name": "=?base64?ZWNobw?="},
        {"Mcp-Name": "=?base64?!!?="},
        {"Mcp-Name": "=?base64?//8=?="},
    ],
)
async def test_a_missing_or_different_header_is_rejected(server: LiveServer, headers: dict[str, str | None]) -> None:
    response = await (await ModernClient.of(server, "ada")).request("tools/call", ECHO, headers=headers, request_id="h")

    assert _error(response) == (400, "h", -32020)


@each_case(
    "headers",
    [
        {"Mcp-Name": "=?base64?ZWNobw==?="},
        {"Mcp-Name": "  echo \t "},
        {"Mcp-Method": "tools/call   "},
        {"MCP-Protocol-Version": f"\t{MODERN} "},
    ],
)
async def test_an_equivalent_header_is_accepted(server: LiveServer, headers: dict[str, str]) -> None:
    assert (await (await ModernClient.of(server, "ada")).request("tools/call", ECHO, headers=headers)).status == 200


@each_case(
    ("method", "params"),
    [("prompts/get", {"name": "greet", "arguments": {"name": "x"}}), ("resources/read", {"uri": "test://plain"})],
)
async def test_the_name_header_is_checked_for_prompts_and_resources(
    server: LiveServer, method: str, params: Any
) -> None:
    ada = await ModernClient.of(server, "ada")

    assert (await ada.request(method, params)).status == 200
    assert _error(await ada.request(method, params, headers={"Mcp-Name": "other"}, request_id=1)) == (400, 1, -32020)


async def test_a_non_ascii_name_is_sent_in_base64(server: LiveServer) -> None:
    name = "žluťoučký"
    encoded = f"=?base64?{base64.b64encode(name.encode()).decode()}?="

    response = await (await ModernClient.of(server, "ada")).request(
        "tools/call", {"name": name}, headers={"Mcp-Name": encoded}, request_id=1
    )

    assert _error(response) == (400, 1, -32602)
    assert name in response.json()["error"]["message"]


@each_case(
    ("arguments", "headers", "status"),
    [
        ({"region": "eu"}, {"Mcp-Param-Region": "eu"}, 200),
        ({"region": "eu", "shelf": 7}, {"Mcp-Param-Region": "eu", "mcp-param-shelf": "7"}, 200),
        ({"shelf": 7}, {"Mcp-Param-Shelf": "7.0"}, 200),
        ({"region": "é"}, {"Mcp-Param-Region": "=?base64?w6k=?="}, 200),
        ({}, {}, 200),
        ({"region": "eu"}, {}, 400),
        ({}, {"Mcp-Param-Region": "eu"}, 400),
        ({"region": "eu"}, {"Mcp-Param-Region": "us"}, 400),
        ({"region": "eu"}, {"Mcp-Param-Region": "EU"}, 400),
        ({"shelf": 7}, {"Mcp-Param-Shelf": "8"}, 400),
        ({"region": None}, {}, 200),
    ],
)
async def test_mirrored_arguments_must_match_their_headers(
    server: LiveServer, arguments: Any, headers: dict[str, str | None], status: int
) -> None:
    response = await (await ModernClient.of(server, "ada")).call("locate", arguments, headers=headers)

    assert response.status == status
    if status == 400:
        assert response.json()["error"]["code"] == -32020


# -- notifications and disconnects ------------------------------------------------------------------------------


async def test_a_client_without_log_level_receives_no_log_messages(server: LiveServer) -> None:
    response = await (await ModernClient.of(server, "ada")).call("report")

    assert response.header("content-type") == "application/json"


async def test_requested_log_messages_and_progress_are_streamed(server: LiveServer) -> None:
    response = await (await ModernClient.of(server, "ada")).call("report", log_level="error", progress_token="p")

    assert response.header("content-type") == "text/event-stream"
    assert [event.get("method", "response") for event in response.events()] == [
        "notifications/progress",
        "notifications/message",
        "notifications/progress",
        "response",
    ]


async def test_a_disconnect_cancels_the_call(server: LiveServer, gate: Gate) -> None:
    ada = await ModernClient.of(server, "ada")

    async with ada.streaming("tools/call", {"name": "wait", "arguments": {"gate": "g"}}):
        await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)

    await asyncio.wait_for(gate.cancelled.wait(), WAIT_MAX_S)
    assert (await ada.call("echo")).status == 200


async def test_a_disconnect_during_a_stream_cancels_the_call(server: LiveServer, gate: Gate) -> None:
    ada = await ModernClient.of(server, "ada")
    params = {"name": "wait", "arguments": {"gate": "g"}}

    async with ada.streaming("tools/call", params, progress_token=1) as connection:
        await connection.head()
        assert (await connection.event())["method"] == "notifications/progress"

    await asyncio.wait_for(gate.cancelled.wait(), WAIT_MAX_S)
    assert (await ada.call("echo")).status == 200


async def test_a_disconnect_while_receiving_a_large_result_is_harmless(
    server: LiveServer, shared: SampleCatalog
) -> None:
    ada, gate = await ModernClient.of(server, "ada"), shared.gates["x" * 1_000_000]

    async with ada.streaming("tools/call", {"name": "wait", "arguments": {"gate": "x" * 1_000_000}}) as connection:
        await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)
        await asyncio.sleep(2 * WATCH_AFTER_S)  # until the transport watches for a disconnect
        gate.opened.set()
        await connection.head()

    assert (await ada.call("echo")).status == 200


async def test_a_disconnect_with_unread_notifications_is_harmless(
    server: LiveServer,
) -> None:
    ada = await ModernClient.of(server, "ada")
    params = {"name": "shout", "arguments": {"text": "x" * 1000, "times": 10_000}}

    async with ada.streaming("tools/call", params, log_level="debug") as connection:
        await connection.head()
        await asyncio.sleep(2 * WATCH_AFTER_S)  # until the transport watches for a disconnect

    assert (await ada.call("echo")).status == 200


async def test_a_long_call_leaves_nothing_to_the_garbage_collector(server: LiveServer, gate: Gate) -> None:
    """The garbage collector stops all calls while it looks for cycles."""
    ada = await ModernClient.of(server, "ada")
    gc.collect()
    gc.disable()
    try:
        call = asyncio.create_task(ada.call("wait", {"gate": "g"}))
        await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)
        await asyncio.sleep(2 * WATCH_AFTER_S)  # until the transport watches for a disconnect
        gate.opened.set()
        assert (await call).status == 200
        async with asyncio.timeout(WAIT_MAX_S):
            while any(isinstance(one, DisconnectWatch) for one in gc.get_objects()):
                await asyncio.sleep(0.01)
    finally:
        gc.enable()


# -- rounds of one call -----------------------------------------------------------------------------------------


async def _first_round(client: ModernClient, text: str = "hi") -> dict[str, Any]:
    response = await client.call("ask_name", {"text": text}, capabilities=ELICITATION)
    result: dict[str, Any] = response.json()["result"]
    assert result["resultType"] == "input_required"
    return result


async def _second_round(client: ModernClient, state: Any, text: str = "hi") -> HttpResponse:
    responses = {"name": {"action": "accept", "content": {"name": "Ada"}}}
    extra = {"inputResponses": responses, "requestState": state}
    return await client.call("ask_name", {"text": text}, extra=extra, capabilities=ELICITATION, request_id="again")


async def test_required_input_is_sent_in_a_second_round(server: LiveServer) -> None:
    ada = await ModernClient.of(server, "ada")

    response = await _second_round(ada, (await _first_round(ada))["requestState"])

    assert "Ada: hi" in text_of(response.json()["result"])


async def test_state_of_another_user_is_rejected(server: LiveServer) -> None:
    ada, ben = await ModernClient.of(server, "ada"), await ModernClient.of(server, "ben")

    rejected = await _second_round(ben, (await _first_round(ada))["requestState"])

    assert _error(rejected) == (400, "again", -32602)


@each_case("state", ["", "invalid", "AAAA", 7, [], "=" * 100])
async def test_invalid_state_is_rejected(server: LiveServer, state: Any) -> None:
    assert _error(await _second_round(await ModernClient.of(server, "ada"), state)) == (400, "again", -32602)


async def test_input_that_the_client_cannot_provide_is_a_missing_capability(server: LiveServer) -> None:
    response = await (await ModernClient.of(server, "ada")).call("ask_name", request_id=1)

    assert _error(response) == (400, 1, -32021)
    assert response.json()["error"]["data"] == {"requiredCapabilities": {"elicitation": {}}}


# -- subscriptions/listen ---------------------------------------------------------------------------------------


async def test_listening_acknowledges_and_sends_subscribed_changes(tmp_path: Path, samples: SampleCatalog) -> None:
    requested = {"promptsListChanged": True, "resourceSubscriptions": ["test://plain"]}
    async with live(make_settings(tmp_path, access_recheck_s=0.05), catalog=samples.catalog) as server:
        ada, ada_id, ben_id = (
            await ModernClient.of(server, "ada"),
            (await server.user("ada")).id,
            (await server.user("ben")).id,
        )

        async with ada.streaming("subscriptions/listen", {"notifications": requested}, "sub") as connection:
            status, headers = await connection.head()
            acknowledgement = await connection.event()
            for user_id, uri in ((ben_id, "test://plain"), (ada_id, "test://other"), (ada_id, "test://plain")):
                samples.catalog.changes.publish(Change("updated", uri, user_id))
            samples.catalog.changes.publish(Change("tools"))
            samples.catalog.changes.publish(Change("prompts"))
            events = [await connection.event(), await connection.event()]

    assert (status, dict(headers)["content-type"]) == (200, "text/event-stream")
    assert acknowledgement["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledgement["params"]["notifications"] == requested
    assert [event["method"] for event in events] == [
        "notifications/resources/updated",
        "notifications/prompts/list_changed",
    ]
    assert all(event["params"]["_meta"] == {SUBSCRIPTION_KEY: "sub"} for event in (acknowledgement, *events))


async def test_listening_requires_accept_event_stream(server: LiveServer) -> None:
    ada = await ModernClient.of(server, "ada")

    response = await ada.request(
        "subscriptions/listen", {"notifications": {}}, headers={"Accept": "application/json"}, request_id=1
    )

    assert _error(response) == (406, 1, -32600)


async def test_streams_per_user_are_limited(tmp_path: Path, samples: SampleCatalog) -> None:
    settings = make_settings(tmp_path, stream_max_per_user=1, access_recheck_s=0.05)
    async with live(settings, catalog=samples.catalog) as server:
        ada, ben = await ModernClient.of(server, "ada"), await ModernClient.of(server, "ben")
        listen = {"notifications": {"toolsListChanged": True}}
        async with ada.streaming("subscriptions/listen", listen) as connection:
            await connection.head()

            rejected = await ada.request("subscriptions/listen", listen, request_id=2)

            assert _error(rejected) == (503, 2, 503)
            assert int(rejected.header("retry-after") or 0) >= 1
            async with ben.streaming("subscriptions/listen", listen) as other:
                assert (await other.head())[0] == 200


# -- errors -----------------------------------------------------------------------------------------------------


async def test_a_missing_resource_is_invalid_params_with_its_uri(server: LiveServer) -> None:
    response = await (await ModernClient.of(server, "ada")).request(
        "resources/read", {"uri": "test://nowhere"}, request_id=1
    )

    assert _error(response) == (400, 1, -32602)
    assert response.json()["error"]["data"] == {"uri": "test://nowhere"}


async def test_an_unexpected_error_is_reported_under_the_request_id(server: LiveServer, failures: list[str]) -> None:
    response = await (await ModernClient.of(server, "ada")).request(
        "resources/read", {"uri": "test://broken"}, request_id="r"
    )

    assert _error(response) == (500, "r", -32603)
    assert "RuntimeError" in failures.pop()


async def test_a_request_with_modern_meta_is_modern_without_a_version_header(server: LiveServer) -> None:
    headers = {"Content-Type": "application/json", **await server.bearer("ada")}
    body = msgspec.json.encode(message("tools/list", modern_params(), 1))

    assert _error(await fetch(server.url, "POST", "/mcp", headers, body)) == (400, 1, -32020)
