"""`florilegium --server URL`: commands on a real server, with the caller's own credential."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from auth.context import READ, SCOPES, WRITE
from auth.sharing import Sharing
from sources.drafts import NoteDraft
from tests.live import LiveServer, live, make_settings
from tests.server.cli.program import Outcome, Program
from tests.server.http_client import fetch
from tests.server.rest.rest_client import rest_client_of


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    async with live(make_settings(tmp_path / "server")) as server:
        yield server


async def key_of(server: LiveServer, name: str, *scopes: str) -> str:
    user = await server.user(name)
    return (await server.runtime.registry.create_key(user.id, "cli", scopes))[1]


async def run(program: Program, server: LiveServer, token: str, *arguments: str) -> Outcome:
    return await asyncio.to_thread(program.run, "--server", server.url, *arguments, FLORILEGIUM_TOKEN=token)


async def test_search_and_get_use_the_library_of_the_credential(program: Program, server: LiveServer) -> None:
    for name in ("ada", "ben"):
        user = await rest_client_of(server).library_user(name)
        async with user.libraries.library(user.context) as library:
            await library.notes.create(NoteDraft(title=f"Tides of {name}", content="high water at noon"))
        token = await key_of(server, name, READ)
        found = (await run(program, server, token, "search", "water", "--json")).json
        assert [hit["title"] for hit in found["results"]] == [f"Tides of {name}"]
        shown = await run(program, server, token, "search", "water")
        assert f"Tides of {name}" in shown.stdout
        item = await run(program, server, token, "get", found["results"][0]["uri"])
        assert (item.code, "high water at noon" in item.stdout) == (0, True)


async def test_items_are_written_and_files_imported_over_the_network(program: Program, server: LiveServer) -> None:
    token = await key_of(server, "ada", READ, WRITE)
    added = (await run(program, server, token, "add", "notes", "high water", "--title", "Tides", "--json")).json
    await run(program, server, token, "tag", added["uri"], "+sea")
    folder = program.home / "vault"
    folder.mkdir()
    (folder / "halley.md").write_text("# Halley\n\ncomet\n")
    imported = await run(program, server, token, "import", "vault", "missing.md")
    assert imported.code == 1
    assert ["notes", "1", "0", "0"] in [line.split() for line in imported.stdout.splitlines()]
    assert "failed: missing.md: no such file or folder" in imported.stdout
    listed = (await run(program, server, token, "list", "--json")).json
    assert {item["title"] for item in listed["items"]} == {"Tides", "Halley"}
    exported = await run(program, server, token, "export", "copy")
    assert (exported.code, exported.stdout.strip()) == (0, "copy: 2 notes")
    program.expect("import", "copy")
    here = program.run("list", "--json").json
    assert {item["uri"] for item in here["items"]} == {item["uri"] for item in listed["items"]}
    again = await run(program, server, token, "export", "copy")
    assert (again.code, "folder 'copy' is not empty" in again.stderr) == (1, True)


async def test_folder_is_imported_over_the_network_as_it_is_here(program: Program, server: LiveServer) -> None:
    folder, secret = program.home / "mixed", program.home / "secret.md"
    (folder / ".git").mkdir(parents=True)
    for path in (secret, folder / ".git" / "hidden.md", folder / os.fsdecode(b"caf\xe9.md"), folder / "old.md"):
        path.write_text(f"# {path.stem!a}")
    os.utime(folder / "old.md", (0, 0))
    (folder / "link.md").symlink_to(secret)
    (folder / "list.csv").write_text("name,number\nhalley,1\n")
    (folder / "WhatsApp Chat with Ben.txt").write_text(
        "13.11.26, 10:00 - Ben: Tides?\n14.11.26, 10:01 - Ada: At noon.\n"
    )
    (folder / "talk.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nComets are made of ice.\n")
    (folder / "app.bin").write_bytes(b"\0")
    token = await key_of(server, "ada", READ, WRITE)

    there = [(await run(program, server, token, "import", "mixed", "--json")).json for _ in range(2)]
    here = [program.run("import", "mixed", "--json").json for _ in range(2)]

    assert [summary["kinds"] for summary in there] == [summary["kinds"] for summary in here]
    assert {name: counts["new"] for name, counts in there[0]["kinds"].items()} == {
        "chats": 1,
        "media": 2,
        "messages": 2,
        "notes": 2,
    }
    assert there[0]["skipped"] == here[0]["skipped"]


async def test_people_manage_their_own_keys(program: Program, server: LiveServer) -> None:
    token = await key_of(server, "ada", READ, WRITE)
    created = await run(program, server, token, "key", "create", "ada", "--scope", READ, "--source", "notes", "--json")
    assert created.json["sources"] == ["notes"]
    listed = (await run(program, server, token, "key", "list", "--json")).json
    assert {row["user"] for row in listed} == {"ada"}
    assert (await run(program, server, token, "key", "revoke", created.json["id"])).code == 0
    other = await run(program, server, token, "key", "create", "ben")
    assert (other.code, "expected 'ada', the user of the credential, got 'ben'" in other.stderr) == (2, True)
    beyond = await run(program, server, token, "key", "create", "ada", "--scope", "admin")
    assert (beyond.code, "expected scopes of your own credential" in beyond.stderr) == (2, True)


async def test_administrators_manage_users_and_read_the_log(program: Program, server: LiveServer) -> None:
    token = await key_of(server, "ada", *SCOPES)
    assert (await run(program, server, token, "user", "add", "ben", "--role", "reader")).stdout.startswith(
        "Added ben (u_"
    )
    assert (await run(program, server, token, "user", "role", "ben", "writer")).code == 0
    assert (await run(program, server, token, "user", "disable", "ben")).code == 0
    users = (await run(program, server, token, "user", "list", "--json")).json
    assert {user["name"]: user["is_disabled"] for user in users} == {"ada": False, "ben": True}
    assert (await run(program, server, token, "user", "delete", "ben", "--yes")).code == 0
    log = (await run(program, server, token, "audit", "--since", "1h", "--json")).json
    assert [event["action"] for event in log] == ["user.delete", "user.disable", "user.role", "user.add"]
    reader = await key_of(server, "carl", READ)
    refused = await run(program, server, reader, "user", "list")
    assert (refused.code, "scope 'admin' required" in refused.stderr) == (1, True)


async def test_errors_are_plain(program: Program, server: LiveServer) -> None:
    wrong = await run(program, server, "flo_wrong", "search", "water")
    assert (wrong.code, "API key not accepted; set FLORILEGIUM_TOKEN or --token-file" in wrong.stderr) == (1, True)
    missing, several, binary = [program.home / name for name in ("missing", "several", "binary")]
    several.write_text("flo_one\nflo_two\n")
    binary.write_bytes(b"\xff")
    one_line = "--token-file: expected an API key or token in one line"
    cases = {
        ("--server", "http://kb.example.com", "search", "x"): "--server: expected https",
        ("--server", "kb.example.com", "search", "x"): "--server: expected http:// or https:// and a host",
        ("--server", "http://[::1", "search", "x"): "--server: expected http:// or https:// and a host",
        ("--server", "http://127.0.0.1:1", "search", "x"): "http://127.0.0.1:1 does not respond: ",
        ("--server", server.url, "backup", "x"): "--server cannot be used with backup",
        ("--server", server.url, "list", "--user", "ada"): "--user cannot be combined with --server",
        ("--token-file", str(missing), "search", "x"): "--token-file requires --server",
        ("--server", server.url, "--token-file", str(missing), "search", "x"): "cannot be read: no such file",
        ("--server", server.url, "--token-file", str(several), "search", "x"): one_line,
        ("--server", server.url, "--token-file", str(binary), "search", "x"): one_line,
    }
    for arguments, message in cases.items():
        outcome = await asyncio.to_thread(program.run, *arguments)
        assert outcome.code != 0
        assert message in outcome.stderr, outcome.stderr
        assert "Traceback" not in outcome.stderr


async def test_the_token_can_be_in_a_file(program: Program, server: LiveServer) -> None:
    file = program.home / "token"
    file.write_text(await key_of(server, "ada", READ) + "\n")
    outcome = await asyncio.to_thread(
        program.run, "--server", server.mcp, "--token-file", str(file), "key", "list", "--json"
    )
    assert [row["user"] for row in outcome.json] == ["ada"]


async def test_administrators_invite_people_and_reset_passwords(program: Program, server: LiveServer) -> None:
    token = await key_of(server, "ada", *SCOPES)
    await server.user("ben")
    invited = await run(program, server, token, "user", "invite", "carl", "--role", "reader")
    assert invited.stdout.startswith(f"{server.url}/")
    assert "Send this link to carl. It can be used once, until " in invited.stderr
    reset = (await run(program, server, token, "user", "reset-password", "ben", "--json")).json
    assert reset["url"].startswith(f"{server.url}/")
    for link in (invited.stdout.strip(), reset["url"]):
        assert (await fetch(server.url, "GET", link.removeprefix(server.url))).status == 200
    log = (await run(program, server, token, "audit", "--since", "1h", "--json")).json
    assert {event["action"] for event in log} == {"user.invite", "user.reset_password"}
    refused = await run(program, server, await key_of(server, "ben", READ, WRITE), "user", "invite")
    assert (refused.code, "scope 'admin' required" in refused.stderr) == (1, True)


async def test_administrators_set_quotas_one_by_one(program: Program, server: LiveServer) -> None:
    token = await key_of(server, "ada", *SCOPES)
    await server.user("ben")
    changed = (await run(program, server, token, "user", "quota", "ben", "--max-items", "5", "--json")).json
    assert (changed["max_items"], changed["own"]["max_items"], changed["own"]["max_passages"]) == (5, 5, None)
    await run(program, server, token, "user", "quota", "ben", "--max-passages", "7")
    shown = await run(program, server, token, "user", "quota", "ben")
    assert [line.split()[:2] for line in shown.stdout.splitlines() if line.endswith("this user")] == [
        ["max_items", "5"],
        ["max_passages", "7"],
    ]
    reset = (await run(program, server, token, "user", "quota", "ben", "--max-items", "default", "--json")).json
    assert (reset["max_items"], reset["own"]["max_items"], reset["max_passages"]) == (0, None, 7)
    wrong = await run(program, server, token, "user", "quota", "ben", "--max-items", "-1")
    assert (wrong.code, "expected a number from 0 to 9007199254740991 or 'default', got '-1'" in wrong.stderr) == (
        2,
        True,
    )


async def test_managers_follow_sources_for_their_group(program: Program, server: LiveServer) -> None:
    ada, ben = [await key_of(server, name, READ, WRITE) for name in ("ada", "ben")]
    sharing = Sharing(server.runtime.registry.database)
    await sharing.create_group((await server.user("ada")).id, "team")
    await sharing.add_member("team", "ben", "writer")

    async def listed(*options: str) -> list[tuple[str, str]]:
        found = (await run(program, server, ada, "follow", "list", *options, "--json")).json
        return [(one["id"], one["state"]) for one in found]

    following = ("follow", "add", "https://feeds.example/tea.xml", "--library", "team", "--json")
    assert "only a manager" in (await run(program, server, ben, *following)).stderr
    added = await run(program, server, ada, *following)
    follow_id = added.json["id"]
    await run(program, server, ada, "follow", "pause", follow_id, "--library", "team")
    assert await listed("--library", "team") == [(follow_id, "paused")]
    assert await listed() == []
    shown = await run(program, server, ada, "follow", "show", follow_id, "--library", "team")
    assert "https://feeds.example/tea.xml" in shown.stdout
    assert (await run(program, server, ada, "follow", "remove", follow_id)).code != 0
    await run(program, server, ada, "follow", "remove", follow_id, "--library", "team")
    assert await listed("--library", "team") == []
