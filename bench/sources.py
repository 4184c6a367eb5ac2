"""`make bench-sources`: the cost of a search compared with a single SQL statement, of first searches, and of many
users.

Our search and the SQL baseline (`bench.baseline_search`) alternate query by query, with the same MATCH expression on
the same file. Every query is used once, so that neither benefits from caches. CPU time of the whole process is
compared, because it does not depend on how busy the machine is; only the first searches are measured in wall time.
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
from bench.baseline_search import STATEMENTS, BaselineSearch, open_baseline
from bench.library import OWNER, REFERENCE, SEED, Sizes, build_library, cached_library, delete_stale_libraries
from bench.local_runtime import LocalRuntime, open_local_runtime
from bench.processes import Cores, child, python
from bench.prose import MOST_COMMON_WORD, Prose
from bench.tenants import FirstSearches, VisitResult, copy_to_tenants
from server.serving import run
from sources.source import Source, search_response
from sources.storage.contract import Library

LIMIT = 20
WARMUP_QUERIES = 5
MEGABYTE = 1_000_000
# Sources in which the baseline takes long enough to be compared; there are only few characters and prompts.
RATIO_SOURCES = ("notes", "media", "chats")
KINDS: Mapping[str, Callable[[Prose], str]] = {
    "one word": lambda prose: prose.words(1),
    "three words": lambda prose: prose.words(3),
    "question": Prose.question,
    "commonest word": lambda prose: MOST_COMMON_WORD,
}
ORDINARY_KINDS = tuple(KINDS)[:3]


class Scale(Struct, frozen=True):
    """A library and the number of queries of each kind."""

    title: str
    sizes: Sizes
    queries: int


class Effort(Struct, frozen=True):
    """How much is measured."""

    scales: tuple[Scale, ...]
    first_search_sizes: Sizes
    first_search_users: int
    visited_sizes: Sizes
    tenants: int
    visits: int
    caches_libraries: bool


FULL = Effort(
    scales=(Scale("x1", REFERENCE, 200), Scale("x10", REFERENCE.times(10), 100)),
    first_search_sizes=REFERENCE.times(0.1),
    first_search_users=200,
    visited_sizes=REFERENCE.times(0.002),
    tenants=10_000,
    visits=1_000,
    caches_libraries=True,
)
QUICK = Effort(
    scales=(Scale("x1", REFERENCE.times(0.002), 5), Scale("x10", REFERENCE.times(0.004), 5)),
    first_search_sizes=REFERENCE.times(0.001),
    first_search_users=5,
    visited_sizes=REFERENCE.times(0.001),
    tenants=20,
    visits=10,
    caches_libraries=False,
)


class Sample(Struct, frozen=True):
    """CPU milliseconds of one query: baseline and our search."""

    baseline_ms: float
    ours_ms: float


class Row(Struct, frozen=True):
    """Queries of one kind against one source of one library."""

    scale: str
    source: str
    kind: str
    samples: tuple[Sample, ...]

    @property
    def baseline_ms(self) -> float:
        return statistics.median(one.baseline_ms for one in self.samples)

    @property
    def ours_ms(self) -> float:
        return statistics.median(one.ours_ms for one in self.samples)

    @property
    def ratio(self) -> float:
        return statistics.median(one.ours_ms / one.baseline_ms for one in self.samples)

    @property
    def added_ms(self) -> float:
        return statistics.median(one.ours_ms - one.baseline_ms for one in self.samples)

    @property
    def p99_ms(self) -> float:
        return percentile([one.ours_ms for one in self.samples], 99)


class Outcome(Struct, frozen=True):
    rows: tuple[Row, ...]
    first_searches: FirstSearches
    visits: VisitResult

    def typical_ms(self, row: Row) -> float:
        """Returns the median time of ordinary queries to the same source of the same library."""
        peers = [one for one in self.rows if (one.scale, one.source) == (row.scale, row.source)]
        return statistics.median(
            sample.ours_ms for one in peers if one.kind in ORDINARY_KINDS for sample in one.samples
        )

    def as_line(self) -> str:
        ordinary = [row for row in self.rows if row.kind in ORDINARY_KINDS]
        ratio = max(row.ratio for row in ordinary if row.source in RATIO_SOURCES)
        return (
            f"RESULT worst_ratio={ratio:.2f} worst_added_ms={max(row.added_ms for row in ordinary):.2f} "
            f"cold_p95_ms={percentile(self.first_searches.first_ms, 95):.1f} "
            f"tenants_rss_mb={self.visits.after_bytes / MEGABYTE:.1f}"
        )


def percentile(values: Sequence[float], percent: int) -> float:
    """Returns the smallest value that at least this percentage of values do not exceed."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]


# -- search against the SQL baseline -----------------------------------------------------------------------------------


async def measure_searches(root: Path, scale: Scale) -> list[Row]:
    async with open_local_runtime(root) as runtime:
        context = runtime.context_for(OWNER)
        async with (
            runtime.libraries.library(context) as library,
            open_baseline(context.db_paths, runtime.settings) as baseline,
        ):
            comparison = _SearchComparison(runtime, context, library, baseline)
            return [await comparison.measure(scale, source, kind) for source in STATEMENTS for kind in KINDS]


class _SearchComparison:
    """Runs our search and the baseline alternately."""

    def __init__(
        self, runtime: LocalRuntime, context: RequestContext, library: Library, baseline: BaselineSearch
    ) -> None:
        self._runtime = runtime
        self._context = context
        self._library = library
        self._baseline = baseline

    async def measure(self, scale: Scale, source: str, kind: str) -> Row:
        prose = Prose(SEED, stream=f"{source} {kind}")
        for _ in range(WARMUP_QUERIES):
            await self._sample(source, KINDS[kind](prose), is_ours_first=True)
        samples = [
            await self._sample(source, KINDS[kind](prose), is_ours_first=bool(number % 2))
            for number in range(scale.queries)
        ]
        return Row(scale.title, source, kind, tuple(samples))

    async def _sample(self, name: str, query: str, *, is_ours_first: bool) -> Sample:
        source = self._runtime.sources[name]
        match = self._baseline.match(name, query)
        if is_ours_first:
            ours = await cpu_ms(lambda: self._ours(source, query))
            return Sample(await cpu_ms(lambda: self._baseline.rows(name, match, LIMIT)), ours)
        return Sample(
            await cpu_ms(lambda: self._baseline.rows(name, match, LIMIT)),
            await cpu_ms(lambda: self._ours(source, query)),
        )

    async def _ours(self, source: Source, query: str) -> object:
        args = source.search_input(query=query, limit=LIMIT)
        return search_response(source, await source.search(self._context, self._library, args))


async def cpu_ms(work: Callable[[], Awaitable[object]]) -> float:
    """Measures the CPU time of all threads, since SQLite runs on its own."""
    started_at = time.process_time_ns()
    await work()
    return (time.process_time_ns() - started_at) / 1_000_000


# -- many users --------------------------------------------------------------------------------------------------------


async def measure_tenants(effort: Effort, scratch: Path) -> tuple[FirstSearches, VisitResult]:
    first_root = scratch / "first"
    await _create_tenants(effort.first_search_sizes, first_root, effort.first_search_users)
    visits_root = scratch / "visits"
    await _create_tenants(effort.visited_sizes, visits_root, effort.tenants)
    return (
        msgspec.json.decode(_run_tenants(scratch, str(first_root), str(effort.first_search_users)), type=FirstSearches),
        msgspec.json.decode(
            _run_tenants(scratch, str(visits_root), str(effort.tenants), "--visits", str(effort.visits)),
            type=VisitResult,
        ),
    )


async def _create_tenants(sizes: Sizes, root: Path, count: int) -> None:
    template = root.with_name(f"{root.name}-template")
    await build_library(template, sizes)
    copy_to_tenants(template, root, count)


def _run_tenants(scratch: Path, *arguments: str) -> bytes:
    with child(python("bench.tenants", *arguments), Cores.choose().others, scratch / "tenants.log") as tenants:
        return tenants.receive()


# -- the run -----------------------------------------------------------------------------------------------------------


async def measure(effort: Effort, scratch: Path, cache_dir: Path) -> Outcome:
    rows: list[Row] = []
    roots = [await cached_library(scale.sizes, cache_dir) for scale in effort.scales]
    delete_stale_libraries(roots, cache_dir, time.time())
    for scale, root in zip(effort.scales, roots, strict=True):
        rows += await measure_searches(root, scale)
    first_searches, visits = await measure_tenants(effort, scratch)
    return Outcome(tuple(rows), first_searches, visits)


def report(effort: Effort, outcome: Outcome) -> Iterator[str]:
    yield (
        f"{'CPU ms per search, limit ' + str(LIMIT):<38} {'baseline':>8} {'ours':>8} {'ratio':>6} {'added':>7} "
        f"{'p99':>8} {'p99/p50':>8}"
    )
    for row in outcome.rows:
        spread = row.p99_ms / outcome.typical_ms(row)
        yield (
            f"{row.scale:<4} {row.source:<11} {row.kind:<21} {row.baseline_ms:>8.3f} {row.ours_ms:>8.3f} "
            f"{row.ratio:>6.2f} {row.added_ms:>7.3f} {row.p99_ms:>8.3f} {spread:>8.2f}"
        )
    first, visits = outcome.first_searches, outcome.visits
    yield (
        f"first search of {effort.first_search_users} users, wall ms: p50 {percentile(first.first_ms, 50):.1f}, "
        f"p95 {percentile(first.first_ms, 95):.1f}, max {max(first.first_ms):.1f}; "
        f"all five sources: p95 {percentile(first.all_ms, 95):.1f}"
    )
    yield (
        f"{effort.visits} of {effort.tenants} users searched: resident MB {visits.before_bytes / MEGABYTE:.1f} before, "
        f"{visits.after_bytes / MEGABYTE:.1f} after; descriptors {visits.descriptors_before} before, at most "
        f"{visits.descriptors_peak}, {visits.descriptors_after} after closing"
    )


async def perform(effort: Effort) -> None:
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        scratch = Path(name)
        cache_dir = Path(tempfile.gettempdir()) if effort.caches_libraries else scratch
        outcome = await measure(effort, scratch, cache_dir)
    for line in [*report(effort, outcome), outcome.as_line()]:
        print(line)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.sources", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="use tiny libraries: checks that the benchmark works, the figures are meaningless",
    )
    effort = QUICK if parser.parse_args(arguments).quick else FULL
    if not sys.platform.startswith("linux"):
        sys.exit("bench.sources reads memory and descriptors from the Linux kernel; run it on Linux")
    run(perform(effort))


if __name__ == "__main__":
    main(sys.argv[1:])
