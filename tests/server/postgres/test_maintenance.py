"""Sizes of libraries, quotas, `reindex` and backups of a deployment on PostgreSQL, with two users."""

from pathlib import Path
from random import Random
from typing import Any

import httpx2
import pytest

from sources.storage.postgres import PostgresLibraries
from tests.live import HTTP_OPTIONS, LiveServer, live, make_settings
from tests.server.cli.program import Program
from tests.server.postgres.database import LIBRARY, connect, own_rows, tenant_of
from tests.server.postgres.mcp_calls import call, call_tool
from tests.servers.postgres import run_program


async def _titles(client: httpx2.AsyncClient, server: LiveServer, user: str, query: str) -> list[str]:
    found = await call(client, server, user, "knowledge_search", query=query)
    return sorted(item["title"] for item in found["results"])


@pytest.mark.slow("fills libraries")
async def test_sizes_of_libraries_are_listed_and_limited_by_the_quota(tmp_path: Path, database_url: str) -> None:
    settings = make_settings(tmp_path, storage_url=database_url, user_max_bytes=2_000_000)
    words = Random(1).randbytes
    async with live(settings) as server, httpx2.AsyncClient(**HTTP_OPTIONS) as client:
        headers = await server.bearer("ada")
        await server.user("cyd")
        last: dict[str, Any] = {}
        # The size is measured after every 20 writes.
        for number in range(60):
            content = words(50_000).hex(" ", 20)
            last = await call_tool(client, server, "ada", "notes_create", title=f"Note {number}", content=content)
            if "error" in last or last["result"].get("isError"):
                break
        await call(client, server, "ben", "notes_create", title="Note", content="tea")
        listed = (await client.get(f"{server.url}/api/v1/users", headers=headers)).json()["users"]
        info = await call(client, server, "ada", "server_info")

    sizes = {user["name"]: user["bytes"] for user in listed}
    assert "the quota of 2,000,000 bytes is reached" in str(last)
    assert sizes["ada"] >= 2_000_000 > sizes["ben"] > sizes["cyd"] == 0
    assert info["usage"]["bytes"] == sizes["ada"]


@pytest.mark.slow("waits for work in the background")
async def test_outdated_index_is_built_again_in_the_background(tmp_path: Path, database_url: str) -> None:
    settings = make_settings(tmp_path, storage_url=database_url)
    async with live(settings) as server, httpx2.AsyncClient(**HTTP_OPTIONS) as client:
        for user in ("ada", "ben"):
            await call(
                client, server, user, "notes_create", title=f"Kettle of {user}", content="東京タワー", tags=["x"]
            )
        ada = (await server.user("ada")).id
    async with connect(database_url) as connection:
        tenant = await tenant_of(connection, ada)
        # As if another version had segmented the text.
        await connection.execute(f"UPDATE {LIBRARY}.notes SET content_seg = 'other words' WHERE tenant_id = $1", tenant)
        await connection.execute(f"DELETE FROM {LIBRARY}.index_entries WHERE tenant_id = $1", tenant)
        await connection.execute(
            f"UPDATE {LIBRARY}.state SET value = '1' WHERE tenant_id = $1 AND name = 'segment_version'", tenant
        )
    async with live(settings) as server, httpx2.AsyncClient(**HTTP_OPTIONS) as client:
        libraries = server.runtime.libraries
        assert isinstance(libraries, PostgresLibraries)
        await call(client, server, "ada", "knowledge_search", query="kettle")
        await (await libraries._database(ada)).index_update.wait_until_finished()
        found = {user: await _titles(client, server, user, "東京") for user in ("ada", "ben")}

    assert found == {"ada": ["Kettle of ada"], "ben": ["Kettle of ben"]}


@pytest.mark.slow("damages and repairs a database")
async def test_damaged_index_is_built_again_by_a_command(tmp_path: Path, database_url: str, program: Program) -> None:
    settings = make_settings(tmp_path, storage_url=database_url)
    async with live(settings) as server, httpx2.AsyncClient(**HTTP_OPTIONS) as client:
        for user in ("ada", "ben"):
            await call(client, server, user, "notes_create", title=f"Kettle of {user}", content="water", tags=["tea"])
            await call(client, server, user, "media_add_text", title=f"Film of {user}", text="A kettle boils.")
        async with connect(database_url) as connection:
            tenant = await tenant_of(connection, (await server.user("ada")).id)
            damage = "SET tsv = '', id = id + 100 WHERE tenant_id = $1 AND id > 0"
            await connection.execute(f"UPDATE {LIBRARY}.index_entries {damage}", tenant)
        damaged = await _titles(client, server, "ada", "kettle")
        repaired = program.run("reindex", "--user", "ada", "--json", FLORILEGIUM_STORAGE_URL=database_url)
        found = {user: await _titles(client, server, user, "kettle") for user in ("ada", "ben")}

    assert damaged == []
    assert (repaired.json["notes"], repaired.json["media"], repaired.json["prompts"]) == (1, 1, 0)
    assert found == {user: [f"Film of {user}", f"Kettle of {user}"] for user in ("ada", "ben")}


@pytest.mark.slow("dumps and restores a database")
async def test_dump_of_the_database_can_be_restored(tmp_path: Path, database_url: str, other_database_url: str) -> None:
    dump = tmp_path / "florilegium.dump"
    async with (
        live(make_settings(tmp_path / "one", storage_url=database_url)) as server,
        httpx2.AsyncClient(**HTTP_OPTIONS) as client,
    ):
        for user in ("ada", "ben"):
            await call(client, server, user, "notes_create", title=f"Kettle of {user}", content="tea")
        run_program("pg_dump", "--format=custom", f"--file={dump}", database_url)
    run_program("pg_restore", "--clean", "--if-exists", f"--dbname={other_database_url}", str(dump))
    async with (
        live(make_settings(tmp_path / "two", storage_url=other_database_url)) as server,
        httpx2.AsyncClient(**HTTP_OPTIONS) as client,
    ):
        found = {user: await _titles(client, server, user, "tea") for user in ("ada", "ben")}

    assert found == {"ada": ["Kettle of ada"], "ben": ["Kettle of ben"]}


def test_commands_for_files_say_what_to_do_instead(program: Program, tmp_path: Path) -> None:
    store = {"FLORILEGIUM_STORAGE_URL": "postgresql://db/kb"}
    backup = program.run("backup", str(tmp_path / "backup"), **store)
    restore = program.run("restore", str(tmp_path / "backup"), **store)

    assert (backup.code, restore.code) == (2, 2)
    assert "back up the database with pg_dump" in backup.stderr
    assert "restore a dump of the database with pg_restore" in restore.stderr


@pytest.mark.slow("damages and repairs a database")
async def test_check_finds_a_damaged_index_of_one_user(tmp_path: Path, database_url: str, program: Program) -> None:
    store = {"FLORILEGIUM_STORAGE_URL": database_url}
    async with (
        live(make_settings(tmp_path, storage_url=database_url)) as server,
        httpx2.AsyncClient(**HTTP_OPTIONS) as client,
    ):
        for user in ("ada", "ben"):
            await call(client, server, user, "notes_create", title=f"Kettle of {user}", content="東京 water")
            await call(client, server, user, "media_add_text", title=f"Film of {user}", text="A kettle boils.")
            await call(
                client, server, user, "chats_append", title="Talk", messages=[{"role": "user", "content": "tea"}]
            )
        ada = (await server.user("ada")).id
    intact = program.run("check", "--json", **store)
    async with connect(database_url) as connection:
        entries, condition = await own_rows(connection, "index_entries", ada)
        await connection.execute(f"UPDATE {entries} SET id = id + 100 WHERE kind = 6 AND {condition}")
        await connection.execute(f"DELETE FROM {entries} WHERE id < 0 AND {condition}")
        notes, condition = await own_rows(connection, "notes", ada)
        await connection.execute(f"UPDATE {notes} SET content_seg = 'other words' WHERE {condition}")
    damaged = program.run("check", "--json", **store)
    one = program.run("check", "--user", "ben", **store)
    program.run("reindex", "--user", "ada", **store)
    repaired = program.run("check", "--json", **store)

    assert (intact.code, {check["state"] for check in intact.json}) == (0, {"ok"})
    assert damaged.code == 1
    by_user = {check["user"]: check for check in damaged.json}
    assert by_user["ben"]["state"] == "ok"
    assert by_user["ada"]["state"] == "index damaged"
    assert by_user["ada"]["detail"] == "1 texts do not match, 2 rows do not match, 1 entries do not match"
    assert by_user["ada"]["advice"] == "`florilegium reindex --user ada`"
    assert (one.code, one.stdout) == (0, "1 library of 1 user checked, 0 faults found.\n")
    assert repaired.code == 0
