"""Rate limits and session defaults in Redis apply to the calls of all processes."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from auth.context import READ, ClientId, Principal, build_context
from tests.live import LiveServer, live, make_settings
from tests.server.clients import ModernClient
from tests.server.http_client import fetch
from tests.server.redis.servers import two_servers

RedisSettings = Mapping[str, Any]
NEVER_REFILLED = 0.001


@asynccontextmanager
async def server_with(tmp_path: Path, redis_settings: RedisSettings, **changes: Any) -> AsyncIterator[LiveServer]:
    async with live(make_settings(tmp_path / "data", **redis_settings, **changes)) as server:
        yield server


async def searched(client: ModernClient, **arguments: Any) -> dict[str, Any]:
    response = await client.call("knowledge_search", {"query": "galleon", **arguments})
    result: dict[str, Any] = response.json()["result"]
    return result


async def test_a_refused_write_has_not_started(tmp_path: Path, redis_settings: RedisSettings) -> None:
    limits = {"rate_user_per_minute": NEVER_REFILLED, "rate_user_burst": 3}
    async with server_with(tmp_path, redis_settings, **limits) as server:
        ada = await ModernClient.of(server, "ada")
        drafts = [{"title": f"Note {number}", "content": "galleon"} for number in range(8)]
        responses = await asyncio.gather(*(ada.call("notes_create", draft) for draft in drafts))
        user = await server.user("ada")
        principal = Principal(user.id, "ada", ClientId("test"), frozenset({READ}), "jwt", "token")
        async with server.runtime.libraries.library(build_context(principal, server.runtime.data_root, "r")) as library:
            notes = await library.notes.list(10, 0)

        assert sorted(response.status for response in responses) == [200] * 3 + [429] * 5
        assert notes.total == 3


async def test_a_refused_search_gets_429_and_is_no_call(tmp_path: Path, redis_settings: RedisSettings) -> None:
    limits = {"rate_user_per_minute": NEVER_REFILLED, "rate_user_burst": 2}
    async with server_with(tmp_path, redis_settings, **limits) as server:
        ada, ben = await ModernClient.of(server, "ada"), await ModernClient.of(server, "ben")
        arguments: list[Mapping[str, Any]] = [{"query": "a"}, {"query": "b"}, {"query": "c"}, {"query": 5}, {"no": 1}]
        responses = [await ada.call("knowledge_search", one) for one in arguments]

        assert [response.status for response in responses] == [200, 200, 429, 429, 429]
        assert server.runtime.knowledge.aggregator.outcomes == {"complete": 2}
        assert "structuredContent" in await searched(ben)


async def test_an_invalid_search_is_charged(tmp_path: Path, redis_settings: RedisSettings) -> None:
    limits = {"rate_user_per_minute": NEVER_REFILLED, "rate_user_burst": 2}
    async with server_with(tmp_path, redis_settings, **limits) as server:
        ada = await ModernClient.of(server, "ada")
        statuses = [(await ada.call("knowledge_search", {"query": 5})).status for _ in range(3)]

        assert statuses == [200, 200, 429]


async def test_the_limit_of_the_tool_refuses_a_search_with_a_result(
    tmp_path: Path, redis_settings: RedisSettings
) -> None:
    limits = {"rate_tool_per_minute": NEVER_REFILLED, "rate_tool_burst": 1}
    async with server_with(tmp_path, redis_settings, **limits) as server:
        ada = await ModernClient.of(server, "ada")
        first, second = await searched(ada), await searched(ada)

        assert "isError" not in first or not first["isError"]
        assert second["isError"]
        assert "rate limit for this tool" in second["content"][0]["text"]


async def test_simultaneous_searches_use_the_limit_up_and_no_more(
    tmp_path: Path, redis_settings: RedisSettings
) -> None:
    changes = {**redis_settings, "rate_user_per_minute": NEVER_REFILLED, "rate_user_burst": 7}
    async with two_servers(tmp_path / "data", changes) as servers:
        clients = [await ModernClient.of(server, "ada") for server in servers for _ in range(10)]
        responses = await asyncio.gather(*(client.call("knowledge_search", {"query": "a"}) for client in clients))

        assert sorted(response.status for response in responses) == [200] * 7 + [429] * 13


async def test_defaults_that_another_process_has_set_are_applied(tmp_path: Path, redis_settings: RedisSettings) -> None:
    async with two_servers(tmp_path / "data", redis_settings) as (one, other):
        here, there = await ModernClient.of(one, "ada"), await ModernClient.of(other, "ada")
        content = "galleon " + "with a cargo of silver " * 30
        await here.call("notes_create", {"title": "Treasure", "content": content})
        session = (await searched(here, dedupe="off"))["structuredContent"]["session"]
        await there.call("session_configure", {"session": session, "snippet_length": 40, "dedupe": "off"})
        hits = (await searched(here, session=session))["structuredContent"]["results"]

        assert [len(hit["snippet"]) <= 50 for hit in hits] == [True]


async def test_a_malformed_message_is_charged(tmp_path: Path, redis_settings: RedisSettings) -> None:
    limits = {"rate_user_per_minute": NEVER_REFILLED, "rate_user_burst": 2}
    async with server_with(tmp_path, redis_settings, **limits) as server:
        headers = {**await server.bearer("ada"), "Content-Type": "application/json"}
        for body, status in ((b"{", 400), (b"[]", 400), (b"{", 429)):
            assert (await fetch(server.url, "POST", "/mcp", headers, body)).status == status
