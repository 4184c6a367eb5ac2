"""Upgrades of databases that an older version wrote, and the way back."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.older_versions import FIRST, extract
from tests.server.cli.program import Program

# The older version wrote SQLite files.
pytestmark = [pytest.mark.sqlite, pytest.mark.slow("upgrades whole data directories")]


@pytest.fixture
def old(program: Program) -> Program:
    """A program whose data directory was written by the older version."""
    extract(FIRST, program.data_dir)
    return program


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def dump(path: Path) -> tuple[int, list[str]]:
    """Returns the schema version and every row of a database."""
    with closing(sqlite3.connect(path)) as connection:
        [version] = connection.execute("PRAGMA user_version").fetchone()
        return version, list(connection.iterdump())


def databases(program: Program) -> list[Path]:
    files = [program.data_dir / "control.db", *program.data_dir.glob("users/*/*/*.db")]
    return [path for path in files if path.stat().st_size]


def outdated(program: Program) -> dict[Path, tuple[int, list[str]]]:
    """Returns the content of the files whose schema has changed since."""
    return {path: dump(path) for path in databases(program) if path.stem in ("control", "chacha")}


def test_check_lists_every_outdated_file_and_changes_nothing(old: Program) -> None:
    before = contents(old.data_dir)

    outcome = old.run("migrate", "--check", "--json")

    assert outcome.code == 1
    schemas = {(row["user"], row["file"]): row["schema"] for row in outcome.json}
    assert schemas[("-", "control")] == 2
    assert schemas[("ada", "chacha")] == schemas[("ben", "chacha")] == 3
    assert contents(old.data_dir) == before


def test_upgrade_keeps_all_data_and_copies_every_file_first(old: Program) -> None:
    before = outdated(old)

    old.expect("migrate")

    assert old.expect("migrate", "--check") == "All libraries are current."
    assert "Kettle of Ada" in old.expect("search", "kettle", "--user", "ada")
    assert "Kettle of Ada" not in old.expect("search", "kettle", "--user", "ben")
    assert [key["name"] for key in old.run("key", "list", "ada", "--json").json] == ["laptop"]
    assert old.run("check").code == 0
    for path, (version, rows) in before.items():
        assert dump(path.with_name(f"{path.name}.schema-{version}")) == (version, rows)


def test_documented_way_back_gives_the_older_version_its_files(old: Program) -> None:
    before = outdated(old)
    old.expect("migrate")
    old.expect("add", "notes", "comet", "--title", "Later", "--user", "ada")

    for path, (version, _) in before.items():
        shutil.copy(path.with_name(f"{path.name}.schema-{version}"), path)

    assert outdated(old) == before
    old.expect("migrate")
    assert "Kettle of Ada" in old.expect("search", "kettle", "--user", "ada")


def test_purge_also_deletes_the_user_from_the_copy_of_the_control_database(old: Program) -> None:
    old.expect("migrate")

    old.expect("user", "delete", "ada", "--purge", "--yes")

    copy = old.data_dir / "control.db.schema-2"
    with closing(sqlite3.connect(copy)) as control:
        assert control.execute("SELECT name FROM users").fetchall() == [("ben",)]
        assert control.execute("SELECT name FROM keys").fetchall() == [("admin",)]
    assert b"laptop" not in copy.read_bytes()


def test_lost_file_of_an_older_version_is_noticed_after_the_upgrade(old: Program) -> None:
    old.expect("user", "list")
    for path in old.data_dir.glob("users/*/*/chacha.db"):
        path.unlink()

    outcome = old.run("search", "kettle", "--user", "ada", "--source", "notes")

    assert (outcome.code, "is missing or empty" in outcome.stderr) == (1, True)
