"""Two users on every transport: one cannot use or detect the other's sessions and requests."""

import asyncio
from pathlib import Path
from typing import Any

from tests.cases import each_case
from tests.live import LiveServer, live, make_settings
from tests.server.clients import ELICITATION, LegacyClient, ModernClient, WebSocketClient, handshake, message, text_of
from tests.server.http_client import WAIT_MAX_S, HttpResponse
from tests.server.sample_catalog import Gate, SampleCatalog


async def _with_session(client: LegacyClient, session_id: str, method: str) -> HttpResponse:
    """Sends a request with another session id."""
    client.headers["Mcp-Session-Id"] = session_id
    match method:
        case "GET":
            return await client.get()
        case "DELETE":
            return await client.delete()
        case "batch":
            return await client.post([message("ping", {}, 1)])
        case _:
            return await client.post(message(method, {"name": "echo", "requestId": 1}, None if "/c" in method else 1))


@each_case(
    "method", ["GET", "DELETE", "batch", "ping", "tools/list", "tools/call", "notifications/cancelled", "no/such"]
)
async def test_another_users_session_gets_the_same_response_as_an_unknown_one(server: LiveServer, method: str) -> None:
    ada, ben = await LegacyClient.open(server, "ada"), LegacyClient(server, await server.bearer("ben"))

    foreign = await _with_session(ben, ada.session_id, method)
    unknown = await _with_session(ben, "x" * len(ada.session_id), method)

    assert foreign.status == 404
    assert foreign.comparable() == unknown.comparable()
    assert (await ada.call("echo", {"text": "still here"})).status == 200


async def test_another_client_of_the_same_user_cannot_use_the_session(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")
    token = await server.token("ada", client_id="another-client")

    other = LegacyClient(server, {"Authorization": f"Bearer {token}"})

    assert (await _with_session(other, ada.session_id, "ping")).status == 404


async def test_a_session_continues_with_a_renewed_token(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    ada.headers.update(await server.bearer("ada"))

    assert (await ada.request("ping")).status == 200


async def test_a_response_posted_with_another_users_session_is_not_found(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada", capabilities=ELICITATION)
    ben = LegacyClient(server, await server.bearer("ben"))

    async with ada.streaming(message("tools/call", {"name": "ask_name"}, 1)) as connection:
        await connection.head()
        elicitation = await connection.event()
        response = {"jsonrpc": "2.0", "id": elicitation["id"], "result": {"content": {"name": "Ben"}}}
        ben.headers["Mcp-Session-Id"] = ada.session_id
        rejected = await ben.post(response)
        response["result"] = {"content": {"name": "Ada"}}
        await ada.post(response)
        result = (await connection.event())["result"]

    assert rejected.status == 404
    assert "Ada" in text_of(result)


async def test_an_elicitation_cannot_be_answered_from_another_session(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada", capabilities=ELICITATION)
    intruders = [await LegacyClient.open(server, "ben"), await LegacyClient.open(server, "ada")]

    async with ada.streaming(message("tools/call", {"name": "ask_name"}, 1)) as connection:
        await connection.head()
        elicitation = await connection.event()
        for intruder in intruders:
            forged = {"jsonrpc": "2.0", "id": elicitation["id"], "result": {"content": {"name": "Ben"}}}
            assert (await intruder.post(forged)).status == 202
        await ada.post({"jsonrpc": "2.0", "id": elicitation["id"], "result": {"content": {"name": "Ada"}}})

        assert "Ada" in text_of((await connection.event())["result"])


async def test_concurrent_requests_of_two_users_with_the_same_ids_do_not_interfere(
    server: LiveServer, shared: SampleCatalog, gate: Gate
) -> None:
    users = ("ada", "ben")
    legacy = {name: await LegacyClient.open(server, name) for name in users}
    modern = {name: await ModernClient.of(server, name) for name in users}

    running = {
        (era, name, request_id): asyncio.create_task(client.call("wait", {"gate": "g"}, request_id=request_id))
        for request_id in range(1, 6)
        for era, clients in (("legacy", legacy), ("modern", modern))
        for name, client in clients.items()
    }
    await gate.wait_for_calls(len(running))
    gate.opened.set()

    for (_, name, request_id), task in running.items():
        response = (await task).json()
        assert response["id"] == request_id
        assert response["result"]["structuredContent"]["user"] == name


async def test_a_cancellation_of_another_users_request_is_ignored(server: LiveServer, gate: Gate) -> None:
    ada, ben = await LegacyClient.open(server, "ada"), await LegacyClient.open(server, "ben")
    running = asyncio.create_task(ada.call("wait", {"gate": "g"}, 7))
    await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)

    assert (await ben.notify("notifications/cancelled", {"requestId": 7})).status == 202
    gate.opened.set()

    assert (await running).json()["result"]["structuredContent"]["user"] == "ada"
    assert not gate.cancelled.is_set()


async def test_two_websockets_with_the_same_request_ids_do_not_interfere(server: LiveServer, gate: Gate) -> None:
    async with (
        WebSocketClient.open(server.ws, await server.bearer("ada")) as ada,
        WebSocketClient.open(server.ws, await server.bearer("ben")) as ben,
    ):
        for socket in (ada, ben):
            await socket.initialize(capabilities=ELICITATION)
        await ada.send(message("tools/call", {"name": "wait", "arguments": {"gate": "g"}}, 7))
        await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)
        await ben.send(message("notifications/cancelled", {"requestId": 7}))
        assert (await ben.call("echo"))["result"]["structuredContent"]["user"] == "ben"
        gate.opened.set()

        assert (await ada.response(7))["result"]["structuredContent"]["user"] == "ada"


async def test_an_elicitation_cannot_be_answered_from_another_websocket(server: LiveServer) -> None:
    async with (
        WebSocketClient.open(server.ws, await server.bearer("ada")) as ada,
        WebSocketClient.open(server.ws, await server.bearer("ben")) as ben,
    ):
        for socket in (ada, ben):
            await socket.initialize(capabilities=ELICITATION)
        await ada.send(message("tools/call", {"name": "ask_name"}, 1))
        elicitation = await ada.receive()
        response: dict[str, Any] = {"jsonrpc": "2.0", "id": elicitation["id"], "result": {"content": {"name": "Ben"}}}
        await ben.send(response)
        assert (await ben.request("ping"))["result"] == {}
        await ada.send({**response, "result": {"content": {"name": "Ada"}}})

        assert "Ada" in text_of((await ada.response(1))["result"])


async def test_a_websocket_does_not_reveal_its_session_id(server: LiveServer) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        response = await socket.initialize()

        assert set(response["result"]) == {"protocolVersion", "capabilities", "serverInfo", "instructions"}
        assert "mcp-session-id" not in (socket.connection.response.headers if socket.connection.response else {})


# -- revoked access ---------------------------------------------------------------------------------------------


async def test_the_open_websocket_of_a_disabled_user_is_closed(server: LiveServer) -> None:
    async with (
        WebSocketClient.open(server.ws, await server.bearer("carl")) as carl,
        WebSocketClient.open(server.ws, await server.bearer("ada")) as ada,
    ):
        await carl.initialize()
        await ada.initialize()

        await server.runtime.registry.disable_user((await server.user("carl")).id)

        assert await carl.close_code() == 4401
        assert (await ada.request("ping"))["result"] == {}


async def test_the_next_request_of_a_disabled_user_is_rejected_whatever_the_recheck_interval(
    tmp_path: Path, samples: SampleCatalog
) -> None:
    settings = make_settings(tmp_path, access_recheck_s=3600)
    async with (
        live(settings, catalog=samples.catalog) as server,
        WebSocketClient.open(server.ws, await server.bearer("ada")) as ada,
        WebSocketClient.open(server.ws, await server.bearer("ben")) as ben,
    ):
        await ada.initialize()
        await ben.initialize()
        await server.runtime.registry.disable_user((await server.user("ada")).id)

        assert (await ada.request("tools/list"))["error"]["code"] == 401
        assert (await ben.request("tools/list"))["result"]


async def test_a_running_call_of_a_disabled_user_is_cancelled(server: LiveServer, gate: Gate) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("cora")) as cora:
        await cora.initialize()
        await cora.send(message("tools/call", {"name": "wait", "arguments": {"gate": "g"}}, 1))
        await asyncio.wait_for(gate.reached.wait(), WAIT_MAX_S)

        await server.runtime.registry.disable_user((await server.user("cora")).id)

        assert await cora.close_code() == 4401
        await asyncio.wait_for(gate.cancelled.wait(), WAIT_MAX_S)


async def test_the_get_stream_of_a_disabled_user_ends(server: LiveServer) -> None:
    dana, ada = await LegacyClient.open(server, "dana"), await LegacyClient.open(server, "ada")

    async with dana.listening() as closing, ada.listening():
        await server.runtime.registry.disable_user((await server.user("dana")).id)

        assert await closing.event() is None
        assert (await ada.request("ping")).status == 200


async def test_the_subscription_of_a_disabled_user_ends_with_its_result(server: LiveServer) -> None:
    emil = await ModernClient.of(server, "emil")

    async with emil.streaming(
        "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "sub"
    ) as connection:
        await connection.head()
        await connection.event()
        await server.runtime.registry.disable_user((await server.user("emil")).id)

        assert (await connection.event())["id"] == "sub"
        assert await connection.event() is None


async def test_the_connection_of_a_revoked_key_is_closed(server: LiveServer) -> None:
    record, secret = await server.runtime.registry.create_key((await server.user("fay")).id, "k", ("knowledge:read",))
    async with WebSocketClient.open(server.ws, {"Authorization": f"Bearer {secret}"}) as fay:
        await fay.initialize()

        await server.runtime.registry.revoke_key(record.id)

        assert await fay.close_code() == 4401


async def test_a_session_is_not_restored_when_its_user_is_enabled_again(server: LiveServer) -> None:
    gus = await LegacyClient.open(server, "gus")
    user = await server.user("gus")
    await server.runtime.registry.disable_user(user.id)
    assert (await gus.request("ping")).status == 401

    await server.runtime.registry.enable_user(user.id)
    old_token = await gus.request("ping")
    gus.headers.update(await server.bearer("gus"))
    new_token = await gus.request("ping")
    new_session = await gus.post(handshake())

    assert (old_token.status, new_token.status, new_session.status) == (401, 404, 200)
