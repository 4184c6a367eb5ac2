"""A library on a disk that fills up, or that cannot be written: `python -m ... full|read_only root`.

Run as a process of its own, because what makes a disk fail holds for a whole process. Prints one line for each thing
that happened.
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
        told = 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
        while told < 10_000:
            try:
                await ada.notes.create(NoteDraft(title=f"Tea {told}", content=os.urandom(20_000).hex()))
            except FlorilegiumError as error:
                print(type(error).__name__, error.status, error.message)
                break
            told += 1
        await report(ada, told)
        await report(ben, 1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await ada.notes.create(NoteDraft(title="Tea at last"))
        await report(ada, told + 1)


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
    found = await library.notes.search(make_search("tea", limit=1))
    print("found all" if found.total == expected else f"found {found.total} of {expected}")


def give_up_ownership(file: Path) -> None:
    """From here on only root may write the file and its directory, and we are not root any more."""
    file.chmod(0o644)
    file.parent.chmod(0o755)
    shard, users, root = file.parents[1:4]
    for above in (shard, users, root, root / "control.db"):
        os.chown(above, NOBODY, NOBODY)
    os.setegid(NOBODY)
    os.seteuid(NOBODY)


def take_ownership(file: Path) -> None:
    os.seteuid(0)
    os.chown(file, NOBODY, NOBODY)
    os.chown(file.parent, NOBODY, NOBODY)
    os.seteuid(NOBODY)


if __name__ == "__main__":
    asyncio.run({"full": fill_the_disk, "read_only": make_read_only}[sys.argv[1]](Path(sys.argv[2])))
