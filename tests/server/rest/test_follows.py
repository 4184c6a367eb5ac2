"""Followed sources over REST: what users can follow, and that each sees only their own."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, ClassVar

import msgspec
import pytest

from auth.context import READ, WRITE
from tests.cases import each_case
from tests.live import NO_RATE_LIMITS, LiveServer, live, make_settings
from tests.server.http_client import HttpResponse, fetch

JSON = {"Content-Type": "application/json"}
WAIT_MAX_S = 60


class PageHandler(BaseHTTPRequestHandler):
    """Serves one page with an ETag, and a redirect to it."""

    content: ClassVar[str] = "Steep for three minutes."
    statuses: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        etag = f'"{len(self.content)}"'
        status = 302 if self.path == "/moved" else 304 if self.headers.get("If-None-Match") == etag else 200
        self.statuses.append(status)
        self.send_response(status)
        self.send_header("ETag", etag)
        self.send_header("Content-Type", "text/html")
        self.send_header("Location", "/tea")
        body = f"<html><head><title>Tea</title></head><body><p>{self.content}</p></body></html>".encode()
        self.send_header("Content-Length", str(len(body) if status == 200 else 0))
        self.end_headers()
        if status == 200:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        pass


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    roots = (str(tmp_path / "vaults" / "{user}"), str(tmp_path / "shared"))
    follow = {"follow_roots": roots, "follow_url_hosts": ("127.0.0.1",), "follow_poll_s": 0.05}
    settings = make_settings(tmp_path / "data", **follow, **NO_RATE_LIMITS)
    async with live(settings) as running:
        yield running


async def call(
    server: LiveServer,
    user: str,
    method: str,
    path: str = "",
    body: Any = None,
    scopes: tuple[str, ...] = (READ, WRITE),
) -> HttpResponse:
    content = None if body is None else msgspec.json.encode(body)
    headers: Mapping[str, str] = {**await server.bearer(user, scopes), **JSON}
    return await fetch(server.url, method, f"/api/v1/follows{path}", headers, content)


async def add(server: LiveServer, user: str, location: Path | str, **fields: Any) -> HttpResponse:
    return await call(server, user, "POST", "", {"location": str(location), **fields})


async def texts(server: LiveServer, user: str, query: str) -> list[str]:
    headers = {**await server.bearer(user), **JSON}
    response = await fetch(server.url, "POST", "/api/v1/search", headers, msgspec.json.encode({"query": query}))
    return [hit["snippet"] for hit in response.json()["results"]]


async def wait_for_text(server: LiveServer, user: str, query: str) -> None:
    async with asyncio.timeout(WAIT_MAX_S):
        while not await texts(server, user, query):
            await asyncio.sleep(0.1)


def write_note(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.md"
    path.write_text(text)
    return path


async def test_user_follows_a_folder_of_their_own_and_resolves_a_conflict(server: LiveServer, tmp_path: Path) -> None:
    note = write_note(tmp_path / "vaults" / "ada", "Tea", "# Tea\nSteep for three minutes.")
    added = await add(server, "ada", note.parent)
    assert (added.status, added.json()["state"]) == (201, "new")
    source = added.json()["id"]
    await wait_for_text(server, "ada", "steep")
    assert await texts(server, "ben", "steep") == []
    assert (await call(server, "ben", "GET")).json() == {"follows": []}

    items = await fetch(server.url, "GET", "/api/v1/library/items?source=notes", await server.bearer("ada"))
    path = f"/api/v1/items?uri={items.json()['items'][0]['uri']}"
    await fetch(server.url, "PATCH", path, {**await server.bearer("ada"), **JSON}, b'{"content": "My own words."}')
    note.write_text("# Tea\nThe file changed.")
    async with asyncio.timeout(WAIT_MAX_S):
        while not (shown := (await call(server, "ada", "GET", f"/{source}")).json())["conflicts"]:
            await asyncio.sleep(0.1)
    assert [problem["file"] for problem in shown["problems"]] == ["Tea.md"]
    assert await texts(server, "ada", "words")
    resolved = await call(server, "ada", "POST", f"/{source}/resolve", {"file": "Tea.md", "keep": "file"})
    assert resolved.json()["conflicts"] == 0
    assert await texts(server, "ada", "changed")


async def test_source_is_paused_run_and_removed_by_its_owner_only(server: LiveServer, tmp_path: Path) -> None:
    folder = write_note(tmp_path / "shared", "Tea", "# Tea\nSteep.").parent
    source = (await add(server, "ada", folder)).json()["id"]
    for method, path, body in (
        ("GET", f"/{source}", None),
        ("PATCH", f"/{source}", {"paused": True}),
        ("POST", f"/{source}/run", None),
        ("POST", f"/{source}/resolve", {"file": "Tea.md", "keep": "file"}),
        ("DELETE", f"/{source}", None),
    ):
        assert (await call(server, "ben", method, path, body)).status == 404
    assert (await call(server, "ada", "PATCH", f"/{source}", {"paused": True})).json()["state"] == "paused"
    assert (await call(server, "ada", "PATCH", f"/{source}", {"paused": False})).json()["state"] != "paused"
    assert (await call(server, "ada", "POST", f"/{source}/run")).status == 202
    assert (await call(server, "ada", "DELETE", f"/{source}")).status == 200
    assert (await call(server, "ada", "GET", f"/{source}")).status == 404


async def test_users_cannot_follow_other_files_of_the_machine(server: LiveServer, tmp_path: Path) -> None:
    write_note(tmp_path / "vaults" / "ben", "Secret", "# Secret\nOf Ben.")
    own = write_note(tmp_path / "vaults" / "ada", "Tea", "# Tea\nSteep.").parent
    (own / "link").symlink_to(tmp_path / "vaults" / "ben")
    (own / "Linked.md").symlink_to(tmp_path / "vaults" / "ben" / "Secret.md")
    refused = [
        await add(server, "ada", location)
        for location in (
            "/etc",
            "/etc/passwd",
            "/no/such/path",
            tmp_path / "vaults" / "ben",
            own / "link",
            own / ".." / "ben",
        )
    ]
    messages = {response.json()["error"]["message"] for response in refused}
    assert {response.status for response in refused} == {400}
    assert len(messages) == 1, "the response must not tell whether a path exists"

    await add(server, "ada", own)
    await wait_for_text(server, "ada", "steep")
    assert await texts(server, "ada", "secret") == []


async def test_link_that_is_changed_later_leads_nowhere(server: LiveServer, tmp_path: Path) -> None:
    write_note(tmp_path / "vaults" / "ben", "Secret", "# Secret\nOf Ben.")
    folder = write_note(tmp_path / "vaults" / "ada" / "notes", "Tea", "# Tea\nSteep.").parent
    source = (await add(server, "ada", folder)).json()["id"]
    await wait_for_text(server, "ada", "steep")
    folder.rename(tmp_path / "old")
    folder.symlink_to(tmp_path / "vaults" / "ben")
    await call(server, "ada", "POST", f"/{source}/run")
    async with asyncio.timeout(WAIT_MAX_S):
        # A run that has already begun reports that the folder is another one.
        while "follow_roots" not in (await call(server, "ada", "GET", f"/{source}")).json()["problem"]:
            await asyncio.sleep(0.1)
    assert await texts(server, "ada", "secret") == []


async def test_folder_of_a_user_that_is_replaced_by_a_link_leads_nowhere(server: LiveServer, tmp_path: Path) -> None:
    ben = write_note(tmp_path / "vaults" / "ben", "Tea", "# Tea\nSecret of Ben.").parent
    own = write_note(tmp_path / "vaults" / "ada", "Tea", "# Tea\nSteep.").parent
    source = (await add(server, "ada", own, write_back=True)).json()["id"]
    await wait_for_text(server, "ada", "steep")
    own.rename(tmp_path / "old")
    own.symlink_to(ben)
    await call(server, "ada", "POST", f"/{source}/run")
    async with asyncio.timeout(WAIT_MAX_S):
        while "follow_roots" not in (await call(server, "ada", "GET", f"/{source}")).json()["problem"]:
            await asyncio.sleep(0.1)
    assert await texts(server, "ada", "secret") == []
    await call(server, "ada", "DELETE", f"/{source}")
    assert (await add(server, "ada", own)).status == 400
    assert (await add(server, "ada", own / "Tea.md")).status == 400


async def test_folders_of_users_can_be_behind_a_link_of_the_operator(server: LiveServer, tmp_path: Path) -> None:
    write_note(tmp_path / "disk" / "ada", "Tea", "# Tea\nSteep.")
    (tmp_path / "vaults").symlink_to(tmp_path / "disk")
    assert (await add(server, "ada", tmp_path / "vaults" / "ada")).status == 201
    await wait_for_text(server, "ada", "steep")


def swap_folders(folders: Sequence[Path], target: Path, stop: Event) -> None:
    """Replaces folders by links to another one and back, as fast as possible."""
    while not stop.is_set():
        for folder in folders:
            folder.rename(folder.with_suffix(".moved"))
            folder.symlink_to(target)
            folder.unlink()
            folder.with_suffix(".moved").rename(folder)


@pytest.mark.slow("swaps folders as fast as possible while they are read")
async def test_folders_that_are_swapped_while_they_are_read_lead_nowhere(server: LiveServer, tmp_path: Path) -> None:
    ben = write_note(tmp_path / "vaults" / "ben", "Tea", "# Tea\nSecret of Ben.").parent
    ada = tmp_path / "vaults" / "ada"
    folder = write_note(ada / "notes" / "inner", "Tea", "# Tea\nSteep.").parent.parent
    source = (await add(server, "ada", folder, write_back=True)).json()["id"]
    await wait_for_text(server, "ada", "steep")
    stop, following = Event(), server.runtime.following
    swapping = Thread(target=swap_folders, args=([folder / "inner", folder], ben, stop))
    swapping.start()
    try:
        for _ in range(8):
            runs = following.runs
            await call(server, "ada", "POST", f"/{source}/run")
            async with asyncio.timeout(WAIT_MAX_S):
                while following.runs == runs:
                    await asyncio.sleep(0.01)
    finally:
        stop.set()
        swapping.join()
    assert await texts(server, "ada", "secret") == []
    assert sorted(path.name for path in ben.iterdir()) == ["Tea.md"]
    await call(server, "ada", "POST", f"/{source}/run")
    await wait_for_text(server, "ada", "steep")
    assert (await call(server, "ada", "GET", f"/{source}")).json()["location"] == str(folder)


async def test_administrator_follows_any_path_but_the_data_directory(server: LiveServer, tmp_path: Path) -> None:
    note = write_note(tmp_path / "elsewhere", "Tea", "# Tea\nSteep.")
    scopes = (READ, WRITE, "admin")
    added = await call(server, "ada", "POST", "", {"location": str(note)}, scopes)
    assert added.status == 201
    for location in (tmp_path / "data", tmp_path / "data" / "users", "/"):
        refused = await call(server, "ada", "POST", "", {"location": str(location)}, scopes)
        assert refused.status == 400, location
    assert (await call(server, "ada", "POST", "", {"location": str(note)}, scopes)).status == 409


@pytest.mark.slow("waits for several runs")
async def test_url_is_fetched_again_only_if_it_changed(server: LiveServer) -> None:
    PageHandler.statuses.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), PageHandler) as pages:
        Thread(target=pages.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{pages.server_address[1]}"
        source = (await add(server, "ada", f"{url}/moved", interval_s=1)).json()["id"]
        await wait_for_text(server, "ada", "three")
        async with asyncio.timeout(WAIT_MAX_S):
            while 304 not in PageHandler.statuses:
                await asyncio.sleep(0.1)
        PageHandler.content = "Steep for five minutes, and no longer."
        await wait_for_text(server, "ada", "five")
        assert await texts(server, "ada", "three") == []
        assert (await call(server, "ada", "GET", f"/{source}")).json()["items"] == 1
        assert await texts(server, "ben", "five") == []
        pages.shutdown()


@each_case("url", ["http://127.0.0.2/", "http://[::1]/", "https://localhost/", "http://169.254.169.254/latest"])
async def test_url_of_a_private_address_is_refused(server: LiveServer, url: str) -> None:
    source = (await add(server, "ada", url)).json()["id"]
    async with asyncio.timeout(WAIT_MAX_S):
        while (shown := (await call(server, "ada", "GET", f"/{source}")).json())["state"] == "new":
            await asyncio.sleep(0.1)
    assert shown["problem"] == "the URL does not have a public address"


async def test_deleted_data_is_not_imported_again(server: LiveServer, tmp_path: Path) -> None:
    for user in ("ada", "ben"):
        folder = write_note(tmp_path / "vaults" / user, "Tea", "# Tea\nSteep.").parent
        await add(server, user, folder)
        await wait_for_text(server, user, "steep")
    headers = {**await server.bearer("ada"), **JSON}
    token = (await fetch(server.url, "POST", "/api/v1/account/deletion", headers, b"{}")).json()["token"]
    body = msgspec.json.encode({"token": token})
    assert (await fetch(server.url, "DELETE", f"/api/v1/account/data?token={token}", headers, body)).status == 200
    assert (await call(server, "ada", "GET")).json() == {"follows": []}
    assert len((await call(server, "ben", "GET")).json()["follows"]) == 1
    write_note(tmp_path / "vaults" / "ada", "Cup", "# Cup\nPorcelain.")
    write_note(tmp_path / "vaults" / "ben", "Cup", "# Cup\nPorcelain.")
    await wait_for_text(server, "ben", "porcelain")
    assert await texts(server, "ada", "porcelain") == []
