"""Export, backup, restore, purge, migrate and reindex from the command line."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.server.cli.program import Program


def add_demo_users(program: Program) -> None:
    """Ada has the demo library, Ben nothing."""
    program.with_users("ada", "ben")
    program.expect("demo", "--user", "ada")


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_export_imported_into_another_library_exports_identical_bytes(program: Program) -> None:
    add_demo_users(program)

    output = program.expect("export", "first", "--user", "ada")
    program.expect("import", "first", "--user", "ben")
    counts = program.run("export", "second", "--user", "ben", "--json").json["counts"]

    assert output == "first: 5 characters, 92 messages, 9 chats, 7 media, 23 notes, 9 prompts"
    assert (counts["notes"], counts["messages"]) == (23, 92)
    assert files_in(program.home / "first") == files_in(program.home / "second")


def test_export_into_a_folder_that_is_not_empty_is_rejected(program: Program) -> None:
    add_demo_users(program)
    (program.home / "mine").mkdir()
    (program.home / "mine" / "letter.txt").write_text("dear")

    outcome = program.run("export", "mine", "--user", "ada")

    assert outcome.code == 1
    assert "folder 'mine' is not empty; choose another one" in outcome.stderr
    assert files_in(program.home / "mine") == {"letter.txt": b"dear"}


def test_an_interrupted_export_is_not_imported_as_notes(program: Program) -> None:
    add_demo_users(program)
    program.expect("export", "out", "--user", "ada")
    (program.home / "out" / "florilegium.json").rename(program.home / "out" / "florilegium.json.unfinished")

    outcome = program.run("import", "out", "--user", "ben")

    assert outcome.code == 2
    assert "the export is incomplete because it was interrupted" in outcome.stdout + outcome.stderr
    assert program.run("list", "notes", "--user", "ben", "--json").json["total"] == 0


@pytest.mark.sqlite  # about files
def test_leftovers_of_a_killed_process_are_removed_at_start(program: Program) -> None:
    add_demo_users(program)
    home = next(program.data_dir.glob("users/*/*"))
    leftovers = [home / "chacha.db.0123.unfinished", program.data_dir / "uploads" / "a" / "export.zip"]
    leftovers[1].parent.mkdir(parents=True)
    for path in leftovers:
        path.write_bytes(b"x")

    with program.serving("--port", "0"):
        assert not any(path.exists() for path in leftovers)
    assert (home / "chacha.db").exists()


@pytest.mark.sqlite  # about files
def test_a_backup_is_verified_and_restored_into_an_empty_data_directory(program: Program) -> None:
    add_demo_users(program)
    program.expect("group", "create", "team", "--manager", "ada")
    elsewhere = ("--data-dir", str(program.home / "elsewhere"))

    made = program.run("backup", "saved", "--json").json
    program.expect("restore", "saved", "--verify")
    output = program.expect("restore", "saved", *elsewhere)

    assert {user["name"] for user in made["users"].values()} == {"ada", "ben", "team"}
    assert output.startswith("saved was restored: 2 users, 1 group, ")
    program.expect("export", "first", "--user", "ada")
    program.expect("export", "second", "--user", "ada", *elsewhere)
    assert files_in(program.home / "first") == files_in(program.home / "second")


@pytest.mark.sqlite  # about files
def test_restore_rejects_a_damaged_backup_and_a_data_directory_in_use(program: Program) -> None:
    add_demo_users(program)
    program.expect("backup", "saved")

    in_use = program.run("restore", "saved")
    next((program.home / "saved").rglob("media.db")).write_bytes(b"")
    damaged = program.run("restore", "saved", "--verify")

    assert (in_use.code, damaged.code) == (1, 1)
    assert "the data directory is not empty" in in_use.stderr
    assert "the backup is damaged: media.db of 'ada'" in damaged.stderr


@pytest.mark.sqlite  # about files
def test_purge_leaves_no_trace_of_the_user_on_disk(program: Program) -> None:
    program.expect("user", "add", "ada-lovelace", "--subject", "s-1")
    program.with_users("ben")
    program.expect("demo", "--user", "ada-lovelace")
    program.expect("key", "create", "ada-lovelace")
    with closing(sqlite3.connect(program.data_dir / "control.db")) as control:
        [(user_id, key_hash)] = control.execute("SELECT u.id, k.hash FROM users u JOIN keys k ON k.user_id = u.id")

    program.expect("user", "delete", "ada-lovelace", "--purge", "--yes")

    left = files_in(program.data_dir)
    held = b"\0".join([*left.values(), *(name.encode() for name in left)])
    assert not any(trace in held for trace in (b"ada-lovelace", bytes(key_hash), b"Kestrel"))
    # The audit log keeps what was done to the account, under its random id, which no longer leads to a person.
    assert [name for name, content in left.items() if user_id.encode() in content] == ["audit.db"]
    assert list((program.data_dir / "users").iterdir()) == []
    assert program.states() == {"ben": "active"}


@pytest.mark.sqlite  # about files
def test_migrate_lists_and_upgrades_outdated_libraries(program: Program) -> None:
    add_demo_users(program)
    path = next(program.data_dir.glob("users/*/*/media.db"))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP INDEX media_without_weight")
        connection.execute("ALTER TABLE media DROP COLUMN text_weight")
        connection.execute("PRAGMA user_version = 2")

    behind = program.run("migrate", "--check")
    program.expect("migrate")

    assert behind.code == 1
    assert behind.stdout.splitlines()[1].split() == ["ada", "media", "2", "3", "needs", "migration"]
    assert program.expect("migrate", "--check") == "All libraries are current."
    assert path.with_name("media.db.schema-2").exists()


@pytest.mark.sqlite  # about files
def test_a_library_of_a_newer_version_is_reported(program: Program) -> None:
    add_demo_users(program)
    path = next(program.data_dir.glob("users/*/*/prompts.db"))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 99")

    check = program.run("migrate", "--check", "--json")
    reindexed = program.run("reindex", "--user", "ada")

    assert (check.code, reindexed.code) == (1, 1)
    assert [one["state"] for one in check.json] == ["created by a newer version"]
    assert "written by a newer version of Florilegium" in reindexed.stderr


@pytest.mark.sqlite  # loses entries of a file; that of PostgreSQL is in tests/server/postgres
def test_reindex_restores_lost_index_entries(program: Program) -> None:
    add_demo_users(program)
    path = next(program.data_dir.glob("users/*/*/chacha.db"))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("INSERT INTO notes_index (notes_index) VALUES ('delete-all')")
    lost = program.run("search", "comet", "--user", "ada", "--source", "notes", "--json")

    output = program.expect("reindex", "--user", "ada")
    found = program.run("search", "comet", "--user", "ada", "--source", "notes", "--json")

    assert output.startswith("chacha: 129 entries, media: ")
    assert lost.json["results"] == []
    assert found.json["results"]
