"""Files are read in a process of their own: one that dies or hangs costs its file, and nothing else."""

import asyncio
import io
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path, PosixPath
from typing import Any, Self

import msgspec
import pytest

from config.errors import InvalidParams
from server.import_board import ImportJob
from server.import_jobs import ImportJobs
from sources.importers.engine.limits import import_limits
from sources.importers.engine.reader_process import ReaderProcess, require_inside
from sources.importers.registry import all_importers
from tests.build_settings import build_settings
from tests.cases import each_case
from tests.sources.storage.library_fixture import LibraryFixture, open_library_fixture

WAIT_MAX_S = 60


@asynccontextmanager
async def open_jobs(folder: Path, **changes: Any) -> AsyncIterator[tuple[LibraryFixture, ImportJobs]]:
    async with open_library_fixture(folder) as libraries:
        settings = build_settings(import_batch_items=1, **changes)
        async with ImportJobs(settings, libraries.data_root, libraries.engine, all_importers).open() as jobs:
            yield libraries, jobs


NOTE = b"# Ship\n\nThe galleon sailed."


async def start(
    jobs: ImportJobs, libraries: LibraryFixture, content: bytes, name: str = "ada", file: str = "ship.md"
) -> ImportJob:
    return await jobs.start(libraries.context(name), io.BytesIO(content), file, None, is_dry_run=False)


async def wait_until_ended(jobs: ImportJobs, libraries: LibraryFixture, job: ImportJob, name: str = "ada") -> ImportJob:
    async with asyncio.timeout(WAIT_MAX_S):
        return [state async for state in jobs.watch(libraries.context(name), job.id, interval_s=0.01)][-1]


async def reader_pid() -> int:
    """Waits for a reader process of this test."""
    async with asyncio.timeout(WAIT_MAX_S):
        while True:
            for status in Path("/proc").glob("[0-9]*/stat"):
                try:
                    parent = int(status.read_text().rpartition(")")[2].split()[1])
                    command = (status.parent / "cmdline").read_bytes()
                except (OSError, ValueError):
                    continue
                if parent == os.getpid() and b"sources.importers.reader" in command:
                    return int(status.parent.name)
            await asyncio.sleep(0.005)


@pytest.mark.slow("kills processes")
@each_case(
    ("number", "deadline_s", "problem"),
    [
        (signal.SIGKILL, WAIT_MAX_S, "the process that reads it ended unexpectedly"),
        (signal.SIGSTOP, 1, "reading made no progress for 1 s"),
    ],
)
async def test_process_that_dies_or_hangs_fails_only_its_own_import(
    tmp_path: Path, number: signal.Signals, deadline_s: int, problem: str
) -> None:
    async with open_jobs(tmp_path / "data", import_reader_deadline_s=deadline_s) as (libraries, jobs):
        job = await start(jobs, libraries, NOTE)
        os.kill(await reader_pid(), number)
        failed = await wait_until_ended(jobs, libraries, job)

        assert failed.state == "failed"
        assert problem in failed.problem

    async with open_jobs(tmp_path / "data") as (libraries, jobs):
        again = await wait_until_ended(jobs, libraries, await start(jobs, libraries, NOTE, "ben"), "ben")
        assert (again.state, again.items) == ("done", 1)


async def test_process_has_no_environment(tmp_path: Path) -> None:
    async with open_jobs(tmp_path / "data") as (libraries, jobs):
        job = await start(jobs, libraries, NOTE)
        environment = Path(f"/proc/{await reader_pid()}/environ").read_bytes().split(b"\0")
        assert (await wait_until_ended(jobs, libraries, job)).state == "done"

    assert {entry.partition(b"=")[0] for entry in environment} <= {b"", b"PYTHONPATH", b"PYTHONDONTWRITEBYTECODE"}


@pytest.mark.slow("fills the memory of a process")
async def test_memory_of_the_process_is_limited(tmp_path: Path) -> None:
    """A file within the limits on sizes, whose text needs more memory than the process may use."""
    text = b"# Ship\n\n" + "\U0001f6a2 ".encode() * 20_000_000
    limits = {"import_reader_memory_mib": 256, "item_max_chars": 100_000_000}
    async with open_jobs(tmp_path / "data", **limits) as (libraries, jobs):
        failed = await wait_until_ended(jobs, libraries, await start(jobs, libraries, text))
        assert (failed.state, failed.problem) == ("failed", "reading took more than 256 MiB of memory")

    async with open_jobs(tmp_path / "data") as (libraries, jobs):
        again = await wait_until_ended(jobs, libraries, await start(jobs, libraries, NOTE, "ben"), "ben")
        assert again.state == "done"


async def test_cancelled_import_ends_its_process(tmp_path: Path) -> None:
    async with open_jobs(tmp_path / "data") as (libraries, jobs):
        job = await start(jobs, libraries, NOTE)
        pid = await reader_pid()
        os.kill(pid, signal.SIGSTOP)
        stopped = await jobs.cancel(libraries.context("ada"), job.id)
        assert stopped.state == "cancelled"
        assert not Path(f"/proc/{pid}").exists()


@pytest.mark.slow("starts a process")
@pytest.mark.slow("starts processes")
async def test_closing_waits_for_the_thread_that_reads_from_the_process(tmp_path: Path) -> None:
    for _ in range(3):
        process = ReaderProcess(import_limits(build_settings()), [tmp_path])
        finding = asyncio.create_task(asyncio.to_thread(process.find_files, [tmp_path], None))
        os.kill(await reader_pid(), signal.SIGSTOP)
        await asyncio.sleep(0.1)  # the thread waits for the process

        await asyncio.to_thread(process.close)

        with pytest.raises(InvalidParams, match=r"ended unexpectedly|was stopped"):
            await finding


async def test_numbers_of_any_size_are_read(tmp_path: Path) -> None:
    """MessagePack, in which the process sends items, has integers of 64 bits only."""
    numbers = [2**64, -(2**70), 10**40]
    data = {"name": "Ana", "description": "sails", "extensions": {"numbers": numbers}}
    card = msgspec.json.encode({"spec": "chara_card_v2", "spec_version": "2.0", "data": data})
    async with open_jobs(tmp_path / "data") as (libraries, jobs):
        job = await wait_until_ended(jobs, libraries, await start(jobs, libraries, card, file="ana.json"))
        async with libraries.library("ada") as ada:
            [character] = (await ada.characters.list(10, 0)).rows
    assert (job.state, job.problem) == ("done", "")
    assert character.card["extensions"]["numbers"] == numbers


class _ReplacedPath(PosixPath):
    """A link that is replaced between the two steps of looking where it leads."""

    def resolve(self, strict: bool = False) -> Self:
        raise FileNotFoundError(2, "No such file or directory", str(self))


def test_folder_that_is_replaced_while_it_is_resolved_is_a_problem_of_the_import() -> None:
    with pytest.raises(InvalidParams, match="a folder was replaced while it was read"):
        require_inside([], [_ReplacedPath("/vault")])
