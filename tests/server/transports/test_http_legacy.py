"""The legacy era over HTTP: handshake, session, streams, batches and cancellation, as its revisions say."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from server.protocol.changes import Change
from server.protocol.versions import BATCH_VERSION, LEGACY_VERSIONS
from tests.live import LiveServer, live, make_settings
from tests.server.clients import ELICITATION, JSON_AND_EVENTS, LegacyClient, handshake, message, text_of
from tests.server.http_client import WAIT_MAX_S, fetch
from tests.server.sample_catalog import Gate, SampleCatalog

pytestmark = pytest.mark.asyncio(loop_scope="module")

UNKNOWN_SESSION = {"Mcp-Session-Id": "no-such-session"}


# -- handshake and session --------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [*LEGACY_VERSIONS, "2024-10-07", "2026-07-28", "", "latest"])
async def test_the_handshake_answers_the_asked_version_or_the_newest_legacy_one(server: LiveServer, asked: str) -> None:
    answer = await LegacyClient(server, await server.bearer("ada")).post(handshake(asked))

    result = answer.json()["result"]
    assert result["protocolVersion"] == (asked if asked in LEGACY_VERSIONS else "2025-11-25")
    assert result["serverInfo"]["name"] == "florilegium"
    assert {"tools", "resources", "prompts", "logging", "completions"} <= set(result["capabilities"])
    assert len(answer.header("mcp-session-id") or "") >= 43


async def test_a_handshake_without_its_parameters_is_refused_under_its_id(server: LiveServer) -> None:
    answer = await LegacyClient(server, await server.bearer("ada")).post(message("initialize", {}, "i"))

    assert answer.status == 400
    assert (answer.json()["id"], answer.json()["error"]["code"]) == ("i", -32602)
    assert answer.header("mcp-session-id") is None


async def test_a_session_lists_and_calls(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    assert (await ada.notify("notifications/initialized")).status == 202
    assert "echo" in {tool["name"] for tool in (await ada.request("tools/list")).json()["result"]["tools"]}
    assert text_of((await ada.call("echo", {"text": "hi"})).json()["result"]) == '{"text":"hi","user":"ada"}'


async def test_ping_is_answered_with_nothing(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    assert (await ada.request("ping", request_id="p")).json() == {"jsonrpc": "2.0", "id": "p", "result": {}}


async def test_a_request_without_a_session_is_a_bad_request(server: LiveServer) -> None:
    answer = await LegacyClient(server, await server.bearer("ada")).request("tools/list", request_id=5)

    assert answer.status == 400
    assert (answer.json()["id"], answer.json()["error"]["code"]) == (5, -32600)


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_an_unknown_session_is_not_found(server: LiveServer, method: str) -> None:
    headers = {**JSON_AND_EVENTS, **await server.bearer("ada"), **UNKNOWN_SESSION}
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}' if method == "POST" else None

    assert (await fetch(server.url, method, "/mcp", headers, body)).status == 404


async def test_a_deleted_session_is_not_found_afterwards(server: LiveServer) -> None:
    ada, other = await LegacyClient.open(server, "ada"), await LegacyClient.open(server, "ada")

    assert (await ada.delete()).status == 204
    assert (await ada.delete()).status == 404
    assert (await ada.request("ping")).status == 404
    assert (await ada.get()).status == 404
    assert (await other.request("ping")).status == 200


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_stream_or_an_end_without_a_session_is_not_allowed(server: LiveServer, method: str) -> None:
    answer = await fetch(server.url, method, "/mcp", await server.bearer("ada"))

    assert answer.status == 405
    assert answer.header("allow") == "POST, GET, DELETE"


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "HEAD"])
async def test_other_methods_are_not_allowed(server: LiveServer, method: str) -> None:
    assert (await fetch(server.url, method, "/mcp", await server.bearer("ada"))).status == 405


async def test_a_trailing_slash_is_served_without_a_redirect(server: LiveServer) -> None:
    headers = {**JSON_AND_EVENTS, **await server.bearer("ada")}

    answer = await fetch(server.url, "POST", "/mcp/", headers, b'{"jsonrpc":"2.0","id":1,"method":"ping"}')

    assert answer.status == 400
    assert "Mcp-Session-Id" in answer.json()["error"]["message"]


@pytest.mark.parametrize("version", ["2025-11-26", "latest", "1", ""])
async def test_a_version_header_that_names_no_version_is_a_bad_request(server: LiveServer, version: str) -> None:
    ada = await LegacyClient.open(server, "ada")

    answer = await ada.post(message("ping", {}, 1), {"MCP-Protocol-Version": version})

    assert answer.status == 400
    assert answer.json()["id"] == 1
    assert answer.json()["error"]["data"]["requested"] == version


@pytest.mark.parametrize("version", LEGACY_VERSIONS)
async def test_each_legacy_version_header_is_accepted(server: LiveServer, version: str) -> None:
    ada = await LegacyClient.open(server, "ada", version=version)

    assert (await ada.post(message("ping", {}, 1), {"MCP-Protocol-Version": version})).status == 200


async def test_a_session_unused_for_its_time_is_gone(tmp_path: Path, samples: SampleCatalog) -> None:
    async with live(make_settings(tmp_path, session_ttl_s=0.02), catalog=samples.catalog) as server:
        ada = await LegacyClient.open(server, "ada")
        await asyncio.sleep(0.03)

        assert (await ada.request("ping")).status == 404


async def test_too_many_sessions_of_all_users_are_refused_with_a_wait(tmp_path: Path, samples: SampleCatalog) -> None:
    async with live(make_settings(tmp_path, session_max=1), catalog=samples.catalog) as server:
        ada = await LegacyClient.open(server, "ada")

        refused = await LegacyClient(server, await server.bearer("ben")).post(handshake(request_id=3))

        assert refused.status == 503
        assert refused.json()["id"] == 3
        assert int(refused.header("retry-after") or 0) >= 1
        assert (await ada.request("ping")).status == 200


# -- answers ----------------------------------------------------------------------------------------------------


async def test_a_call_with_nothing_to_say_on_the_way_is_answered_as_plain_json(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    answer = await ada.call("echo")

    assert answer.header("content-type") == "application/json"
    assert answer.header("mcp-session-id") is None


@pytest.mark.parametrize("request_id", [0, 1, -7, 2**53, 2**80, "", "a", "日本", "\x00", "x" * 1000])
async def test_any_id_comes_back_as_it_was_sent(server: LiveServer, request_id: Any) -> None:
    ada = await LegacyClient.open(server, "ada")

    assert (await ada.post(message("ping", {}, request_id))).json()["id"] == request_id


@pytest.mark.parametrize("method", ["no/such", "server/discover/x", "subscriptions/listen", "rpc.discover", ""])
async def test_an_unknown_method_is_an_error_inside_a_served_answer(server: LiveServer, method: str) -> None:
    ada = await LegacyClient.open(server, "ada")

    answer = await ada.request(method, request_id="m")

    assert answer.status == 200
    assert (answer.json()["id"], answer.json()["error"]["code"]) == ("m", -32601)


async def test_a_failure_nobody_foresaw_is_answered_under_the_id_of_its_request(
    server: LiveServer, failures: list[str]
) -> None:
    ada = await LegacyClient.open(server, "ada")

    answer = await ada.request("resources/read", {"uri": "test://broken"}, "r")

    assert answer.status == 500
    assert (answer.json()["id"], answer.json()["error"]["code"]) == ("r", -32603)
    assert (answer.header("x-request-id") or "?") in answer.json()["error"]["message"]
    assert "RuntimeError" in failures.pop()


@pytest.mark.parametrize(
    "body",
    [
        message("notifications/initialized"),
        message("notifications/unheard-of", {"a": 1}),
        {"jsonrpc": "2.0", "id": "nobody asked", "result": {}},
        {"jsonrpc": "2.0", "id": "nobody asked", "error": {"code": 1, "message": "m"}},
    ],
)
async def test_what_is_owed_no_answer_is_accepted_with_an_empty_body(server: LiveServer, body: Any) -> None:
    ada = await LegacyClient.open(server, "ada")

    answer = await ada.post(body)

    assert (answer.status, answer.body) == (202, b"")


# -- streams ----------------------------------------------------------------------------------------------------


async def test_progress_and_log_lines_turn_the_answer_into_a_stream(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    params = {"name": "report", "arguments": {}, "_meta": {"progressToken": 7}}
    answer = await ada.request("tools/call", params, "t")

    assert answer.header("content-type") == "text/event-stream"
    assert answer.header("x-accel-buffering") == "no"
    assert [event.get("method", "answer") for event in answer.events()] == [
        "notifications/progress",
        *["notifications/message"] * 3,
        "notifications/progress",
        "answer",
    ]
    assert answer.events()[-1]["id"] == "t"


async def test_a_set_level_filters_the_lines_of_that_session_only(server: LiveServer) -> None:
    ada, ben = await LegacyClient.open(server, "ada"), await LegacyClient.open(server, "ben")
    assert (await ada.request("logging/setLevel", {"level": "error"})).json()["result"] == {}

    heard = [[e["params"]["level"] for e in (await c.call("report")).events() if "method" in e] for c in (ada, ben)]

    assert heard == [["error"], ["debug", "info", "error"]]


async def test_a_client_that_takes_no_stream_gets_the_answer_alone(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    answer = await ada.post(message("tools/call", {"name": "report"}, 1), {"Accept": "application/json"})

    assert answer.header("content-type") == "application/json"
    assert "reported" in text_of(answer.json()["result"])


async def test_a_question_is_asked_over_the_stream_and_answered_by_a_post(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada", capabilities=ELICITATION)

    async with ada.streaming(message("tools/call", {"name": "ask_name", "arguments": {"text": "hi"}}, 1)) as wire:
        assert (await wire.head())[0] == 200
        question = await wire.event()
        reply = {"action": "accept", "content": {"name": "Ada"}}
        accepted = await ada.post({"jsonrpc": "2.0", "id": question["id"], "result": reply})
        answer = await wire.event()
        assert await wire.event() is None

    assert accepted.status == 202
    assert question["method"] == "elicitation/create"
    assert "Ada: hi" in text_of(answer["result"])


async def test_a_question_to_a_client_without_the_capability_is_an_error(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    answer = await ada.call("ask_name")

    assert answer.json()["error"]["code"] == -32021


async def test_a_question_to_a_client_that_takes_no_stream_is_an_error_and_not_a_stream(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada", capabilities=ELICITATION)

    answer = await ada.post(message("tools/call", {"name": "ask_name"}, 1), {"Accept": "application/json"})

    assert answer.header("content-type") == "application/json"
    assert answer.json()["error"]["code"] == -32021


async def test_news_come_over_the_get_stream_of_the_user_they_concern(tmp_path: Path, samples: SampleCatalog) -> None:
    async with live(make_settings(tmp_path, access_recheck_s=0.05), catalog=samples.catalog) as server:
        ada, ben = await LegacyClient.open(server, "ada"), await LegacyClient.open(server, "ben")
        for client in (ada, ben):
            await client.request("resources/subscribe", {"uri": "test://plain"})
        async with ada.listening() as to_ada, ben.listening() as to_ben:
            samples.catalog.changes.publish(Change("updated", "test://plain", (await server.user("ada")).id))
            samples.catalog.changes.publish(Change("tools"))

            heard = [(await to_ada.event())["method"], (await to_ada.event())["method"]]
            assert heard == ["notifications/resources/updated", "notifications/tools/list_changed"]
            assert (await to_ben.event())["method"] == "notifications/tools/list_changed"


# -- cancellation -----------------------------------------------------------------------------------------------


async def test_a_cancelled_call_ends_without_an_answer(server: LiveServer, gate: Gate) -> None:
    ada = await LegacyClient.open(server, "ada")
    running = asyncio.create_task(ada.call("wait", {"gate": "g"}, "w"))
    await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)

    assert (await ada.notify("notifications/cancelled", {"requestId": "w"})).status == 202

    answer = await running
    assert (answer.status, answer.body) == (202, b"")
    assert gate.cancelled.is_set()
    assert (await ada.request("ping")).status == 200


async def test_a_cancelled_stream_ends_without_an_answer(server: LiveServer, gate: Gate) -> None:
    ada = await LegacyClient.open(server, "ada")
    params = {"name": "wait", "arguments": {"gate": "g"}, "_meta": {"progressToken": 1}}

    async with ada.streaming(message("tools/call", params, "w")) as wire:
        await wire.head()
        assert (await wire.event())["method"] == "notifications/progress"
        await ada.notify("notifications/cancelled", {"requestId": "w"})

        assert await wire.event() is None
    assert gate.cancelled.is_set()


async def test_a_client_that_hangs_up_has_not_cancelled_its_call(server: LiveServer, gate: Gate) -> None:
    ada = await LegacyClient.open(server, "ada")

    async with ada.streaming(message("tools/call", {"name": "wait", "arguments": {"gate": "g"}}, 1)):
        await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)
    await asyncio.sleep(0.1)

    assert not gate.cancelled.is_set()
    gate.opened.set()
    assert (await ada.request("ping")).status == 200


# -- batches ----------------------------------------------------------------------------------------------------


async def test_a_batch_is_answered_together_in_the_one_version_that_has_batches(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada", version=BATCH_VERSION)
    batch = [
        message("ping", {}, 1),
        message("notifications/initialized"),
        {"jsonrpc": "2.0", "id": 2},
        message("no/such", {}, 3),
        handshake(request_id=4),
        message("tools/call", {"name": "echo", "arguments": {"text": "x"}}, 5),
    ]

    answer = await ada.post(batch)

    codes = [(one["id"], one.get("error", {}).get("code")) for one in answer.json()]
    assert codes == [(1, None), (2, -32600), (3, -32601), (4, -32600), (5, None)]


async def test_a_batch_that_is_owed_nothing_is_accepted(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada", version=BATCH_VERSION)

    answer = await ada.post([message("notifications/initialized"), {"jsonrpc": "2.0", "id": "x", "result": {}}])

    assert (answer.status, answer.body) == (202, b"")


@pytest.mark.parametrize("version", [version for version in LEGACY_VERSIONS if version != BATCH_VERSION])
async def test_a_batch_is_refused_in_every_other_version(server: LiveServer, version: str) -> None:
    ada = await LegacyClient.open(server, "ada", version=version)

    answer = await ada.post([message("ping", {}, 1)])

    assert (answer.status, answer.json()["error"]["code"]) == (400, -32600)


@pytest.mark.parametrize("count", [0, 33])
async def test_an_empty_or_overfull_batch_is_refused_whole(server: LiveServer, count: int) -> None:
    ada = await LegacyClient.open(server, "ada", version=BATCH_VERSION)

    answer = await ada.post([message("ping", {}, n) for n in range(count)])

    assert (answer.status, answer.json()["error"]["code"]) == (400, -32600)


async def test_every_call_of_a_batch_counts_against_the_users_rate(tmp_path: Path, samples: SampleCatalog) -> None:
    limited = make_settings(tmp_path, rate_user_per_minute=1, rate_user_burst=10)
    async with live(limited, catalog=samples.catalog) as server:
        ada = await LegacyClient.open(server, "ada", version=BATCH_VERSION)
        assert (await ada.post([message("ping", {}, n) for n in range(6)])).status == 200

        refused = await ada.post([message("ping", {}, n) for n in range(6)])

        assert refused.status == 429


async def test_a_call_that_fails_unforeseen_in_a_batch_is_answered_and_so_are_the_others(
    server: LiveServer, failures: list[str]
) -> None:
    ada = await LegacyClient.open(server, "ada", version=BATCH_VERSION)

    answer = await ada.post([message("resources/read", {"uri": "test://broken"}, 1), message("ping", {}, 2)])

    assert [one["id"] for one in answer.json()] == [1, 2]
    assert answer.json()[0]["error"]["code"] == -32603
    assert "RuntimeError" in failures.pop()
