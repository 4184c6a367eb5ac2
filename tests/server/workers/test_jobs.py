"""Background work with two workers: one of them does it, and the other takes over if it is killed."""

import asyncio
import io
import os
import signal
import zipfile
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from auth.redis.connection import open_redis
from tests.live import NO_RATE_LIMITS
from tests.server.clients import ModernClient
from tests.server.http_client import fetch
from tests.server.workers.deployment import WAIT_MAX_S, WorkersDeployment, run_workers
from tests.server.workers.load import stored_notes
from tests.server.workers.test_transports import shared_services
from tests.servers.aging import age_embedding_leases, age_keys
from tests.servers.postgres import create_database, drop_database
from tests.servers.shared import SharedServer

NOTES = 300
PAUSE_S = 0.05
JSON = {"Content-Type": "application/json"}
FILE = {"Content-Type": "application/octet-stream"}


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: SharedServer, valkey_server: SharedServer
) -> Iterator[WorkersDeployment]:
    url = create_database(postgres_server)
    data_dir = tmp_path_factory.mktemp("jobs")
    services = shared_services(url, valkey_server, data_dir)
    small_steps = {"import_batch_items": 5, "semantic_model": "fast"}
    with run_workers(data_dir, **services, **NO_RATE_LIMITS, **small_steps) as running:
        yield running
    drop_database(postgres_server, url)


def archive() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for number in range(NOTES):
            file.writestr(f"{number}.md", f"# Island {number}\n\nA lighthouse and a harbour.\n")
    return content.getvalue()


async def coverage(deployment: WorkersDeployment) -> tuple[float, float]:
    """Returns how many passages the workers have embedded, and how many users wait for it."""
    samples = await deployment.metrics()
    names = ("florilegium_embedding_passages_total", "florilegium_embedding_users_waiting")
    passages, waiting = (sum(sample.value for sample in samples if sample.name == name) for name in names)
    return passages, waiting


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
    before, _ = await coverage(deployment)
    client = await ModernClient.of(deployment, "ben")
    for number in range(20):
        with deployment.only(deployment.workers()[number % 2]):
            await client.call("notes_create", {"title": f"Reef {number}", "content": "Coral below the surface."})
    async with asyncio.timeout(WAIT_MAX_S):
        while (counts := await coverage(deployment))[0] < before + 20 or counts[1]:
            await asyncio.sleep(PAUSE_S)

    assert counts == (before + 20, 0)


async def test_the_embedding_of_a_killed_worker_is_taken_over(deployment: WorkersDeployment) -> None:
    """The killed worker leaves its lease behind, which ends after a while."""
    await deployment.wait_until_all_serve()
    one, other = deployment.workers()
    credential = {**await deployment.bearer("cleo"), **JSON}
    with deployment.only(one):
        for number in range(20):
            note = msgspec.json.encode({"title": f"Tide {number}", "content": "Water rises twice a day."})
            await fetch(deployment.url, "POST", "/api/v1/items/notes", credential, note)
        os.kill(one, signal.SIGKILL)
    await age_embedding_leases(deployment.settings.storage_url)
    client = ModernClient(deployment, await deployment.bearer("cleo"))
    with deployment.only(other):
        await client.call("notes_search", {"query": "tide"})
    async with asyncio.timeout(WAIT_MAX_S):
        while not await has_all_meanings(client):
            await asyncio.sleep(PAUSE_S)


async def has_all_meanings(client: ModernClient) -> bool:
    """Whether every note is compared by its meaning: none of its words are in the query."""
    found = await client.call("notes_search", {"query": "when does the sea come in", "limit": 50})
    return len(found.json()["result"]["structuredContent"]["results"]) == 20
