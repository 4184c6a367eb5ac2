"""`migrate-store` from the command line, and commands on PostgreSQL."""

from pathlib import Path

import pytest

from tests.server.cli.program import Program


@pytest.mark.slow("copies a deployment twice")
@pytest.mark.sqlite  # moves SQLite files
def test_deployment_moves_to_postgresql_and_back(program: Program, tmp_path: Path, database_url: str) -> None:
    for name in ("ada", "ben"):
        program.expect("user", "add", name)
        program.expect("add", "notes", "tea", "--user", name, "--title", f"Kettle of {name}")
    back = tmp_path / "back"

    moved = program.expect("migrate-store", "--to", database_url)
    listed = program.expect("user", "list", FLORILEGIUM_STORAGE_URL=database_url)
    found = [
        program.expect("search", "kettle", "--user", name, FLORILEGIUM_STORAGE_URL=database_url)
        for name in ("ada", "ben")
    ]
    program.expect("migrate-store", FLORILEGIUM_MIGRATE_FROM=database_url, FLORILEGIUM_MIGRATE_TO=f"sqlite:{back}")
    returned = program.expect("search", "kettle", "--user", "ada", "--data-dir", str(back))

    assert "2 of 2 libraries copied" in moved
    assert "The target is complete." in moved
    assert "ada" in listed
    assert "Kettle of ada" in found[0]
    assert "Kettle of ben" not in found[0]
    assert "Kettle of ben" in found[1]
    assert "Kettle of ada" in returned


@pytest.mark.sqlite  # moves SQLite files
def test_password_is_in_no_message(program: Program) -> None:
    address = "postgresql://ada:secret@127.0.0.1:1/kb"
    program.expect("user", "add", "ada")

    refused = program.run("migrate-store", "--to", address)
    wrong = program.run("migrate-store", "--to", "mysql://ada:secret@db/kb")
    unreachable = program.run("user", "list", FLORILEGIUM_STORAGE_URL=address)

    for outcome in (refused, wrong, unreachable):
        assert outcome.code != 0
        assert "secret" not in outcome.stdout + outcome.stderr
    assert "cannot be reached; try again ([Errno 111] " in refused.stderr
    assert "--to: expected postgresql://" in wrong.stderr


def test_commands_for_files_name_the_alternative(program: Program, tmp_path: Path) -> None:
    outcome = program.run("backup", str(tmp_path / "backup"), FLORILEGIUM_STORAGE_URL="postgresql://db/kb")

    assert outcome.code == 2
    assert "works on SQLite files, but storage_url is set" in outcome.stderr


@pytest.mark.slow("copies a deployment several times")
def test_users_and_events_are_in_postgresql(program: Program, database_url: str) -> None:
    store = {"FLORILEGIUM_STORAGE_URL": database_url}
    for name in ("ada", "ben"):
        program.expect("user", "add", name, **store)
    program.expect("add", "notes", "tea", "--user", "ada", "--title", "Kettle", **store)
    program.expect("user", "delete", "ada", "--purge", "--yes", **store)

    users, events = program.expect("user", "list", **store), program.expect("audit", **store)

    assert [line.split()[0] for line in users.splitlines()] == ["NAME", "ben"]
    assert "user.delete" in events
    assert "ben" not in program.expect("user", "list"), "the data directory has no users"
