"""Several hosts in `storage_url`: the server moves to the replica that has become the primary."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.live import HTTP_OPTIONS, LiveServer, live, make_settings
from tests.server.postgres.database import connect
from tests.server.postgres.mcp_calls import call, call_tool
from tests.servers.postgres import PostgresProcess, own_postgres

pytestmark = pytest.mark.slow("runs two PostgreSQL servers and stops one")

# Only reached if the test fails.
WAIT_MAX_S = 120.0


async def write(client: httpx2.AsyncClient, server: LiveServer, user: str, title: str) -> None:
    """Repeats a write until it is acknowledged, as clients do after a 503."""
    note = {"title": title, "content": "tea", "idempotency_key": title}
    async with asyncio.timeout(WAIT_MAX_S):
        while True:
            answer: dict[str, Any] = await call_tool(client, server, user, "notes_create", **note)
            if "result" in answer and not answer["result"].get("isError"):
                return
            await asyncio.sleep(0.1)


async def wait_for_replica(url: str) -> None:
    """Returns when a replica has received everything that was committed."""
    query = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()"
    async with connect(url) as connection, asyncio.timeout(WAIT_MAX_S):
        while not await connection.fetchval(query):
            await asyncio.sleep(0.05)


def test_server_continues_with_the_replica_that_was_promoted(tmp_path: Path) -> None:
    with own_postgres() as primary, own_postgres(replica_of=primary) as replica:
        found = asyncio.run(fail_over(tmp_path, primary, replica))

    assert found == {user: [f"After of {user}", f"Before of {user}"] for user in ("ada", "ben")}


async def fail_over(data_dir: Path, primary: PostgresProcess, replica: PostgresProcess) -> dict[str, list[str]]:
    """Kills the primary between two writes of each user. Returns the titles of their notes."""
    # The replica comes first: the server must look for the one that accepts writes.
    hosts = f"127.0.0.1:{replica.port},127.0.0.1:{primary.port}"
    settings = make_settings(data_dir, storage_url=f"postgresql://postgres@{hosts}/postgres")
    async with live(settings) as server, httpx2.AsyncClient(**HTTP_OPTIONS) as client:
        for user in ("ada", "ben"):
            await write(client, server, user, f"Before of {user}")
        await wait_for_replica(primary.url)
        await asyncio.to_thread(primary.kill)
        await asyncio.to_thread(replica.promote)
        for user in ("ada", "ben"):
            await write(client, server, user, f"After of {user}")
        found = {}
        for user in ("ada", "ben"):
            notes = await call(client, server, user, "notes_search", query="tea")
            found[user] = sorted(note["title"] for note in notes["results"])
        return found
