"""Streams and running calls of one server, reached through the other."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from server.protocol.catalog import Catalog
from tests.server.clients import ELICITATION, LegacyClient, message
from tests.server.http_client import RawConnection, fetch
from tests.server.redis.servers import two_servers
from tests.server.redis.test_two_servers import add_note, at, structured
from tests.server.sample_catalog import SampleCatalog

RedisSettings = Mapping[str, Any]


async def test_a_stream_at_one_server_reports_changes_made_at_the_other(
    tmp_path: Path, redis_settings: RedisSettings
) -> None:
    async with two_servers(tmp_path, redis_settings) as (one, other):
        ada, ben = await LegacyClient.open(one, "ada"), await LegacyClient.open(one, "ben")
        async with ada.listening() as stream, ben.listening() as foreign:
            await add_note(at(other, ada), "Spanish treasure")
            await add_note(at(other, ben), "Ben's note")

            assert (await stream.event())["method"] == "notifications/resources/list_changed"
            assert (await foreign.event())["method"] == "notifications/resources/list_changed"


async def test_a_subscription_made_at_one_server_is_served_by_a_stream_at_the_other(
    tmp_path: Path, redis_settings: RedisSettings
) -> None:
    async with two_servers(tmp_path, redis_settings) as (one, other):
        client = await LegacyClient.open(one, "ada")
        created = await structured(client, "notes_create", title="Treasure", content="A galleon.")
        elsewhere = at(other, client)
        async with client.listening() as stream:
            assert (await elsewhere.request("resources/subscribe", {"uri": created["uri"]})).status == 200
            arguments = {"uri": created["uri"], "content": "Two galleons.", "expected_version": 1}
            updated = await elsewhere.call("notes_update", arguments)
            assert "isError" not in updated.json()["result"], updated.body

            while (event := await stream.event())["method"] != "notifications/resources/updated":
                pass
            assert event["params"] == {"uri": created["uri"]}


async def test_messages_to_an_event_stream_reach_the_server_that_has_it(
    tmp_path: Path, redis_settings: RedisSettings
) -> None:
    async with two_servers(tmp_path, redis_settings) as (one, other):
        headers = {**await one.bearer("ada"), "Content-Type": "application/json"}
        async with RawConnection.open(one.url) as stream:
            await stream.request("GET", "/mcp/sse", {**headers, "Accept": "text/event-stream"})
            await stream.head()
            address = await _endpoint(stream)
            ping = msgspec.json.encode(message("ping", {}, 7))
            stranger = {**await one.bearer("ben"), "Content-Type": "application/json"}

            assert (await fetch(other.url, "POST", address, stranger, ping)).status == 404
            assert (await fetch(other.url, "POST", f"{address}x", headers, ping)).status == 404
            assert (await fetch(other.url, "POST", address, headers, ping)).status == 202
            assert await stream.event() == {"jsonrpc": "2.0", "id": 7, "result": {}}
            assert (await fetch(other.url, "DELETE", address, stranger)).status == 404
            assert (await fetch(other.url, "DELETE", address, headers)).status == 204


async def test_a_call_at_one_server_is_cancelled_and_answered_through_the_other(
    tmp_path: Path, redis_settings: RedisSettings
) -> None:
    sample = SampleCatalog()

    def extend(catalog: Catalog) -> None:
        for name in ("ask_name", "wait"):
            catalog.add_tool(sample.catalog.tools[name])

    async with two_servers(tmp_path, redis_settings, extend=extend) as (one, other):
        client = await LegacyClient.open(one, "ada", capabilities=ELICITATION)
        stranger = await LegacyClient.open(other, "ben")
        elsewhere = at(other, client)
        waiting = asyncio.create_task(client.call("wait", {"gate": "w"}, "w"))
        await sample.gates["w"].wait_for_calls(1)
        await stranger.notify("notifications/cancelled", {"requestId": "w"})
        body = message("tools/call", {"name": "ask_name", "arguments": {"text": "x"}}, 5)
        async with client.streaming(body) as stream:
            await stream.head()
            question = await stream.event()
            answer = {"action": "accept", "content": {"name": "Ada"}}
            await elsewhere.post({"jsonrpc": "2.0", "id": question["id"], "result": answer})
            result = await stream.event()
        assert not waiting.done()
        await elsewhere.notify("notifications/cancelled", {"requestId": "w"})

        assert (await waiting).status == 202
        assert sample.gates["w"].cancelled.is_set()
        assert "Ada" in result["result"]["content"][0]["text"]


async def _endpoint(stream: RawConnection) -> str:
    raw = await stream.event_block() or ""
    return raw.partition("data: ")[2].strip()
