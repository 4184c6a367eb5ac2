"""What a client sees if its requests reach two servers in turn: nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.cases import each_case
from tests.live import LiveServer
from tests.server.clients import LegacyClient, ModernClient
from tests.server.http_client import fetch
from tests.server.redis.servers import two_servers

RedisSettings = Mapping[str, Any]


def at(server: LiveServer, client: LegacyClient) -> LegacyClient:
    """The same client and session at another server."""
    other = LegacyClient(server, {})
    other.headers = client.headers
    return other


async def structured(client: LegacyClient, tool: str, **arguments: Any) -> dict[str, Any]:
    result: dict[str, Any] = (await client.call(tool, arguments)).json()["result"]["structuredContent"]
    return result


async def add_note(client: LegacyClient, title: str) -> None:
    await structured(client, "notes_create", title=title, content="A galleon at anchor.")


async def test_a_session_opened_at_one_server_continues_at_the_other(
    tmp_path: Path, redis_settings: RedisSettings
) -> None:
    async with two_servers(tmp_path, redis_settings) as (one, other):
        client = await LegacyClient.open(one, "ada")
        await add_note(client, "Spanish treasure")
        first = await structured(client, "knowledge_search", query="galleon")
        second = await structured(at(other, client), "knowledge_search", query="galleon")

        assert first["session"] == second["session"]
        assert (len(first["results"]), "exhausted" in first, second["exhausted"]) == (1, False, True)


async def test_a_session_ended_at_one_server_is_unknown_to_the_other(
    tmp_path: Path, redis_settings: RedisSettings
) -> None:
    async with two_servers(tmp_path, redis_settings) as (one, other):
        client = await LegacyClient.open(one, "ada")
        assert (await at(other, client).request("ping")).status == 200
        assert (await at(other, client).delete()).status == 204

        assert (await client.request("ping")).status == 404


async def test_another_user_cannot_use_a_session_at_any_server(tmp_path: Path, redis_settings: RedisSettings) -> None:
    async with two_servers(tmp_path, redis_settings) as (one, other):
        client = await LegacyClient.open(one, "ada")
        await add_note(client, "Spanish treasure")
        handle = (await structured(client, "knowledge_search", query="galleon"))["session"]
        for server in (one, other):
            ben = await LegacyClient.open(server, "ben")
            refused = (await ben.call("knowledge_search", {"query": "galleon", "session": handle})).json()["result"]
            ben.headers["Mcp-Session-Id"] = client.session_id

            assert refused["isError"]
            assert refused["content"][0]["text"] == "session not found"
            assert (await ben.request("ping")).status == 404
        assert (await client.request("ping")).status == 200


@each_case("text", ["*", "}:{", "a:b", "../../x", "%00", "x" * 1_000])
async def test_a_hostile_session_id_is_not_found(tmp_path: Path, redis_settings: RedisSettings, text: str) -> None:
    async with two_servers(tmp_path, redis_settings) as (one, _):
        client = await LegacyClient.open(one, "ada")
        refused = (await client.call("knowledge_search", {"query": "x", "session": text})).json()["result"]
        client.headers["Mcp-Session-Id"] = text

        assert refused["content"][0]["text"] == "session not found"
        assert (await client.request("ping")).status == 404


async def test_defaults_set_at_one_server_apply_at_the_other(tmp_path: Path, redis_settings: RedisSettings) -> None:
    async with two_servers(tmp_path, redis_settings) as (one, other):
        client = await ModernClient.of(one, "ada")
        configured = (await client.call("session_configure", {"order_by": "recent"})).json()["result"]
        session = configured["structuredContent"]["session"]
        elsewhere = ModernClient(other, client.credential)
        answer = await elsewhere.call("session_configure", {"session": session, "snippet_length": 150})

        defaults = answer.json()["result"]["structuredContent"]["defaults"]
        assert (defaults["order_by"], defaults["snippet_length"]) == ("recent", 150)


async def test_the_rate_limit_counts_the_calls_to_both_servers(tmp_path: Path, redis_settings: RedisSettings) -> None:
    limits: dict[str, Any] = {"rate_user_per_minute": 1, "rate_user_burst": 4}
    async with two_servers(tmp_path, redis_settings, **limits) as servers:
        credential = await servers[0].bearer("ada")
        statuses = [
            (await fetch(servers[number % 2].url, "GET", "/api/v1/account", credential)).status for number in range(6)
        ]
        ben = await fetch(servers[1].url, "GET", "/api/v1/account", await servers[0].bearer("ben"))

        assert statuses == [200] * 4 + [429] * 2
        assert ben.status == 200


async def test_a_ticket_of_one_server_opens_one_connection_to_the_other(
    tmp_path: Path, redis_settings: RedisSettings
) -> None:
    async with two_servers(tmp_path, redis_settings) as (one, other):
        response = await fetch(one.url, "POST", "/mcp/ticket", await one.bearer("ada"))
        address = f"{other.ws}?ticket={response.json()['ticket']}"
        async with connect(address, subprotocols=["mcp"]):  # type: ignore[list-item]
            pass
        for url in (address, address.replace(other.ws, one.ws)):
            with pytest.raises(InvalidStatus) as refused:
                await connect(url)
            assert refused.value.response.status_code == 401


async def test_a_key_revoked_at_one_server_is_refused_by_the_other_at_once(
    tmp_path: Path, redis_settings: RedisSettings
) -> None:
    async with two_servers(tmp_path, redis_settings) as (one, other):
        registry, ada = one.runtime.registry, await one.user("ada")
        key, secret = await registry.create_key(ada.id, "laptop", ["knowledge:read"])
        credential = {"Authorization": f"Bearer {secret}"}
        assert (await fetch(other.url, "GET", "/api/v1/account", credential)).status == 200
        await registry.revoke_key(key.id)

        assert (await fetch(other.url, "GET", "/api/v1/account", credential)).status == 401


async def test_a_deletion_prepared_at_one_server_is_confirmed_once_at_the_other(
    tmp_path: Path, redis_settings: RedisSettings
) -> None:
    async with two_servers(tmp_path, redis_settings) as (one, other):
        credential = await one.bearer("ada")
        prepared = await fetch(one.url, "POST", "/api/v1/account/deletion", credential)
        path = f"/api/v1/account/data?token={prepared.json()['token']}"

        assert (await fetch(other.url, "DELETE", path, credential)).status == 200
        assert (await fetch(one.url, "DELETE", path, credential)).status == 400


async def test_calls_to_both_servers_are_listed_to_their_user_only(
    tmp_path: Path, redis_settings: RedisSettings
) -> None:
    async with two_servers(tmp_path, redis_settings) as (one, other):
        client = await LegacyClient.open(one, "ada")
        await client.call("knowledge_search", {"query": "galleon"})
        await at(other, client).call("notes_search", {"query": "galleon"})
        calls = [
            [call["tool"] for call in (await fetch(other.url, "GET", "/api/v1/calls", credential)).json()["calls"]]
            for credential in (await one.bearer("ada"), await one.bearer("ben"))
        ]

        assert calls == [["notes_search", "knowledge_search"], []]
