"""The pool of open libraries: its limit, which library is closed first, and released descriptors."""

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from config.errors import StorageError, Unavailable
from config.paths import DataRoot
from sources.drafts import NoteDraft
from sources.storage.sqlite.collections import SqliteLibrary
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_sqlite
from tests.sources.storage.sqlite.words import TIMEOUT_S, GatedJob

OWNERS = [f"{a}{b}" for a in "abcd" for b in "abcd"]


def descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


async def write_and_search(libraries: LibraryFixture, owner: str) -> None:
    async with libraries.library(owner) as library:
        await library.notes.create(NoteDraft(title=f"Tea of {owner}"))
        assert [hit.title for hit in (await library.notes.search(make_search("tea"))).hits] == [f"Tea of {owner}"]


async def test_least_recently_used_library_is_closed_first(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, library_open_max=3) as libraries:
        for owner in OWNERS[:3]:
            await write_and_search(libraries, owner)
        descriptors_when_full = descriptors()
        async with libraries.library(OWNERS[0]) as library:
            await library.notes.list(1, 0)
        for owner in OWNERS[3:12]:
            await write_and_search(libraries, owner)
        assert descriptors() == descriptors_when_full
        owners_with_log = {path.parent.name[2:4] for path in tmp_path.glob("users/*/*/chacha.db-wal")}
        assert owners_with_log == set(OWNERS[9:12])


async def test_library_in_use_is_not_closed(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, library_open_max=2) as libraries, libraries.library("ada") as ada:
        note = await ada.notes.create(NoteDraft(title="Tea"))
        for owner in OWNERS[:5]:
            await write_and_search(libraries, owner)
        assert (await ada.notes.get(note.id)).title == "Tea"


async def test_call_is_rejected_when_every_open_library_is_in_use(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, library_open_max=1) as libraries:
        async with libraries.library("ada"):
            with pytest.raises(Unavailable, match="the libraries of 1 users are in use"):
                async with libraries.library("ben"):
                    pass
            async with libraries.library("ada") as library:
                await library.notes.list(1, 0)
        await write_and_search(libraries, "ben")


async def test_concurrent_calls_open_a_library_once(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries:
        await write_and_search(libraries, "ada")
        one = descriptors()
        await asyncio.gather(*(write_and_search_many(libraries, "ben") for _ in range(20)))
        two = descriptors()
        async with libraries.library("ben") as ben:
            assert (await ben.notes.list(0, 0)).total == 20
        await write_and_search(libraries, "cyd")
        assert descriptors() - two == two - one


async def write_and_search_many(libraries: LibraryFixture, owner: str) -> None:
    async with libraries.library(owner) as library:
        await library.notes.create(NoteDraft(title="Tea"))
        assert (await library.notes.search(make_search("tea"))).hits


async def test_number_of_open_libraries_never_exceeds_the_limit(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, library_open_max=4) as libraries:
        slots = asyncio.Semaphore(4)

        async def use_library(owner: str) -> None:
            async with slots:
                await write_and_search(libraries, owner)

        await asyncio.gather(*(use_library(owner) for owner in OWNERS[:12]))
        for owner in OWNERS[:12]:
            async with libraries.library(owner) as library:
                assert (await library.notes.list(0, 0)).total == 1


async def run_uninterruptible_job(libraries: LibraryFixture, owner: str, job: GatedJob) -> asyncio.Task[None]:
    """Starts a job that goes on after its library is no longer in use, so that the library cannot be closed."""
    async with libraries.library(owner) as library:
        await library.notes.create(NoteDraft(title="Tea"))
        assert isinstance(library, SqliteLibrary)
        task = asyncio.create_task(library._databases.chacha.read("notes", job))
        await asyncio.to_thread(job.started.wait, TIMEOUT_S)
    return task


async def test_library_that_is_slow_to_close_does_not_hold_up_other_users(tmp_path: Path) -> None:
    job = GatedJob()
    async with open_sqlite(tmp_path, library_open_max=8) as libraries:
        task = await run_uninterruptible_job(libraries, "ada", job)
        async with asyncio.timeout(TIMEOUT_S):
            for owner in OWNERS[:8]:
                await write_and_search(libraries, owner)
            state = libraries.engine.state()
            assert (state.open, state.open_max, state.closing) == (8, 8, 1)
            job.released.set()
            await asyncio.gather(task, return_exceptions=True)
            async with libraries.library("ada") as ada:
                assert (await ada.notes.list(0, 0)).total == 1


async def test_library_is_closed_after_the_call_that_needs_its_place(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, library_open_max=8) as libraries:
        for owner in OWNERS[:8]:
            await write_and_search(libraries, owner)
        async with libraries.library(OWNERS[8]) as library:
            await library.notes.list(1, 0)
            state = libraries.engine.state()
            assert (state.open, state.closing) == (9, 0)
        state = libraries.engine.state()
        assert (state.open, state.closing) == (8, 1)


async def test_no_more_libraries_than_the_limit_are_in_use(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, library_open_max=8) as libraries, AsyncExitStack() as leases:
        await write_and_search(libraries, "ada")
        for owner in OWNERS[:8]:
            await leases.enter_async_context(libraries.library(owner))
        with pytest.raises(Unavailable, match="the libraries of 8 users are in use"):
            await write_and_search(libraries, OWNERS[8])


async def test_libraries_are_closed_at_the_same_time(tmp_path: Path) -> None:
    jobs = [GatedJob() for _ in range(3)]
    async with open_sqlite(tmp_path, library_jobs_max=8) as libraries:
        tasks = [await run_uninterruptible_job(libraries, owner, job) for owner, job in zip(OWNERS, jobs, strict=False)]
        await write_and_search(libraries, "zz")
        closing = asyncio.create_task(libraries.engine.close())
        async with asyncio.timeout(TIMEOUT_S):
            while libraries.engine.state().closing != 3:
                await asyncio.sleep(0.01)
            assert not list(tmp_path.glob("users/zz/*/*-wal"))
            for job in jobs:
                job.released.set()
            await asyncio.gather(closing, *tasks, return_exceptions=True)
        assert not list(tmp_path.glob("users/*/*/*-wal"))


async def test_cancelled_call_leaves_no_library_half_closed(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, library_open_max=1) as libraries:
        await write_and_search(libraries, "ada")
        task = asyncio.create_task(write_and_search(libraries, "ben"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with libraries.library("ada") as ada:
            assert (await ada.notes.list(0, 0)).total == 1


async def test_closing_closes_every_file_and_rejects_later_calls(tmp_path: Path) -> None:
    before = descriptors()
    async with open_sqlite(tmp_path) as libraries:
        for owner in OWNERS[:4]:
            await write_and_search(libraries, owner)
        await libraries.engine.close()
        assert descriptors() == before
        assert not list(tmp_path.glob("users/*/*/*-wal"))
        with pytest.raises(Unavailable, match="stopping"):
            async with libraries.library("ada"):
                pass


async def test_context_with_foreign_paths_fails_an_assertion(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "here") as libraries, open_sqlite(tmp_path / "there") as other:
        with pytest.raises(AssertionError):
            async with libraries.engine.library(other.context("ada")):
                pass


async def test_symbolic_link_in_place_of_a_database_is_rejected(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        paths = DataRoot(tmp_path / "data").prepare_user(libraries.context("ada").user_id)
        outside = tmp_path / "outside.db"
        outside.touch()
        paths.chacha.symlink_to(outside)
        async with libraries.library("ada") as ada:
            with pytest.raises(StorageError):
                await ada.notes.list(1, 0)
        assert outside.stat().st_size == 0


FEW_DESCRIPTORS = """
import asyncio, resource, sys
from contextlib import AsyncExitStack
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (260, 260))
from tests.sources.storage.library_fixture import open_sqlite
from tests.sources.storage.sqlite.test_pool import OWNERS, write_and_search

async def main():
    async with open_sqlite(Path(sys.argv[1])) as libraries:
        for owner in OWNERS:
            await write_and_search(libraries, owner)
    print("served", len(OWNERS))

asyncio.run(main())
"""


@pytest.mark.slow("uses up file descriptors")
def test_low_descriptor_limit_is_respected(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FEW_DESCRIPTORS, str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert process.stdout == f"served {len(OWNERS)}\n", process.stderr


OUT_OF_DESCRIPTORS = """
import asyncio, resource, sys
from contextlib import AsyncExitStack
from pathlib import Path
from tests.sources.storage.library_fixture import open_sqlite
from tests.sources.storage.sqlite.test_pool import descriptors, write_and_search

async def main():
    async with open_sqlite(Path(sys.argv[1])) as libraries:
        await write_and_search(libraries, "ada")
        for spare in range(12):
            resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))  # counting them takes one too
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors() + spare, 4096))
            try:
                await write_and_search(libraries, f"b{chr(97 + spare)}")
            except Exception as error:
                print(type(error).__name__, error)
            async with libraries.library("ada") as ada:
                assert (await ada.notes.list(0, 0)).total == 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
        await write_and_search(libraries, "ben")
    print("recovered")

asyncio.run(main())
"""


@pytest.mark.slow("uses up file descriptors")
def test_process_without_descriptors_asks_to_try_again(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OUT_OF_DESCRIPTORS, str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    *errors, last = process.stdout.splitlines()
    assert last == "recovered", process.stderr
    assert errors
    assert set(errors) == {"Unavailable too many open files; try again in a moment"}
