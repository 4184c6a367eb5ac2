"""A running server keeps libraries current with the sources that their owners follow."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from auth.follows import FollowRecord, Follows
from config.errors import Conflict
from sources.following.state import run_lease
from tests.live import LiveServer, live, make_settings
from tests.server.clients import ModernClient
from tests.server.http_client import fetch

pytestmark = pytest.mark.slow("waits for events of files and for polls")

WAIT_MAX_S = 60


async def titles(server: LiveServer, user: str) -> set[str]:
    response = await fetch(server.url, "GET", "/api/v1/library/items?source=notes", await server.bearer(user))
    return {item["title"] for item in response.json()["items"]}


async def wait_for(server: LiveServer, user: str, is_reached: Callable[[set[str]], bool]) -> None:
    async with asyncio.timeout(WAIT_MAX_S):
        while not is_reached(await titles(server, user)):
            await asyncio.sleep(0.1)


async def wait_for_titles(server: LiveServer, user: str, *expected: str) -> None:
    await wait_for(server, user, lambda found: found == set(expected))


async def follow(server: LiveServer, user: str, path: Path, **options: Any) -> FollowRecord:
    owner = await server.user(user)
    follows = Follows(server.runtime.registry.database)
    return await follows.add(FollowRecord(user_id=owner.id, location=str(path), **options), per_user_max=20)


def make_vault(folder: Path, **notes: str) -> Path:
    (folder / ".obsidian").mkdir(parents=True)
    for title, text in notes.items():
        (folder / f"{title}.md").write_text(text)
    return folder


async def test_changes_of_a_folder_reach_its_owner_only(tmp_path: Path) -> None:
    vault, other = make_vault(tmp_path / "vault", Tea="Steep."), make_vault(tmp_path / "other", Cup="Porcelain.")
    settings = make_settings(tmp_path / "data")
    async with live(settings) as server:
        await follow(server, "ada", vault)
        await follow(server, "ben", other)
        await wait_for_titles(server, "ada", "Tea")
        await wait_for_titles(server, "ben", "Cup")

        (vault / "drinks" / "hot").mkdir(parents=True)
        (vault / "drinks" / "hot" / "Kettle.md").write_text("Copper.")
        await wait_for_titles(server, "ada", "Tea", "Kettle")
        (vault / "drinks").rename(vault / "moved")
        (vault / "Tea.md").rename(vault / "Oolong.md")
        await wait_for_titles(server, "ada", "Oolong", "Kettle")
        (vault / "moved" / "hot" / "Kettle.md").unlink()
        await wait_for_titles(server, "ada", "Oolong")
        (vault / "Oolong.md").write_text("A much longer text.")

        ada = await ModernClient.of(server, "ada")
        async with asyncio.timeout(WAIT_MAX_S):
            while "longer" not in str((await ada.call("notes_search", {"query": "longer"})).json()["result"]):
                await asyncio.sleep(0.1)
        assert await titles(server, "ben") == {"Cup"}

    # Changes while no server runs are found by the next one.
    (vault / "Oolong.md").unlink()
    (vault / "Green.md").write_text("Later.")
    async with live(settings) as server:
        await wait_for_titles(server, "ada", "Green")
        assert await titles(server, "ben") == {"Cup"}


async def test_folder_is_scanned_where_events_are_not_available(tmp_path: Path) -> None:
    vault = make_vault(tmp_path / "vault", Tea="Steep.")
    settings = make_settings(tmp_path / "data", follow_events=False, follow_unwatched_scan_s=0.2)
    async with live(settings) as server:
        await follow(server, "ada", vault)
        await wait_for_titles(server, "ada", "Tea")
        (vault / "Cup.md").write_text("Porcelain.")
        await wait_for_titles(server, "ada", "Tea", "Cup")


async def test_paused_source_waits_and_unmounted_one_is_not_emptied(tmp_path: Path) -> None:
    vault = make_vault(tmp_path / "vault", Tea="Steep.")
    async with live(make_settings(tmp_path / "data")) as server:
        record = await follow(server, "ada", vault)
        await wait_for_titles(server, "ada", "Tea")
        follows, owner = Follows(server.runtime.registry.database), (await server.user("ada")).id
        await follows.pause(owner, record.id)
        with pytest.raises(Conflict, match=f"{record.id} is paused"):
            await follows.request_run(owner, record.id)
        (vault / "Cup.md").write_text("Porcelain.")
        await follows.resume(owner, record.id)
        await wait_for_titles(server, "ada", "Tea", "Cup")

        runs = server.runtime.following.failures
        # Moving a folder causes no event in it, and the next scan is minutes away.
        os.rename(vault, tmp_path / "elsewhere")  # noqa: PTH104 - the test is about the old name
        async with asyncio.timeout(WAIT_MAX_S):
            while server.runtime.following.failures == runs:
                await asyncio.sleep(0.1)
        assert await titles(server, "ada") == {"Tea", "Cup"}
        (tmp_path / "elsewhere" / "Milk.md").write_text("Cold.")
        (tmp_path / "elsewhere").rename(vault)
        await wait_for_titles(server, "ada", "Tea", "Cup", "Milk")


async def test_single_file_is_followed_when_it_is_replaced(tmp_path: Path) -> None:
    note = tmp_path / "Tea.md"
    note.write_text("# Tea\nSteep.")
    async with live(make_settings(tmp_path / "data", follow_poll_s=0.1)) as server:
        await follow(server, "ada", note)
        await wait_for_titles(server, "ada", "Tea")
        (tmp_path / "new").write_text("# Oolong\nSteep.")
        (tmp_path / "new").rename(note)
        await wait_for_titles(server, "ada", "Oolong")
        metrics = (await fetch(server.url, "GET", "/metrics", await server.bearer("ada"))).body.decode()
        assert "florilegium_followed_sources 1.0" in metrics


async def test_server_waits_for_another_process_that_reads_the_source(tmp_path: Path) -> None:
    vault = make_vault(tmp_path / "vault", Tea="Steep.")
    async with live(make_settings(tmp_path / "data", follow_poll_s=0.1)) as server:
        record = await follow(server, "ada", vault)
        await wait_for_titles(server, "ada", "Tea")
        context = await server.runtime.following.context_of(record)
        assert context is not None
        while server.runtime.following.running:
            await asyncio.sleep(0.1)
        async with (
            server.runtime.libraries.library(context) as library,
            run_lease(library.bookmarks, record.id),
        ):
            (vault / "Cup.md").write_text("Porcelain.")
            await Follows(server.runtime.registry.database).request_run(context.user_id, record.id)
            for _ in range(20):
                assert await titles(server, "ada") == {"Tea"}
                await asyncio.sleep(0.1)
        await wait_for_titles(server, "ada", "Tea", "Cup")
        assert server.runtime.following.failures == 0


async def test_note_that_an_agent_writes_becomes_a_file(tmp_path: Path) -> None:
    vault = make_vault(tmp_path / "vault", Tea="---\nkept: yes\n---\nSteep.\n")
    async with live(make_settings(tmp_path / "data")) as server:
        await follow(server, "ada", vault, writes_back=True)
        await wait_for_titles(server, "ada", "Tea")
        ada, ben = await ModernClient.of(server, "ada"), await ModernClient.of(server, "ben")
        await ben.call("notes_create", {"title": "Secret", "content": "Of Ben."})
        await ada.call("notes_create", {"title": "Cup: a list", "content": "Porcelain."})
        found = (await ada.call("notes_search", {"query": "steep"})).json()["result"]["structuredContent"]
        note_id = found["results"][0]["id"]
        await ada.call("notes_append", {"note_id": note_id, "text": "For three minutes."})
        async with asyncio.timeout(WAIT_MAX_S):
            while not (vault / "Cup a list.md").exists() or "three minutes" not in (vault / "Tea.md").read_text():
                await asyncio.sleep(0.1)
        assert (vault / "Tea.md").read_text().startswith("---\nkept: yes\n---\nSteep.")
        assert await titles(server, "ada") == {"Tea", "Cup: a list"}
        assert not (vault / "Secret.md").exists()
