"""Items keep their ids, and are no conflicts, whatever happens to their files."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sources.drafts import NoteDraft
from sources.following.identities import write_notes
from sources.importers.engine.limits import import_limits
from tests.sources.following.followed_vault import FollowedVault, write
from tests.sources.storage.library_fixture import Clock, open_library_fixture


@pytest.fixture
async def followed(tmp_path: Path) -> AsyncIterator[FollowedVault]:
    async with open_library_fixture(tmp_path / "data", Clock()) as libraries:
        yield FollowedVault(libraries, tmp_path)


async def ids(followed: FollowedVault) -> dict[str, str]:
    async with followed.library() as library:
        return {note.uuid: note.title for note in (await library.notes.list(100, 0)).rows}


@pytest.mark.slow("waits for files to settle")
@pytest.mark.parametrize("keeps_deleted", [False, True])
async def test_renamed_file_that_is_deleted_and_restored_keeps_its_id(
    followed: FollowedVault, tmp_path: Path, keeps_deleted: bool
) -> None:
    write(followed.vault, Tea="Steep.")
    await followed.run(keeps_deleted=keeps_deleted)
    [before] = await ids(followed)
    (followed.vault / "Tea.md").rename(followed.vault / "Sencha.md")
    await followed.run(keeps_deleted=keeps_deleted)
    assert await ids(followed) == {before: "Sencha"}

    (followed.vault / "Sencha.md").rename(tmp_path / "trash.md")
    await followed.run(keeps_deleted=keeps_deleted)
    assert await ids(followed) == ({before: "Sencha"} if keeps_deleted else {})
    (tmp_path / "trash.md").rename(followed.vault / "Sencha.md")
    await followed.run(keeps_deleted=keeps_deleted)

    assert await ids(followed) == {before: "Sencha"}


async def test_restored_file_does_not_take_the_note_of_another_file(followed: FollowedVault, tmp_path: Path) -> None:
    write(followed.vault, Tea="Steep.")
    await followed.run()
    (followed.vault / "Tea.md").rename(followed.vault / "Sencha.md")
    await followed.run()
    (followed.vault / "Sencha.md").rename(tmp_path / "trash.md")
    await followed.run()
    write(followed.vault, Tea="Another tea.")
    await followed.run()
    (tmp_path / "trash.md").rename(followed.vault / "Sencha.md")
    await followed.run()

    assert sorted((await ids(followed)).values()) == ["Sencha", "Tea"]
    assert sorted((await followed.texts()).splitlines()) == ["Another tea.", "Steep."]


async def test_copies_keep_their_ids_if_the_folder_is_removed_and_followed_again(followed: FollowedVault) -> None:
    write(followed.vault, Tea="Steep.")
    (followed.vault / "link.md").symlink_to("Tea.md")
    copied = "---\nuuid: 6f9d7a3e-0d4c-4a64-9a3c-1c1f6c0d6c11\n---\nPour."
    write(followed.vault, Cup=copied, Copy=copied)
    await followed.run()
    before = await ids(followed)
    assert len(before) == 4

    async with followed.library() as library:
        await library.followed_files.retain([])
    await followed.run(id="again")

    assert await ids(followed) == before


async def test_interrupted_write_to_a_file_is_no_conflict(followed: FollowedVault) -> None:
    write(followed.vault, Tea="Steep.")
    # A file that may still be written to is left alone.
    os.utime(followed.vault / "Tea.md", (1, 1))
    await followed.run(writes_back=True)
    async with followed.library() as library:
        note = (await library.notes.list(1, 0)).rows[0]
        await library.notes.update(note.uuid, NoteDraft(title="Tea", content="Steep for long."))
        await library.notes.create(NoteDraft(title="Cup", content="Porcelain.", tags=("white",)))
        # The process ends after the files were written, before they are read again.
        record, limits = followed.record(writes_back=True), import_limits(followed.settings)
        written = await write_notes(library, record, followed.layout(), "", limits)
    assert sorted(written.names) == [b"Cup.md", b"Tea.md"]

    await followed.run(writes_back=True)

    async with followed.library() as library:
        assert await library.followed_files.problems("followed", 10) == []
    assert sorted((await followed.texts()).splitlines()) == ["Porcelain.", "Steep for long."]
    assert sorted(path.name for path in followed.vault.glob("*.md")) == ["Cup.md", "Tea.md"]
