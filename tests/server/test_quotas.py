"""Quotas per user: bytes and items, over MCP, REST and imports, and the usage that users and operators see."""

import asyncio
import io
import random
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.live import NO_RATE_LIMITS, LiveServer, live, make_settings
from tests.server.cli.program import Program
from tests.server.clients import ModernClient
from tests.server.http_client import HttpResponse, fetch

FILE = {"Content-Type": "application/octet-stream"}
JSON = {"Content-Type": "application/json"}
QUOTA = 6_000_000


async def rest(server: LiveServer, user: str, method: str, path: str, body: bytes | None = None) -> HttpResponse:
    headers = {**await server.bearer(user), **(FILE if path.startswith("/api/v1/import") else JSON)}
    return await fetch(server.url, method, path, headers, body)


async def create_note(client: ModernClient, title: str, content: str = "") -> Any:
    return (await client.call("notes_create", {"title": title, "content": content})).json()["result"]


def archive(files: int, chars: int) -> bytes:
    """A small archive of notes that are large, because they compress well: the words are repeated after about 10,000
    characters, which is too far for the compression of PostgreSQL."""
    content, choice = io.BytesIO(), random.Random(1)
    words = "".join(f"{choice.choice(('tea', 'kettle', 'cup'))}{choice.randrange(10_000)} " for _ in range(1_200))
    text = (words * (chars // len(words) + 1))[:chars]
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed:
        for number in range(files):
            packed.writestr(f"vault/note {number}.md", f"# Note {number}\n\n{text}")
    return content.getvalue()


async def import_archive(server: LiveServer, user: str, body: bytes) -> Any:
    """Returns the job when it has ended."""
    started = await rest(server, user, "POST", "/api/v1/import?name=vault.zip", body)
    assert started.status == 202, started.body
    async with asyncio.timeout(60):
        while (job := await rest(server, user, "GET", f"/api/v1/import/{started.json()['id']}")).json()["state"] in (
            "waiting",
            "running",
        ):
            await asyncio.sleep(0.05)
    return job.json()


async def test_items_beyond_the_quota_are_refused_until_one_is_deleted(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, user_max_items=3)) as server:
        ada, ben = await ModernClient.of(server, "ada"), await ModernClient.of(server, "ben")
        notes = [await create_note(ada, f"Note {number}") for number in range(3)]
        refused = await create_note(ada, "One too many")
        over_rest = await rest(server, "ada", "POST", "/api/v1/items/prompts", b'{"title": "p", "content": "x"}')
        changed = (
            await ada.call("notes_update", {"note_id": notes[0]["structuredContent"]["id"], "title": "New"})
        ).json()
        of_ben = await create_note(ben, "Ben has room")
        await ada.call("notes_delete", {"note_id": notes[0]["structuredContent"]["id"]})
        after_deletion = await create_note(ada, "Room again")

    assert [note.get("isError", False) for note in notes] == [False] * 3
    assert refused["isError"]
    assert "the quota of 3 items is reached (3 are used)" in refused["content"][0]["text"]
    assert over_rest.status == 507, over_rest.body
    assert "isError" not in changed["result"]
    assert "isError" not in of_ben
    assert "isError" not in after_deletion


async def test_simultaneous_writes_do_not_exceed_the_quota_of_items(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, user_max_items=3)) as server:
        ada = await ModernClient.of(server, "ada")
        created = await asyncio.gather(*(create_note(ada, f"Note {number}") for number in range(20)))
        usage = (await rest(server, "ada", "GET", "/api/v1/usage")).json()

    assert usage["items"] == len([note for note in created if "isError" not in note]) == 3


@pytest.mark.slow("unpacks a large archive")
async def test_an_archive_that_unpacks_to_more_than_the_quota_is_stopped(tmp_path: Path) -> None:
    body = archive(60, 400_000)
    assert len(body) < 500_000
    async with live(make_settings(tmp_path, user_max_bytes=QUOTA)) as server:
        ada = await ModernClient.of(server, "ada")
        await create_note(ada, "Galleon")
        job = await import_archive(server, "ada", body)
        again = await rest(server, "ada", "POST", "/api/v1/import?name=vault.zip", body)
        written = await create_note(ada, "More")
        found = (await ada.call("notes_search", {"query": "galleon"})).json()["result"]
        of_ben = await import_archive(server, "ben", archive(2, 1000))
        user_id = (await server.user("ada")).id
        used = (await server.runtime.libraries.stored_bytes([user_id]))[user_id]
        usage = (await rest(server, "ada", "GET", "/api/v1/usage")).json()
        info = (await ada.call("server_info")).json()["result"]["structuredContent"]["usage"]
        usage_of_ben = (await rest(server, "ben", "GET", "/api/v1/usage")).json()
        ben = await ModernClient.of(server, "ben")
        info_of_ben = (await ben.call("server_info")).json()["result"]["structuredContent"]["usage"]

    assert (job["state"], of_ben["state"]) == ("failed", "done")
    assert "the quota of 6,000,000 bytes is reached" in job["problem"]
    assert job["problem"].endswith(f"; at least {usage['items'] - 1} items were imported and kept")
    assert again.status == 507
    assert written["isError"]
    assert found["structuredContent"]["results"]
    assert used < 4 * QUOTA  # the log of the last batches included
    assert QUOTA <= usage["bytes"] < 2 * QUOTA
    assert (usage["max_bytes"], usage["imports"], usage["max_imports"]) == (QUOTA, 0, 1)
    assert 0 < usage["items"] < 60
    assert (info["bytes"], info["max_bytes"]) == (used, QUOTA)
    assert usage_of_ben["items"] == 2
    assert max(usage_of_ben["bytes"], info_of_ben["bytes"]) < QUOTA


def test_the_operator_sees_how_much_each_user_stores(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.with_users("ada", "ben")
    # PostgreSQL compresses texts, but not this one by much.
    (tmp_path / "tea.md").write_text(
        "# Tea\n\n" + " ".join(sha256(b"%d" % number).hexdigest() for number in range(500))
    )
    program.expect("import", "tea.md", "--user", "ada")

    ada, ben = program.run("user", "list", "--json", FLORILEGIUM_USER_MAX_BYTES="1000000").json
    table = program.expect("user", "list", FLORILEGIUM_USER_MAX_BYTES="1000000")

    assert ada["bytes"] > 7000
    assert (ben["bytes"], ben["max_bytes"]) == (0, 1_000_000)
    assert f"MB ({ada['bytes'] / 1_000_000:.0%})" in table
    quotas = [
        row
        for row in program.run("doctor", "--json", FLORILEGIUM_USER_MAX_BYTES="20000").json
        if row["name"] == "quotas"
    ]
    assert [(row["outcome"], "ada" in row["message"], "ben" in row["message"]) for row in quotas] == [
        ("warn", True, False)
    ]


def test_commands_respect_the_quotas_of_a_user(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.with_users("ada", "ben")
    for number in range(3):
        (tmp_path / f"tea{number}.md").write_text(f"# Tea {number}\n\nkettle {number}")
    program.expect("user", "quota", "ada", "--max-items", "1", "--import-max-bytes", "100")

    added = program.run("add", "note", "water", "--user", "ada", "--title", "Kettle")
    refused = program.run("add", "note", "water", "--user", "ada", "--title", "Pot")
    imported = {user: program.run("import", "tea0.md", "tea1.md", "--user", user) for user in ("ada", "ben")}
    (tmp_path / "long.md").write_text("# Long\n\n" + "kettle " * 20)
    long = {user: program.run("import", "long.md", "--user", user, "--dry-run") for user in ("ada", "ben")}

    assert (added.code, refused.code) == (0, 1), added.stderr
    assert "the quota of 1 items is reached (1 are used)" in refused.stderr
    assert [imported[user].code for user in ("ada", "ben")] == [1, 0]
    assert "the quota of 1 items is reached" in imported["ada"].stderr + imported["ada"].stdout
    assert [long[user].code for user in ("ada", "ben")] == [2, 0]
    assert "100" in long["ada"].stdout
    own = {row["name"]: row for row in program.run("user", "list", "--json").json}
    program.expect("user", "quota", "ada", "--max-bytes", "100")
    [check] = [row for row in program.run("doctor", "--json").json if row["name"] == "quotas"]
    assert (check["outcome"], check["message"].startswith("ada uses "), "ben" in check["message"]) == (
        "warn",
        True,
        False,
    )
    after = {row["name"]: row for row in program.run("user", "list", "--json").json}
    assert own["ada"]["max_bytes"] == own["ben"]["max_bytes"] == after["ben"]["max_bytes"]
    assert after["ada"]["max_bytes"] == 100


async def test_text_beyond_the_quota_of_passages_is_found_by_its_words(tmp_path: Path) -> None:
    limits = {"user_max_passages": 2, **NO_RATE_LIMITS}
    settings = make_settings(tmp_path, semantic_model="fast", semantic_timeout_ms=60_000, **limits)
    async with live(settings) as server:
        ada, ben = await ModernClient.of(server, "ada"), await ModernClient.of(server, "ben")
        libraries = server.runtime.libraries
        users = {name: (await server.user(name)).id for name in ("ada", "ben")}
        for number in range(5):
            await create_note(ada, f"Car {number}", f"my automobile needs {number} new tyres")
        await create_note(ben, "Car", "my automobile needs tyres")
        stops = {name: await libraries.embed(user_id) for name, user_id in users.items()}

        async def search(client: ModernClient, query: str) -> Any:
            return (await client.call("knowledge_search", {"query": query})).json()["result"]["structuredContent"]

        by_meaning, by_words = await search(ada, "vehicle"), await search(ada, "tyres")
        of_ben = await search(ben, "vehicle")
        usage = {name: (await rest(server, name, "GET", "/api/v1/usage")).json() for name in users}
        info = (await ada.call("server_info")).json()["result"]["structuredContent"]["usage"]
        status = (await rest(server, "ada", "GET", "/api/v1/server")).json()
        changed = await rest(server, "ada", "PUT", "/api/v1/users/ada/quotas", b'{"max_passages": 100}')
        assert changed.status == 200, changed.body
        async with asyncio.timeout(60):
            while (after := await search(ada, "vehicle"))["semantic"]["status"] != "on":
                await asyncio.sleep(0.05)

    reason = (
        "the quota of 2 embedded passages is reached (2 are used); delete items, or ask the operator for a larger quota"
    )
    assert stops == {"ada": reason, "ben": None}
    assert by_meaning["semantic"] == {"status": "partial", "coverage": 0.4, "reason": reason}
    assert (len(by_meaning["results"]), len(after["results"])) == (2, 5)
    assert len(by_words["results"]) == 5
    assert of_ben["semantic"] == {"status": "on", "coverage": 1.0}
    assert (usage["ada"]["passages"], usage["ada"]["max_passages"], usage["ben"]["passages"]) == (2, 2, 1)
    assert info["max_passages"] == 2
    assert status["semantic_problem"] is None
