"""Damaged and missing files from the command line: what is refused, and the way back."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from config.paths import DataRoot
from tests.server.cli.program import Program

# The user id of the account "nobody".
NOBODY = 65534
# The files of SQLite can be damaged or lost. PostgreSQL looks after its own.
pytestmark = [pytest.mark.sqlite, pytest.mark.slow("damages and salvages many files")]


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


def damage_schema(path: Path) -> None:
    """Makes SQLite's message about the file a text that is not UTF-8."""
    content = path.read_bytes()
    path.write_bytes(content.replace(b"CREATE TABLE notes", b"CREATE T\xffBLE notes", 1))


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


@pytest.mark.parametrize("fault", [damage, damage_schema, truncate, Path.unlink])
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


# -- check and repair --------------------------------------------------------------------------------------------------


def clear_index(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("INSERT INTO notes_index (notes_index) VALUES ('delete-all')")


def states(program: Program, *arguments: str) -> dict[tuple[str, str], str]:
    """Returns the state of every file that is not intact."""
    checks = program.run("check", "--json", *arguments).json
    return {(check["user"], check["file"]): check["state"] for check in checks if check["state"] != "ok"}


def test_check_and_doctor_find_nothing_in_intact_libraries(program: Program) -> None:
    add_demo_users(program)

    assert program.expect("check") == "6 files of 2 users checked, 0 faults found."
    assert program.expect("check", "--user", "ben") == "3 files of 1 user checked, 0 faults found."
    assert "libraries         all of 2 users checked" in program.run("doctor").stdout


@pytest.mark.parametrize(
    ("fault", "state", "advice"),
    [
        (damage, "damaged", "florilegium restore DIR --user ada`, or `florilegium repair --user ada"),
        (damage_schema, "damaged", "florilegium restore DIR --user ada`, or `florilegium repair --user ada"),
        (truncate, "missing", "florilegium restore DIR --user ada"),
        (clear_index, "index damaged", "florilegium reindex --user ada"),
    ],
)
def test_check_names_the_damaged_file_and_the_command_that_repairs_it(
    program: Program, fault: Callable[[Path], None], state: str, advice: str
) -> None:
    homes = add_demo_users(program)
    fault(homes["ada"] / "chacha.db")

    outcome = program.run("check")

    assert outcome.code == 1
    assert states(program) == {("ada", "chacha"): state}
    assert states(program, "--user", "ben") == {}
    assert advice in outcome.stdout
    if fault is clear_index:
        program.expect("reindex", "--user", "ada")
        assert states(program) == {}
    else:
        doctor = program.run("doctor")
        assert doctor.code == 1
        assert "ada: chacha.db is" in doctor.stdout


def test_log_with_a_damaged_header_is_found_and_kept_by_the_repair(program: Program) -> None:
    homes = add_demo_users(program)
    log = homes["ada"] / "chacha.db-wal"
    with closing(sqlite3.connect(homes["ada"] / "chacha.db")) as connection:
        connection.execute("PRAGMA application_id = 7")
        commits = log.read_bytes()
    log.write_bytes(commits)
    assert states(program) == {}  # SQLite has read the log, and deleted it
    for damaged in (b"\0" * 32 + commits[32:], commits[:16] + b"damage" + commits[22:]):
        log.write_bytes(damaged)
        assert states(program) == {("ada", "chacha"): "damaged"}
        assert "ada: chacha.db is damaged" in program.run("doctor").stdout
        assert log.read_bytes() == damaged

    repaired = program.run("repair", "--user", "ada")

    assert "the header of chacha.db-wal is damaged, so that its commits are lost" in repaired.stdout
    assert states(program) == {}
    assert titles(program, "ada") == titles(program, "ben")
    assert [kept.read_bytes() for kept in homes["ada"].glob("chacha.db.replaced-*-wal")] == [damaged]


def overwrite_page_with(path: Path, text: bytes) -> None:
    """Overwrites the first page that contains a text."""
    content = bytearray(path.read_bytes())
    start = content.index(text) // 4096 * 4096
    content[start : start + 4096] = b"\xff" * 4096
    path.write_bytes(content)


def add_notes(program: Program, user: str, count: int) -> None:
    (program.home / "vault").mkdir()
    for number in range(count):
        text = f"# Note {number:03}\n\ncomet marker-{number:03} {'x' * 300}\n"
        (program.home / "vault" / f"{number:03}.md").write_text(text)
    program.expect("import", "vault", "--user", user)


def test_repair_salvages_the_readable_rows(program: Program) -> None:
    users = program.with_users("ada", "ben")
    add_notes(program, "ada", 200)
    path = DataRoot(program.data_dir).paths_of(users["ada"]).chacha
    overwrite_page_with(path, b"marker-100 ")
    assert states(program) == {("ada", "chacha"): "damaged"}

    outcome = program.run("repair", "--user", "ada")

    assert outcome.code == 1, "rows were lost"
    assert "unreadable: notes (1 place)" in outcome.stdout
    assert len(list(path.parent.glob("chacha.db.replaced-*"))) == 1
    assert states(program) == {}
    kept = program.run("list", "notes", "--user", "ada", "--limit", "200", "--json").json
    assert 180 <= kept["total"] < 200
    found = program.run("search", "marker-150", "--user", "ada", "--json").json["results"]
    assert found[0]["title"] == "Note 150"


def test_repair_of_a_truncated_file_keeps_what_is_left(program: Program) -> None:
    users = program.with_users("ada")
    add_notes(program, "ada", 200)
    path = DataRoot(program.data_dir).paths_of(users["ada"]).chacha
    path.write_bytes(path.read_bytes()[: -20 * 4096])

    program.run("repair", "--user", "ada")

    assert states(program) == {}
    program.expect("add", "notes", "comet", "--title", "Later", "--user", "ada")


def test_text_that_is_not_utf8_is_shown_reported_and_kept(program: Program) -> None:
    homes = add_demo_users(program)
    path = homes["ada"] / "chacha.db"
    content = bytearray(path.read_bytes())
    content[content.index(b"61 visitors on blankets") + 5] = 0xFF
    path.write_bytes(content)

    found = program.run("search", "perseid blankets", "--user", "ada", "--source", "notes", "--json")
    checked = program.run("check", "--json", "--user", "ada").json
    repaired = program.run("repair", "--user", "ada")

    assert found.code == 0, found.stderr
    assert "61 vi\ufffditors" in found.json["results"][0]["snippet"]
    assert [(file["state"], file["detail"]) for file in checked if file["file"] == "chacha"] == [
        ("damaged", "notes: a text is not UTF-8")
    ]
    assert "every row was readable" in repaired.stdout
    assert states(program) == {}
    for user in ("ada", "ben"):
        assert program.run("list", "notes", "--user", user, "--json").json["total"] == 23


def replace_directory(home: Path) -> None:
    """Puts a file in place of the directory, which not even root can list, unlike a directory of another account."""
    home.rename(home.with_name("aside"))
    home.touch()


def put_directory_in_place_of_shared_memory(home: Path) -> None:
    """SQLite cannot create its shared memory, as on a full disk or in a directory of another account."""
    (home / "chacha.db-shm").mkdir()


@pytest.mark.parametrize(
    ("fault", "files", "detail"),
    [
        (replace_directory, ["media", "chacha", "prompts"], "the user's files cannot be accessed"),
        (put_directory_in_place_of_shared_memory, ["chacha"], "attempt to write a readonly database"),
    ],
)
def test_inaccessible_library_is_not_called_damaged_and_does_not_concern_others(
    program: Program, fault: Callable[[Path], None], files: list[str], detail: str
) -> None:
    home = add_demo_users(program)["ada"]
    before = (home / "chacha.db").read_bytes()
    fault(home)

    checked, doctor = program.run("check", "--json"), program.run("doctor")
    repaired, backup = program.run("repair", "--user", "ada"), program.run("backup", "backup")

    faults = [check for check in checked.json if check["state"] != "ok"]
    assert [(check["user"], check["file"], check["state"]) for check in faults] == [
        ("ada", file, "inaccessible") for file in files
    ]
    assert all(detail in check["advice"] and f"chown -R {os.geteuid()} " in check["advice"] for check in faults)
    assert "Traceback" not in doctor.stderr
    assert doctor.code == (1 if fault is replace_directory else 0)
    assert (repaired.code, "chacha.db: not changed, because it is inaccessible" in repaired.stdout) == (1, True)
    kept = home / "chacha.db" if home.is_dir() else home.with_name("aside") / "chacha.db"
    assert kept.read_bytes() == before
    assert backup.code == 1
    problems = backup.stderr.splitlines()
    assert [line.startswith("not in the backup: ada: ") for line in problems] == [True] * len(files)
    assert program.expect("restore", "backup", "--verify", "--user", "ben").startswith(
        "ben in backup is intact: 3 files"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another account")
def test_what_a_command_of_root_creates_belongs_to_the_account_of_the_server(program: Program) -> None:
    homes = add_demo_users(program)
    program.expect("backup", "backup")
    (homes["ada"] / "prompts.db").unlink()
    overwrite_page_with(homes["ben"] / "chacha.db", b"perseid")
    (program.data_dir / "florilegium.lock").unlink()
    for path in (program.data_dir, *program.data_dir.rglob("*")):
        os.chown(path, NOBODY, NOBODY)

    program.expect("user", "add", "cyd")
    program.expect("add", "notes", "comet", "--title", "First", "--user", "cyd")
    program.expect("restore", "backup", "--user", "ada")
    program.run("repair", "--user", "ben")

    foreign = [path for path in program.data_dir.rglob("*") if path.stat().st_uid != NOBODY]
    assert foreign == []
    assert list(homes["ben"].glob("chacha.db.replaced-*"))


def test_damaged_audit_log_is_named_by_doctor_and_by_the_backup_that_it_prevents(program: Program) -> None:
    add_demo_users(program)
    (program.data_dir / "audit.db").write_bytes(b"\xaa" * 20_480)

    outcome, doctor = program.run("backup", "backup"), program.run("doctor", "--json")

    assert (outcome.code, doctor.code) == (1, 1)
    [check] = [check for check in doctor.json if check["name"] == "audit log"]
    assert check["outcome"] == "fail"
    assert check["message"].startswith("cannot be read: file is not a database; no events are recorded")
    assert "audit.db cannot be read (file is not a database)" in outcome.stderr
    assert list((program.home / "backup").iterdir()) == []
    (program.data_dir / "audit.db").unlink()
    assert program.expect("backup", "backup").startswith("backup: 2 users")


def test_repair_starts_an_empty_file_only_on_request(program: Program) -> None:
    homes = add_demo_users(program)
    truncate(homes["ada"] / "chacha.db")

    refused = program.run("repair", "--user", "ada")
    program.run("repair", "--user", "ada", "--accept-loss")

    assert refused.code == 1
    assert "--accept-loss" in refused.stdout
    program.expect("add", "notes", "comet", "--title", "Later", "--user", "ada")
    assert titles(program, "ada") == ["Later"]
    assert states(program) == {}
