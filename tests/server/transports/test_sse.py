"""The deprecated HTTP+SSE transport: a stream per session, and messages that are answered on it."""

import asyncio
from pathlib import Path

from auth.context import SessionId
from server.protocol.catalog import Change
from server.protocol.messages import BATCH_VERSION
from sessions.state import handle_for
from tests.cases import each_case
from tests.live import LiveServer, live, make_settings
from tests.server.clients import ELICITATION, JSON_AND_EVENTS, SseClient, handshake, message, modern_params, text_of
from tests.server.http_client import WAIT_MAX_S, RawConnection, fetch
from tests.server.sample_catalog import Gate, SampleCatalog

EVENTS = {"Accept": "text/event-stream"}


async def wait_for_streams(server: LiveServer, count: int) -> None:
    async with asyncio.timeout(WAIT_MAX_S):
        while len(server.runtime.open_streams) != count:
            await asyncio.sleep(0.01)


async def test_responses_to_posted_messages_arrive_on_the_stream_of_their_user(server: LiveServer) -> None:
    async with (
        SseClient.open(server, await server.bearer("ada")) as ada,
        SseClient.open(server, await server.bearer("ben")) as ben,
    ):
        for name, client in (("ada", ada), ("ben", ben)):
            opened = await client.initialize()
            await client.post(message("notifications/initialized", {}))
            assert opened["result"]["protocolVersion"] == "2024-11-05"
            assert "echo" in {tool["name"] for tool in (await client.request("tools/list"))["result"]["tools"]}
            assert (await client.call("echo"))["result"]["structuredContent"]["user"] == name


async def test_the_first_event_is_the_address_of_the_session(server: LiveServer) -> None:
    headers = await server.bearer("ada")

    async with SseClient.open(server, headers) as first, SseClient.open(server, headers, "/mcp/sse/") as second:
        assert first.address.startswith("/mcp/sse?session_id=")
        assert second.address.startswith("/mcp/sse?session_id=")
        assert first.address != second.address


async def test_the_address_contains_the_path_of_the_public_url(tmp_path: Path, samples: SampleCatalog) -> None:
    settings = make_settings(tmp_path, public_url="https://kb.example.com/library")
    async with (
        live(settings, catalog=samples.catalog) as server,
        SseClient.open(server, {**await server.bearer("ada"), "Host": "kb.example.com"}) as client,
    ):
        assert client.address.startswith("/library/mcp/sse?session_id=")


async def test_the_address_of_a_profile_serves_that_profile(tmp_path: Path) -> None:
    async with (
        live(make_settings(tmp_path)) as server,
        SseClient.open(server, await server.bearer("ada"), "/mcp/research/sse") as client,
    ):
        await client.initialize()
        listed = (await client.request("tools/list"))["result"]["tools"]
        elsewhere = await fetch(
            server.url, "POST", client.address.replace("/research", ""), client.headers, b'{"jsonrpc": "2.0"}'
        )
        unknown = await fetch(server.url, "GET", "/mcp/nowhere/sse", {**client.headers, **EVENTS})

    assert [tool["name"] for tool in listed] == ["search", "fetch"]
    assert client.address.startswith("/mcp/research/sse?session_id=")
    assert (elsewhere.status, unknown.status) == (404, 404)


@each_case("method", ["GET", "POST", "DELETE"])
@each_case(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Origin": "https://evil.example"}, 403),
        ({"Host": "evil.example"}, 403),
    ],
)
async def test_every_request_is_checked_like_one_of_streamable_http(
    server: LiveServer, method: str, headers: dict[str, str], status: int
) -> None:
    async with SseClient.open(server, await server.bearer("ada")) as ada:
        refused = await fetch(server.url, method, ada.address, {**JSON_AND_EVENTS, **headers}, b"{}")
        usual = await fetch(server.url, "POST", "/mcp", {**JSON_AND_EVENTS, **headers}, b"{}")

        assert refused.status == usual.status == status
        assert refused.header("www-authenticate") == usual.header("www-authenticate")
        assert (await ada.initialize())["result"]


async def test_another_users_session_gets_the_same_response_as_an_unknown_one(server: LiveServer) -> None:
    ben = {**JSON_AND_EVENTS, **await server.bearer("ben")}
    other_client = {**ben, "Authorization": f"Bearer {await server.token('ada', client_id='another-client')}"}
    async with SseClient.open(server, await server.bearer("ada")) as ada:
        unknown_address = "/mcp/sse?session_id=" + "x" * len(ada.address.partition("=")[2])
        for method in ("POST", "DELETE"):
            for headers in (ben, other_client):
                foreign = await fetch(server.url, method, ada.address, headers, b'{"jsonrpc":"2.0","method":"x"}')
                unknown = await fetch(server.url, method, unknown_address, headers, b'{"jsonrpc":"2.0","method":"x"}')
                assert foreign.status == 404
                assert foreign.comparable() == unknown.comparable()

        assert (await ada.initialize())["result"]


async def test_a_session_continues_with_a_renewed_token(server: LiveServer) -> None:
    async with SseClient.open(server, await server.bearer("ada")) as ada:
        await ada.initialize()
        ada.headers |= {"Authorization": f"Bearer {await server.token('ada', lifetime_s=7200.0)}"}

        assert (await ada.request("ping"))["result"] == {}


async def test_bad_requests_are_rejected_with_a_status_and_leave_the_stream_open(server: LiveServer) -> None:
    async with SseClient.open(server, await server.bearer("ada")) as ada:
        address, headers = ada.address, ada.headers
        rejected = [
            await fetch(server.url, "POST", "/mcp/sse", headers, b"{}"),
            await fetch(server.url, "POST", f"{address}&session_id=x", headers, b"{}"),
            await ada.post(b"{"),
            await ada.post(b"{}", {"Content-Type": "text/plain"}),
            await ada.post(b" " * (server.runtime.settings.body_max_bytes + 1)),
            await fetch(server.url, "GET", "/mcp/sse", {**headers, "Accept": "application/json"}),
            await fetch(server.url, "PUT", address, headers, b"{}"),
        ]
        await ada.post(b'{"jsonrpc": "2.0", "id": 9}')
        malformed = await ada.stream.event()

        assert [response.status for response in rejected] == [400, 400, 400, 415, 413, 406, 405]
        assert "expected the value from the endpoint event" in rejected[0].json()["error"]["message"]
        assert (malformed["id"], malformed["error"]["code"]) == (9, -32600)
        assert (await ada.initialize())["result"]


async def test_a_request_before_the_handshake_gets_an_error_on_the_stream(server: LiveServer) -> None:
    async with SseClient.open(server, await server.bearer("ada")) as ada:
        assert "initialize" in (await ada.request("tools/list"))["error"]["message"]


async def test_a_tool_can_ask_the_client(server: LiveServer) -> None:
    async with SseClient.open(server, await server.bearer("ada")) as ada:
        await ada.initialize(capabilities=ELICITATION)
        question = await ada.call("ask_name")
        await ada.post({"jsonrpc": "2.0", "id": question["id"], "result": {"content": {"name": "Ada"}}})

        assert "Ada" in text_of((await ada.stream.event())["result"])


async def test_a_cancelled_call_ends_without_a_response(server: LiveServer, gate: Gate) -> None:
    async with SseClient.open(server, await server.bearer("ada")) as ada:
        await ada.initialize()
        await ada.post(message("tools/call", {"name": "wait", "arguments": {"gate": "g"}}, 7))
        await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)
        await ada.post(message("notifications/cancelled", {"requestId": 7}))
        await asyncio.wait_for(gate.cancelled.wait(), WAIT_MAX_S)

        assert (await ada.request("ping"))["result"] == {}


async def test_a_batch_is_answered_as_one_message(server: LiveServer) -> None:
    async with SseClient.open(server, await server.bearer("ada")) as ada:
        await ada.initialize(BATCH_VERSION)
        await ada.post([message("ping", {}, 1), message("ping", {}, 2), message("notifications/x", {})])

        assert [response["id"] for response in await ada.stream.event()] == [1, 2]


async def test_modern_requests_are_served_too(server: LiveServer) -> None:
    async with SseClient.open(server, await server.bearer("ada")) as ada:
        discovered = await ada.request("server/discover", modern_params())
        called = await ada.request("tools/call", modern_params({"name": "echo", "arguments": {}}))

    assert discovered["result"]["supportedVersions"] == ["2026-07-28"]
    assert called["result"]["structuredContent"]["user"] == "ada"


async def test_changes_are_sent_to_the_streams_of_their_user(server: LiveServer, shared: SampleCatalog) -> None:
    ada_id = (await server.user("ada")).id
    async with (
        SseClient.open(server, await server.bearer("ada")) as ada,
        SseClient.open(server, await server.bearer("ben")) as ben,
    ):
        for client in (ada, ben):
            await client.initialize()
            await client.request("resources/subscribe", {"uri": "test://plain"})
        shared.catalog.changes.publish(Change("updated", "test://plain", ada_id))
        shared.catalog.changes.publish(Change("tools"))

        assert (await ada.stream.event())["method"] == "notifications/resources/updated"
        assert (await ada.stream.event())["method"] == "notifications/tools/list_changed"
        assert (await ben.stream.event())["method"] == "notifications/tools/list_changed"


# -- the end of a stream ----------------------------------------------------------------------------------------


async def test_deleting_the_session_ends_its_stream_only(server: LiveServer) -> None:
    headers = await server.bearer("ada")
    async with SseClient.open(server, headers) as deleted, SseClient.open(server, headers) as other:
        response = await fetch(server.url, "DELETE", deleted.address, deleted.headers)

        assert response.status == 204
        assert await deleted.stream.event() is None
        assert (await deleted.post(handshake())).status == 404
        assert (await other.initialize())["result"]


async def test_a_lost_stream_cancels_its_calls_and_deletes_its_session(server: LiveServer, gate: Gate) -> None:
    await wait_for_streams(server, 0)
    sessions = len(server.runtime.sessions)
    async with SseClient.open(server, await server.bearer("ada")) as ada:
        await ada.initialize()
        await ada.post(message("tools/call", {"name": "wait", "arguments": {"gate": "g"}}, 1))
        await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)
        ada.stream.abort()
        await asyncio.wait_for(gate.cancelled.wait(), WAIT_MAX_S)
        await wait_for_streams(server, 0)

        assert (await ada.post(message("ping", {}, 2))).status == 404
        assert len(server.runtime.sessions) == sessions


async def test_the_stream_of_a_disabled_user_ends(server: LiveServer) -> None:
    async with (
        SseClient.open(server, await server.bearer("hal")) as hal,
        SseClient.open(server, await server.bearer("ada")) as ada,
    ):
        await server.runtime.registry.disable_user((await server.user("hal")).id)

        assert await hal.stream.event() is None
        assert (await hal.post(handshake())).status == 401
        assert (await ada.initialize())["result"]


async def test_streams_of_one_user_are_limited(tmp_path: Path, samples: SampleCatalog) -> None:
    settings = make_settings(tmp_path, stream_max_per_user=2)
    async with live(settings, catalog=samples.catalog) as server:
        ada = await server.bearer("ada")
        async with SseClient.open(server, ada), SseClient.open(server, ada):
            rejected = await fetch(server.url, "GET", "/mcp/sse", {**ada, **EVENTS})
            async with SseClient.open(server, await server.bearer("ben")) as ben:
                assert (await ben.initialize())["result"]
        await wait_for_streams(server, 0)
        async with SseClient.open(server, ada) as again:
            assert (await again.initialize())["result"]

    assert rejected.status == 503
    assert "2 open streams" in rejected.json()["error"]["message"]


async def test_an_idle_stream_receives_comments(tmp_path: Path, samples: SampleCatalog) -> None:
    settings = make_settings(tmp_path, sse_keepalive_s=1)
    async with (
        live(settings, catalog=samples.catalog) as server,
        SseClient.open(server, await server.bearer("ada")) as ada,
    ):
        assert await ada.stream.event_block() == ": keep-alive"
        assert (await ada.initialize())["result"]


async def test_running_calls_are_answered_when_the_server_stops(tmp_path: Path, samples: SampleCatalog) -> None:
    async with (
        live(make_settings(tmp_path, shutdown_grace_s=10), catalog=samples.catalog) as server,
        SseClient.open(server, await server.bearer("ada")) as ada,
    ):
        await ada.initialize()
        await ada.post(message("tools/call", {"name": "wait", "arguments": {"gate": "last"}}, 1))
        await asyncio.wait_for(samples.gates["last"].reached.wait(), WAIT_MAX_S)
        server.runtime.open_streams.stop()
        samples.gates["last"].opened.set()

        assert (await ada.stream.event())["result"]["structuredContent"]["user"] == "ada"
        assert await ada.stream.event() is None


async def test_calls_count_against_the_rate_limit(tmp_path: Path, samples: SampleCatalog) -> None:
    settings = make_settings(tmp_path, rate_user_per_minute=1, rate_user_burst=5)
    async with live(settings, catalog=samples.catalog) as server:
        async with SseClient.open(server, await server.bearer("ada")) as ada:
            await ada.initialize(BATCH_VERSION)
            accepted = await ada.post([message("ping", {}, n) for n in range(3)])
            rejected = await ada.post(message("ping", {}, 4))
        async with SseClient.open(server, await server.bearer("ben")) as ben:
            assert (await ben.initialize())["result"]

    assert (accepted.status, rejected.status) == (202, 429)
    assert rejected.header("retry-after")


async def test_a_client_that_does_not_read_is_told_to(tmp_path: Path, samples: SampleCatalog) -> None:
    settings = make_settings(tmp_path, connection_in_flight_max=2)
    async with (
        live(settings, catalog=samples.catalog) as server,
        SseClient.open(server, await server.bearer("ada")) as ada,
    ):
        await ada.initialize()
        call = {"name": "echo", "arguments": {"text": "x" * 1000, "times": 2000}}
        async with asyncio.timeout(WAIT_MAX_S):
            number = 1
            while (response := await ada.post(message("tools/call", call, number))).status == 202:
                number += 1

        assert response.status == 503
        assert "event stream is full" in response.json()["error"]["message"]
        received = set[int]()
        while len(received) < number - 1:
            received.add((await ada.stream.event())["id"])
        assert received == set(range(1, number))


async def test_a_stream_is_a_session_of_its_own(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        for name in ("ada", "ben"):
            async with SseClient.open(server, await server.bearer(name)) as client:
                params = {"name": "session_configure", "arguments": {"snippet_length": 40}}
                modern = await client.request("tools/call", modern_params(params))
                session_id = SessionId(client.address.partition("=")[2])

                assert modern["result"]["structuredContent"]["session"] == handle_for(session_id)
                assert session_id not in str(modern)


async def test_an_aborted_open_is_cleaned_up(server: LiveServer) -> None:
    async with RawConnection.open(server.url) as connection:
        await connection.request("GET", "/mcp/sse", {**await server.bearer("ada"), **EVENTS})
        connection.abort()

    await wait_for_streams(server, 0)
