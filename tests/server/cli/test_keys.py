import asyncio
import re

import pytest

from auth.context import READ
from auth.registry import Registry
from tests.cases import each_case
from tests.server.cli.program import Program

SECRET = re.compile(r"flo_[A-Za-z0-9_-]{43}")


@pytest.fixture
def program(program: Program) -> Program:
    """With two users."""
    program.with_users("ada", "ben")
    return program


def test_quiet_prints_only_the_key(program: Program) -> None:
    outcome = program.run("key", "create", "ada", "--quiet")
    assert (outcome.code, outcome.stderr) == (0, "")
    assert SECRET.fullmatch(outcome.stdout.strip())


def test_a_secret_is_shown_once_and_never_listed(program: Program) -> None:
    shown = SECRET.findall(program.expect("key", "create", "ada"))
    assert len(shown) == 1
    assert not SECRET.search(program.expect("key", "list") + program.expect("key", "list", "--json"))


def test_a_key_has_the_name_scopes_and_expiry_it_was_given(program: Program) -> None:
    options = ("--name", "laptop", "--scope", "knowledge:read", "--scope", "knowledge:write", "--expires", "2099-12-31")
    created = program.run("key", "create", "ada", *options, "--json").json
    assert SECRET.fullmatch(created.pop("secret"))
    assert (created["user"], created["name"], created["state"]) == ("ada", "laptop", "active")
    assert created["scopes"] == ["knowledge:read", "knowledge:write"]
    assert created["expires_at"] == "2100-01-01T00:00:00Z"
    assert program.run("key", "list", "--json").json == [created]


def test_without_options_a_key_reads_and_writes_and_never_expires(program: Program) -> None:
    created = program.run("key", "create", "ada", "--json").json
    assert created["scopes"] == ["knowledge:read", "knowledge:write"]
    assert created["expires_at"] is None


def test_a_key_can_be_restricted_to_a_profile(program: Program) -> None:
    bound = program.run("key", "create", "ada", "--profile", "research", "--json").json
    free = program.run("key", "create", "ben", "--json").json
    assert (bound["profile"], free["profile"]) == ("research", None)
    assert {row["user"]: row["profile"] for row in program.run("key", "list", "--json").json} == {
        "ada": "research",
        "ben": None,
    }
    assert "research" in program.expect("key", "list")
    assert ", profile compact, never expires" in program.expect("key", "create", "ada", "--profile", "compact")


def test_a_key_can_be_restricted_to_sources(program: Program) -> None:
    bound = program.run("key", "create", "ada", "--source", "notes", "--source", "media", "--json").json
    free = program.run("key", "create", "ben", "--json").json
    assert (bound["sources"], free["sources"]) == (["media", "notes"], None)
    assert "media notes" in program.expect("key", "list", "ada")
    assert ", only notes, never expires" in program.expect("key", "create", "ada", "--source", "notes")


def test_a_key_with_a_scope_beyond_the_role_is_refused(program: Program) -> None:
    refused = program.run("key", "create", "ada", "--scope", "admin")
    assert refused.code == 2
    assert "ada has the role writer, which allows knowledge:read knowledge:write; got admin" in refused.stderr
    assert program.run("key", "list", "--json").json == []


def test_listing_one_users_keys_excludes_other_users(program: Program) -> None:
    for name in ("ada", "ben"):
        program.expect("key", "create", name, "--name", f"of {name}")
    assert [row["name"] for row in program.run("key", "list", "ben", "--json").json] == ["of ben"]
    assert len(program.run("key", "list", "--json").json) == 2


def test_a_revoked_key_is_listed_as_such_and_the_other_user_keeps_its_own(program: Program) -> None:
    ada, ben = (program.run("key", "create", name, "--json").json["id"] for name in ("ada", "ben"))
    assert program.run("key", "revoke", ada, "--json").json["state"] == "revoked"
    rows = {row["id"]: row["state"] for row in program.run("key", "list", "--json").json}
    assert rows == {ada: "revoked", ben: "active"}


def test_disabling_a_user_revokes_its_keys(program: Program) -> None:
    program.expect("key", "create", "ada")
    program.expect("key", "create", "ben")
    program.expect("user", "disable", "ada")
    rows = {row["user"]: row["state"] for row in program.run("key", "list", "--json").json}
    assert rows == {"ada": "revoked", "ben": "active"}


@each_case(
    ("arguments", "code", "sentence"),
    [
        (("create", "nobody"), 1, "user 'nobody' not found"),
        (("revoke", "k_nothing"), 1, "key 'k_nothing' not found"),
        (("create", "ada", "--expires", "tomorrow"), 2, "expires: expected a duration such as 90d"),
        (("create", "ada", "--expires", "2001-01-01"), 2, "expected a time in the future, got one in the past"),
        (("create", "ada", "--scope", "everything"), 2, "scopes: expected one or more of"),
        (("create", "ada", "--profile", "deep"), 2, "'deep' is not one of 'default', 'compact', 'research'"),
        (("create", "ada", "--quiet", "--json"), 2, "--quiet and --json cannot be combined"),
    ],
)
def test_invalid_arguments_are_reported_without_a_traceback(
    program: Program, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    outcome = program.run("key", *arguments)
    assert (outcome.code, outcome.stdout) == (code, "")
    assert sentence in outcome.stderr
    assert "Traceback" not in outcome.stderr


@pytest.mark.sqlite  # opens the file of the control database
async def test_revoking_a_key_names_what_it_created(program: Program) -> None:
    keys: dict[str, str] = {}
    async with Registry.open(program.data_dir / "control.db") as registry:
        user = await registry.user_by_name("ada")
        assert user is not None
        for name, creator in (("stolen", ""), ("second", "stolen"), ("third", "second")):
            key, _ = await registry.create_key(user.id, name, [READ], created_with=keys.get(creator))
            keys[name] = key.id

    listed = await asyncio.to_thread(program.expect, "key", "revoke", keys["stolen"])
    revoked = await asyncio.to_thread(program.expect, "key", "revoke", keys["stolen"], "--created")
    rows = (await asyncio.to_thread(program.run, "key", "list", "--json")).json

    assert f"Created with it, and still there: key {keys['second']} (second)" in listed
    assert f"Run `florilegium key revoke {keys['stolen']} --created` to revoke these, too." in listed
    assert f"Also revoked: key {keys['third']} (third)" in revoked
    assert {row["state"] for row in rows} == {"revoked"}
