"""The modern era over HTTP: every request stands alone, and says in its headers what it says in its body."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from server.protocol.changes import Change
from server.protocol.dispatcher import SERVER_INFO_KEY
from server.protocol.subscriptions import SUBSCRIPTION_KEY
from tests.live import LiveServer, live, make_settings
from tests.server.clients import ELICITATION, MODERN, ModernClient, message, modern_headers, modern_params, text_of
from tests.server.http_client import WAIT_MAX_S, HttpResponse, fetch
from tests.server.sample_catalog import Gate, SampleCatalog

pytestmark = pytest.mark.asyncio(loop_scope="module")

REMOVED = ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "roots/list")
LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
ECHO = {"name": "echo", "arguments": {"text": "hi"}}


def _error(answer: HttpResponse) -> tuple[int, Any, int]:
    body = answer.json()
    return answer.status, body["id"], body["error"]["code"]


# -- requests that stand alone ----------------------------------------------------------------------------------


async def test_discovery_says_who_we_are_and_what_we_speak(server: LiveServer) -> None:
    answer = await (await ModernClient.of(server, "ada")).request("server/discover")

    result = answer.json()["result"]
    assert answer.status == 200
    assert result["supportedVersions"] == [MODERN]
    assert result["_meta"][SERVER_INFO_KEY]["name"] == "florilegium"
    assert (result["resultType"], result["cacheScope"]) == ("complete", "private")
    assert answer.header("mcp-session-id") is None


async def test_a_call_needs_no_handshake_and_makes_no_session(server: LiveServer) -> None:
    ada = await ModernClient.of(server, "ada")

    answer = await ada.call("echo", {"text": "hi"}, request_id="c")

    assert answer.json()["id"] == "c"
    assert answer.json()["result"]["structuredContent"] == {"text": "hi", "user": "ada"}
    assert answer.json()["result"]["resultType"] == "complete"
    assert len(server.runtime.sessions) == 0


@pytest.mark.parametrize("method", LISTS)
async def test_a_list_may_be_kept_by_its_caller_only(server: LiveServer, method: str) -> None:
    result = (await (await ModernClient.of(server, "ada")).request(method)).json()["result"]

    assert result["cacheScope"] == "private"
    assert result["ttlMs"] == server.runtime.settings.list_ttl_ms
    assert result["resultType"] == "complete"
    assert SERVER_INFO_KEY in result["_meta"]


async def test_a_session_header_is_ignored_and_never_echoed(server: LiveServer) -> None:
    answer = await (await ModernClient.of(server, "ada")).request("tools/list", headers={"Mcp-Session-Id": "anything"})

    assert answer.status == 200
    assert answer.header("mcp-session-id") is None


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_there_is_no_stream_and_no_session_to_end(server: LiveServer, method: str) -> None:
    headers = {**await server.bearer("ada"), "MCP-Protocol-Version": MODERN, "Mcp-Session-Id": "anything"}

    assert (await fetch(server.url, method, "/mcp", headers)).status == 405


@pytest.mark.parametrize("method", [*REMOVED, "no/such"])
async def test_a_removed_or_unknown_method_is_not_found(server: LiveServer, method: str) -> None:
    answer = await (await ModernClient.of(server, "ada")).request(method, request_id="m")

    assert _error(answer) == (404, "m", -32601)


async def test_a_notification_is_accepted_and_an_answer_is_not(server: LiveServer) -> None:
    headers = {**modern_headers("notifications/x", {}), **await server.bearer("ada")}

    noted = await fetch(server.url, "POST", "/mcp", headers, msgspec.json.encode(message("notifications/x", {})))
    answered = await fetch(server.url, "POST", "/mcp", headers, b'{"jsonrpc":"2.0","id":1,"result":{}}')

    assert (noted.status, noted.body) == (202, b"")
    assert answered.status == 400


# -- envelope and headers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "meta",
    [
        {"version": None, "capabilities": None},
        {"capabilities": None},
        {"capabilities": "none"},
        {"log_level": "loud"},
    ],
)
async def test_an_envelope_that_lacks_something_is_bad_parameters(server: LiveServer, meta: dict[str, Any]) -> None:
    answer = await (await ModernClient.of(server, "ada")).request("tools/list", request_id=3, **meta)

    assert _error(answer) == (400, 3, -32602)


@pytest.mark.parametrize("params", [{}, {"_meta": None}, {"_meta": []}])
async def test_a_request_without_an_envelope_is_bad_parameters(server: LiveServer, params: dict[str, Any]) -> None:
    headers = {**modern_headers("tools/list", {}), **await server.bearer("ada")}

    answer = await fetch(server.url, "POST", "/mcp", headers, msgspec.json.encode(message("tools/list", params, 3)))

    assert _error(answer) == (400, 3, -32602)


@pytest.mark.parametrize("version", ["2099-01-01", "2025-11-25", "draft"])
async def test_a_version_we_do_not_speak_is_refused_with_those_we_do(server: LiveServer, version: str) -> None:
    ada = await ModernClient.of(server, "ada")

    answer = await ada.request("tools/list", headers={"MCP-Protocol-Version": version}, version=version, request_id=1)

    assert _error(answer) == (400, 1, -32022)
    assert answer.json()["error"]["data"] == {"supported": [MODERN], "requested": version}


@pytest.mark.parametrize(
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
async def test_a_header_that_is_missing_or_says_something_else_is_refused(
    server: LiveServer, headers: dict[str, str | None]
) -> None:
    answer = await (await ModernClient.of(server, "ada")).request("tools/call", ECHO, headers=headers, request_id="h")

    assert _error(answer) == (400, "h", -32020)


@pytest.mark.parametrize(
    "headers",
    [
        {"Mcp-Name": "=?base64?ZWNobw==?="},
        {"Mcp-Name": "  echo \t "},
        {"Mcp-Method": "tools/call   "},
        {"MCP-Protocol-Version": f"\t{MODERN} "},
    ],
)
async def test_a_header_that_says_the_same_in_other_bytes_is_accepted(
    server: LiveServer, headers: dict[str, str]
) -> None:
    assert (await (await ModernClient.of(server, "ada")).request("tools/call", ECHO, headers=headers)).status == 200


@pytest.mark.parametrize(
    ("method", "params"),
    [("prompts/get", {"name": "greet", "arguments": {"name": "x"}}), ("resources/read", {"uri": "test://plain"})],
)
async def test_prompts_and_resources_are_named_in_the_header_too(server: LiveServer, method: str, params: Any) -> None:
    ada = await ModernClient.of(server, "ada")

    assert (await ada.request(method, params)).status == 200
    assert _error(await ada.request(method, params, headers={"Mcp-Name": "other"}, request_id=1)) == (400, 1, -32020)


async def test_a_name_no_header_can_hold_is_sent_in_base64(server: LiveServer) -> None:
    name = "žluťoučký"
    encoded = f"=?base64?{base64.b64encode(name.encode()).decode()}?="

    answer = await (await ModernClient.of(server, "ada")).request(
        "tools/call", {"name": name}, headers={"Mcp-Name": encoded}, request_id=1
    )

    assert _error(answer) == (400, 1, -32602)
    assert name in answer.json()["error"]["message"]


@pytest.mark.parametrize(
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
async def test_marked_arguments_are_repeated_in_headers_and_compared(
    server: LiveServer, arguments: Any, headers: dict[str, str | None], status: int
) -> None:
    answer = await (await ModernClient.of(server, "ada")).call("locate", arguments, headers=headers)

    assert answer.status == status
    if status == 400:
        assert answer.json()["error"]["code"] == -32020


# -- what a call says on the way --------------------------------------------------------------------------------


async def test_nothing_is_logged_to_a_client_that_did_not_ask(server: LiveServer) -> None:
    answer = await (await ModernClient.of(server, "ada")).call("report")

    assert answer.header("content-type") == "application/json"


async def test_log_lines_and_progress_are_streamed_to_a_client_that_asked(server: LiveServer) -> None:
    answer = await (await ModernClient.of(server, "ada")).call("report", log_level="error", progress_token="p")

    assert answer.header("content-type") == "text/event-stream"
    assert [event.get("method", "answer") for event in answer.events()] == [
        "notifications/progress",
        "notifications/message",
        "notifications/progress",
        "answer",
    ]


async def test_a_client_that_hangs_up_cancels_its_call(server: LiveServer, gate: Gate) -> None:
    ada = await ModernClient.of(server, "ada")

    async with ada.streaming("tools/call", {"name": "wait", "arguments": {"gate": "g"}}):
        await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)

    await asyncio.wait_for(gate.cancelled.wait(), WAIT_MAX_S)
    assert (await ada.call("echo")).status == 200


async def test_a_client_that_hangs_up_in_its_stream_cancels_its_call(server: LiveServer, gate: Gate) -> None:
    ada = await ModernClient.of(server, "ada")
    params = {"name": "wait", "arguments": {"gate": "g"}}

    async with ada.streaming("tools/call", params, progress_token=1) as wire:
        await wire.head()
        assert (await wire.event())["method"] == "notifications/progress"

    await asyncio.wait_for(gate.cancelled.wait(), WAIT_MAX_S)
    assert (await ada.call("echo")).status == 200


async def test_a_client_that_hangs_up_while_it_is_told_a_large_answer_does_no_harm(
    server: LiveServer, shared: SampleCatalog
) -> None:
    ada, gate = await ModernClient.of(server, "ada"), shared.gates["x" * 1_000_000]

    async with ada.streaming("tools/call", {"name": "wait", "arguments": {"gate": "x" * 1_000_000}}) as wire:
        await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)
        await asyncio.sleep(0.1)  # past the moment from which the door watches for a disconnect
        gate.opened.set()
        await wire.head()

    assert (await ada.call("echo")).status == 200


async def test_a_client_that_hangs_up_before_it_has_read_what_came_before_the_answer_does_no_harm(
    server: LiveServer,
) -> None:
    ada = await ModernClient.of(server, "ada")
    loud = {"name": "shout", "arguments": {"text": "x" * 1000, "times": 10_000}}

    async with ada.streaming("tools/call", loud, log_level="debug") as wire:
        await wire.head()
        await asyncio.sleep(0.1)  # the answer waits for room, and the door watches for a disconnect

    assert (await ada.call("echo")).status == 200


# -- rounds of one call -----------------------------------------------------------------------------------------


async def _asked(client: ModernClient, text: str = "hi") -> dict[str, Any]:
    answer = await client.call("ask_name", {"text": text}, capabilities=ELICITATION)
    result: dict[str, Any] = answer.json()["result"]
    assert result["resultType"] == "input_required"
    return result


async def _retry(client: ModernClient, state: Any, text: str = "hi") -> HttpResponse:
    answers = {"name": {"action": "accept", "content": {"name": "Ada"}}}
    extra = {"inputResponses": answers, "requestState": state}
    return await client.call("ask_name", {"text": text}, extra=extra, capabilities=ELICITATION, request_id="again")


async def test_a_question_is_answered_in_a_second_round(server: LiveServer) -> None:
    ada = await ModernClient.of(server, "ada")

    answer = await _retry(ada, (await _asked(ada))["requestState"])

    assert "Ada: hi" in text_of(answer.json()["result"])


async def test_state_of_another_user_is_refused(server: LiveServer) -> None:
    ada, ben = await ModernClient.of(server, "ada"), await ModernClient.of(server, "ben")

    stolen = await _retry(ben, (await _asked(ada))["requestState"])

    assert _error(stolen) == (400, "again", -32602)


@pytest.mark.parametrize("state", ["", "rubbish", "AAAA", 7, [], "=" * 100])
async def test_state_that_is_not_ours_is_refused(server: LiveServer, state: Any) -> None:
    assert _error(await _retry(await ModernClient.of(server, "ada"), state)) == (400, "again", -32602)


async def test_state_for_other_arguments_is_refused(server: LiveServer) -> None:
    ada = await ModernClient.of(server, "ada")

    answer = await _retry(ada, (await _asked(ada, "one thing"))["requestState"], "another thing")

    assert _error(answer) == (400, "again", -32602)


async def test_tampered_state_is_refused(server: LiveServer) -> None:
    ada = await ModernClient.of(server, "ada")
    raw = bytearray(base64.urlsafe_b64decode((await _asked(ada))["requestState"]))
    raw[-3] ^= 1

    assert _error(await _retry(ada, base64.urlsafe_b64encode(raw).decode())) == (400, "again", -32602)


async def test_a_question_the_client_cannot_answer_is_refused_by_the_capability(server: LiveServer) -> None:
    answer = await (await ModernClient.of(server, "ada")).call("ask_name", request_id=1)

    assert _error(answer) == (400, 1, -32021)
    assert answer.json()["error"]["data"] == {"requiredCapabilities": {"elicitation": {}}}


# -- subscriptions/listen ---------------------------------------------------------------------------------------


async def test_listening_is_acknowledged_first_and_filtered(tmp_path: Path, samples: SampleCatalog) -> None:
    wanted = {"promptsListChanged": True, "resourceSubscriptions": ["test://plain"]}
    async with live(make_settings(tmp_path, access_recheck_s=0.05), catalog=samples.catalog) as server:
        ada, ada_id, ben_id = (
            await ModernClient.of(server, "ada"),
            (await server.user("ada")).id,
            (await server.user("ben")).id,
        )

        async with ada.streaming("subscriptions/listen", {"notifications": wanted}, "sub") as wire:
            status, headers = await wire.head()
            acknowledged = await wire.event()
            for user_id, uri in ((ben_id, "test://plain"), (ada_id, "test://other"), (ada_id, "test://plain")):
                samples.catalog.changes.publish(Change("updated", uri, user_id))
            samples.catalog.changes.publish(Change("tools"))
            samples.catalog.changes.publish(Change("prompts"))
            news = [await wire.event(), await wire.event()]

    assert (status, dict(headers)["content-type"]) == (200, "text/event-stream")
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"]["notifications"] == wanted
    assert [event["method"] for event in news] == [
        "notifications/resources/updated",
        "notifications/prompts/list_changed",
    ]
    assert all(event["params"]["_meta"] == {SUBSCRIPTION_KEY: "sub"} for event in (acknowledged, *news))


async def test_listening_without_a_stream_to_hear_by_is_not_acceptable(server: LiveServer) -> None:
    ada = await ModernClient.of(server, "ada")

    answer = await ada.request(
        "subscriptions/listen", {"notifications": {}}, headers={"Accept": "application/json"}, request_id=1
    )

    assert _error(answer) == (406, 1, -32600)


async def test_a_user_may_have_so_many_streams_and_no_more(tmp_path: Path, samples: SampleCatalog) -> None:
    few = make_settings(tmp_path, stream_max_per_user=1, access_recheck_s=0.05)
    async with live(few, catalog=samples.catalog) as server:
        ada, ben = await ModernClient.of(server, "ada"), await ModernClient.of(server, "ben")
        listen = {"notifications": {"toolsListChanged": True}}
        async with ada.streaming("subscriptions/listen", listen) as wire:
            await wire.head()

            refused = await ada.request("subscriptions/listen", listen, request_id=2)

            assert _error(refused) == (503, 2, 503)
            assert int(refused.header("retry-after") or 0) >= 1
            async with ben.streaming("subscriptions/listen", listen) as other:
                assert (await other.head())[0] == 200


# -- errors -----------------------------------------------------------------------------------------------------


async def test_an_absent_resource_is_bad_parameters_with_its_uri(server: LiveServer) -> None:
    answer = await (await ModernClient.of(server, "ada")).request(
        "resources/read", {"uri": "test://nowhere"}, request_id=1
    )

    assert _error(answer) == (400, 1, -32602)
    assert answer.json()["error"]["data"] == {"uri": "test://nowhere"}


async def test_a_failure_nobody_foresaw_is_answered_under_the_id_of_its_request(
    server: LiveServer, failures: list[str]
) -> None:
    answer = await (await ModernClient.of(server, "ada")).request(
        "resources/read", {"uri": "test://broken"}, request_id="r"
    )

    assert _error(answer) == (500, "r", -32603)
    assert "RuntimeError" in failures.pop()


async def test_a_modern_body_needs_no_version_header_to_be_known_as_modern(server: LiveServer) -> None:
    headers = {"Content-Type": "application/json", **await server.bearer("ada")}
    body = msgspec.json.encode(message("tools/list", modern_params(), 1))

    assert _error(await fetch(server.url, "POST", "/mcp", headers, body)) == (400, 1, -32020)
