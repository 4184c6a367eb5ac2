"""What a power failure leaves: at worst, the files without their write-ahead logs, which were never flushed.

With `durability = "normal"` the disk is flushed at checkpoints only, so everything in a log can be lost.
"""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.server.rest.rest_client import open_rest_client
from tests.sources.storage.sqlite.conftest import INDEX, MakeDatabase
from tests.sources.storage.sqlite.file_checks import check_files


async def write_until_power_failure(root: Path, notes: int) -> Path:
    """Returns a copy of the data directory as it was while the server ran, without the logs. Ben writes one note."""
    copy = root / "after"
    async with open_rest_client(root / "before") as api:
        ada, ben = await api.library_user("ada"), await api.library_user("ben")
        await ben.add_note("Tide", "low water")
        for number in range(notes):
            await ada.add_note(f"Tide {number:03}", "low water " * 60)
        shutil.copytree(root / "before", copy, ignore=shutil.ignore_patterns("*-wal", "*-shm"))
    return copy


async def test_new_library_can_be_used_after_a_power_failure(tmp_path: Path) -> None:
    copy = await write_until_power_failure(tmp_path, notes=1)

    async with open_rest_client(copy) as api:
        for name in ("ada", "ben"):
            user = await api.library_user(name)
            await user.call("notes_create", title="Written again")
            assert [hit["title"] for hit in await user.search("notes_search", "written")] == ["Written again"]
    check_files(copy)


@pytest.mark.parametrize(("notes", "is_checkpointed"), [(30, False), (250, True)])
async def test_power_failure_loses_only_the_latest_writes(tmp_path: Path, notes: int, *, is_checkpointed: bool) -> None:
    copy = await write_until_power_failure(tmp_path, notes)

    async with open_rest_client(copy) as api:
        ada = await api.library_user("ada")
        async with ada.libraries.library(ada.context) as library:
            kept = sorted(note.title for note in (await library.notes.list(notes, 0)).rows)
    assert kept == [f"Tide {number:03}" for number in range(len(kept))]
    assert len(kept) < notes
    assert bool(kept) is is_checkpointed
    check_files(copy)


async def test_power_failure_after_the_flush_loses_nothing(make_database: MakeDatabase, tmp_path: Path) -> None:
    database = make_database(flush_s=0.01)

    def count(path: Path) -> int:
        """Returns how many rows the file has without its log."""
        shutil.copyfile(path, tmp_path / "copy.db")
        with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
            rows: int = copy.execute("SELECT count(*) FROM words").fetchone()[0]
        return rows

    for number in range(1, 4):
        await database.write(
            "prompts", INDEX, lambda writer: writer.execute("INSERT INTO words (text) VALUES ('tide')")
        )
        async with asyncio.timeout(30):
            while count(database.path) < number:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(("durability", "level"), [("normal", 1), ("full", 2)])
async def test_commits_are_flushed_as_the_setting_says(
    make_database: MakeDatabase, durability: str, level: int
) -> None:
    database = make_database(durability=durability)

    written = await database.write("prompts", INDEX, lambda writer: writer.execute("PRAGMA synchronous").fetchone())

    assert written == (level,)
