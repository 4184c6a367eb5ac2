"""`florilegium follow`: a followed folder, file or database is imported once and then kept current."""

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from config.settings import Settings
from server.cli.local_library import open_local
from sources.following.scan import SETTLING_PAUSE_S
from sources.following.state import run_lease
from tests.server.cli.program import Outcome, Program
from tests.server.following.tldw_deployment import CHACHA_NAME, execute, make_user
from tests.sources.following.database_owner import SCHEMA, DatabaseOwner


def write(folder: Path, **notes: str) -> None:
    for name, text in notes.items():
        (folder / f"{name}.md").write_text(text)


@pytest.fixture
def vault(program: Program) -> Path:
    folder = program.home / "vault"
    (folder / ".obsidian").mkdir(parents=True)
    write(folder, Tea="# Tea\nSteep for three minutes.", Kettle="# Kettle\nCopper.")
    return folder


def follow(program: Program, path: Path, *options: str) -> str:
    """Follows a path, reads it once and returns the id of the followed source."""
    added: dict[str, str] = program.run("follow", "add", str(path), "--json", *options).json
    program.expect("follow", "run")
    return added["id"]


def run(program: Program) -> dict[str, Any]:
    [report] = program.run("follow", "run", "--json").json.values()
    return dict(report)


def notes(program: Program, *options: str, **environment: str) -> dict[str, str]:
    """Returns the ids of all notes by title."""
    listing = program.run("list", "notes", "--json", *options, **environment).json
    return {item["title"]: item["id"] for item in listing["items"]}


def test_additions_edits_and_deletions_are_followed(program: Program, vault: Path) -> None:
    follow(program, vault)
    before = notes(program)
    write(vault, Tea="# Tea\nSteep for five minutes.", Cup="# Cup\nPorcelain.")
    (vault / "Kettle.md").unlink()
    report = run(program)

    assert (report["new"], report["updated"], report["deleted"]) == (1, 1, 1)
    assert notes(program).keys() == {"Tea", "Cup"}
    assert notes(program)["Tea"] == before["Tea"]
    assert "five" in program.expect("search", "steep")
    assert program.run("search", "copper").code == 1
    assert run(program) == {"new": 0, "updated": 0, "deleted": 0, "conflicts": 0, "failed": 0, "written": 0}


def test_files_of_a_subfolder_that_cannot_be_read_are_not_deleted(program: Program, vault: Path) -> None:
    (vault / "closed").mkdir()
    (vault / "Kettle.md").rename(vault / "closed" / "Kettle.md")
    follow(program, vault)
    (vault / "closed").chmod(0)
    (vault / "Tea.md").unlink()

    report = program.run_without_privileges("follow", "run", "--json")

    assert [counts["deleted"] for counts in report.json.values()] == [1]
    assert notes(program).keys() == {"Kettle"}
    assert "1 folders or files cannot be read; their items were kept" in program.expect("follow", "list")


def test_deleted_file_that_comes_back_restores_its_item(program: Program, vault: Path) -> None:
    follow(program, vault)
    before = notes(program)
    (vault / "Kettle.md").unlink()
    run(program)
    write(vault, Kettle="# Kettle\nIron now.")
    run(program)
    assert notes(program) == before
    assert "Iron" in program.expect("search", "iron")


def test_item_that_a_person_deleted_stays_deleted(program: Program, vault: Path) -> None:
    follow(program, vault)
    program.expect("rm", f"notes://{notes(program)['Tea']}", "--yes")
    write(vault, Tea="# Tea\nA new text.")
    run(program)
    (vault / "Tea.md").unlink()
    run(program)
    write(vault, Tea="# Tea\nAnother text.")
    run(program)
    assert notes(program).keys() == {"Kettle"}


def test_renamed_and_moved_files_keep_their_items(program: Program, vault: Path) -> None:
    follow(program, vault)
    before = notes(program)
    (vault / "drinks").mkdir()
    (vault / "Tea.md").rename(vault / "drinks" / "Green tea.md")
    report = run(program)
    assert (report["new"], report["deleted"]) == (0, 0)
    assert notes(program) == before
    write(vault / "drinks", **{"Green tea": "# Tea\nEdited after the move."})
    write(vault, Tea="# Another tea\nIn the old place.")
    run(program)
    after = notes(program)
    assert after.pop("Another tea") not in before.values()
    assert after == before
    assert "Edited after the move." in program.expect("get", f"notes://{before['Tea']}")


def test_copy_of_a_file_is_an_item_of_its_own(program: Program, vault: Path) -> None:
    text = "---\nuuid: 0b0e7a52-5a2e-4b3c-9d0a-1f2e3d4c5b6a\n---\n# Original\nWords."
    write(vault, Original=text)
    follow(program, vault)
    write(vault, Copy=text.replace("# Original", "# Copy"))
    run(program)
    assert {"Original", "Copy"} <= notes(program).keys()
    (vault / "Copy.md").unlink()
    run(program)
    assert notes(program).keys() == {"Original", "Tea", "Kettle"}


def test_edit_in_the_library_wins_and_is_reported_as_a_conflict(program: Program, vault: Path) -> None:
    source = follow(program, vault)
    uri = f"notes://{notes(program)['Tea']}"
    program.expect("edit", uri, "--content", "My own words.")
    assert run(program)["conflicts"] == 0
    write(vault, Tea="# Tea\nThe file changed, too.")
    assert run(program)["conflicts"] == 1
    assert "My own words." in program.expect("get", uri)
    shown = program.run("follow", "show", source, "--json").json
    assert [problem["file"] for problem in shown["problems"]] == ["Tea.md"]

    program.expect("follow", "resolve", source, "Tea.md", "--keep", "file")
    assert "The file changed, too." in program.expect("get", uri)
    assert program.run("follow", "show", source, "--json").json["conflicts"] == 0


def test_edited_item_is_kept_when_its_file_is_deleted(program: Program, vault: Path) -> None:
    source = follow(program, vault)
    program.expect("edit", f"notes://{notes(program)['Tea']}", "--content", "My own words.")
    (vault / "Tea.md").unlink()
    assert run(program)["conflicts"] == 1
    assert "Tea" in notes(program)
    program.expect("follow", "resolve", source, "Tea.md", "--keep", "library")
    assert run(program)["conflicts"] == 0
    assert "Tea" in notes(program)


def test_keep_deleted_keeps_the_items_of_deleted_files(program: Program, vault: Path) -> None:
    follow(program, vault, "--keep-deleted")
    (vault / "Tea.md").unlink()
    assert run(program)["deleted"] == 0
    assert notes(program).keys() == {"Tea", "Kettle"}


def test_missing_or_replaced_folder_is_reported_and_not_emptied(program: Program, vault: Path) -> None:
    source = follow(program, vault)
    vault.rename(program.home / "elsewhere")
    assert program.run("follow", "run").code == 1
    [listed] = program.run("follow", "list", "--json").json
    assert (listed["state"], listed["files"]) == ("failed", 2)
    vault.mkdir()
    result = program.run("follow", "run", source)
    assert result.code == 1
    assert "nothing was deleted" in result.stdout
    assert f"run `florilegium follow run {source} --accept`" in result.stdout
    assert notes(program).keys() == {"Tea", "Kettle"}

    vault.rmdir()
    (program.home / "elsewhere").rename(vault)
    program.expect("follow", "run")
    assert program.run("follow", "list", "--json").json[0]["state"] == "current"


def test_replaced_folder_can_be_accepted(program: Program, vault: Path) -> None:
    follow(program, vault)
    vault.rename(program.home / "elsewhere")
    vault.mkdir()
    write(vault, Cup="# Cup\nPorcelain.")
    assert program.run("follow", "run").code == 1
    program.expect("follow", "run", "--accept")
    assert notes(program).keys() == {"Cup"}


def test_bad_file_does_not_stop_the_others(program: Program, vault: Path) -> None:
    source = follow(program, vault)
    (vault / "Tea.md").write_bytes(b"# Tea\n\0")
    write(vault, Cup="# Cup\nPorcelain.")
    assert run(program)["failed"] == 1
    assert notes(program).keys() == {"Tea", "Kettle", "Cup"}
    [problem] = program.run("follow", "show", source, "--json").json["problems"]
    assert problem["file"] == "Tea.md"
    write(vault, Tea="# Tea\nReadable again.")
    assert run(program)["failed"] == 0
    assert "Readable" in program.expect("search", "readable")


def test_growing_session_is_read_from_where_it_ended(program: Program) -> None:
    folder = program.home / "projects"
    folder.mkdir()
    session = folder / "0b0e7a52-5a2e-4b3c-9d0a-1f2e3d4c5b6a.jsonl"

    def line(number: int, role: str, text: str) -> str:
        return json.dumps(
            {
                "parentUuid": None,
                "type": role,
                "sessionId": session.stem,
                "uuid": f"00000000-0000-4000-8000-{number:012}",
                "cwd": "/home/ada/kettle",
                "version": "2.0",
                "timestamp": f"2026-01-01T00:00:{number:02}.000Z",
                "message": {"role": role, "content": [{"type": "text", "text": text}]},
            }
        )

    session.write_text(line(1, "user", "How long for oolong?") + "\n")
    follow(program, folder)
    with session.open("a") as file:
        file.write(line(2, "assistant", "Five minutes at ninety degrees.") + "\n")
    run(program)
    assert "ninety" in program.expect("search", "ninety")
    session.unlink()
    run(program)
    assert program.run("search", "ninety").code == 1
    session.write_text(line(1, "user", "How long for oolong?") + "\n" + line(2, "assistant", "Ninety again.") + "\n")
    run(program)
    assert "oolong" in program.expect("search", "oolong")
    assert program.run("search", "again").code == 0


@pytest.mark.slow("waits for several runs")
@pytest.mark.parametrize("journal_mode", ["WAL", "DELETE"])
def test_live_database_is_followed_while_its_owner_writes(program: Program, journal_mode: str) -> None:
    path = program.home / "browser.db"
    with closing(DatabaseOwner(path, journal_mode)) as owner:
        owner.execute(SCHEMA)
        owner.execute("INSERT INTO conversations VALUES ('c1', 'Oolong', 1700000000, 1700000000);")
        owner.execute("INSERT INTO messages VALUES ('m1', 'c1', 'user', 'How long for oolong?', 1700000000, 0, NULL);")
        if journal_mode == "WAL":
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as main_file:
                assert not main_file.execute("SELECT * FROM sqlite_master").fetchall()
        before = sorted(file.name for file in program.home.iterdir())
        follow(program, path)
        assert "oolong" in program.expect("search", "oolong")
        owner.execute("INSERT INTO messages VALUES ('m2', 'c1', 'assistant', 'Ninety degrees', 1700000001, 1, 'm1');")
        run(program)
        assert "Ninety" in program.expect("search", "ninety")
        owner.execute("DELETE FROM messages; DELETE FROM conversations;")
        run(program)
        assert program.run("search", "oolong").code == 1
        files = {file.name for file in program.home.iterdir()} - {"browser.db-shm", "browser.db-wal"}
        assert files <= {*before, ".config", ".local", ".cache"}


def test_sources_of_one_user_are_invisible_to_others(program: Program, vault: Path) -> None:
    program.with_users("ada", "ben")
    added = program.run("follow", "add", str(vault), "--user", "ada", "--json").json
    program.expect("follow", "run", "--user", "ada")
    assert notes(program, "--user", "ada").keys() == {"Tea", "Kettle"}
    assert not notes(program, "--user", "ben")
    assert program.run("follow", "list", "--user", "ben", "--json").json == []
    assert program.run("follow", "pause", added["id"], "--user", "ben").code != 0
    assert program.run("follow", "remove", added["id"], "--user", "ben").code != 0
    assert program.run("follow", "show", added["id"], "--user", "ben").code != 0


def test_source_can_be_paused_resumed_and_removed(program: Program, vault: Path) -> None:
    source = follow(program, vault)
    program.expect("follow", "pause", source)
    write(vault, Cup="# Cup\nPorcelain.")
    assert program.run("follow", "run", "--json").json == {}
    assert "all of them are paused" in program.expect("follow", "run")
    assert program.run("follow", "list", "--json").json[0]["state"] == "paused"
    program.expect("follow", "resume", source)
    assert run(program)["new"] == 1
    program.expect("follow", "remove", source)
    assert "Nothing is followed" in program.expect("follow", "list")
    assert notes(program).keys() == {"Tea", "Kettle", "Cup"}

    follow(program, vault)
    assert notes(program).keys() == {"Tea", "Kettle", "Cup"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing",), "expected an existing file or folder"),
        (("vault", "--every", "soon"), "expected a duration"),
        (("vault", "--format", "runes"), "format: expected one of"),
        (("vault/drinks",), "overlaps with"),
        (("https://ada:secret@example.com/",), "without a password"),
    ],
)
def test_wrong_arguments_are_explained(program: Program, vault: Path, arguments: tuple[str, ...], message: str) -> None:
    (vault / "drinks").mkdir()
    if "overlaps" in message:
        program.expect("follow", "add", str(vault))
    location = arguments[0] if "://" in arguments[0] else str(program.home / arguments[0])
    result = program.run("follow", "add", location, *arguments[1:])
    assert result.code != 0
    assert message in result.stderr


@pytest.mark.parametrize("folder", [".", ".local/share/florilegium"])
def test_data_directory_cannot_be_followed(program: Program, folder: str) -> None:
    program.with_users("ada")
    result = program.run("follow", "add", str(program.home / folder), "--user", "ada")
    assert result.code != 0
    assert "outside the data directory" in result.stderr


def test_edited_and_new_notes_are_written_back_with_their_front_matter(program: Program, vault: Path) -> None:
    write(vault, Tea="---\naliases: [cha]\ncustom:   kept as written\n---\n\n# Tea\n\nSteep for three minutes.\n")
    follow(program, vault, "--write-back")
    program.expect("edit", f"notes://{notes(program)['Tea']}", "--content", "# Tea\n\nMy own words. [[Kettle]]")
    program.expect("add", "notes", "Porcelain.", "--title", "A/cup: of ../tea", "--tag", "blue")
    assert run(program)["written"] == 2
    text = (vault / "Tea.md").read_text()
    assert text == "---\naliases: [cha]\ncustom:   kept as written\n---\n\n# Tea\n\nMy own words. [[Kettle]]\n"
    [created] = vault.glob("A cup*.md")
    assert "Porcelain." in created.read_text()
    assert created.parent == vault
    report = run(program)
    assert (report["new"], report["updated"], report["conflicts"], report["written"]) == (0, 0, 0, 0)

    before = notes(program)
    created.write_text(created.read_text().replace("Porcelain.", "Stoneware."))
    run(program)
    assert "Stoneware." in program.expect("get", f"notes://{before['A/cup: of ../tea']}")
    assert notes(program) == before
    assert not list(vault.glob(".florilegium-*"))


def test_title_and_tags_are_written_to_the_front_matter(program: Program, vault: Path) -> None:
    write(vault, Cup="---\ntags:\n  - blue\n  - old\nother: 1\n---\nPorcelain.\n")
    follow(program, vault, "--write-back")
    uri = f"notes://{notes(program)['Cup']}"
    program.expect("edit", uri, "--title", 'Bowl: "big"')
    program.expect("tag", uri, "+green", "--", "-old")
    run(program)
    text = (vault / "Cup.md").read_text()
    assert "other: 1\n" in text
    assert "- old" not in text
    assert run(program)["conflicts"] == 0
    assert notes(program)['Bowl: "big"'] == uri.removeprefix("notes://")


def test_note_and_file_that_both_changed_are_a_conflict(program: Program, vault: Path) -> None:
    source = follow(program, vault, "--write-back")
    uri = f"notes://{notes(program)['Tea']}"
    program.expect("edit", uri, "--content", "# Tea\nMy own words.")
    write(vault, Tea="# Tea\nThe file changed, too.")
    # A file that has just changed would be read once more before it is written to.
    time.sleep(SETTLING_PAUSE_S)
    report = run(program)
    assert (report["conflicts"], report["written"]) == (1, 0)
    assert "The file changed" in (vault / "Tea.md").read_text()
    program.expect("follow", "resolve", source, "Tea.md", "--keep", "library")
    assert run(program)["written"] == 1
    assert "My own words." in (vault / "Tea.md").read_text()


def test_tldw_users_are_followed_shown_and_read(program: Program) -> None:
    root = program.home / "user_databases"
    for user in (3, 11):
        make_user(root, user)
    program.expect("user", "add", "tldw-11")
    added = program.expect("follow", "add", "tldw", str(root), "--user-name", "tldw-{id}")
    assert "1 of 2 tldw users have a user here" in added
    [listed] = program.run("follow", "list", "--json").json
    assert (listed["followed"], listed["problem"]) == (1, "tldw user 3: no user is named 'tldw-3'")
    assert program.run("follow", "run", listed["id"], "--json").json["tldw user 11"]["new"] == 4
    assert list(notes(program, "--user", "tldw-11")) == ["note 0 of user 11"]
    execute(root / "11" / CHACHA_NAME, "INSERT INTO notes (id, title, content) VALUES ('a', 'Tea', 'Steep.')")
    assert program.run("follow", "run", listed["id"], "--json").json["tldw user 11"]["new"] == 1

    users = program.run("follow", "show", listed["id"], "--json").json["users"]
    assert [(one["tldw_id"], one["user"], one["state"], one["items"]) for one in users] == [
        (3, None, "not followed", 0),
        (11, "tldw-11", "current", 5),
    ]
    assert "TLDW USER" in program.expect("follow", "show", listed["id"])
    program.expect("follow", "pause", listed["id"])
    assert program.run("follow", "run", listed["id"], "--json").json == {}
    program.expect("follow", "remove", listed["id"])
    assert "Nothing is followed" in program.expect("follow", "list", "--user", "tldw-11")
    assert len(notes(program, "--user", "tldw-11")) == 2


def test_options_of_deployments_need_one(program: Program, vault: Path) -> None:
    refused = program.run("follow", "add", str(vault), "--create-users")
    assert "--create-users need `follow add tldw ROOT`" in refused.stderr
    refused = program.run("follow", "add", "tldw", str(vault), "--user", "ada")
    assert "expected PATH, URL, or `tldw ROOT`" in refused.stderr
    refused = program.run("follow", "add", "tldw", str(program.home / "nowhere"))
    assert "expected the absolute path of an existing folder" in refused.stderr


@pytest.mark.slow("follows a deployment")
def test_deployment_is_followed_with_postgresql(program: Program, database_url: str) -> None:
    root, store = program.home / "user_databases", {"FLORILEGIUM_STORAGE_URL": database_url}
    make_user(root, 11)
    program.expect("user", "add", "tldw-11", **store)
    program.expect("follow", "add", "tldw", str(root), "--user-name", "tldw-{id}", **store)
    [listed] = program.run("follow", "list", "--json", **store).json

    assert program.run("follow", "run", listed["id"], "--json", **store).json["tldw user 11"]["new"] == 4
    [shown] = program.run("follow", "show", listed["id"], "--json", **store).json["users"]
    assert (shown["user"], shown["items"]) == ("tldw-11", 4)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_source_that_another_process_reads_is_not_read_twice(
    program: Program, vault: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("database_url") if engine == "postgresql" else ""
    store = {"FLORILEGIUM_STORAGE_URL": url} if url else {}
    source = program.run("follow", "add", str(vault), "--json", **store).json["id"]
    settings = Settings(data_dir=str(program.data_dir), storage_url=url) if url else program.settings

    async def run_while_it_is_read() -> Outcome:
        async with (
            open_local(settings, None) as local,
            local.libraries.library(local.context) as library,
            run_lease(library.bookmarks, source),
        ):
            accepting = await asyncio.to_thread(program.run, "follow", "run", source, "--accept", **store)
            assert "is being read" in accepting.stdout
            assert accepting.code == 1
            return await asyncio.to_thread(program.run, "follow", "run", **store)

    refused = asyncio.run(run_while_it_is_read())
    assert "Another process is reading it" in refused.stdout
    assert refused.code == 0
    assert notes(program, **store) == {}
    [report] = program.run("follow", "run", "--json", **store).json.values()
    assert report["new"] == 2
    assert notes(program, **store).keys() == {"Tea", "Kettle"}
