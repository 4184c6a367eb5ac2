"""A third-party source that raises, hangs, blocks, exits or returns damaged rows affects only itself, in lists as in
searches, and no other user."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from auth.context import READ, WRITE, ShareRule
from auth.sharing import Sharing
from tests.live import LiveServer, live, make_settings
from tests.server.clients import ModernClient
from tests.server.rest.rest_client import open_rest_client
from tests.server.rest.test_account import key_of, send
from tests.sources.weather_source import WEATHER, distribution_directory, install

LIST = "    async def list_items(self, context, library, limit, offset):\n"
GET = "    async def get(self, context, library, item_id, args):\n"
SEARCH = "    async def search(self, context, library, args):\n"
HEAD = "import asyncio, threading\nfrom config.errors import StorageError\nRELEASE = threading.Event()\n"
FAILURES = {
    "raises": ("raise ZeroDivisionError('secret')", "failed unexpectedly"),
    "raises a known error": ("raise StorageError('the station is closed')", "the station is closed"),
    "hangs": ("await asyncio.sleep(3600)", "did not respond within 1000 ms"),
    "blocks": ("RELEASE.wait()", "did not respond within 1000 ms"),
    "exits": ("raise SystemExit(3)", "failed unexpectedly"),
    "is interrupted": ("raise KeyboardInterrupt", "failed unexpectedly"),
    "cancels itself": ("raise asyncio.CancelledError", "failed unexpectedly"),
    "returns None": ("return None", "returned an invalid"),
}
FAILURE_CASES = [
    pytest.param(failure, marks=pytest.mark.slow("waits for time limits") if failure == "blocks" else ())
    for failure in FAILURES
]
DAMAGED_LISTS = {
    "rows are numbers": "return ListPage((1, 2), 2)",
    "rows is None": "return ListPage(None, 2)",
    "total is a text": "return ListPage((), 'many')",
    "too many rows": "row = ItemEntry(id=1, uri='weather://1', title='', last_modified=None)\n"
    "        return ListPage((row,) * (limit + 1), limit)",
    "uri of another source": "return ListPage((ItemEntry(id=1, uri='notes://1', title='', last_modified=None),), 1)",
    "title is bytes": "return ListPage((ItemEntry(id=1, uri='weather://1', title=b'', last_modified=None),), 1)",
}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    with distribution_directory(tmp_path) as directory:
        yield directory
        if (module := sys.modules.get("weather_module")) is not None:
            module.RELEASE.set()


def install_with(site: Path, method: str, body: str) -> None:
    code = HEAD + WEATHER.replace(method, f"{method}        {body}\n")
    install(site, "weather_module", code, "weather_module:Weather")


async def user_with_note(server: LiveServer, name: str) -> ModernClient:
    client = await ModernClient.of(server, name)
    created = await client.call("notes_create", {"title": f"Rain of {name}", "content": "rain"})
    assert created.status == 200
    return client


@pytest.fixture(autouse=True)
def source_errors(failures: list[str]) -> Iterator[None]:
    """Errors of the source are logged; others fail the test."""
    yield
    failures[:] = [line for line in failures if "source weather" not in line]


def result_of(response: Any) -> Any:
    assert response.status == 200, response.body
    return response.json()["result"]


@pytest.mark.parametrize("failure", FAILURE_CASES)
async def test_failing_source_is_left_out_of_lists(site: Path, tmp_path: Path, failure: str) -> None:
    body, message = FAILURES[failure]
    install_with(site, LIST, body)
    async with live(make_settings(tmp_path / "data", fanout_deadline_ms=1_000)) as server:
        ada, ben = await user_with_note(server, "ada"), await user_with_note(server, "ben")
        listing = asyncio.create_task(ada.request("resources/list"))
        own_notes = result_of(await ben.call("notes_search", {"query": "rain"}))["structuredContent"]["results"]
        listed = result_of(await listing)
        prompts = result_of(await ada.request("prompts/list"))

    assert [hit["title"] for hit in own_notes] == ["Rain of ben"]
    assert [entry["name"] for entry in listed["resources"][2:]] == ["Rain of ada"]
    assert message in listed["_meta"]["florilegium/skippedSources"]["weather"]
    assert "florilegium/skippedSources" not in prompts["_meta"]


@pytest.mark.parametrize("damage", list(DAMAGED_LISTS))
async def test_damaged_rows_are_left_out_of_lists(site: Path, tmp_path: Path, damage: str) -> None:
    install_with(site, LIST, DAMAGED_LISTS[damage])
    async with live(make_settings(tmp_path / "data")) as server:
        ada = await user_with_note(server, "ada")
        listed = result_of(await ada.request("resources/list"))

    assert [entry["name"] for entry in listed["resources"][2:]] == ["Rain of ada"]
    assert "returned an invalid list" in listed["_meta"]["florilegium/skippedSources"]["weather"]


@pytest.mark.parametrize("failure", FAILURE_CASES)
async def test_failing_source_is_left_out_of_searches(site: Path, tmp_path: Path, failure: str) -> None:
    install_with(site, SEARCH, FAILURES[failure][0])
    async with live(make_settings(tmp_path / "data", fanout_deadline_ms=1_000)) as server:
        ada, ben = await user_with_note(server, "ada"), await user_with_note(server, "ben")
        found = [
            result_of(await client.call("knowledge_search", {"query": "rain"}))["structuredContent"]
            for client in (ada, ben, ada)
        ]
        completed = await ada.request(
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": "notes://{id}"}, "argument": {"name": "id", "value": "ra"}},
        )

    assert [len(response["results"]) for response in found] == [1, 1, 1]
    assert {response["sources"]["weather"]["status"] for response in found} <= {"error", "timeout", "skipped"}
    assert len(result_of(completed)["completion"]["values"]) == 1


@pytest.mark.slow("waits for time limits")
async def test_source_that_blocks_is_refused_until_its_threads_return(site: Path, tmp_path: Path) -> None:
    install_with(site, LIST, "RELEASE.wait()")
    async with live(make_settings(tmp_path / "data", fanout_deadline_ms=600)) as server:
        ada = await user_with_note(server, "ada")
        reasons = set()
        for _ in range(4):
            listed = result_of(await ada.request("resources/list"))
            reasons.add(listed["_meta"]["florilegium/skippedSources"]["weather"])
            await asyncio.sleep(0.6)
        sys.modules["weather_module"].RELEASE.set()
        async with asyncio.timeout(20):
            while "florilegium/skippedSources" in (listed := result_of(await ada.request("resources/list")))["_meta"]:
                await asyncio.sleep(0.05)

    assert reasons == {"weather did not respond within 600 ms", "weather does not respond"}
    assert [entry["name"] for entry in listed["resources"][2:]] == ["Rain of ada", "monday", "tuesday"]


async def test_source_gets_no_library_but_that_of_the_caller(site: Path, tmp_path: Path) -> None:
    install_with(site, GET, "REPORTS['monday'] = f'The diary of {context.user_id}.'")
    async with open_rest_client(tmp_path / "data") as api:
        ada, ben = [await api.server.user(name) for name in ("ada", "ben")]
        sharing = Sharing(api.server.runtime.registry.database)
        # What would share nothing is refused.
        key, body = await key_of(api, "ada", READ, WRITE), {"by": "source", "value": "weather", "to": "ben"}
        refused = await send(api, key, "POST", "/api/v1/shares", body)
        share = await sharing.create_share(ada.id, ShareRule("tag", "recipes"), "ben")
        uri = f"weather://monday?library={share.id}"
        own = await api.get("/api/v1/items/weather/monday", "ben")
        read = [
            await api.get(f"/api/v1/items/weather/monday?library={share.id}", "ben"),
            await api.get(f"/api/v1/items?uri={quote(uri)}", "ben"),
            await api.get(f"/api/v1/items/similar?uri={quote(uri)}", "ben"),
        ]

    assert (refused.status, "expected one of notes" in refused.body.decode()) == (400, True)
    assert own.json()["content"] == f"The diary of {ben.id}."
    assert [(response.status, ada.id in response.body.decode()) for response in read] == [(404, False)] * 3
