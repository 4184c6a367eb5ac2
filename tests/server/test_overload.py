"""What callers and operators see when calls are refused because of load, and when no source can be searched."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from config.paths import UserId
from sources.storage.job_queue import JobLane, JobQueue, QueuedJob
from sources.storage.postgres import PostgresLibraries
from sources.storage.sqlite.connection.pool import SqliteLibraries
from tests.live import LiveServer, live, make_settings
from tests.server.clients import LegacyClient, ModernClient, WebSocketClient, modern_params
from tests.server.http_client import WAIT_MAX_S, HttpResponse, fetch

SEARCH = {"query": "tea"}


async def rest_search(server: LiveServer, name: str) -> HttpResponse:
    headers = {**await server.bearer(name), "Content-Type": "application/json"}
    return await fetch(server.url, "POST", "/api/v1/search", headers, msgspec.json.encode(SEARCH))


async def metrics_of(server: LiveServer) -> str:
    return (await fetch(server.url, "GET", "/metrics", await server.bearer("operator"))).body.decode()


def result_of(response: HttpResponse) -> dict[str, Any]:
    result: dict[str, Any] = response.json()["result"]
    return result


# -- no source can be searched: SQLite, because the files are damaged --------------------------------------------------


@asynccontextmanager
async def server_with_damaged_library(tmp_path: Path) -> AsyncIterator[LiveServer]:
    """Yields a server on which all files of Ada are damaged. Ben has a note."""
    async with live(make_settings(tmp_path)) as server:
        paths = server.runtime.data_root.prepare_user((await server.user("ada")).id)
        for path in (paths.chacha, paths.media, paths.prompts):
            path.write_bytes(b"not a database " * 1000)
        ben = await ModernClient.of(server, "ben")
        created = await ben.call("notes_create", {"title": "Tea of Ben"})
        assert "isError" not in result_of(created), created.body
        yield server


@pytest.mark.sqlite  # damages files
async def test_a_search_that_no_source_answers_is_an_error_over_mcp(tmp_path: Path) -> None:
    async with server_with_damaged_library(tmp_path) as server:
        ada, ben = await ModernClient.of(server, "ada"), await ModernClient.of(server, "ben")
        failed, answered = await ada.call("knowledge_search", SEARCH), await ben.call("knowledge_search", SEARCH)
        legacy = await (await LegacyClient.open(server, "ada")).call("knowledge_search", SEARCH)

    for response in (failed, legacy):
        result = result_of(response)
        assert (response.status, result["isError"], response.header("retry-after")) == (200, True, "1")
        assert result["content"][0]["text"].startswith("no source could be searched: notes: the library is not")
        assert result["_meta"]["florilegium/retryAfterS"] == 1.0
    assert [hit["title"] for hit in result_of(answered)["structuredContent"]["results"]] == ["Tea of Ben"]


@pytest.mark.sqlite  # damages files
async def test_a_search_that_no_source_answers_is_503_over_rest(tmp_path: Path) -> None:
    async with server_with_damaged_library(tmp_path) as server:
        failed, answered = await rest_search(server, "ada"), await rest_search(server, "ben")

    error = failed.json()["error"]
    assert (failed.status, failed.header("retry-after"), error["code"]) == (503, "1", 503)
    assert set(error["data"]["sources"]) == {"notes", "media", "chats", "characters", "prompts"}
    assert (answered.status, len(answered.json()["results"])) == (200, 1)


@pytest.mark.sqlite  # damages files
async def test_a_failed_search_has_its_own_outcome_in_the_metrics(tmp_path: Path) -> None:
    async with server_with_damaged_library(tmp_path) as server:
        ada, ben = await ModernClient.of(server, "ada"), await ModernClient.of(server, "ben")
        for _ in range(5):
            await ada.call("knowledge_search", SEARCH)
        await ben.call("knowledge_search", SEARCH)
        text = await metrics_of(server)

    assert 'florilegium_searches_total{outcome="failed"} 5.0' in text
    assert 'florilegium_searches_total{outcome="complete"} 1.0' in text
    calls = 'florilegium_mcp_calls_total{method="tools/call",outcome="%s",tool="knowledge_search"} %.1f'
    assert calls % ("unavailable", 5) in text
    assert calls % ("ok", 1) in text
    assert 'florilegium_breakers_open{source="notes"} 1.0' in text


# -- too many calls ----------------------------------------------------------------------------------------------------


class HeldJobs:
    """Jobs of a user that wait or run until they are released."""

    def __init__(self, queue: JobQueue, user_id: UserId) -> None:
        self._queue = queue
        self._jobs = [QueuedJob(user_id, JobLane(), None, lambda: None) for _ in range(4)]

    async def occupy(self) -> None:
        """Leaves one job running and one waiting. At least 50 ms pass between the starts of the two before, so that a
        long wait is expected."""
        for job in self._jobs:
            self._queue.add(job)
        self._end(self._jobs[0])
        await asyncio.sleep(0.05)
        self._end(self._jobs[1])

    def release(self) -> None:
        for job in self._jobs[2:]:
            self._end(job)

    def _end(self, job: QueuedJob) -> None:
        self._queue.finish(job)
        self._queue.leave(job)


def library_jobs(server: LiveServer) -> JobQueue:
    libraries = server.runtime.libraries
    if isinstance(libraries, PostgresLibraries):
        return libraries._threads.jobs
    assert isinstance(libraries, SqliteLibraries)
    return libraries._options.jobs


@asynccontextmanager
async def occupied(queue: JobQueue, user_id: UserId) -> AsyncIterator[HeldJobs]:
    held = HeldJobs(queue, user_id)
    await held.occupy()
    try:
        yield held
    finally:
        held.release()


@asynccontextmanager
async def overloaded_server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    """Yields a server on which searches of Ada would wait longer than allowed."""
    async with (
        live(make_settings(tmp_path, search_running_max=1, library_wait_max_ms=10)) as server,
        occupied(search_jobs(server), (await server.user("ada")).id),
    ):
        yield server


def search_jobs(server: LiveServer) -> JobQueue:
    return server.runtime.knowledge.aggregator._queue._queue


def assert_refused(response: HttpResponse) -> None:
    result = result_of(response)
    assert (response.status, result["isError"]) == (200, True)
    assert result["content"][0]["text"].startswith("too many calls are waiting; try again in")
    assert int(response.header("retry-after") or 0) >= 1
    assert result["_meta"]["florilegium/retryAfterS"] >= 1


async def test_a_search_that_would_wait_too_long_is_refused_over_every_transport(tmp_path: Path) -> None:
    async with overloaded_server(tmp_path) as server:
        refused = await (await ModernClient.of(server, "ada")).call("knowledge_search", SEARCH)
        legacy = await (await LegacyClient.open(server, "ada")).call("knowledge_search", SEARCH)
        rest = await rest_search(server, "ada")
        async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
            over_websocket = await socket.request(
                "tools/call", modern_params({"name": "knowledge_search", "arguments": SEARCH})
            )

    assert_refused(refused)
    assert_refused(legacy)
    assert over_websocket["result"]["isError"]
    assert (rest.status, rest.json()["error"]["code"]) == (503, 503)
    assert int(rest.header("retry-after") or 0) >= 1


async def test_a_repeated_call_gets_the_same_refusal_with_its_own_id(tmp_path: Path) -> None:
    async with overloaded_server(tmp_path) as server:
        ada = await ModernClient.of(server, "ada")
        responses = [await ada.call("knowledge_search", SEARCH, request_id=f"call {number}") for number in range(5)]
        other_tool = await ada.call("notes_search", SEARCH)
        listed = await ada.request("tools/list")
        text = await metrics_of(server)

    for number, response in enumerate(responses):
        assert_refused(response)
        assert response.json()["id"] == f"call {number}"
    assert len({msgspec.json.encode(result_of(response)) for response in responses}) == 1
    assert "isError" not in result_of(other_tool)
    assert result_of(listed)["tools"]
    assert 'outcome="refused",tool="knowledge_search"} 5.0' in text


async def test_a_repeated_call_of_another_user_is_not_refused_from_memory(tmp_path: Path) -> None:
    async with overloaded_server(tmp_path) as server:
        ada, ben = await ModernClient.of(server, "ada"), await ModernClient.of(server, "ben")
        assert_refused(await ada.call("knowledge_search", SEARCH))
        await ben.call("notes_create", {"title": "Tea of Ben"})
        found = await ben.call("notes_search", SEARCH)

    assert len(result_of(found)["structuredContent"]["results"]) == 1


async def test_searches_are_answered_again_when_the_queue_is_empty(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, search_running_max=1, library_wait_max_ms=10)) as server:
        ada = await ModernClient.of(server, "ada")
        async with occupied(search_jobs(server), (await server.user("ada")).id):
            assert_refused(await ada.call("knowledge_search", SEARCH))
        async with asyncio.timeout(WAIT_MAX_S):
            while result_of(response := await ada.call("knowledge_search", SEARCH)).get("isError"):
                await asyncio.sleep(0.05)

    assert "sources" not in result_of(response)["structuredContent"], "a source failed"


async def test_reading_that_would_wait_too_long_is_refused_over_every_transport(tmp_path: Path) -> None:
    """Resources and prompts are read from the library as tools read it, so the same wait is refused."""
    async with live(make_settings(tmp_path, library_jobs_max=1, library_wait_max_ms=10)) as server:
        ada, ben = await ModernClient.of(server, "ada"), await ModernClient.of(server, "ben")
        legacy = await LegacyClient.open(server, "ada")
        uris = [
            result_of(await user.call("notes_create", {"title": "Tea"}))["structuredContent"]["uri"]
            for user in (ada, ben)
        ]
        reads = {
            "resources/read": {"uri": uris[0]},
            "resources/list": {},
            "prompts/get": {"name": "tea"},
            "prompts/list": {},
        }
        async with (
            WebSocketClient.open(server.ws, await server.bearer("ada")) as socket,
            occupied(library_jobs(server), (await server.user("ada")).id),
        ):
            responses = [await ada.request(method, params) for method, params in reads.items()]
            responses += [await legacy.request(method, params) for method, params in reads.items()]
            over_websocket = await socket.request("resources/read", modern_params({"uri": uris[0]}))
            tools = await ada.request("tools/list")
        later = [await user.request("resources/read", {"uri": uri}) for user in (ada, ben) for uri in uris]
        text = await metrics_of(server)

    for response in responses:
        error = response.json()["error"]
        assert (response.status, error["code"]) == (503, 503)
        assert error["message"].startswith("too many calls are waiting; try again in")
        assert int(response.header("retry-after") or 0) >= 1
    assert over_websocket["error"]["code"] == 503
    assert result_of(tools)["tools"]
    assert ["result" in response.json() for response in later] == [True, False, False, True]
    assert 'florilegium_mcp_calls_total{method="resources/read",outcome="refused",tool=""} 3.0' in text


async def test_metrics_describe_the_queues_the_libraries_and_the_disk(tmp_path: Path) -> None:
    async with overloaded_server(tmp_path) as server:
        await (await ModernClient.of(server, "ada")).call("notes_create", {"title": "Tea"})
        text = await metrics_of(server)

    for line in (
        "florilegium_searches_waiting 1.0",
        "florilegium_searches_running 1.0",
        'florilegium_jobs_waiting{priority="interactive"} 0.0',
        'florilegium_jobs_waiting{priority="background"} 0.0',
        "florilegium_libraries_open 1.0",
        "florilegium_libraries_closing 0.0",
        'florilegium_breakers_open{source="notes"} 0.0',
    ):
        assert line in text.splitlines()
    for name in ("disk_free_bytes", "disk_size_bytes", "job_wait_seconds_total", "jobs_total", "libraries_open_max"):
        value = next(line for line in text.splitlines() if line.startswith(f"florilegium_{name} ")).split()[1]
        assert float(value) >= 0
