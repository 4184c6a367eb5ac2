"""The control database by itself: migrations, transactions, and what happens when the disk says no."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from auth.control_database import ControlDatabase, Job, Migration
from config.errors import Conflict, StorageError

FIRST: Migration = ("CREATE TABLE notes (text TEXT NOT NULL)", "INSERT INTO notes VALUES ('first')")
SECOND: Migration = ("INSERT INTO notes VALUES ('second')",)
BROKEN: Migration = ("INSERT INTO notes VALUES ('broken')", "CREATE TABLE notes (text TEXT)")


async def notes_after(path: Path, *migrations: Migration) -> list[str]:
    async with ControlDatabase.open(path, migrations, 5) as database:
        return await database.read(all_notes)


def all_notes(db: sqlite3.Connection) -> list[str]:
    return [text for (text,) in db.execute("SELECT text FROM notes")]


async def test_each_migration_runs_once_and_in_order(control_path: Path) -> None:
    assert await notes_after(control_path, FIRST) == ["first"]
    assert await notes_after(control_path, FIRST, SECOND) == ["first", "second"]
    assert await notes_after(control_path, FIRST, SECOND) == ["first", "second"]


async def test_processes_that_open_a_new_file_at_once_migrate_it_once(control_path: Path) -> None:
    opened = await asyncio.gather(*[notes_after(control_path, FIRST, SECOND) for _ in range(8)])

    assert opened == [["first", "second"]] * 8


async def test_a_migration_that_fails_leaves_the_schema_as_it_was(control_path: Path) -> None:
    await notes_after(control_path, FIRST)

    with pytest.raises(StorageError):
        await notes_after(control_path, FIRST, SECOND, BROKEN)

    assert await notes_after(control_path, FIRST) == ["first"]


async def test_a_newer_schema_is_refused_and_left_alone(control_path: Path) -> None:
    await notes_after(control_path, FIRST, SECOND)

    with pytest.raises(StorageError, match=r"schema 2, made by a newer version of Florilegium; .* up to 1: upgrade"):
        await notes_after(control_path, FIRST)

    assert await notes_after(control_path, FIRST, SECOND) == ["first", "second"]


async def test_a_write_that_raises_changes_nothing(control_path: Path) -> None:
    def write_and_regret(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO notes VALUES ('regretted')")
        raise Conflict("changed my mind")

    async with ControlDatabase.open(control_path, [FIRST], 5) as database:
        with pytest.raises(Conflict):
            await database.write(write_and_regret)
        await database.write(lambda db: db.execute("INSERT INTO notes VALUES ('kept')").rowcount)

        assert await database.read(all_notes) == ["first", "kept"]


async def test_a_full_disk_is_a_storage_error_with_nothing_half_written(control_path: Path) -> None:
    def fill(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO notes VALUES ('before')")
        db.execute("INSERT INTO notes VALUES (?)", ("x" * 100_000,))

    async with ControlDatabase.open(control_path, [FIRST], 5) as database:
        await database.read(limit_pages)
        with pytest.raises(StorageError, match="disk that holds the control database is full"):
            await database.write(fill)
        await database.write(lambda db: db.execute("INSERT INTO notes VALUES ('after')").rowcount)

        assert await database.read(all_notes) == ["first", "after"]


def limit_pages(db: sqlite3.Connection) -> None:
    """SQLite's own limit stands in for the disk's: it fails at the same place with the same code."""
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages}").fetchall()


async def test_a_damaged_file_is_a_storage_error(control_path: Path) -> None:
    await notes_after(control_path, FIRST)
    content = bytearray(control_path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    control_path.write_bytes(content)

    with pytest.raises(StorageError, match="damaged; restore it from a backup"):
        await notes_after(control_path, FIRST)


async def test_a_cancelled_write_leaves_no_open_transaction(control_path: Path) -> None:
    async with ControlDatabase.open(control_path, [FIRST], 5) as database:
        tasks = [asyncio.create_task(database.write(insert(number))) for number in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        with closing(sqlite3.connect(control_path, timeout=0, isolation_level=None)) as rival:
            rival.execute("BEGIN EXCLUSIVE")
            kept = all_notes(rival)
    assert {f"note {number}" for number in range(1, 20, 2)} <= set(kept)


def insert(number: int) -> Job[int]:
    return lambda db: db.execute("INSERT INTO notes VALUES (?)", (f"note {number}",)).rowcount
