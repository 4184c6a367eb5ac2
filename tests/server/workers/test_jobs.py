"""Background work with two workers: one of them does it, and the other takes over if it is killed."""

import asyncio
import io
import os
import signal
import time
import zipfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from auth.redis import open_redis
from sources.storage.postgres.vectors.library_vectors import EMBEDDING_LEASE
from tests.live import NO_RATE_LIMITS
from tests.server.clients import ModernClient
from tests.server.http_client import fetch
from tests.server.workers.deployment import WAIT_MAX_S, WorkersDeployment, run_workers
from tests.server.workers.load import stored_notes
from tests.server.workers.test_transports import shared_services
from tests.servers.aging import age_embedding_users, age_keys
from tests.servers.postgres import create_database, drop_database
from tests.servers.shared import SharedServer

pytestmark = pytest.mark.slow("kills processes")

# Five batches of an import.
NOTES = 1_000
PAUSE_S = 0.05
FILE = {"Content-Type": "application/octet-stream"}


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: SharedServer, valkey_server: SharedServer
) -> Iterator[WorkersDeployment]:
    url = create_database(postgres_server)
    data_dir = tmp_path_factory.mktemp("jobs")
    services = shared_services(url, valkey_server, data_dir)
    with run_workers(data_dir, **services, **NO_RATE_LIMITS, semantic_model="fast") as running:
        yield running
    drop_database(postgres_server, url)


def archive() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for number in range(NOTES):
            file.writestr(f"{number}.md", f"# Island {number}\n\nA lighthouse and a harbour.\n")
    return content.getvalue()


async def wait_until_embedded(deployment: WorkersDeployment, at_least: float = 0) -> float:
    """Waits until no user has text to embed. Returns how many passages the workers have embedded. The text of a write
    is noticed after the write was answered."""
    names = ("florilegium_embedding_passages_total", "florilegium_embedding_users_waiting")
    async with asyncio.timeout(WAIT_MAX_S):
        while True:
            samples = await deployment.metrics()
            passages, waiting = (sum(sample.value for sample in samples if sample.name == name) for name in names)
            if not waiting and passages >= at_least:
                return passages
            await asyncio.sleep(PAUSE_S)


async def test_the_import_of_a_killed_worker_is_continued_once(deployment: WorkersDeployment) -> None:
    one, _ = deployment.workers()
    credential = await deployment.bearer("ada")
    with deployment.only(one):
        path = "/api/v1/import?name=islands.zip"
        started = (await fetch(deployment.url, "POST", path, {**credential, **FILE}, archive())).json()
        while not (job := await read_import(deployment, credential, started["id"]))["items"]:
            await asyncio.sleep(PAUSE_S)
    assert job["state"] == "running"
    os.kill(one, signal.SIGKILL)
    async with open_redis(deployment.settings) as connection:
        await age_keys(connection, 60)
    async with asyncio.timeout(WAIT_MAX_S):
        while (job := await read_import(deployment, credential, started["id"]))["state"] in ("waiting", "running"):
            await asyncio.sleep(PAUSE_S)

    assert (job["state"], job["items"]) == ("done", NOTES)
    stored = await stored_notes(deployment.url, credential)
    assert Counter(note["title"] for note in stored) == Counter(f"Island {number}" for number in range(NOTES))


async def read_import(deployment: WorkersDeployment, credential: dict[str, str], job_id: str) -> dict[str, object]:
    job: dict[str, object] = (await fetch(deployment.url, "GET", f"/api/v1/import/{job_id}", credential)).json()
    return job


async def test_a_library_that_both_workers_use_is_embedded_once(deployment: WorkersDeployment) -> None:
    await deployment.wait_until_all_serve()
    before = await wait_until_embedded(deployment)
    client = await ModernClient.of(deployment, "ben")
    notes = [{"title": f"Reef {number}", "content": "Coral below the surface."} for number in range(20)]
    # On connections of their own, which both workers accept.
    created = await asyncio.gather(*(client.call("notes_create", note) for note in notes))

    assert ["isError" in response.json()["result"] for response in created] == [False] * 20
    assert await wait_until_embedded(deployment, before + 20) == before + 20


async def test_the_embedding_of_a_killed_worker_is_taken_over(deployment: WorkersDeployment) -> None:
    """Without another call of the user. The killed worker also leaves its lease on the library behind."""
    await deployment.wait_until_all_serve()
    one, _ = deployment.workers()
    client = await ModernClient.of(deployment, "cleo")
    url = deployment.settings.storage_url
    with deployment.only(one):
        await client.call("notes_create", {"title": "Ebb", "content": "Water falls twice a day."})
        await wait_until_embedded(deployment)
        await hold_lease(url, "cleo", "another")
        for number in range(20):
            await client.call("notes_create", {"title": f"Tide {number}", "content": "Water rises twice a day."})
        process = await embedding_process(url, "cleo")
        os.kill(one, signal.SIGKILL)
    await hold_lease(url, "cleo", process)
    await age_embedding_users(url)
    async with asyncio.timeout(WAIT_MAX_S):
        while await count_embedded(url, "cleo") < 21:
            await asyncio.sleep(PAUSE_S)

    await wait_until_embedded(deployment)
    assert await count_embedded(url, "cleo") == 21


@asynccontextmanager
async def library_tenant(url: str, user: str) -> AsyncIterator[tuple["asyncpg.Connection[asyncpg.Record]", str]]:
    """Yields a connection, and the tenant of the user's library."""
    connection = await asyncpg.connect(url, statement_cache_size=0)
    find = "SELECT tenant_id FROM florilegium.tenants JOIN florilegium.users ON user_id = users.id WHERE name = $1"
    try:
        yield connection, await connection.fetchval(find, user)
    finally:
        await connection.close()


async def hold_lease(url: str, user: str, process: str) -> None:
    """Lets a process embed the library of the user for a long time."""
    async with library_tenant(url, user) as (connection, tenant):
        await connection.execute(
            f"INSERT INTO florilegium_library.state (tenant_id, name, value) VALUES ($1, '{EMBEDDING_LEASE}', $2) "
            "ON CONFLICT (tenant_id, name) DO UPDATE SET value = excluded.value",
            tenant,
            f"{process} {time.time() + 3600}",
        )


async def embedding_process(url: str, user: str) -> str:
    """Waits until a process has written down that it embeds the text of the user, and returns its id."""
    find = "SELECT process FROM florilegium.embedding_users JOIN florilegium.users ON user_id = id WHERE name = $1"
    async with library_tenant(url, user) as (connection, _), asyncio.timeout(WAIT_MAX_S):
        while (process := await connection.fetchval(find, user)) is None:
            await asyncio.sleep(PAUSE_S)
        return str(process)


async def count_embedded(url: str, user: str) -> int:
    """Returns how many vectors the library of the user has."""
    async with library_tenant(url, user) as (connection, tenant):
        sql = "SELECT count(*) FROM florilegium_library.vectors WHERE tenant_id = $1"
        count: int = await connection.fetchval(sql, tenant)
        return count
