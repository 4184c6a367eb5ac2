"""Backups: consistent during writes, verified before they are restored."""

import asyncio
import hashlib
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from config.errors import Conflict, FlorilegiumError, StorageError
from config.paths import DataRoot, UserId
from sources.drafts import NoteDraft, PromptDraft
from sources.storage.contract import ExactSearch, Library
from sources.storage.sqlite.maintenance.backups import MANIFEST, BackupManifest, back_up, restore, verify
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_sqlite, titles
from tests.sources.storage.sqlite.file_checks import check_files, open_file

NOW = "2026-11-15T08:00:00Z"


@pytest.fixture
async def libraries(tmp_path: Path) -> AsyncIterator[LibraryFixture]:
    """Ada has a note and a prompt, Ben a note."""
    async with open_sqlite(tmp_path / "data") as manifest:
        async with manifest.library("ada") as ada, manifest.library("ben") as ben:
            await ada.notes.create(NoteDraft(title="Kettle of Ada", tags=["home"]))
            await ada.prompts.create(PromptDraft(name="Review"))
            await ben.notes.create(NoteDraft(title="Kettle of Ben"))
        _make_control(manifest.data_root)
        yield manifest


def _make_control(root: DataRoot) -> None:
    with closing(sqlite3.connect(root.control_path)) as control:
        control.execute("CREATE TABLE users (id TEXT, files TEXT)")


def owners(libraries: LibraryFixture, *names: str) -> list[tuple[UserId, str]]:
    return [(libraries.context(name).user_id, name) for name in names]


def make_backup(libraries: LibraryFixture, folder: Path) -> BackupManifest:
    return back_up(libraries.data_root, owners(libraries, "ada", "ben", "cyd"), folder, NOW)


async def test_restored_backup_equals_what_was_backed_up(libraries: LibraryFixture, tmp_path: Path) -> None:
    manifest = make_backup(libraries, tmp_path / "backup")
    async with libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(title="Kettle of tomorrow"))

    assert verify(tmp_path / "backup") == restore(tmp_path / "backup", DataRoot(tmp_path / "restored")) == manifest

    check_files(tmp_path / "restored")
    async with (
        open_sqlite(tmp_path / "restored") as restored,
        restored.library("ada") as ada,
        restored.library("ben") as ben,
    ):
        assert titles(await ada.notes.search(make_search("kettle"))) == ["Kettle of Ada"]
        assert titles(await ben.notes.search(make_search("kettle"))) == ["Kettle of Ben"]
        assert (await ada.prompts.get_by_name("Review")).version == 1


async def test_manifest_lists_the_rows_of_every_file(libraries: LibraryFixture, tmp_path: Path) -> None:
    manifest = make_backup(libraries, tmp_path / "backup")

    [(ada, _), (ben, _), (cyd, _)] = owners(libraries, "ada", "ben", "cyd")
    assert manifest.users[ada].files["chacha"].rows["notes"] == 1
    assert manifest.users[ada].files["chacha"].rows["notes_tags"] == 1
    assert manifest.users[ada].files["prompts"].rows["prompts"] == 1
    assert manifest.users[ben].files["chacha"].rows["notes"] == 1
    assert manifest.users[cyd].files == {}
    assert "notes_index_docsize" not in manifest.users[ada].files["chacha"].rows


@pytest.mark.slow("writes while files are copied")
async def test_files_of_a_user_are_copied_as_of_one_moment_during_writes(
    libraries: LibraryFixture, tmp_path: Path
) -> None:
    """The writer alternates notes and prompts, so a snapshot has equally many of both or one more note."""
    is_done = asyncio.Event()

    async def write(ada: Library) -> int:
        number = 0
        while not is_done.is_set():
            number += 1
            await ada.notes.create(NoteDraft(title=f"Note {number}"))
            await ada.prompts.create(PromptDraft(name=f"Prompt {number}"))
        return number

    async with libraries.library("ada") as ada:
        writer = asyncio.create_task(write(ada))
        manifest = [await asyncio.to_thread(make_backup, libraries, tmp_path / f"backup{n}") for n in range(8)]
        is_done.set()
        written = await writer

    counts = [_count_rows(backup, libraries) for backup in manifest]
    assert all(notes - prompts in (0, 1) for notes, prompts in counts)
    assert counts == sorted(counts)
    assert written > 1
    for n in range(8):
        verify(tmp_path / f"backup{n}")
    restore(tmp_path / "backup7", DataRoot(tmp_path / "restored"))
    check_files(tmp_path / "restored")


def _count_rows(backup: BackupManifest, libraries: LibraryFixture) -> tuple[int, int]:
    files = backup.users[libraries.context("ada").user_id].files
    return files["chacha"].rows["notes"], files["prompts"].rows["prompts"]


# -- rejected backups --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["control.db", "chacha.db", "prompts.db"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "link"])
async def test_damaged_backup_is_rejected_and_nothing_is_written(
    libraries: LibraryFixture, tmp_path: Path, name: str, damage: str
) -> None:
    make_backup(libraries, tmp_path / "backup")
    file = next((tmp_path / "backup").rglob(name))
    data = file.read_bytes()
    match damage:
        case "flip":
            file.write_bytes(data[:-100] + bytes([data[-100] ^ 1]) + data[-99:])
        case "cut":
            file.write_bytes(data[:-4096])
        case "remove":
            file.unlink()
        case _:
            shutil.move(file, tmp_path / "elsewhere")
            file.symlink_to(tmp_path / "elsewhere")

    message = f"the backup is (damaged|incomplete): .*{name}"
    with pytest.raises(StorageError, match=message):
        verify(tmp_path / "backup")
    with pytest.raises(StorageError, match=message):
        restore(tmp_path / "backup", DataRoot(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER spy AFTER INSERT ON notes BEGIN DELETE FROM notes; END",
        "CREATE VIEW spy AS SELECT * FROM notes",
        "DROP VIEW {view}; CREATE VIEW {view} AS SELECT 1 AS id, 'x' AS content, 1 AS conversation_id",
    ],
)
async def test_foreign_trigger_or_view_is_rejected(libraries: LibraryFixture, tmp_path: Path, statement: str) -> None:
    async with libraries.library("ada") as ada:
        await ada.chats.match_messages(ExactSearch(expression="kettle", limit=1, deadline_ms=5_000))
    folder = tmp_path / "backup"
    manifest = make_backup(libraries, folder)
    assert verify(folder) == manifest
    [user_id, _] = owners(libraries, "ada", "ben")
    path = DataRoot(folder).paths_of(user_id[0]).chacha
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(statement.format(view="exact_index_source"))
    rewrite_manifest(folder, path, user_id[0])

    with pytest.raises(StorageError, match=r"contains the (trigger|view) .*, which Florilegium did not create"):
        restore(folder, DataRoot(tmp_path / "restored"))
    assert not (tmp_path / "restored").exists()


def rewrite_manifest(folder: Path, path: Path, user_id: UserId) -> None:
    """Makes the manifest agree with a changed file, as an attacker would."""
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes())
    file = manifest["users"][user_id]["files"]["chacha"]
    file |= {"size_bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    (folder / MANIFEST).write_bytes(msgspec.json.encode(manifest))


async def test_directory_without_manifest_is_not_a_backup(libraries: LibraryFixture, tmp_path: Path) -> None:
    make_backup(libraries, tmp_path / "backup")
    (tmp_path / "backup" / MANIFEST).unlink()

    with pytest.raises(StorageError, match=r"is not a backup: it has no backup.json"):
        verify(tmp_path / "backup")


@pytest.mark.parametrize("manifest", [b"", b"[]", b'{"format": 1}', b"\xff", b"[" * 100_000])
async def test_unreadable_manifest_is_rejected(libraries: LibraryFixture, tmp_path: Path, manifest: bytes) -> None:
    make_backup(libraries, tmp_path / "backup")
    (tmp_path / "backup" / MANIFEST).write_bytes(manifest)

    with pytest.raises(StorageError, match="its manifest cannot be read"):
        verify(tmp_path / "backup")


async def test_manifest_with_a_path_outside_the_backup_is_rejected(libraries: LibraryFixture, tmp_path: Path) -> None:
    make_backup(libraries, tmp_path / "backup")
    path = tmp_path / "backup" / MANIFEST
    data = msgspec.json.decode(path.read_bytes())
    data["users"]["../../data"] = next(iter(data["users"].values()))
    path.write_bytes(msgspec.json.encode(data))

    with pytest.raises(FlorilegiumError, match="not a user id"):
        restore(tmp_path / "backup", DataRoot(tmp_path / "new"))


async def test_backup_of_a_newer_version_is_rejected(libraries: LibraryFixture, tmp_path: Path) -> None:
    for path in (tmp_path / "data").glob("users/*/*/prompts.db"):
        with open_file(path) as connection:
            connection.execute("PRAGMA user_version = 99")
    make_backup(libraries, tmp_path / "backup")

    with pytest.raises(StorageError, match="schema 99, written by a newer version of Florilegium"):
        restore(tmp_path / "backup", DataRoot(tmp_path / "new"))


async def test_backup_and_restore_overwrite_nothing(libraries: LibraryFixture, tmp_path: Path) -> None:
    make_backup(libraries, tmp_path / "backup")

    with pytest.raises(Conflict, match="is not empty"):
        make_backup(libraries, tmp_path / "backup")
    with pytest.raises(Conflict, match="is not empty"):
        restore(tmp_path / "backup", libraries.data_root)
    assert verify(tmp_path / "backup").made_at == NOW


async def test_backup_that_cannot_be_written_is_not_called_the_data_directory(
    libraries: LibraryFixture, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StorageError, match=r"\Athe backup cannot be written: Not a directory\Z"):
        make_backup(libraries, tmp_path / "file" / "backup")


async def test_backup_is_readable_only_by_its_owner(libraries: LibraryFixture, tmp_path: Path) -> None:
    make_backup(libraries, tmp_path / "backup")

    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "backup").rglob("*")} == {0}
