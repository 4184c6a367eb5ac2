"""No user ever sees data of another through PgBouncer in transaction mode: 12 clients on 3 connections write, read and
search while the tables are migrated. Run with `make test-pgbouncer`."""

import asyncio
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from auth.context import READ
from auth.registry import Registry
from config.paths import DataRoot
from config.postgres.connection import AUTOMATIC, ConnectionOptions
from config.settings import Settings
from sources.drafts import NoteDraft
from sources.storage.contract import Libraries, Library
from sources.storage.job_queue import CallGroup, JobGroup, job_group
from sources.storage.postgres import PostgresLibraries, PostgresOptions
from sources.storage.postgres.schema import LibraryMigration, LibrarySchemas
from tests.servers.pgbouncer import run_pgbouncer
from tests.sources.storage.library_fixture import Clock, LibraryFixture, make_search, titles

CLIENTS = 12
CONNECTIONS = 3
OPERATIONS = int(os.environ.get("PGBOUNCER_OPERATIONS", "5000"))
USERS = tuple(f"{letter}da" for letter in "abcdefghijkl")


@pytest.fixture
async def pooled_url(database_url: str, tmp_path: Path) -> AsyncIterator[str]:
    async with run_pgbouncer(database_url, tmp_path, CONNECTIONS) as url:
        yield url


def open_engine(url: str, root: Path, added: int = 0) -> tuple[PostgresLibraries, LibraryFixture]:
    """Opens libraries as a release with so many further migrations does."""
    migrations = tuple(
        LibraryMigration((f"ALTER TABLE florilegium_library.notes ADD COLUMN added_{number} TEXT",), compatible_with=1)
        for number in range(added)
    )
    schemas = LibrarySchemas(migrations)
    options = PostgresOptions(url=url, connections=CLIENTS, lock_timeout_ms=10_000, statement_cache=AUTOMATIC)
    engine = PostgresLibraries(options, Settings(), schemas=schemas)
    return engine, LibraryFixture(DataRoot(root), cast("Libraries", engine), Clock())


class Counts:
    operations = 0
    searches = 0
    migrations = 0
    wrong = 0

    @property
    def is_done(self) -> bool:
        return self.operations >= OPERATIONS


async def work_as(name: str, library: Library, counts: Counts, choices: random.Random) -> None:
    """Writes, reads and searches notes whose titles begin with the user's name. All users have the same words."""
    while not counts.is_done:
        counts.operations += 1
        operation = choices.choice(("write", "read", "search"))
        if operation == "write":
            draft = NoteDraft(title=f"{name} {choices.random()}", content="A kettle for the galley.")
            seen = [(await library.notes.create(draft)).title]
        elif operation == "read":
            seen = [note.title for note in (await library.notes.list(20, 0)).rows]
        else:
            counts.searches += 1
            seen = await search_together(library, choices.choice(("kettle", '"the galley"', "kettl")))
            counts.wrong += not seen
        counts.wrong += sum(not title.startswith(f"{name} ") for title in seen)


async def search_together(library: Library, query: str) -> list[str]:
    """Searches notes and conversations as a search of all sources does: in one transaction."""
    with job_group(JobGroup(call=CallGroup(limit_s=30.0))):
        pages = await asyncio.gather(library.notes.search(make_search(query)), library.chats.search(make_search(query)))
    return [title for page in pages for title in titles(page)]


async def migrate_meanwhile(url: str, root: Path, counts: Counts) -> None:
    """Opens every library as a newer release does, again and again until all operations are done."""
    added = 0
    while not counts.is_done:
        added += 1
        engine, libraries = open_engine(url, root, added)
        try:
            for name in USERS:
                async with libraries.library(name) as library:
                    await library.notes.list(1, 0)
                counts.migrations += 1
        finally:
            await engine.close()


async def test_no_wrong_tenant_answers(pooled_url: str, tmp_path: Path) -> None:
    engine, libraries = open_engine(pooled_url, tmp_path)
    counts, choices = Counts(), random.Random(1)
    try:
        for name in USERS:
            async with libraries.library(name) as library:
                await library.notes.create(NoteDraft(title=f"{name} first", content="A kettle for the galley."))
        async with asyncio.TaskGroup() as tasks:
            for name in USERS:
                tasks.create_task(work(name, libraries, counts, choices))
            tasks.create_task(migrate_meanwhile(pooled_url, tmp_path, counts))
    finally:
        await engine.close()
    print(
        f"RESULT operations={counts.operations} searches={counts.searches} migrations={counts.migrations} "
        f"wrong_tenant={counts.wrong}"
    )

    assert counts.is_done
    assert min(counts.searches, counts.migrations) > 0
    assert counts.wrong == 0


async def work(name: str, libraries: LibraryFixture, counts: Counts, choices: random.Random) -> None:
    async with libraries.library(name) as library:
        await work_as(name, library, counts, choices)


async def test_keys_lead_to_their_users(pooled_url: str) -> None:
    options = ConnectionOptions(url=pooled_url)
    async with Registry.open(options) as one, Registry.open(options) as other:
        users = [await one.add_user(name) for name in USERS]
        keys = [await one.create_key(user.id, "laptop", [READ]) for user in users]
        found = await asyncio.gather(
            *((one, other)[n % 2].key_by_id(keys[n % len(keys)][0].id) for n in range(OPERATIONS // 10))
        )

    assert [key.user.name for key in found if key] == [USERS[n % len(USERS)] for n in range(len(found))]
