"""The control database: migrations, transactions and disk errors."""

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from auth.control_database import ControlSchema, Migration
from auth.library_files import record_file, recorded_files
from auth.registry import Registry
from auth.sqlite_control import CONTROL_LOCK, Operation, SqliteControlDatabase
from config.errors import Conflict, StorageError
from config.paths import DATABASE_KINDS, DatabaseKind, UserId

FIRST: Migration = ("CREATE TABLE notes (text TEXT NOT NULL)", "INSERT INTO notes VALUES ('first')")
SECOND: Migration = ("INSERT INTO notes VALUES ('second')",)
BROKEN: Migration = ("INSERT INTO notes VALUES ('broken')", "CREATE TABLE notes (text TEXT)")


async def notes_after(path: Path, *migrations: Migration) -> list[str]:
    async with SqliteControlDatabase.open(path, ControlSchema(1, migrations[0], migrations[1:]), 5) as database:
        return await database.read(all_notes)


def all_notes(db: sqlite3.Connection) -> list[str]:
    return [text for (text,) in db.execute("SELECT text FROM notes")]


async def test_migrations_run_once_and_in_order(control_path: Path) -> None:
    assert await notes_after(control_path, FIRST) == ["first"]
    assert await notes_after(control_path, FIRST, SECOND) == ["first", "second"]
    assert await notes_after(control_path, FIRST, SECOND) == ["first", "second"]


async def test_concurrent_opens_of_a_new_file_migrate_it_once(control_path: Path) -> None:
    results = await asyncio.gather(*[notes_after(control_path, FIRST, SECOND) for _ in range(8)])

    assert results == [["first", "second"]] * 8


async def test_failed_migration_leaves_the_schema_unchanged(control_path: Path) -> None:
    await notes_after(control_path, FIRST)

    with pytest.raises(StorageError):
        await notes_after(control_path, FIRST, SECOND, BROKEN)

    assert await notes_after(control_path, FIRST) == ["first"]


async def test_newer_schema_is_rejected_and_unchanged(control_path: Path) -> None:
    await notes_after(control_path, FIRST, SECOND)

    with pytest.raises(
        StorageError, match=r"schema version 2, written by a newer Florilegium; .* up to version 1: upgrade"
    ):
        await notes_after(control_path, FIRST)

    assert await notes_after(control_path, FIRST, SECOND) == ["first", "second"]


async def test_write_that_raises_changes_nothing(control_path: Path) -> None:
    def write_and_fail(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO notes VALUES ('rolled back')")
        raise Conflict("failed")

    async with SqliteControlDatabase.open(control_path, ControlSchema(1, FIRST), 5) as database:
        with pytest.raises(Conflict):
            await database.write(write_and_fail)
        await database.write(lambda db: db.execute("INSERT INTO notes VALUES ('kept')").rowcount)

        assert await database.read(all_notes) == ["first", "kept"]


async def test_full_disk_raises_storage_error_and_rolls_back(control_path: Path) -> None:
    def fill(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO notes VALUES ('before')")
        db.execute("INSERT INTO notes VALUES (?)", ("x" * 100_000,))

    async with SqliteControlDatabase.open(control_path, ControlSchema(1, FIRST), 5) as database:
        await database.read(limit_pages)
        with pytest.raises(StorageError, match="disk of the control database is full"):
            await database.write(fill)
        await database.write(lambda db: db.execute("INSERT INTO notes VALUES ('after')").rowcount)

        assert await database.read(all_notes) == ["first", "after"]


def limit_pages(db: sqlite3.Connection) -> None:
    """Simulates a full disk with SQLite's page limit, which fails at the same place with the same code."""
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages}").fetchall()


async def test_damaged_file_raises_storage_error(control_path: Path) -> None:
    await notes_after(control_path, FIRST)
    content = bytearray(control_path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    control_path.write_bytes(content)

    with pytest.raises(StorageError, match="damaged; restore it from a backup"):
        await notes_after(control_path, FIRST)


async def test_cancelled_write_leaves_no_open_transaction(control_path: Path) -> None:
    async with SqliteControlDatabase.open(control_path, ControlSchema(1, FIRST), 5) as database:
        tasks = [asyncio.create_task(database.write(insert(number))) for number in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        with closing(sqlite3.connect(control_path, timeout=0, isolation_level=None)) as other_connection:
            other_connection.execute("BEGIN EXCLUSIVE")
            committed = all_notes(other_connection)
    assert {f"note {number}" for number in range(1, 20, 2)} <= set(committed)


def insert(number: int) -> Operation[int]:
    return lambda db: db.execute("INSERT INTO notes VALUES (?)", (f"note {number}",)).rowcount


# -- the files of users ------------------------------------------------------------------------------------------------


async def test_files_of_many_new_users_are_recorded_in_few_transactions(control_path: Path) -> None:
    """Each transaction flushes the disk several times."""

    def transactions() -> int:
        """SQLite's change counter."""
        return int.from_bytes(control_path.read_bytes()[24:28])

    async with Registry.open(control_path) as registry:
        users = [(await registry.add_user(f"user{number}")).id for number in range(10)]
        before = transactions()
        files: list[tuple[UserId, DatabaseKind]] = [(user, kind) for user in users for kind in DATABASE_KINDS]
        threads = ThreadPoolExecutor(len(files))
        CONTROL_LOCK.acquire()  # as a slow transaction of another thread does
        recording = [
            asyncio.get_running_loop().run_in_executor(threads, record_file, control_path, *file) for file in files
        ]
        reading = asyncio.create_task(registry.user_by_name("user1"))
        CONTROL_LOCK.release()
        await asyncio.gather(*recording)
        assert (await reading) is not None

    assert all(recorded_files(control_path, user) == set(DATABASE_KINDS) for user in users)
    # The first thread records only its own file, and those that start late need another transaction.
    assert transactions() - before < len(files) / 2


async def test_failure_to_record_a_file_reaches_every_caller(control_path: Path) -> None:
    control_path.write_bytes(b"not a database" * 100)
    recording = [asyncio.to_thread(record_file, control_path, UserId(f"u_{number}"), "media") for number in range(4)]
    outcomes = await asyncio.gather(*recording, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StorageError] * 4
