"""Every transport of `florilegium serve --workers 2`: what one worker has begun, the other continues."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from config.settings import FixedValues
from tests.server.clients import LegacyClient, ModernClient, WebSocketClient
from tests.server.http_client import HttpResponse, RawConnection, fetch
from tests.server.workers.deployment import WAIT_MAX_S, WorkersDeployment, run_workers
from tests.servers.postgres import create_database, drop_database
from tests.servers.shared import SharedServer

JSON = {"Content-Type": "application/json"}
# More than the other tests of a user need.
BURST = FixedValues().rate_user_burst


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: SharedServer, valkey_server: SharedServer
) -> Iterator[WorkersDeployment]:
    url = create_database(postgres_server)
    data_dir = tmp_path_factory.mktemp("workers")
    services = shared_services(url, valkey_server, data_dir)
    limits = {"rate_user_per_minute": 1, "rate_tool_per_minute": 0}
    with run_workers(data_dir, **services, **limits) as running:
        yield running
    drop_database(postgres_server, url)


def shared_services(database_url: str, valkey: SharedServer, data_dir: Path) -> dict[str, Any]:
    """The settings of a deployment on the servers that all tests share."""
    return {
        "storage_url": database_url,
        "postgres_connections": 3,
        "session_url": valkey.url,
        "redis_prefix": f"test-{data_dir.name}",
        "redis_timeout_ms": 10_000,
    }


def structured(response: HttpResponse) -> dict[str, Any]:
    result: dict[str, Any] = response.json()["result"]["structuredContent"]
    return result


async def test_a_session_of_one_worker_continues_at_the_other(deployment: WorkersDeployment) -> None:
    one, other = deployment.workers()
    with deployment.only(one):
        client = await LegacyClient.open(deployment, "ada")
        await client.call("notes_create", {"title": "Spanish treasure", "content": "A galleon at anchor."})
        first = structured(await client.call("knowledge_search", {"query": "galleon"}))
    with deployment.only(other):
        second = structured(await client.call("knowledge_search", {"query": "galleon"}))
        unknown = await LegacyClient.open(deployment, "ben")
        unknown.headers["Mcp-Session-Id"] = client.session_id
        foreign = await unknown.request("ping")

    assert first["session"] == second["session"]
    assert ([hit["title"] for hit in first["results"]], first.get("exhausted", False)) == (["Spanish treasure"], False)
    assert second["exhausted"]
    assert foreign.status == 404


async def test_a_websocket_at_one_worker_shares_the_library_with_the_other(deployment: WorkersDeployment) -> None:
    one, other = deployment.workers()
    with deployment.only(one):
        client = await ModernClient.of(deployment, "cleo")
        await client.call("notes_create", {"title": "Compass", "content": "A needle that points north."})
    with deployment.only(other):
        async with WebSocketClient.open(deployment.ws, await deployment.bearer("cleo")) as socket:
            await socket.initialize()
            found = await socket.call("notes_search", {"query": "needle"})

    assert [hit["title"] for hit in found["result"]["structuredContent"]["results"]] == ["Compass"]


async def test_a_ticket_of_one_worker_opens_a_websocket_at_the_other(deployment: WorkersDeployment) -> None:
    one, other = deployment.workers()
    with deployment.only(one):
        issued = await fetch(deployment.url, "POST", "/mcp/ticket", await deployment.bearer("dora"))
    with deployment.only(other):
        async with WebSocketClient.open(f"{deployment.ws}?ticket={issued.json()['ticket']}") as socket:
            answer = await socket.initialize()

    assert answer["result"]["serverInfo"]["name"] == "florilegium"


async def test_a_stream_at_one_worker_reports_a_change_made_at_the_other(deployment: WorkersDeployment) -> None:
    one, other = deployment.workers()
    async with AsyncExitStack() as stack:
        with deployment.only(one):
            client = await LegacyClient.open(deployment, "eve")
            stream = await stack.enter_async_context(client.listening())
        with deployment.only(other):
            await client.call("notes_create", {"title": "Sextant", "content": "Angles above the horizon."})

        assert (await stream.event())["method"] == "notifications/resources/list_changed"


async def test_the_rate_limit_counts_the_calls_to_both_workers(deployment: WorkersDeployment) -> None:
    credential = await deployment.bearer("fred")
    statuses: list[int] = []
    for number in range(4):
        with deployment.only(deployment.workers()[number % 2]):
            statuses += [
                (await fetch(deployment.url, "GET", "/api/v1/account", credential)).status for _ in range(BURST // 3)
            ]

    assert statuses == [200] * BURST + [429] * (len(statuses) - BURST)
    assert (await fetch(deployment.url, "GET", "/api/v1/account", await deployment.bearer("gina"))).status == 200


async def test_notes_written_through_rest_are_found_by_their_owner_only(deployment: WorkersDeployment) -> None:
    one, other = deployment.workers()
    found = {}
    for name in ("hugo", "iris"):
        credential = {**await deployment.bearer(name), **JSON}
        note = {"title": f"Anchor of {name}", "content": "Iron and rope."}
        with deployment.only(one):
            created = await fetch(deployment.url, "POST", "/api/v1/items/notes", credential, msgspec.json.encode(note))
            assert created.status == 201, created.body
        with deployment.only(other):
            query = msgspec.json.encode({"query": "anchor"})
            found[name] = (await fetch(deployment.url, "POST", "/api/v1/search", credential, query)).json()["results"]

    assert [hit["title"] for hit in found["hugo"]] == ["Anchor of hugo"]
    assert [hit["title"] for hit in found["iris"]] == ["Anchor of iris"]


async def read_searches(deployment: WorkersDeployment) -> dict[str, float]:
    """Returns how often each worker has searched characters, which no other test does."""
    samples = await deployment.metrics()
    starts = {sample.labels["worker"] for sample in samples if sample.name == "process_start_time_seconds"}
    searches = {
        sample.labels["worker"]: sample.value
        for sample in samples
        if sample.name == "florilegium_mcp_calls_total" and sample.labels["tool"] == "characters_search"
    }
    return {worker: searches.get(worker, 0.0) for worker in sorted(starts)}


async def test_one_scrape_has_the_metrics_of_all_workers(deployment: WorkersDeployment) -> None:
    one, other = deployment.workers()
    client = await ModernClient.of(deployment, "jane")
    for worker, calls in ((one, 3), (other, 2)):
        with deployment.only(worker):
            for _ in range(calls):
                await client.call("characters_search", {"query": "captain"})
    with deployment.only(one):
        alone = await read_searches(deployment)

    scrapes = [await read_searches(deployment) for _ in range(4)]
    assert [sorted(searches.values()) for searches in scrapes] == [[2, 3]] * 4
    # A worker that does not answer is left out.
    assert list(alone.values()) == [3]


async def test_the_state_of_the_server_is_that_of_all_workers(deployment: WorkersDeployment) -> None:
    credential = await deployment.bearer("kate")
    client = await ModernClient.of(deployment, "kate")
    before = (await fetch(deployment.url, "GET", "/api/v1/server", credential)).json()
    one, other = deployment.workers()
    for worker, calls in ((one, 3), (other, 2)):
        with deployment.only(worker):
            for _ in range(calls):
                await client.call("server_info")
    with deployment.only(one):
        alone = (await fetch(deployment.url, "GET", "/api/v1/server", credential)).json()
    after = (await fetch(deployment.url, "GET", "/api/v1/server", credential)).json()

    assert [worker["worker"] for worker in after["workers"]] == [0, 1]
    assert after["calls"]["ok"] - before["calls"].get("ok", 0) == 5
    added = zip(after["workers"], before["workers"], strict=True)
    assert sorted(new["calls"].get("ok", 0) - old["calls"].get("ok", 0) for new, old in added) == [2, 3]
    assert sum(hour["calls"] for hour in after["hours"]) - sum(hour["calls"] for hour in before["hours"]) == 5
    # A worker that does not answer is left out.
    assert len(alone["workers"]) == 1


@pytest.mark.slow("stops processes")
def test_sigterm_answers_what_was_sent_and_is_a_success(
    tmp_path: Path, database_url: str, valkey_server: SharedServer
) -> None:
    services = shared_services(database_url, valkey_server, tmp_path)
    with run_workers(tmp_path, **services, shutdown_grace_s=WAIT_MAX_S) as deployment:
        responses = asyncio.run(write_and_stop(deployment))
        code = deployment.process.wait(WAIT_MAX_S)

    assert ([response.status for response in responses], code) == ([201] * 4, 0)
    log = (tmp_path / "log").read_text()
    assert log.count("metrics_token: the value is easy to guess") == 1, "once for all workers"
    assert "Traceback" not in log


async def write_and_stop(deployment: WorkersDeployment) -> list[HttpResponse]:
    """Sends writes on open connections to both workers, and SIGTERM before they are answered."""
    credential = {**await deployment.bearer("ada"), **JSON}
    async with AsyncExitStack() as stack:
        connections: list[RawConnection] = []
        for number in range(4):
            with deployment.only(deployment.workers()[number % 2]):
                connection = await stack.enter_async_context(RawConnection.open(deployment.url))
                await connection.request("GET", "/healthz")
                await connection.response()
                connections.append(connection)
        for number, connection in enumerate(connections):
            note = {"title": f"Last {number}", "content": "Written while the server stops."}
            await connection.request("POST", "/api/v1/items/notes", credential, msgspec.json.encode(note))
        deployment.process.send_signal(signal.SIGTERM)
        return [await connection.response() for connection in connections]
