"""`make bench-search`: the cost of a search over all sources, from request to response, compared with plain SQL.

`knowledge_search` is called over HTTP, with a token, on a server that runs as deployed. A separate process runs the six
baseline statements (`bench.baseline_reader`) on the same files. The two alternate query by query on the same core, and
every query is used once. CPU time is compared, because it does not depend on how busy the machine is.

Searches by words and meaning are measured in the same way, with each model that is installed. What it costs to embed
the queries depends on the model alone, so it is measured and shown separately.

A search of libraries of others is measured with one own library and five of groups, all copies of the same one: its CPU
time against that of searching each of them alone, and its wall time against that of the own one alone. For this the
server may use all cores, because libraries are searched concurrently.
"""

import argparse
import asyncio
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.baseline_reader import BaselineResult
from bench.library import REFERENCE, SEED, Sizes, build_library, cached_library, delete_stale_libraries
from bench.processes import Child, Cores, child, cpu_seconds, describe_machine_load, python, resident_bytes
from bench.prose import Prose
from bench.search_clients import BatchResult, SearchBatch, SearchRequest
from bench.servers.library import LibraryAnnouncement
from bench.sources import KINDS, LIMIT, MEGABYTE, ORDINARY_KINDS, percentile
from bench.vectors import copy_with_vectors, installed_models, query_cpu_ms

# Time for the server to finish its work after a response: the log line and metrics.
_SETTLE_S = 0.05


# Libraries of groups that are searched together with the own one.
_GROUPS = 5


class Scale(Struct, frozen=True):
    """A library and the number of queries of each kind, after some queries for warm-up."""

    title: str
    sizes: Sizes
    queries: int
    warmup: int


class Effort(Struct, frozen=True):
    """How much is measured. In the load test, `load_users` have a library of `load` each, searched by `clients`."""

    scales: tuple[Scale, ...]
    load: Scale
    load_users: int
    clients: int
    tenant_sizes: Sizes
    tenants: int
    rounds: int
    shared_queries: int
    caches_libraries: bool


FULL = Effort(
    scales=(Scale("x1", REFERENCE, 100, 20), Scale("x10", REFERENCE.times(10), 50, 20)),
    load=Scale("x1", REFERENCE, 400, 40),
    load_users=8,
    clients=32,
    tenant_sizes=REFERENCE.times(0.002),
    tenants=1_000,
    rounds=2,
    shared_queries=40,
    caches_libraries=True,
)
QUICK = Effort(
    scales=(Scale("x1", REFERENCE.times(0.002), 4, 1), Scale("x10", REFERENCE.times(0.004), 4, 1)),
    load=Scale("x1", REFERENCE.times(0.002), 8, 4),
    load_users=2,
    clients=4,
    tenant_sizes=REFERENCE.times(0.001),
    tenants=6,
    rounds=2,
    shared_queries=4,
    caches_libraries=False,
)


class Sample(Struct, frozen=True):
    """One query: CPU milliseconds of the baseline, of the baseline by rank and of the server, and the wall time."""

    baseline_ms: float
    ranked_ms: float
    ours_ms: float
    wall_ms: float


class Row(Struct, frozen=True):
    """Queries of one kind, or of all kinds, against one library.

    CPU time is reported as a mean, because the total is what the server has to pay for.
    """

    scale: str
    kind: str
    samples: tuple[Sample, ...]

    @property
    def baseline_ms(self) -> float:
        return statistics.fmean(sample.baseline_ms for sample in self.samples)

    @property
    def ranked_ms(self) -> float:
        return statistics.fmean(sample.ranked_ms for sample in self.samples)

    @property
    def ours_ms(self) -> float:
        return statistics.fmean(sample.ours_ms for sample in self.samples)

    @property
    def ratio(self) -> float:
        return self.ours_ms / self.baseline_ms

    @property
    def wall_ms(self) -> tuple[float, ...]:
        return tuple(sample.wall_ms for sample in self.samples)


class ModelSearches(Struct, frozen=True):
    """Searches by words and meaning with one model, and the CPU time of embedding one of their queries."""

    model: str
    rows: tuple[Row, ...]
    query_ms: float

    @property
    def ratio(self) -> float:
        """CPU time without embedding the query, divided by that of the baseline."""
        samples = [sample for row in self.rows for sample in row.samples]
        ours_ms = statistics.fmean(sample.ours_ms for sample in samples) - self.query_ms
        return ours_ms / statistics.fmean(sample.baseline_ms for sample in samples)


class LoadResult(Struct, frozen=True):
    """Many searches: their number, the CPU seconds of the server and the wall time of each."""

    calls: int
    cpu_s: float
    wall_ms: tuple[float, ...]

    @property
    def cpu_ms(self) -> float:
        return self.cpu_s * 1000 / self.calls

    @property
    def calls_per_cpu_s(self) -> float:
        return self.calls / self.cpu_s


class Rotation(Struct, frozen=True):
    """Every user searches once per round. Includes the memory of the server before and after."""

    rounds: tuple[LoadResult, ...]
    before_bytes: int
    after_bytes: int


class SharedSearches(Struct, frozen=True):
    """Searches of several libraries at once, and of each of them alone: CPU milliseconds and wall times per query."""

    together_ms: tuple[float, ...]
    alone_ms: tuple[float, ...]
    together_wall_ms: tuple[float, ...]
    own_wall_ms: tuple[float, ...]

    @property
    def cpu_ratio(self) -> float:
        return sum(self.together_ms) / sum(self.alone_ms)

    @property
    def wall_ratio(self) -> float:
        return statistics.median(self.together_wall_ms) / statistics.median(self.own_wall_ms)


class Outcome(Struct, frozen=True):
    rows: tuple[Row, ...]
    load: LoadResult
    rotation: Rotation
    shared: SharedSearches
    models: tuple[ModelSearches, ...] = ()

    def total(self, scale: str) -> Row:
        """Combines all kinds of queries, each with the same weight."""
        samples = itertools.chain.from_iterable(row.samples for row in self.rows if row.scale == scale)
        return Row(scale, "all", tuple(samples))

    @property
    def scales(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.scale for row in self.rows))

    def growth(self) -> tuple[float, float]:
        """Returns the factors by which baseline and server need more time in the last library than in the first."""
        first, last = self.total(self.scales[0]), self.total(self.scales[-1])
        return last.baseline_ms / first.baseline_ms, last.ours_ms / first.ours_ms

    def as_line(self) -> str:
        row = self.total(self.scales[0])
        return (
            f"RESULT cpu_ms={row.ours_ms:.3f} floor_cpu_ms={row.baseline_ms:.3f} cpu_ratio={row.ratio:.2f} "
            f"{''.join(f'cpu_ratio_{one.model}={one.ratio:.2f} ' for one in self.models)}"
            f"{''.join(f'query_ms_{one.model}={one.query_ms:.2f} ' for one in self.models)}"
            f"p50_ms={percentile(row.wall_ms, 50):.1f} p99_ms={percentile(row.wall_ms, 99):.1f} "
            f"rps_per_core={self.load.calls_per_cpu_s:.1f} "
            f"shared_cpu_ratio={self.shared.cpu_ratio:.2f} shared_wall_ratio={self.shared.wall_ratio:.2f}"
        )


# -- the server and its clients ----------------------------------------------------------------------------------------


class BenchServer(Struct, frozen=True):
    """A running server. All processes that measure it end before it does."""

    pid: int
    announcement: LibraryAnnouncement
    cores: Cores
    scratch: Path

    @property
    def url(self) -> str:
        return f"{self.announcement.url}/mcp"

    def requests(self, queries: Sequence[str]) -> tuple[SearchRequest, ...]:
        """Returns a request for each query, alternating between the users."""
        accounts = itertools.cycle(self.announcement.accounts)
        return tuple(SearchRequest(account.token, query) for account, query in zip(accounts, queries, strict=False))

    @contextmanager
    def clients(self, count: int) -> Iterator[Child]:
        with child(
            python("bench.search_clients", self.url, str(count)), self.cores.others, self.scratch / "clients.log"
        ) as process:
            yield process

    def run_load(self, clients: Child, concurrency: int, queries: Sequence[str]) -> LoadResult:
        before = cpu_seconds(self.pid)
        result = run_batch(clients, SearchBatch(self.url, concurrency, self.requests(queries)))
        time.sleep(_SETTLE_S)
        return LoadResult(len(queries), cpu_seconds(self.pid) - before, result.wall_ms)


@contextmanager
def start_server(
    library: Path, users: int, cores: Cores, deadline_factor: int = 10, model: str = "off", groups: int = 0
) -> Iterator[BenchServer]:
    """Runs a server for the duration of the block, on which each user has a copy of the library, and so have the groups
    of the first user."""
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        scratch = Path(name)
        arguments = (str(scratch / "data"), str(library), str(users), str(deadline_factor), model, str(groups))
        command = python("bench.servers.library", *arguments)
        with child(command, cores.servers, scratch / "server.log") as server:
            announcement = msgspec.json.decode(server.receive(), type=LibraryAnnouncement)
            yield BenchServer(server.pid, announcement, cores, scratch)


def run_batch(clients: Child, batch: SearchBatch) -> BatchResult:
    clients.send(msgspec.json.encode(batch))
    return msgspec.json.decode(clients.receive(), type=BatchResult)


def make_queries(kind: str, stream: str, count: int) -> list[str]:
    prose = Prose(SEED, stream=f"search {stream} {kind}")
    return [KINDS[kind](prose) for _ in range(count)]


def mixed_queries(stream: str, count: int) -> list[str]:
    """Returns queries of alternating kinds."""
    by_kind = [make_queries(kind, stream, -(-count // len(ORDINARY_KINDS))) for kind in ORDINARY_KINDS]
    return list(itertools.chain.from_iterable(zip(*by_kind, strict=True)))[:count]


# -- one search at a time, against the SQL baseline --------------------------------------------------------------------


def measure_single_searches(library: Path, scale: Scale, cores: Cores, model: str = "off") -> list[Row]:
    with ExitStack() as stack:
        server = stack.enter_context(start_server(library, 1, cores, model=model))
        clients = stack.enter_context(server.clients(1))
        command = python("bench.baseline_reader", server.announcement.home)
        baseline = stack.enter_context(child(command, cores.servers, server.scratch / "baseline.log"))
        comparison = _SearchComparison(server, clients, baseline)
        comparison.sample(mixed_queries("warmup", scale.warmup))
        return [
            Row(scale.title, kind, comparison.sample(make_queries(kind, scale.title, scale.queries)))
            for kind in ORDINARY_KINDS
        ]


def measure_models(libraries: Mapping[Sizes, Path], effort: Effort, cores: Cores) -> tuple[ModelSearches, ...]:
    """Searches by words and meaning in the smallest library, for each model that is installed."""
    scale = effort.scales[0]
    results: list[ModelSearches] = []
    for model in installed_models():
        with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
            library = Path(name) / "data"
            asyncio.run(copy_with_vectors(libraries[scale.sizes], library, model))
            rows = measure_single_searches(library, scale, cores, model)
        queries = mixed_queries(f"{model} queries", scale.queries)
        results.append(ModelSearches(model, tuple(rows), asyncio.run(query_cpu_ms(model, queries))))
    return tuple(results)


class _SearchComparison:
    """Sends queries to the server and to the baseline alternately."""

    def __init__(self, server: BenchServer, clients: Child, baseline: Child) -> None:
        self._server = server
        self._clients = clients
        self._baseline = baseline

    def sample(self, queries: Sequence[str]) -> tuple[Sample, ...]:
        """Every second query goes to the server first.

        The CPU time of the server is read before each search and once at the end, so that work after a response counts.
        """
        baseline: list[BaselineResult] = []
        wall: list[float] = []
        cpu_readings: list[float] = []
        for number, query in enumerate(queries):
            if number % 2:
                baseline.append(self._run_baseline(query))
            cpu_readings.append(cpu_seconds(self._server.pid))
            wall += run_batch(self._clients, SearchBatch(self._server.url, 1, self._server.requests([query]))).wall_ms
            if not number % 2:
                baseline.append(self._run_baseline(query))
        time.sleep(_SETTLE_S)
        cpu_readings.append(cpu_seconds(self._server.pid))
        ours = [(after - before) * 1000 for before, after in itertools.pairwise(cpu_readings)]
        return tuple(Sample(b.cpu_ms, b.ranked_ms, o, w) for b, o, w in zip(baseline, ours, wall, strict=True))

    def _run_baseline(self, query: str) -> BaselineResult:
        self._baseline.send(query.encode())
        return msgspec.json.decode(self._baseline.receive(), type=BaselineResult)


# -- libraries of others -----------------------------------------------------------------------------------------------


def measure_shared(library: Path, queries: int, warmup: int, cores: Cores) -> SharedSearches:
    names = ("own", *(f"group{number}" for number in range(_GROUPS)))
    with start_server(library, 1, cores.together(), groups=_GROUPS) as server, server.clients(1) as clients:
        [account] = server.announcement.accounts

        def search(query: str, *libraries: str) -> tuple[float, float]:
            """Returns CPU and wall milliseconds."""
            before = cpu_seconds(server.pid)
            request = SearchRequest(account.token, query, libraries)
            [wall_ms] = run_batch(clients, SearchBatch(server.url, 1, (request,))).wall_ms
            time.sleep(_SETTLE_S)
            return (cpu_seconds(server.pid) - before) * 1000, wall_ms

        for query in mixed_queries("shared warmup", warmup):
            search(query, *names)
        together: list[tuple[float, float]] = []
        alone: list[list[tuple[float, float]]] = []
        for number, query in enumerate(mixed_queries("shared", queries)):
            # What the first search of a query leaves in caches helps the second, so they take turns.
            if number % 2:
                together.append(search(query, *names))
            alone.append([search(query, name) for name in names])
            if not number % 2:
                together.append(search(query, *names))
    return SharedSearches(
        together_ms=tuple(cpu_ms for cpu_ms, _ in together),
        alone_ms=tuple(sum(cpu_ms for cpu_ms, _ in parts) for parts in alone),
        together_wall_ms=tuple(wall_ms for _, wall_ms in together),
        own_wall_ms=tuple(parts[0][1] for parts in alone),
    )


# -- many searches -----------------------------------------------------------------------------------------------------


def measure_load(library: Path, effort: Effort, cores: Cores) -> LoadResult:
    with start_server(library, effort.load_users, cores) as server, server.clients(effort.clients) as clients:
        server.run_load(clients, effort.clients, mixed_queries("warmup", effort.load.warmup))
        return server.run_load(clients, effort.clients, mixed_queries("crowd", effort.load.queries))


def measure_rotation(library: Path, effort: Effort, cores: Cores) -> Rotation:
    with start_server(library, effort.tenants, cores) as server, server.clients(1) as clients:
        before = resident_bytes(server.pid)
        queries = [mixed_queries(f"round {number}", effort.tenants) for number in range(effort.rounds)]
        rounds = tuple([server.run_load(clients, 1, batch) for batch in queries])
        return Rotation(rounds, before, resident_bytes(server.pid))


# -- the run -----------------------------------------------------------------------------------------------------------


async def build_libraries(effort: Effort, scratch: Path, cache_dir: Path) -> Mapping[Sizes, Path]:
    sizes_needed = dict.fromkeys([*(scale.sizes for scale in effort.scales), effort.load.sizes])
    cached = {sizes: await cached_library(sizes, cache_dir) for sizes in sizes_needed}
    delete_stale_libraries(list(cached.values()), cache_dir, time.time())
    await build_library(scratch / "tenant", effort.tenant_sizes)
    return {**cached, effort.tenant_sizes: scratch / "tenant"}


def measure(effort: Effort, cores: Cores) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        scratch = Path(name)
        cache_dir = Path(tempfile.gettempdir()) if effort.caches_libraries else scratch
        libraries = asyncio.run(build_libraries(effort, scratch, cache_dir))
        rows = [row for scale in effort.scales for row in measure_single_searches(libraries[scale.sizes], scale, cores)]
        models = measure_models(libraries, effort, cores)
        load = measure_load(libraries[effort.load.sizes], effort, cores)
        shared = measure_shared(
            libraries[effort.scales[0].sizes], effort.shared_queries, effort.scales[0].warmup, cores
        )
        rotation = measure_rotation(libraries[effort.tenant_sizes], effort, cores)
        return Outcome(tuple(rows), load, rotation, shared, models)


def report(effort: Effort, outcome: Outcome) -> Iterator[str]:
    title = f"one search at a time, limit {LIMIT}"
    yield f"{title:<30} {'baseline':>8} {'by rank':>8} {'ours':>8} {'ratio':>6}   {'p50':>8} {'p99':>8}"
    for scale in outcome.scales:
        for row in [*(one for one in outcome.rows if one.scale == scale), outcome.total(scale)]:
            yield _row_line(row, row.kind)
    for searches in outcome.models:
        for row in searches.rows:
            yield _row_line(row, f"{row.kind}, {searches.model}")
        yield f"{searches.model}: embedding a query takes {searches.query_ms:.3f} ms of this"
    baseline, ours = outcome.growth()
    yield f"from {outcome.scales[0]} to {outcome.scales[-1]}: baseline {baseline:.2f} times, ours {ours:.2f} times"
    yield (
        f"one own and {_GROUPS} libraries of groups: {outcome.shared.cpu_ratio:.2f} times the CPU time of the parts "
        f"alone, {outcome.shared.wall_ratio:.2f} times the wall time of the own one; {describe_machine_load()}"
    )
    yield _load_line(f"{effort.clients} clients of {effort.load_users} users, {effort.load.title}", outcome.load)
    for number, result in enumerate(outcome.rotation.rounds, 1):
        yield _load_line(f"{effort.tenants} users in rotation, round {number}", result)
    before, after = outcome.rotation.before_bytes / MEGABYTE, outcome.rotation.after_bytes / MEGABYTE
    yield f"{effort.tenants} users in rotation: resident MB {before:.1f} before, {after:.1f} after"


def _row_line(row: Row, title: str) -> str:
    return (
        f"{row.scale:<4} {title:<25} {row.baseline_ms:>8.3f} {row.ranked_ms:>8.3f} {row.ours_ms:>8.3f} "
        f"{row.ratio:>6.2f}   {percentile(row.wall_ms, 50):>8.1f} {percentile(row.wall_ms, 99):>8.1f}"
    )


def _load_line(title: str, result: LoadResult) -> str:
    return (
        f"{title}: CPU ms {result.cpu_ms:.3f}, {result.calls_per_cpu_s:.1f} searches per CPU second, "
        f"wall ms p50 {percentile(result.wall_ms, 50):.1f}, p99 {percentile(result.wall_ms, 99):.1f}"
    )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.search", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="use tiny libraries: checks that the benchmark works, the figures are meaningless",
    )
    effort = QUICK if parser.parse_args(arguments).quick else FULL
    if not sys.platform.startswith("linux"):
        sys.exit("bench.search reads CPU time and memory from the Linux kernel; run it on Linux")
    outcome = measure(effort, Cores.choose())
    for line in [*report(effort, outcome), outcome.as_line()]:
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
