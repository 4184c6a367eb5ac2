"""Documents that were moved or renamed keep their item; other documents never take it over."""

import shutil
from pathlib import Path

from config.settings import Settings
from sources.importers.engine.summary import ImportSummary, OutcomeCounts
from tests.sources.importers.single_files import import_here, write
from tests.sources.storage.library_fixture import LibraryFixture, open_library_fixture, total_items

SETTINGS = Settings()


async def import_folder(
    libraries: LibraryFixture, folder: Path, owner: str = "ada", *, rereads_unchanged: bool = False
) -> ImportSummary:
    async with libraries.library(owner) as library:
        return await import_here(library, folder, settings=SETTINGS, rereads_unchanged=rereads_unchanged)


async def stored_documents(libraries: LibraryFixture) -> dict[str, str]:
    """Returns the contents of all documents by uuid."""
    async with libraries.library("ada") as ada:
        rows = (await ada.media.list(20, 0)).rows
        return {row.uuid: await ada.media.content(row.id) for row in rows}


async def test_moved_document_keeps_its_item(tmp_path: Path) -> None:
    folder = tmp_path / "shelf"
    write(folder / "new" / "tide.txt", "Low water.")
    async with open_library_fixture(tmp_path / "data") as libraries:
        await import_folder(libraries, folder)
        before = await stored_documents(libraries)
        (folder / "old").mkdir()
        shutil.move(folder / "new" / "tide.txt", folder / "old" / "tide.txt")
        moved = await import_folder(libraries, folder)
        write(folder / "old" / "tide.txt", "High water.")
        edited = await import_folder(libraries, folder)
        after = await stored_documents(libraries)
        again = await import_folder(libraries, folder, rereads_unchanged=True)
        async with libraries.library("ben") as ben:
            assert await total_items(ben) == 0
    assert moved.kinds == {"media": OutcomeCounts(unchanged=1)}
    assert edited.kinds == {"media": OutcomeCounts(updated=1)}
    assert again.kinds == {"media": OutcomeCounts(unchanged=1)}
    assert list(before) == list(after)
    assert list(after.values()) == ["High water."]


async def test_other_document_at_the_old_location_gets_its_own_item(tmp_path: Path) -> None:
    folder = tmp_path / "shelf"
    write(folder / "report.txt", "May.")
    async with open_library_fixture(tmp_path / "data") as libraries:
        await import_folder(libraries, folder)
        (folder / "archive").mkdir()
        shutil.move(folder / "report.txt", folder / "archive" / "may.txt")
        await import_folder(libraries, folder)
        write(folder / "report.txt", "June.")
        second = await import_folder(libraries, folder)
        third = await import_folder(libraries, folder)
        documents = await stored_documents(libraries)
    assert second.kinds == {"media": OutcomeCounts(new=1, unchanged=1)}
    assert third.kinds == {"media": OutcomeCounts(unchanged=2)}
    assert sorted(documents.values()) == ["June.", "May."]


async def test_copies_are_separate_items(tmp_path: Path) -> None:
    folder = tmp_path / "shelf"
    write(folder / "a.txt", "Low water.")
    async with open_library_fixture(tmp_path / "data") as libraries:
        await import_folder(libraries, folder)
        shutil.copy(folder / "a.txt", folder / "b.txt")
        copied = await import_folder(libraries, folder)
        write(folder / "b.txt", "High water.")
        await import_folder(libraries, folder)
        documents = await stored_documents(libraries)
    assert copied.kinds == {"media": OutcomeCounts(new=1, unchanged=1)}
    assert sorted(documents.values()) == ["High water.", "Low water."]


async def test_copy_imported_alone_does_not_lose_the_original(tmp_path: Path) -> None:
    first, second = write(tmp_path / "one" / "a.txt", "Low water."), write(tmp_path / "two" / "a.txt", "Low water.")
    async with open_library_fixture(tmp_path / "data") as libraries:
        await import_folder(libraries, first.parent)
        await import_folder(libraries, second.parent)
        write(second, "High water.")
        await import_folder(libraries, second.parent)
        await import_folder(libraries, first.parent)
        documents = await stored_documents(libraries)
    assert sorted(documents.values()) == ["High water.", "Low water."]
