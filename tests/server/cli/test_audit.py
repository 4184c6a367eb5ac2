"""`florilegium audit`, and which changes of the command line it shows."""

import pytest

from tests.server.cli.program import Program


@pytest.fixture
def program(program: Program) -> Program:
    """With two users, and changes of both."""
    program.expect("user", "add", "ada")
    program.expect("user", "add", "ben")
    program.expect("key", "create", "ada", "--name", "laptop")
    program.expect("user", "role", "ben", "reader")
    return program


def test_changes_are_listed_newest_first(program: Program) -> None:
    rows = program.run("audit", "--json").json
    assert [(row["user"], row["action"], row["detail"]) for row in rows] == [
        ("ben", "user.role", "reader"),
        ("ada", "key.create", "knowledge:read knowledge:write"),
        ("ben", "user.add", "writer"),
        ("ada", "user.add", "writer"),
    ]
    assert {row["client"] for row in rows} == {"command line"}
    table = program.expect("audit")
    assert table.startswith("TIME")
    assert "key.create" in table


def test_events_are_filtered(program: Program) -> None:
    assert {row["user"] for row in program.run("audit", "--user", "ada", "--json").json} == {"ada"}
    added = program.run("audit", "--action", "user.add", "--json").json
    assert [row["user"] for row in added] == ["ben", "ada"]
    assert len(program.run("audit", "--since", "1h", "--limit", "2", "--json").json) == 2
    assert program.run("audit", "--since", "2099-01-01", "--json").json == []


def test_every_change_of_users_and_keys_is_recorded(program: Program) -> None:
    [key] = program.run("key", "list", "--json").json
    program.expect("key", "revoke", key["id"])
    program.expect("user", "disable", "ada")
    program.expect("user", "enable", "ada")
    program.expect("user", "delete", "ada", "--purge", "--yes")
    rows = program.run("audit", "--limit", "4", "--json").json
    assert [row["action"] for row in rows] == ["user.delete", "user.enable", "user.disable", "key.revoke"]
    assert rows[0]["detail"] == "purged"


@pytest.mark.sqlite  # a backup of files
def test_a_backup_is_recorded(program: Program) -> None:
    program.expect("backup", "saved")

    [event] = program.run("audit", "--action", "backup", "--json").json
    assert event["target"].endswith("/saved")
    assert event["detail"].startswith("2 users, ")


@pytest.mark.sqlite  # a backup of files
def test_the_log_is_part_of_a_backup(program: Program) -> None:
    before = program.run("audit", "--json").json
    program.expect("backup", "saved")
    program.expect("restore", "saved", "--verify")
    program.expect("restore", "saved", "--data-dir", "elsewhere")
    assert program.run("audit", "--json", "--data-dir", "elsewhere").json == before


def test_invalid_arguments_are_reported(program: Program) -> None:
    assert "user 'nobody' not found" in program.run("audit", "--user", "nobody").stderr
    assert "since: expected a duration such as 7d" in program.run("audit", "--since", "soon").stderr
