"""Damaged and missing files from the command line: what is refused, and the way back."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from config.paths import DataRoot
from tests.server.cli.program import Program


def test_a_directory_with_libraries_but_no_control_database_is_not_served(program: Program) -> None:
    program.with_users("ada")
    program.expect("demo", "--user", "ada")
    control = program.data_dir / "control.db"
    saved = control.read_bytes()

    for content in (None, b""):
        control.unlink() if content is None else control.write_bytes(content)
        outcomes = [program.run(*command) for command in (("serve", "--port", "0"), ("user", "add", "eve"), ("stdio",))]
        for outcome in outcomes:
            assert outcome.code == 1
            assert "control.db is missing from the data directory" in outcome.stderr
            assert "copy control.db from a backup" in outcome.stderr
    control.write_bytes(saved)
    assert "Kestrel" in program.expect("search", "kestrel", "--user", "ada")


def damage(path: Path) -> None:
    """Overwrites the second half of a file."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + b"\xff" * (len(content) - len(content) // 2))


def truncate(path: Path) -> None:
    path.write_bytes(b"")


def add_demo_users(program: Program) -> dict[str, Path]:
    """Ada and Ben have the demo library. Returns their directories."""
    users = program.with_users("ada", "ben")
    for name in users:
        program.expect("demo", "--user", name)
    root = DataRoot(program.data_dir)
    return {name: root.paths_of(user_id).chacha.parent for name, user_id in users.items()}


def titles(program: Program, user: str, *more: str) -> list[str]:
    found = program.run("search", "comet", "--user", user, "--source", "notes", "--json", *more)
    assert found.code == 0, found.stderr
    return [hit["title"] for hit in found.json["results"]]


@pytest.mark.parametrize("fault", [damage, truncate, Path.unlink])
def test_a_backup_goes_on_after_a_damaged_user_and_names_it(program: Program, fault: Callable[[Path], None]) -> None:
    homes = add_demo_users(program)
    fault(homes["ada"] / "chacha.db")
    elsewhere = ("--data-dir", str(program.home / "elsewhere"))

    backup = program.run("backup", "saved")
    verified = program.run("restore", "saved", "--verify")
    restored = program.run("restore", "saved", *elsewhere)

    for outcome in (backup, verified, restored):
        assert outcome.code == 1
        assert outcome.stderr.startswith("not in the backup: ada: chacha.db")
        assert "ben" not in outcome.stderr
    assert titles(program, "ben", *elsewhere)
    lost = program.run("search", "comet", "--user", "ada", "--source", "notes", *elsewhere)
    assert (lost.code, "chacha.db of this library is missing" in lost.stderr) == (1, True)


@pytest.mark.parametrize("fault", [damage, truncate, Path.unlink])
def test_one_user_is_restored_and_the_others_stay(program: Program, fault: Callable[[Path], None]) -> None:
    homes = add_demo_users(program)
    before = titles(program, "ada")
    program.expect("backup", "saved")
    program.expect("add", "notes", "comet", "--title", "Later", "--user", "ben")
    fault(homes["ada"] / "chacha.db")

    output = program.expect("restore", "saved", "--user", "ada")

    assert output.startswith("ada in saved was restored: 3 files, ")
    assert titles(program, "ada") == before
    assert "Later" in titles(program, "ben")
    kept = list(homes["ada"].glob("chacha.db.replaced-*"))
    assert len(kept) == (0 if fault is Path.unlink else 1)
    unknown = program.run("restore", "saved", "--user", "eve")
    assert (unknown.code, "'eve' not found" in unknown.stderr) == (1, True)


def test_restore_checks_the_control_database(program: Program) -> None:
    program.with_users("ada")
    program.expect("backup", "saved")
    manifest = json.loads((program.home / "saved" / "backup.json").read_text())
    control = program.home / "saved" / "control.db"
    with closing(sqlite3.connect(control, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 99")
    manifest["control"] |= {"schema": 99, "sha256": sha256(control.read_bytes()).hexdigest()}
    (program.home / "saved" / "backup.json").write_text(json.dumps(manifest))

    outcome = program.run("restore", "saved", "--data-dir", str(program.home / "elsewhere"))

    assert outcome.code == 1
    assert "a control database with schema 99, written by a newer version" in outcome.stderr


def test_a_restore_that_was_killed_is_not_served(program: Program) -> None:
    """The copy of the control database is the last step; before it, the directory contains only libraries."""
    add_demo_users(program)
    program.expect("backup", "saved")
    shutil.copytree(program.home / "saved" / "users", program.home / "elsewhere" / "users")
    (program.home / "elsewhere" / "control.db.unfinished").write_bytes(b"SQLite format 3\0")

    outcome = program.run("serve", "--port", "0", "--data-dir", str(program.home / "elsewhere"))

    assert outcome.code == 1
    assert "a restore did not finish" in outcome.stderr
