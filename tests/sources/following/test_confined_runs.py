"""The owner of a followed folder replaces parts of it by links and pipes while it is read and written."""

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from config.errors import FlorilegiumError, InvalidParams
from sources.drafts import NoteDraft
from sources.following.database_copy import open_database_copier
from sources.following.state import SourceState
from sources.following.sync import SourceSync
from sources.importers.engine.confined_files import opening_only, reading_confined_to
from sources.importers.engine.limits import ImportProgress
from sources.storage.contract import Library
from tests.sources.following.followed_vault import RUN_MAX_S, FollowedVault, write
from tests.sources.storage.library_fixture import Clock, open_library_fixture


def replace_by_link(folder: Path, target: Path) -> None:
    folder.rename(folder.with_name(f"{folder.name}-moved"))
    folder.symlink_to(target)


@pytest.fixture
async def followed(tmp_path: Path) -> AsyncIterator[FollowedVault]:
    async with open_library_fixture(tmp_path / "data", Clock()) as libraries:
        yield FollowedVault(libraries, tmp_path)


async def test_folder_replaced_after_it_was_checked_is_not_read(followed: FollowedVault) -> None:
    write(followed.vault, Tea="Steep.")
    write(followed.outside, Secret="Of Ben.")
    # The location was checked; a run begins with it.
    replace_by_link(followed.vault, followed.outside)
    work_folder = write(followed.outside.parent / "work")
    async with followed.library() as library:
        sync = SourceSync(library, followed.record(), followed.settings, ImportProgress(), work_folder)
        with pytest.raises(FlorilegiumError):
            await sync.run(SourceState())
    assert await followed.texts() == ""


async def test_subfolder_replaced_after_the_scan_is_not_read(followed: FollowedVault) -> None:
    write(followed.vault / "a", First="Steep.")
    write(followed.vault / "b", Second="Pour.")
    write(followed.outside, Second="Secret of Ben.")

    async def swap() -> None:
        if not (followed.vault / "b").is_symlink():
            replace_by_link(followed.vault / "b", followed.outside)

    await followed.run(swap)
    assert await followed.texts() == "Steep."


async def test_subfolder_that_was_replaced_for_a_moment_is_read_again(followed: FollowedVault) -> None:
    write(followed.vault / "a", First="Steep.")
    write(followed.vault / "b", Second="Pour.")
    for file in followed.vault.glob("*/*.md"):
        os.utime(file, (1, 1))  # files that changed a moment ago are read again anyway

    async def swap() -> None:
        if not (followed.vault / "b").is_symlink():
            replace_by_link(followed.vault / "b", followed.outside)

    await followed.run(swap)
    (followed.vault / "b").unlink()
    (followed.vault / "b-moved").rename(followed.vault / "b")
    await followed.run()
    assert "Pour." in await followed.texts()


async def test_note_is_not_written_through_a_subfolder_replaced_after_the_scan(followed: FollowedVault) -> None:
    write(followed.vault / "b", Tea="Steep.")
    # The same file by another name, so that its signature does not tell the folders apart.
    (followed.outside / "Tea.md").hardlink_to(followed.vault / "b" / "Tea.md")
    await followed.run(writes_back=True)
    async with followed.library() as library:
        await edit_only_note(library, "Changed through Florilegium.")
    write(followed.vault / "a", Other="A change, so that the run has a batch.")

    async def swap() -> None:
        if not (followed.vault / "b").is_symlink():
            replace_by_link(followed.vault / "b", followed.outside)

    await followed.run(swap, writes_back=True)
    assert (followed.outside / "Tea.md").read_text() == "Steep."
    assert sorted(path.name for path in followed.outside.iterdir()) == ["Tea.md"]


async def edit_only_note(library: Library, text: str) -> None:
    [note] = (await library.notes.list(10, 0)).rows
    await library.notes.update(note.uuid, NoteDraft(content=text), expected_version=note.version)


async def test_new_note_is_not_written_to_a_folder_replaced_after_the_scan(followed: FollowedVault) -> None:
    await followed.run(writes_back=True)
    async with followed.library() as library:
        await library.notes.create(NoteDraft(title="Cup", content="Porcelain."))
    write(followed.vault, Other="A change, so that the run has a batch.")

    async def swap() -> None:
        if not followed.vault.is_symlink():
            replace_by_link(followed.vault, followed.outside)

    with pytest.raises(FlorilegiumError):
        await followed.run(swap, writes_back=True)
    assert list(followed.outside.iterdir()) == []


async def test_file_replaced_by_a_pipe_does_not_block(followed: FollowedVault) -> None:
    write(followed.vault, Aa="Steep.", Bb="Pour.")

    async def swap() -> None:
        (followed.vault / "Bb.md").unlink(missing_ok=True)
        os.mkfifo(followed.vault / "Bb.md")

    await followed.run(swap)
    assert await followed.texts() == "Steep."


async def test_link_to_a_file_in_the_folder_is_followed(followed: FollowedVault) -> None:
    write(followed.vault / "a", Tea="Steep.")
    (followed.vault / "Link.md").symlink_to(followed.vault / "a" / "Tea.md")
    (followed.vault / "Out.md").symlink_to(write(followed.outside, Secret="Of Ben.") / "Secret.md")
    await followed.run()
    assert await followed.texts() == "Steep.\nSteep."


def make_database(path: Path, text: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE notes (text)")
    connection.execute("INSERT INTO notes VALUES (?)", (text,))
    connection.commit()
    return connection


@asynccontextmanager
async def open_database_in(folder: Path) -> AsyncIterator[Path]:
    folder.mkdir()
    with closing(make_database(folder / "notes.db", "Of Ben.")):
        yield folder / "notes.db"


async def test_database_in_a_replaced_folder_is_not_copied(tmp_path: Path) -> None:
    async with (
        open_database_in(tmp_path / "outside") as database,
        open_database_copier(max_bytes=1 << 20, deadline_s=RUN_MAX_S) as copier,
    ):
        (tmp_path / "vault").symlink_to(database.parent)
        (tmp_path / "work").mkdir()
        with pytest.raises(InvalidParams, match="cannot be copied"):
            await copier.copy(tmp_path / "vault" / database.name, tmp_path / "work" / "copy.db")
        assert not (tmp_path / "work" / "copy.db").exists()
        await copier.copy(database, tmp_path / "work" / "copy.db")
        with closing(sqlite3.connect(tmp_path / "work" / "copy.db")) as copy:
            assert copy.execute("SELECT text FROM notes").fetchall() == [("Of Ben.",)]


async def test_database_with_the_log_of_another_one_is_not_copied(tmp_path: Path) -> None:
    async with (
        open_database_in(tmp_path / "outside") as database,
        open_database_copier(max_bytes=1 << 20, deadline_s=RUN_MAX_S) as copier,
    ):
        (tmp_path / "vault").mkdir()
        (tmp_path / "work").mkdir()
        own = tmp_path / "vault" / "notes.db"
        own.write_bytes(database.read_bytes())
        for suffix in ("-wal", "-shm"):
            own.with_name(own.name + suffix).symlink_to(database.with_name(database.name + suffix))
        with pytest.raises(InvalidParams, match="cannot be copied"):
            await copier.copy(own, tmp_path / "work" / "copy.db")


def test_database_that_sqlite_opens_elsewhere_is_noticed(tmp_path: Path) -> None:
    for name in ("own.db", "other.db"):
        make_database(tmp_path / name, name).close()
    with reading_confined_to([tmp_path / "own.db"]):
        with opening_only(tmp_path / "own.db"):
            connection = sqlite3.connect(tmp_path / "own.db")
        connection.close()
        # As if the folder had been another one for a moment.
        with pytest.raises(PermissionError), opening_only(tmp_path / "own.db"):
            connection = sqlite3.connect(tmp_path / "other.db")
        connection.close()
