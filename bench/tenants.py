"""Many users' libraries: copies of one small library under as many users, and a process that visits some of them.

The process says what it saw as one line of JSON. It is one of its own, so that its memory is that of a server which
did nothing else.
"""

import argparse
import os
import random
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from auth.context import RequestContext
from bench.library import OWNER, SEED
from bench.processes import resident_bytes
from bench.prose import Prose
from bench.reading_desk import Desk, open_desk, user_id_of
from config.paths import DataRoot
from server.serving import run

_DESCRIPTORS = Path("/proc/self/fd")


class Opened(Struct, frozen=True):
    """Wall time of users' first searches: in one source, and then in the others too."""

    first_ms: tuple[float, ...]
    all_ms: tuple[float, ...]


class Visited(Struct, frozen=True):
    """A process that visited many users: before, while and after."""

    before_bytes: int
    after_bytes: int
    descriptors_before: int
    descriptors_most: int
    descriptors_after: int


def tenant(number: int) -> str:
    return f"tenant {number}"


def copy_to_tenants(template: Path, root: Path, count: int) -> None:
    """Give each tenant a copy of the template owner's files, where that tenant's belong."""
    originals = DataRoot(template).paths_of(user_id_of(OWNER))
    data_root = DataRoot(root)
    data_root.prepare()
    for number in range(count):
        home = data_root.prepare_user(user_id_of(tenant(number))).chacha.parent
        for original in (originals.media, originals.chacha, originals.prompts):
            shutil.copyfile(original, home / original.name)


def forget_pages(paths: Sequence[Path]) -> None:
    """Let the kernel drop what it holds of these files, so that the next reader waits for the disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


async def open_each(root: Path, count: int) -> Opened:
    """The first search of each tenant, in each source in turn, and the time until all five have answered."""
    first_ms, all_ms = [], []
    prose = Prose(SEED, stream="visits")
    async with open_desk(root) as desk:
        for number in range(count):
            reader = desk.reader(tenant(number))
            forget_pages([reader.db_paths.media, reader.db_paths.chacha, reader.db_paths.prompts])
            names = [*desk.sources]
            turn = number % len(names)
            began = time.perf_counter()
            await _search(desk, reader, prose, names[turn : turn + 1])
            first_ms.append((time.perf_counter() - began) * 1000)
            await _search(desk, reader, prose, names[:turn] + names[turn + 1 :])
            all_ms.append((time.perf_counter() - began) * 1000)
    return Opened(tuple(first_ms), tuple(all_ms))


async def visit(root: Path, count: int, visits: int) -> Visited:
    """Search all sources of some tenants, chosen at random from all."""
    prose = Prose(SEED, stream="visits")
    chosen = random.Random(SEED).sample(range(count), visits)
    before, descriptors_before, most = resident_bytes(os.getpid()), _descriptors(), 0
    async with open_desk(root) as desk:
        for number in chosen:
            await _search(desk, desk.reader(tenant(number)), prose, [*desk.sources])
            most = max(most, _descriptors())
        after = resident_bytes(os.getpid())
    return Visited(before, after, descriptors_before, most, _descriptors())


async def _search(desk: Desk, reader: RequestContext, prose: Prose, names: Sequence[str]) -> None:
    async with desk.libraries.library(reader) as library:
        for name in names:
            source = desk.sources[name]
            (await source.search(reader, library, source.search_input(query=prose.words(3)))).response()


def _descriptors() -> int:
    return len(list(_DESCRIPTORS.iterdir()))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.tenants", description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("tenants", type=int)
    parser.add_argument("--visits", type=int, help="visit so many; without it, every tenant is opened once and timed")
    given = parser.parse_args(arguments)

    async def work() -> None:
        seen: Opened | Visited
        if given.visits:
            seen = await visit(given.root, given.tenants, given.visits)
        else:
            seen = await open_each(given.root, given.tenants)
        sys.stdout.buffer.write(msgspec.json.encode(seen) + b"\n")

    run(work())


if __name__ == "__main__":
    main(sys.argv[1:])
