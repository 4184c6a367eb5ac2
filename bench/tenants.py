"""Copies of a small library for many users, and a process that searches some of them.

The process prints its measurements as one line of JSON. It is separate, so that its memory is that of a server which
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
from bench.local_runtime import LocalRuntime, open_local_runtime, user_id_for
from bench.processes import resident_bytes
from bench.prose import Prose
from config.paths import DataRoot
from server.serving import run
from sources.source import search_response

_DESCRIPTORS = Path("/proc/self/fd")


class FirstSearches(Struct, frozen=True):
    """Wall time of the first searches of users: in one source, and in all sources."""

    first_ms: tuple[float, ...]
    all_ms: tuple[float, ...]


class VisitResult(Struct, frozen=True):
    """Memory and file descriptors of a process before, during and after it searched the libraries of many users."""

    before_bytes: int
    after_bytes: int
    descriptors_before: int
    descriptors_peak: int
    descriptors_after: int


def tenant(number: int) -> str:
    return f"tenant {number}"


def copy_to_tenants(template: Path, root: Path, count: int) -> None:
    """Gives each tenant a copy of the template owner's files."""
    originals = DataRoot(template).paths_of(user_id_for(OWNER))
    data_root = DataRoot(root)
    data_root.prepare()
    # A directory with libraries and without a control database is refused.
    shutil.copyfile(DataRoot(template).control_path, data_root.control_path)
    for number in range(count):
        home = data_root.prepare_user(user_id_for(tenant(number))).chacha.parent
        for original in (originals.media, originals.chacha, originals.prompts):
            shutil.copyfile(original, home / original.name)


def evict_pages(paths: Sequence[Path]) -> None:
    """Makes the kernel drop the cached pages of these files, so that the next reader waits for the disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


async def measure_first_searches(root: Path, count: int) -> FirstSearches:
    """Measures the first search of each tenant, with alternating sources, and the time until all five responded."""
    first_ms, all_ms = [], []
    prose = Prose(SEED, stream="visits")
    async with open_local_runtime(root) as runtime:
        for number in range(count):
            context = runtime.context_for(tenant(number))
            evict_pages([context.db_paths.media, context.db_paths.chacha, context.db_paths.prompts])
            names = [*runtime.sources]
            first = number % len(names)
            started_at = time.perf_counter()
            await _search(runtime, context, prose, names[first : first + 1])
            first_ms.append((time.perf_counter() - started_at) * 1000)
            await _search(runtime, context, prose, names[:first] + names[first + 1 :])
            all_ms.append((time.perf_counter() - started_at) * 1000)
    return FirstSearches(tuple(first_ms), tuple(all_ms))


async def visit(root: Path, count: int, visits: int) -> VisitResult:
    """Searches all sources of randomly chosen tenants."""
    prose = Prose(SEED, stream="visits")
    chosen = random.Random(SEED).sample(range(count), visits)
    before, descriptors_before, peak = resident_bytes(os.getpid()), _descriptors(), 0
    async with open_local_runtime(root) as runtime:
        for number in chosen:
            await _search(runtime, runtime.context_for(tenant(number)), prose, [*runtime.sources])
            peak = max(peak, _descriptors())
        after = resident_bytes(os.getpid())
    return VisitResult(before, after, descriptors_before, peak, _descriptors())


async def _search(runtime: LocalRuntime, context: RequestContext, prose: Prose, names: Sequence[str]) -> None:
    async with runtime.libraries.library(context) as library:
        for name in names:
            source = runtime.sources[name]
            args = source.search_input(query=prose.words(3))
            search_response(source, await source.search(context, library, args))


def _descriptors() -> int:
    return len(list(_DESCRIPTORS.iterdir()))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.tenants", description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("tenants", type=int)
    parser.add_argument(
        "--visits", type=int, help="search this many random tenants; by default, time the first search of every tenant"
    )
    options = parser.parse_args(arguments)

    async def work() -> None:
        result: FirstSearches | VisitResult
        if options.visits:
            result = await visit(options.root, options.tenants, options.visits)
        else:
            result = await measure_first_searches(options.root, options.tenants)
        sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")

    run(work())


if __name__ == "__main__":
    main(sys.argv[1:])
