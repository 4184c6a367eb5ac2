"""One process at a time reads a followed source."""

import asyncio
import gc
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from config.errors import SourceTimeout
from sources.following.state import SourceBusy, run_lease
from sources.storage.collections.items import Bookmarks
from tests.sources.storage.library_fixture import Clock, open_library_fixture


@pytest.fixture
async def bookmarks(tmp_path: Path) -> AsyncIterator[Bookmarks]:
    async with open_library_fixture(tmp_path, Clock()) as libraries, libraries.library("ada") as library:
        yield library.bookmarks


async def test_second_run_waits_for_the_first(bookmarks: Bookmarks) -> None:
    async with run_lease(bookmarks, "a"), run_lease(bookmarks, "b"):
        with pytest.raises(SourceBusy):
            async with run_lease(bookmarks, "a"):
                pass
    async with run_lease(bookmarks, "a"):
        pass


async def test_resolution_of_a_conflict_waits_for_a_run_that_ends(bookmarks: Bookmarks) -> None:
    has_begun = asyncio.Event()
    has_ended = asyncio.Event()

    async def run() -> None:
        async with run_lease(bookmarks, "a"):
            has_begun.set()
            await asyncio.sleep(0.3)
            has_ended.set()

    running = asyncio.create_task(run())
    await has_begun.wait()
    async with run_lease(bookmarks, "a", wait_s=60):
        assert has_ended.is_set()
    await running


async def test_cancelled_run_leaves_no_lease(bookmarks: Bookmarks) -> None:
    """Whenever it is cancelled: also while the lease is being taken."""

    async def run() -> None:
        async with run_lease(bookmarks, "a"):
            await asyncio.sleep(60)

    for steps in range(30):
        running = asyncio.create_task(run())
        for _ in range(steps):
            await asyncio.sleep(0)
        await asyncio.sleep(steps / 5_000)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        async with run_lease(bookmarks, "a"):
            pass


async def test_run_that_is_cancelled_while_it_ends_leaves_no_lease(bookmarks: Bookmarks) -> None:
    for steps in range(10):
        is_ending = asyncio.Event()

        async def run(is_ending: asyncio.Event = is_ending) -> None:
            async with run_lease(bookmarks, "a"):
                is_ending.set()

        running = asyncio.create_task(run())
        await is_ending.wait()
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        async with run_lease(bookmarks, "a"):
            pass


class LostBookmarks:
    """A library whose storage fails when the lease is released."""

    def __init__(self) -> None:
        self.is_releasing = asyncio.Event()
        self.fails = asyncio.Event()

    async def claim(self, _name: str, owner: str, _lease_s: float, *, instead_of: str = "") -> str:
        return owner

    async def release(self, _name: str, _owner: str) -> None:
        self.is_releasing.set()
        await self.fails.wait()
        raise SourceTimeout("bookmarks", 1)


async def test_run_that_is_cancelled_while_its_lease_cannot_be_released_ends_quietly() -> None:
    unnoticed: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unnoticed.append(context))
    bookmarks = LostBookmarks()

    async def run() -> None:
        async with run_lease(cast("Bookmarks", bookmarks), "a"):
            pass

    running = asyncio.create_task(run())
    await bookmarks.is_releasing.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    bookmarks.fails.set()
    await asyncio.sleep(0.01)
    gc.collect()

    assert unnoticed == []


async def test_lease_of_a_process_that_ended_is_taken_over(bookmarks: Bookmarks) -> None:
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()
    for owner, is_held in (
        (f"{socket.gethostname()} {process.pid} 1 killed", False),
        # Another process has its number by now.
        (f"{socket.gethostname()} {os.getppid()} 1 killed", False),
        (f"another-machine {process.pid} 1 unknown", True),
    ):
        assert await bookmarks.claim("a", owner, 60) == owner
        if is_held:
            with pytest.raises(SourceBusy):
                async with run_lease(bookmarks, "a"):
                    pass
        else:
            async with run_lease(bookmarks, "a"):
                pass
        await bookmarks.release("a", owner)


async def test_lease_that_is_not_extended_ends(bookmarks: Bookmarks) -> None:
    await bookmarks.claim("a", "another-machine 1 1 x", 0)
    async with run_lease(bookmarks, "a"):
        pass
