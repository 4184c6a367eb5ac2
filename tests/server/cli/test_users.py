import asyncio
import os
import re
import subprocess

import asyncpg
import pytest

from tests.server.cli.program import EXECUTABLE, TIMEOUT_S, Program
from tests.server.cli.requests import who_am_i
from tests.servers.storage import uses_postgres

MULTI_USER = {"FLORILEGIUM_REQUIRE_AUTH": "true"}


def test_an_added_user_is_listed_with_its_identity(program: Program) -> None:
    program.expect("user", "add", "ada", "--issuer", "https://login.example.com", "--subject", "00u1")
    (row,) = program.run("user", "list", "--json").json
    assert (row["name"], row["issuer"], row["subject"], row["state"]) == (
        "ada",
        "https://login.example.com",
        "00u1",
        "active",
    )
    assert row["id"].startswith("u_")
    assert row["created_at"].endswith("Z")


def test_users_are_listed_as_a_table(program: Program) -> None:
    ada = program.with_users("ada")["ada"]
    titles, row = program.expect("user", "list").splitlines()
    assert titles.split() == ["NAME", "ID", "STATE", "ROLE", "CREATED", "USED", "SUBJECT", "ISSUER"]
    assert row.split()[:3] == ["ada", ada, "active"]


def test_a_duplicate_name_is_rejected(program: Program) -> None:
    program.with_users("ada")
    outcome = program.run("user", "add", "ada")
    assert outcome.code == 1
    assert outcome.stderr.endswith("\nflorilegium: a user named 'ada' already exists\n")


def test_an_invalid_name_is_rejected_with_exit_code_2(program: Program) -> None:
    outcome = program.run("user", "add", "../ada")
    assert outcome.code == 2
    assert ", got '../ada'" in outcome.stderr


def test_disabling_and_enabling_touch_one_user_only(program: Program) -> None:
    program.with_users("ada", "ben")
    program.expect("user", "disable", "ada")
    assert program.states() == {"ada": "disabled", "ben": "active"}
    program.expect("user", "enable", "ada")
    assert program.states() == {"ada": "active", "ben": "active"}


@pytest.mark.parametrize("verb", ["disable", "enable", "delete"])
def test_an_unknown_user_is_named_in_the_error(program: Program, verb: str) -> None:
    program.with_users("ada")
    outcome = program.run("user", verb, "nobody")
    assert (outcome.code, outcome.stdout) == (1, "")
    location = f"data directory: {program.data_dir}, config file: none\n"
    assert outcome.stderr == f"{location}florilegium: user 'nobody' not found\n"


def test_deleting_without_a_terminal_requires_yes(program: Program) -> None:
    program.with_users("ada")
    outcome = program.run("user", "delete", "ada")
    assert outcome.code == 2
    assert "--yes" in outcome.stderr
    assert program.states() == {"ada": "active"}


@pytest.mark.parametrize(("reply", "code", "remaining"), [(b"n\n", 1, {"ada": "active"}), (b"y\n", 0, {})])
def test_deleting_on_a_terminal_asks_first(
    program: Program, reply: bytes, code: int, remaining: dict[str, str]
) -> None:
    program.with_users("ada")
    ours, theirs = os.openpty()
    os.write(ours, reply)
    done = subprocess.run(
        [*EXECUTABLE, "user", "delete", "ada"],
        cwd=program.home,
        env=program.environment(),
        stdin=theirs,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    os.close(ours)
    os.close(theirs)
    assert done.returncode == code
    assert b"Delete ada and all keys of ada?" in done.stdout + done.stderr
    assert program.states() == remaining


def test_deleting_a_user_keeps_the_databases(program: Program) -> None:
    ada = program.with_users("ada", "ben")["ada"]
    library = program.data_dir / "users" / ada[2:4] / ada
    library.mkdir(parents=True)
    output = program.expect("user", "delete", "ada", "--yes")
    assert ada in output
    assert program.states() == {"ben": "active"}
    assert library.is_dir()


@pytest.mark.sqlite  # the libraries are files
def test_purging_deletes_only_that_users_databases(program: Program) -> None:
    libraries = []
    for user_id in program.with_users("ada", "ben").values():
        library = program.data_dir / "users" / user_id[2:4] / user_id
        library.mkdir(parents=True)
        (library / "media.db").write_bytes(b"content")
        libraries.append(library)
    program.expect("user", "delete", "ada", "--purge", "--yes")
    assert [library.exists() for library in libraries] == [False, True]
    assert program.states() == {"ben": "active"}


def test_databases_of_a_deleted_user_are_purged_by_their_id(program: Program) -> None:
    ids = program.with_users("ada", "ben")
    for name in ids:
        program.expect("add", "notes", "tea", "--user", name, "--title", f"Kettle of {name}")
    program.expect("user", "delete", "ada", "--yes")

    program.expect("user", "delete", ids["ada"], "--purge", "--yes")
    refused = program.run("user", "delete", ids["ben"], "--purge", "--yes")

    assert refused.code == 1, "users are named, not their ids"
    assert "Kettle of ben" in program.expect("search", "kettle", "--user", "ben")
    assert stored_ids(program) == [ids["ben"]]


def stored_ids(program: Program) -> list[str]:
    """The users who have a library."""
    if uses_postgres():
        return asyncio.run(_fetch_stored_ids(program.settings.storage_url))
    return sorted(path.name for path in (program.data_dir / "users").glob("*/u_*"))


async def _fetch_stored_ids(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        return [user_id for (user_id,) in await connection.fetch("SELECT user_id FROM florilegium.tenants")]
    finally:
        await connection.close()


@pytest.mark.sqlite  # the libraries are files
def test_a_failed_purge_leaves_a_disabled_user_and_can_be_repeated(program: Program) -> None:
    ada = program.with_users("ada", "ben")["ada"]
    in_the_way = program.data_dir / "users" / ada[2:4] / ada
    in_the_way.parent.mkdir()
    in_the_way.write_bytes(b"not a directory")
    assert program.run("user", "delete", "ada", "--purge", "--yes").code == 1
    assert program.states() == {"ada": "disabled", "ben": "active"}
    in_the_way.unlink()
    program.expect("user", "delete", "ada", "--purge", "--yes")
    assert program.states() == {"ben": "active"}


@pytest.mark.sqlite  # users are in the data directory
def test_another_data_directory_has_other_users(program: Program) -> None:
    program.with_users("ada")
    elsewhere = str(program.home / "elsewhere")
    program.expect("user", "add", "ben", "--data-dir", elsewhere)
    assert [row["name"] for row in program.run("user", "list", "--json", "--data-dir", elsewhere).json] == ["ben"]
    assert program.states() == {"ada": "active"}


def test_commands_that_change_a_user_print_json(program: Program) -> None:
    ids = program.with_users("ada", "ben")

    disabled = program.run("user", "disable", "ada", "--json").json
    enabled = program.run("user", "enable", "ada", "--json").json
    deleted = program.run("user", "delete", "ben", "--yes", "--json").json

    assert (disabled["name"], disabled["state"], enabled["state"]) == ("ada", "disabled", "active")
    assert deleted == {"name": "ben", "id": ids["ben"], "state": "deleted", "is_purged": False}


def test_link_of_an_invitation_is_printed_for_scripts(program: Program) -> None:
    server = ("--public-url", "https://kb.example.com")
    outcome = program.run("user", "invite", "--role", "reader", "carl", *server, **MULTI_USER)
    assert outcome.code == 0
    assert re.fullmatch(r"https://kb\.example\.com/invitation/[\w-]{43}\n", outcome.stdout)
    assert "Send this link to carl. It can be used once, until 20" in outcome.stderr
    reply = program.run("user", "invite", *server, "--json", **MULTI_USER).json
    assert reply["url"].startswith("https://kb.example.com/invitation/")
    assert reply["expires_at"].endswith("Z")


def test_invitation_for_an_existing_user_is_rejected(program: Program) -> None:
    program.with_users("ada")
    outcome = program.run("user", "invite", "Ada", **MULTI_USER)
    assert outcome.code == 1
    assert outcome.stderr.endswith(
        "florilegium: a user named 'ada' already exists; names must differ in more than upper and lower case\n"
    )


def test_reset_link_is_for_one_user(program: Program) -> None:
    program.with_users("ada", "ben")
    assert "/reset/" in program.expect("user", "reset-password", "ada", **MULTI_USER)
    removed = program.run("user", "reset-password", "ada", "--remove-passkeys", **MULTI_USER)
    assert "/reset/" in removed.stdout
    assert "Removed 0 passkeys of ada." in removed.stderr
    assert program.run("user", "reset-password", "nobody", **MULTI_USER).code == 1
    program.expect("user", "disable", "ben")
    assert "user 'ben' is disabled" in program.run("user", "reset-password", "ben", **MULTI_USER).stderr


@pytest.mark.parametrize("command", [("invite",), ("reset-password", "ada")])
def test_single_user_server_has_no_links(program: Program, command: tuple[str, ...]) -> None:
    program.with_users("ada")
    outcome = program.run("user", *command)
    assert outcome.code == 2
    assert "set require_auth = true" in outcome.stderr


def test_role_is_set_for_one_user(program: Program) -> None:
    program.with_users("ada", "ben")
    assert program.expect("user", "role", "ada", "admin") == "ada now has the role admin."
    assert {row["name"]: row["role"] for row in program.run("user", "list", "--json").json} == {
        "ada": "admin",
        "ben": "writer",
    }
    assert program.run("user", "role", "ada", "king").code == 2


def test_demo_account_works_at_once_and_is_deleted_with_its_library(program: Program) -> None:
    with program.serving("--port", "0", **MULTI_USER) as up:
        account = program.run("user", "demo", "rita", "--json", **MULTI_USER).json
        text = program.expect("user", "demo", "--expires", "2d", **MULTI_USER)
        again = program.run("user", "demo", **MULTI_USER)
        found = program.run("search", "why does the dome stick", "--user", "rita", "--json", **MULTI_USER)
        accepted = who_am_i(up.mcp, account["key"])
        deleted = program.run("user", "delete", "rita", "--purge", "--yes", **MULTI_USER)
        refused = who_am_i(up.mcp, account["key"])

    assert account["mcp"] == up.mcp
    assert account["password"] not in str(program.run("user", "list", "--json").json)
    assert (again.code, "already exists" in again.stderr) == (1, True)
    assert found.code == deleted.code == 0
    assert (accepted, refused) == ((200, "rita"), (401, ""))
    assert all(label in text for label in ("Address", "Password", "API key", "user delete reviewer --purge"))


@pytest.mark.parametrize("arguments", [("--expires", "2020-01-01"), ("--expires", "soon"), ("../x",)])
def test_demo_account_without_a_valid_end_or_name_is_not_created(program: Program, arguments: tuple[str, ...]) -> None:
    program.with_users("ada")
    assert program.run("user", "demo", *arguments, **MULTI_USER).code == 2
    assert program.states() == {"ada": "active"}
