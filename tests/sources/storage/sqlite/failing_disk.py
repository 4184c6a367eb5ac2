"""Uses a library on a disk that fills up or is read-only: `python -m ... full|read_only root` prints what happens.

Runs as a process of its own, because the limits and ownership it sets apply to a whole process.
"""

import asyncio
import os
import resource
import signal
import sys
from pathlib import Path

from config.errors import FlorilegiumError
from sources.drafts import NoteDraft
from sources.storage.contract import Library
from tests.sources.storage.library_fixture import make_search, open_sqlite

NOBODY = 65534


async def fill_the_disk(root: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    async with open_sqlite(root) as libraries, libraries.library("ada") as ada, libraries.library("ben") as ben:
        await ada.notes.create(NoteDraft(title="Tea"))
        await ben.notes.create(NoteDraft(title="Tea of Ben"))
        written = 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
        while written < 10_000:
            try:
                await ada.notes.create(NoteDraft(title=f"Tea {written}", content=os.urandom(20_000).hex()))
            except FlorilegiumError as error:
                print(type(error).__name__, error.status, error.message)
                break
            written += 1
        await report(ada, written)
        await report(ben, 1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await ada.notes.create(NoteDraft(title="Tea at last"))
        await report(ada, written + 1)


async def open_on_a_full_disk(root: Path) -> None:
    """Libraries that are closed when the disk fills up can be read and backed up, but not written."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    async with open_sqlite(root) as libraries, libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(title="Tea"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    async with open_sqlite(root) as libraries, libraries.library("ada") as ada:
        await report(ada, 1)
        try:
            await ada.notes.create(NoteDraft(title="Tea of tomorrow"))
        except FlorilegiumError as error:
            print(type(error).__name__, error.status, error.message)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await ada.notes.create(NoteDraft(title="Tea at last"))
        await report(ada, 2)


async def make_read_only(root: Path) -> None:
    async with open_sqlite(root) as libraries, libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(title="Tea"))
        file = libraries.data_root.paths_of(libraries.context("ada").user_id).chacha
    give_up_ownership(file)
    async with open_sqlite(root) as libraries, libraries.library("ada") as ada:
        await report(ada, 1)
        try:
            await ada.notes.create(NoteDraft(title="Tea of others"))
        except FlorilegiumError as error:
            print(type(error).__name__, error.status, error.message)
        await report(ada, 1)
        take_ownership(file)
        await ada.notes.create(NoteDraft(title="Tea at last"))
        await report(ada, 2)


async def report(library: Library, expected: int) -> None:
    page = await library.notes.search(make_search("tea", limit=1))
    print("found all" if page.total == expected else f"found {page.total} of {expected}")


def give_up_ownership(file: Path) -> None:
    """Lets only root write the file and its directory, and makes this process run as another user."""
    file.chmod(0o644)
    file.parent.chmod(0o755)
    shard, users, root = file.parents[1:4]
    for path in (shard, users, root, root / "control.db"):
        os.chown(path, NOBODY, NOBODY)
    os.setegid(NOBODY)
    os.seteuid(NOBODY)


def take_ownership(file: Path) -> None:
    os.seteuid(0)
    os.chown(file, NOBODY, NOBODY)
    os.chown(file.parent, NOBODY, NOBODY)
    os.seteuid(NOBODY)


FAILURES = {"full": fill_the_disk, "full_before_opening": open_on_a_full_disk, "read_only": make_read_only}

if __name__ == "__main__":
    asyncio.run(FAILURES[sys.argv[1]](Path(sys.argv[2])))
