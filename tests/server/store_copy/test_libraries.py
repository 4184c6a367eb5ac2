"""Copying a library to PostgreSQL and back keeps every row, also those of deleted items."""

import asyncio
import os
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from auth.registry import Registry
from config.paths import DATABASE_KINDS, DataRoot, UserId, new_user_id
from config.postgres.connection import ConnectionOptions
from config.settings import Settings
from server.store_copy.libraries import FILE_TABLES, copy_to_postgres, copy_to_sqlite, mark_of_files, mark_of_schema
from sources.demo import fill
from sources.drafts import NoteDraft, PromptDraft
from sources.storage.sqlite.connection.pool import sqlite_options
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_sqlite, titles

DERIVED = ("sqlite_", "vector", "passage")


def rows_of(data_root: DataRoot, user_id: UserId) -> dict[str, list[Any]]:
    rows = {}
    for kind in DATABASE_KINDS:
        path: Path = getattr(data_root.paths_of(user_id), kind)
        with closing(sqlite3.connect(path)) as db:
            for table in (*FILE_TABLES[kind], "idempotency"):
                names = sorted(name for _, name, *_ in db.execute(f"PRAGMA table_info({table})"))
                columns = ", ".join(f'"{name}"' for name in names)
                sql = f"SELECT {columns} FROM {table}" if names else "SELECT 1 WHERE FALSE"
                rows[f"{kind}.{table}"] = sorted(db.execute(sql).fetchall(), key=repr)
    return rows


@pytest.fixture
async def libraries(tmp_path: Path) -> AsyncIterator[LibraryFixture]:
    """Ada has the demo library, with deleted and purged items and idempotency keys. Ben has one note."""
    async with open_sqlite(tmp_path / "data") as libraries:
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            await fill(ada)
            kept = await ada.notes.create(NoteDraft(title="Kettle", tags=["Höme"]), idempotency_key="first")
            await ada.prompts.create(PromptDraft(name="Kettle"), idempotency_key="second")
            await ada.notes.delete(kept.uuid)
            last = await ada.prompts.create(PromptDraft(name="Last"))
            await ada.prompts.purge(last.id)
            await ben.notes.create(NoteDraft(title="Kettle of Ben"))
        yield libraries


async def test_round_trip_is_equal(libraries: LibraryFixture, tmp_path: Path, database_url: str) -> None:
    postgres, back = ConnectionOptions(url=database_url), DataRoot(tmp_path / "back")
    back.prepare()
    async with Registry.open(postgres):
        pass
    users = [libraries.context(name).user_id for name in ("ada", "ben")]
    for user_id in users:
        there = await asyncio.to_thread(copy_to_postgres, libraries.data_root, user_id, postgres)
        again = await asyncio.to_thread(copy_to_postgres, libraries.data_root, user_id, postgres)
        returned = await asyncio.to_thread(copy_to_sqlite, user_id, postgres, back, sqlite_options(Settings()))
        assert there.tables == again.tables == returned.tables

    assert [rows_of(back, user_id) for user_id in users] == [rows_of(libraries.data_root, user_id) for user_id in users]
    async with (
        open_sqlite(tmp_path / "back") as restored,
        restored.library("ada") as ada,
        restored.library("ben") as ben,
    ):
        prompt = await ada.prompts.create(PromptDraft(name="Last"))
        assert (await ada.prompts.create(PromptDraft(name="Kettle"), idempotency_key="second")).id == prompt.id - 2
        assert titles(await ben.notes.search(make_search("kettle"))) == ["Kettle of Ben"]


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from config.errors import DiskFull
from config.paths import DataRoot
from config.postgres.connection import ConnectionOptions
from config.settings import Settings
from server.store_copy.libraries import copy_to_sqlite
from sources.storage.sqlite.connection.pool import sqlite_options

target = DataRoot(Path(sys.argv[3]))
target.prepare()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
try:
    copy_to_sqlite(sys.argv[1], ConnectionOptions(url=sys.argv[2]), target, sqlite_options(Settings()))
except DiskFull as error:
    print(error.message)
"""


async def test_copy_to_a_full_disk_is_refused(libraries: LibraryFixture, tmp_path: Path, database_url: str) -> None:
    postgres, ada = ConnectionOptions(url=database_url), libraries.context("ada").user_id
    async with Registry.open(postgres):
        pass
    await asyncio.to_thread(copy_to_postgres, libraries.data_root, ada, postgres)
    command = [sys.executable, "-c", FULL_DISK, ada, database_url, str(tmp_path / "back")]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()

    assert output.decode() == "the disk is full; nothing was written\n"


async def test_all_tables_of_the_files_are_known(libraries: LibraryFixture) -> None:
    """Everything else is an index, its queue, or a vector."""
    paths = libraries.data_root.paths_of(libraries.context("ada").user_id)
    unknown = set()
    for kind in DATABASE_KINDS:
        with closing(sqlite3.connect(getattr(paths, kind))) as db:
            names = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
            indexes = {name for name in names if "_index" in name or name.startswith(DERIVED)}
            unknown |= names - indexes - {*FILE_TABLES[kind], "idempotency", "state"}

    assert unknown == set()


async def test_marks_change_with_every_write(libraries: LibraryFixture, database_url: str) -> None:
    postgres, user_id = ConnectionOptions(url=database_url), libraries.context("ben").user_id
    async with Registry.open(postgres):
        pass
    assert await asyncio.to_thread(mark_of_schema, user_id, postgres) == ""

    marks = set()
    for _ in range(2):
        await asyncio.to_thread(copy_to_postgres, libraries.data_root, user_id, postgres)
        marks.add(await asyncio.to_thread(mark_of_schema, user_id, postgres))

    assert len(marks) == 2


def test_file_that_was_written_just_now_has_no_mark(tmp_path: Path) -> None:
    data_root, user_id = DataRoot(tmp_path), new_user_id()
    data_root.prepare()
    path = data_root.ensure_database(user_id, "media")
    times = {}
    for age_s in (60, 30, 0):
        written_at = time.time() - age_s
        os.utime(path, (written_at, written_at))
        times[age_s] = mark_of_files(data_root, user_id)

    assert times[0] == ""
    assert times[60] != times[30] != ""
