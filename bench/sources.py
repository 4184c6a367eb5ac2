"""`make bench-sources`: what a search costs beyond the one statement that it needs at least, what the first search of
a user costs, and what many users cost.

Our search and the plain statement (`bench.plain_search`) match the same expression in the same file, query by query in
turn, and every query is asked once, so that neither lives off what it remembers. Processor time of the whole process
is compared, because it says the same on a busy machine; only the first searches are timed by the clock.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from auth.context import RequestContext
from bench.library import OWNER, REFERENCE, SEED, Sizes, build_library, forget_stale_libraries, kept_library
from bench.plain_search import STATEMENTS, PlainSearch, open_plain
from bench.processes import Cores, child, python
from bench.prose import COMMONEST, Prose
from bench.reading_desk import Desk, open_desk
from bench.tenants import Opened, Visited, copy_to_tenants
from server.serving import run
from sources.source import Source
from sources.storage.contract import Library

LIMIT = 20
WARMUP_QUERIES = 5
MEGABYTE = 1_000_000
# In these the plain statement takes long enough to be a measure; characters and prompts are few.
COMPARED = ("notes", "media", "chats")
KINDS: Mapping[str, Callable[[Prose], str]] = {
    "one word": lambda prose: prose.words(1),
    "three words": lambda prose: prose.words(3),
    "question": Prose.question,
    "commonest word": lambda prose: COMMONEST,
}
ORDINARY = tuple(KINDS)[:3]


class Scale(Struct, frozen=True):
    """A library, and how many queries of each kind it is asked."""

    title: str
    sizes: Sizes
    queries: int


class Effort(Struct, frozen=True):
    """How much is measured."""

    scales: tuple[Scale, ...]
    opened_sizes: Sizes
    opened_users: int
    visited_sizes: Sizes
    tenants: int
    visits: int
    keeps_libraries: bool


FULL = Effort(
    scales=(Scale("x1", REFERENCE, 200), Scale("x10", REFERENCE.times(10), 100)),
    opened_sizes=REFERENCE.times(0.1),
    opened_users=200,
    visited_sizes=REFERENCE.times(0.002),
    tenants=10_000,
    visits=1_000,
    keeps_libraries=True,
)
QUICK = Effort(
    scales=(Scale("x1", REFERENCE.times(0.01), 5), Scale("x10", REFERENCE.times(0.02), 5)),
    opened_sizes=REFERENCE.times(0.001),
    opened_users=5,
    visited_sizes=REFERENCE.times(0.001),
    tenants=20,
    visits=10,
    keeps_libraries=False,
)


class Asked(Struct, frozen=True):
    """One query: CPU milliseconds of the plain statement and of our search."""

    plain_ms: float
    ours_ms: float


class Row(Struct, frozen=True):
    """One kind of query put to one source of one library."""

    scale: str
    source: str
    kind: str
    asked: tuple[Asked, ...]

    @property
    def plain_ms(self) -> float:
        return statistics.median(one.plain_ms for one in self.asked)

    @property
    def ours_ms(self) -> float:
        return statistics.median(one.ours_ms for one in self.asked)

    @property
    def ratio(self) -> float:
        return statistics.median(one.ours_ms / one.plain_ms for one in self.asked)

    @property
    def added_ms(self) -> float:
        return statistics.median(one.ours_ms - one.plain_ms for one in self.asked)

    @property
    def slowest_ms(self) -> float:
        return percentile([one.ours_ms for one in self.asked], 99)


class Outcome(Struct, frozen=True):
    rows: tuple[Row, ...]
    opened: Opened
    visited: Visited

    def usual_ms(self, row: Row) -> float:
        """Half of the ordinary queries to the same source of the same library take less."""
        alike = [one for one in self.rows if (one.scale, one.source) == (row.scale, row.source)]
        return statistics.median(asked.ours_ms for one in alike if one.kind in ORDINARY for asked in one.asked)

    def as_line(self) -> str:
        ordinary = [row for row in self.rows if row.kind in ORDINARY]
        ratio = max(row.ratio for row in ordinary if row.source in COMPARED)
        return (
            f"RESULT worst_ratio={ratio:.2f} worst_added_ms={max(row.added_ms for row in ordinary):.2f} "
            f"cold_p95_ms={percentile(self.opened.first_ms, 95):.1f} "
            f"tenants_rss_mb={self.visited.after_bytes / MEGABYTE:.1f}"
        )


def percentile(values: Sequence[float], percent: int) -> float:
    """The least value that so many percent do not exceed."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]


# -- search against the plain statement --------------------------------------------------------------------------------


async def measure_searches(root: Path, scale: Scale) -> list[Row]:
    async with open_desk(root) as desk:
        reader = desk.reader(OWNER)
        async with desk.libraries.library(reader) as library, open_plain(reader.db_paths, desk.settings) as plain:
            pair = _Pair(desk, reader, library, plain)
            return [await pair.measure(scale, source, kind) for source in STATEMENTS for kind in KINDS]


class _Pair:
    """Our search and the plain one, side by side."""

    def __init__(self, desk: Desk, reader: RequestContext, library: Library, plain: PlainSearch) -> None:
        self._desk = desk
        self._reader = reader
        self._library = library
        self._plain = plain

    async def measure(self, scale: Scale, source: str, kind: str) -> Row:
        prose = Prose(SEED, stream=f"{source} {kind}")
        for _ in range(WARMUP_QUERIES):
            await self._ask(source, KINDS[kind](prose), is_ours_first=True)
        asked = [
            await self._ask(source, KINDS[kind](prose), is_ours_first=bool(turn % 2)) for turn in range(scale.queries)
        ]
        return Row(scale.title, source, kind, tuple(asked))

    async def _ask(self, name: str, query: str, *, is_ours_first: bool) -> Asked:
        source = self._desk.sources[name]
        match = self._plain.match(name, query)
        if is_ours_first:
            ours = await cpu_ms(lambda: self._ours(source, query))
            return Asked(await cpu_ms(lambda: self._plain.rows(name, match, LIMIT)), ours)
        return Asked(
            await cpu_ms(lambda: self._plain.rows(name, match, LIMIT)), await cpu_ms(lambda: self._ours(source, query))
        )

    async def _ours(self, source: Source, query: str) -> object:
        return (
            await source.search(self._reader, self._library, source.search_input(query=query, limit=LIMIT))
        ).response()


async def cpu_ms(work: Callable[[], Awaitable[object]]) -> float:
    """Of all threads: SQLite works on its own."""
    began = time.process_time_ns()
    await work()
    return (time.process_time_ns() - began) / 1_000_000


# -- many users --------------------------------------------------------------------------------------------------------


async def measure_tenants(effort: Effort, scratch: Path) -> tuple[Opened, Visited]:
    opened = scratch / "opened"
    await _spread(effort.opened_sizes, opened, effort.opened_users)
    visited = scratch / "visited"
    await _spread(effort.visited_sizes, visited, effort.tenants)
    return (
        msgspec.json.decode(_hear(scratch, str(opened), str(effort.opened_users)), type=Opened),
        msgspec.json.decode(
            _hear(scratch, str(visited), str(effort.tenants), "--visits", str(effort.visits)), type=Visited
        ),
    )


async def _spread(sizes: Sizes, root: Path, count: int) -> None:
    template = root.with_name(f"{root.name}-template")
    await build_library(template, sizes)
    copy_to_tenants(template, root, count)


def _hear(scratch: Path, *arguments: str) -> bytes:
    with child(python("bench.tenants", *arguments), Cores.choose().others, scratch / "tenants.log") as tenants:
        return tenants.hear()


# -- the run -----------------------------------------------------------------------------------------------------------


async def measure(effort: Effort, scratch: Path, shelf: Path) -> Outcome:
    rows: list[Row] = []
    kept = [await kept_library(scale.sizes, shelf) for scale in effort.scales]
    forget_stale_libraries(kept, shelf, time.time())
    for scale, root in zip(effort.scales, kept, strict=True):
        rows += await measure_searches(root, scale)
    opened, visited = await measure_tenants(effort, scratch)
    return Outcome(tuple(rows), opened, visited)


def report(effort: Effort, outcome: Outcome) -> Iterator[str]:
    yield (
        f"{'CPU ms per search, limit ' + str(LIMIT):<38} {'plain':>8} {'ours':>8} {'ratio':>6} {'added':>7} {'p99':>8} "
        f"{'p99/p50':>8}"
    )
    for row in outcome.rows:
        spread = row.slowest_ms / outcome.usual_ms(row)
        yield (
            f"{row.scale:<4} {row.source:<11} {row.kind:<21} {row.plain_ms:>8.3f} {row.ours_ms:>8.3f} "
            f"{row.ratio:>6.2f} {row.added_ms:>7.3f} {row.slowest_ms:>8.3f} {spread:>8.2f}"
        )
    opened, visited = outcome.opened, outcome.visited
    yield (
        f"first search of {effort.opened_users} users, wall ms: p50 {percentile(opened.first_ms, 50):.1f}, "
        f"p95 {percentile(opened.first_ms, 95):.1f}, most {max(opened.first_ms):.1f}; "
        f"all five sources: p95 {percentile(opened.all_ms, 95):.1f}"
    )
    yield (
        f"{effort.visits} of {effort.tenants} users visited: resident MB {visited.before_bytes / MEGABYTE:.1f} before, "
        f"{visited.after_bytes / MEGABYTE:.1f} after; descriptors {visited.descriptors_before} before, at most "
        f"{visited.descriptors_most}, {visited.descriptors_after} after closing"
    )


async def perform(effort: Effort) -> None:
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        scratch = Path(name)
        shelf = Path(tempfile.gettempdir()) if effort.keeps_libraries else scratch
        outcome = await measure(effort, scratch, shelf)
    for line in [*report(effort, outcome), outcome.as_line()]:
        print(line)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.sources", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny libraries: shows that it works, measures nothing")
    effort = QUICK if parser.parse_args(arguments).quick else FULL
    if not sys.platform.startswith("linux"):
        sys.exit("bench.sources reads memory and descriptors from the Linux kernel; run it on Linux")
    run(perform(effort))


if __name__ == "__main__":
    main(sys.argv[1:])
