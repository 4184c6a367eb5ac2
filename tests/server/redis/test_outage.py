"""Redis stops: calls are served without it, nothing unsafe is accepted, and everything works again afterwards.

`tests/server/workers/test_faults.py` kills it under load.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from auth.redis import open_redis
from config.settings import Settings
from server.redis_stores import open_peers
from server.stores import RECONNECTED
from tests.live import LiveServer
from tests.server.clients import LegacyClient, ModernClient
from tests.server.http_client import fetch
from tests.server.redis.servers import two_servers
from tests.servers.valkey import ValkeyProcess

# The documentation promises that everything works again 5 s after Redis is back. A busy machine may take longer.
BACK_WITHIN_S = 60.0


@asynccontextmanager
async def deployment(
    valkey: ValkeyProcess, directory: Path, **changes: Any
) -> AsyncIterator[tuple[LiveServer, LiveServer]]:
    async with two_servers(directory / "data", {"session_url": valkey.url}, **changes) as servers:
        yield servers


async def search(client: ModernClient, session: str | None = None) -> dict[str, Any]:
    named = {} if session is None else {"session": session}
    response = (await client.call("knowledge_search", {"query": "galleon", **named})).json()
    result: dict[str, Any] = response["result"]["structuredContent"]
    return result


async def wait_until_back(client: ModernClient) -> None:
    async with asyncio.timeout(BACK_WITHIN_S):
        while "session_error" in await search(client):
            await asyncio.sleep(0.02)


async def test_a_search_without_redis_says_that_it_does_not_know_the_session(
    valkey: ValkeyProcess, tmp_path: Path
) -> None:
    async with deployment(valkey, tmp_path) as (one, _):
        client = await ModernClient.of(one, "ada")
        await client.call("notes_create", {"title": "Treasure", "content": "galleon"})
        session = (await search(client))["session"]
        valkey.kill()
        without = await search(client, session)

        assert without["session_error"] == "the session server does not answer; try again in 1 s"
        assert (len(without["results"]), without.keys() & {"suppressed", "exhausted"}) == (1, set())


async def test_a_known_session_goes_on_without_redis_and_a_new_one_is_refused(
    valkey: ValkeyProcess, tmp_path: Path
) -> None:
    async with deployment(valkey, tmp_path) as (one, other):
        client = await LegacyClient.open(one, "ada")
        elsewhere = LegacyClient(other, {})
        elsewhere.headers = client.headers
        valkey.kill()

        assert (await client.call("notes_search", {"query": "galleon"})).status == 200
        unknown = await elsewhere.call("notes_search", {"query": "galleon"})
        assert (unknown.status, unknown.header("retry-after")) == (503, "1")
        assert (await LegacyClient.open(one, "ben")).session_id == ""


class Outage(Struct, frozen=True):
    """How a server stops to be of use without ending, and how it recovers with everything it knew."""

    begin: Callable[[ValkeyProcess], None]
    end: Callable[[ValkeyProcess], None]


OUTAGES = {
    "hangs": Outage(ValkeyProcess.stop, ValkeyProcess.resume),
    "out of memory": Outage(
        lambda valkey: valkey.configure("CONFIG SET maxmemory 1 maxmemory-policy noeviction"),
        lambda valkey: valkey.configure("CONFIG SET maxmemory 0"),
    ),
    "another password": Outage(
        lambda valkey: valkey.configure("CONFIG SET requirepass new", "AUTH new", "CLIENT KILL TYPE normal SKIPME yes"),
        lambda valkey: valkey.configure("AUTH new", "CONFIG SET requirepass ''"),
    ),
    "read-only replica": Outage(
        lambda valkey: valkey.configure("REPLICAOF 127.0.0.1 1", "CONFIG SET replica-serve-stale-data no"),
        lambda valkey: valkey.configure("REPLICAOF NO ONE"),
    ),
}


@pytest.mark.parametrize("outage", OUTAGES.values(), ids=OUTAGES.keys())
async def test_calls_go_on_while_the_server_is_of_no_use_and_everything_works_afterwards(
    valkey: ValkeyProcess, tmp_path: Path, outage: Outage
) -> None:
    limits: dict[str, Any] = {"rate_user_per_minute": 1, "rate_user_burst": 30}
    async with deployment(valkey, tmp_path, **limits) as (one, other):
        client, legacy = await ModernClient.of(one, "ada"), await LegacyClient.open(one, "ben")
        await client.call("notes_create", {"title": "Treasure", "content": "galleon"})
        session = (await search(client))["session"]
        outage.begin(valkey)
        without = await search(client, session)

        assert (len(without["results"]), "session_error" in without) == (1, True)
        assert (await legacy.call("notes_search", {"query": "galleon"})).status == 200
        statuses = [(await client.call("server_info", {})).status for _ in range(31)]
        assert (statuses[:20], statuses[-1]) == ([200] * 20, 429)
        outage.end(valkey)
        await wait_until_back(ModernClient(other, await one.bearer("cleo")))
        await wait_until_back(ModernClient(one, await one.bearer("cleo")))
        known = await search(ModernClient(other, client.credential), session)
        assert (known["exhausted"], "session_error" in known) == (True, False)


async def test_a_server_that_was_restarted_empty_knows_no_sessions_and_opens_new_ones(
    valkey: ValkeyProcess, tmp_path: Path
) -> None:
    async with deployment(valkey, tmp_path) as (one, other):
        client, legacy = await ModernClient.of(one, "ada"), await LegacyClient.open(one, "ben")
        session = (await search(client))["session"]
        valkey.kill()
        valkey.start()
        for server in (one, other):
            await wait_until_back(ModernClient(server, client.credential))

        forgotten = (await client.call("knowledge_search", {"query": "galleon", "session": session})).json()["result"]
        assert (forgotten["isError"], forgotten["content"][0]["text"]) == (True, "session not found")
        assert (await legacy.request("ping")).status == 404
        assert (await LegacyClient.open(one, "ben")).session_id
        again = (await search(client))["session"]
        assert (await search(ModernClient(other, client.credential), again))["session"] == again


async def test_tickets_and_confirmations_are_refused_without_redis(valkey: ValkeyProcess, tmp_path: Path) -> None:
    async with deployment(valkey, tmp_path) as (one, _):
        credential = await one.bearer("ada")
        prepared = await fetch(one.url, "POST", "/api/v1/account/deletion", credential)
        valkey.kill()
        ticket = await fetch(one.url, "POST", "/mcp/ticket", credential)
        path = f"/api/v1/account/data?token={prepared.json()['token']}"
        deleted = await fetch(one.url, "DELETE", path, credential)

        assert (ticket.status, deleted.status) == (503, 503)
        assert ticket.json()["error"]["message"] == "the session server does not answer; try again in 1 s"


async def test_each_server_limits_by_itself_without_redis(valkey: ValkeyProcess, tmp_path: Path) -> None:
    limits: dict[str, Any] = {"rate_user_per_minute": 1, "rate_user_burst": 3}
    async with deployment(valkey, tmp_path, **limits) as servers:
        credential = await servers[0].bearer("ada")
        valkey.kill()
        for server in servers:
            statuses = [(await fetch(server.url, "GET", "/api/v1/account", credential)).status for _ in range(4)]
            assert statuses == [200] * 3 + [429]


async def test_servers_start_without_redis_and_use_it_when_it_is_there(valkey: ValkeyProcess, tmp_path: Path) -> None:
    valkey.kill()
    async with deployment(valkey, tmp_path) as (one, other):
        client = await ModernClient.of(one, "ada")
        assert "session_error" in await search(client)
        valkey.start()
        for server in (one, other):
            await wait_until_back(ModernClient(server, client.credential))


async def test_streams_learn_of_changes_before_the_first_connection_to_redis(
    valkey: ValkeyProcess, tmp_path: Path
) -> None:
    valkey.kill()
    async with open_redis(Settings(session_url=valkey.url)) as connection, open_peers(connection) as peers:
        reconnected = asyncio.Event()
        peers.handle(RECONNECTED, lambda _: reconnected.set())
        valkey.start()

        async with asyncio.timeout(BACK_WITHIN_S):
            await reconnected.wait()
