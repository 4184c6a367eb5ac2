"""`make bench-search`: what one search over all sources costs the server, from the request to the answer, against the
plain statements that it needs at least.

`knowledge_search` is asked over HTTP, with a token, of a server that runs as it is deployed. The six plain statements
(`bench.plain_reader`) are run on the same files by a process of their own. Query by query the two take turns, on the
same processor, and every query is asked once. Processor time is compared, because it says the same on a busy machine.
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

from bench.askers import Asked, Heard, Lot
from bench.library import REFERENCE, SEED, Sizes, build_library, forget_stale_libraries, kept_library
from bench.plain_reader import Plainly
from bench.processes import Child, Cores, child, cpu_seconds, python, resident_bytes
from bench.prose import Prose
from bench.servers.library import Opening
from bench.sources import KINDS, LIMIT, MEGABYTE, ORDINARY, percentile

# What a server still has to do when its answer has been read: its log line, its metrics.
_SETTLING_S = 0.05


class Scale(Struct, frozen=True):
    """A library, and how many queries of each kind it is asked after those that only warm it up."""

    title: str
    sizes: Sizes
    queries: int
    warmup: int


class Effort(Struct, frozen=True):
    """How much is measured. `crowd` is the library of each of `crowd_users`, whom `clients` ask at once."""

    scales: tuple[Scale, ...]
    crowd: Scale
    crowd_users: int
    clients: int
    visited: Sizes
    tenants: int
    rounds: int
    keeps_libraries: bool


FULL = Effort(
    scales=(Scale("x1", REFERENCE, 200, 20), Scale("x10", REFERENCE.times(10), 100, 20)),
    crowd=Scale("x1", REFERENCE, 400, 40),
    crowd_users=8,
    clients=32,
    visited=REFERENCE.times(0.002),
    tenants=1_000,
    rounds=3,
    keeps_libraries=True,
)
QUICK = Effort(
    scales=(Scale("x1", REFERENCE.times(0.01), 4, 1), Scale("x10", REFERENCE.times(0.02), 4, 1)),
    crowd=Scale("x1", REFERENCE.times(0.01), 8, 4),
    crowd_users=2,
    clients=4,
    visited=REFERENCE.times(0.001),
    tenants=6,
    rounds=2,
    keeps_libraries=False,
)


class Turn(Struct, frozen=True):
    """One query: CPU milliseconds of the plain statements, of the same by rank and of the server, and how long its
    client waited."""

    plain_ms: float
    ranked_ms: float
    ours_ms: float
    wall_ms: float


class Row(Struct, frozen=True):
    """Queries of one kind, or of all, put to one library. CPU time is told by its mean: it is what the server pays,
    and the expensive queries are paid for like the others."""

    scale: str
    kind: str
    turns: tuple[Turn, ...]

    @property
    def plain_ms(self) -> float:
        return statistics.fmean(turn.plain_ms for turn in self.turns)

    @property
    def ranked_ms(self) -> float:
        return statistics.fmean(turn.ranked_ms for turn in self.turns)

    @property
    def ours_ms(self) -> float:
        return statistics.fmean(turn.ours_ms for turn in self.turns)

    @property
    def ratio(self) -> float:
        return self.ours_ms / self.plain_ms

    @property
    def wall_ms(self) -> tuple[float, ...]:
        return tuple(turn.wall_ms for turn in self.turns)


class Pressed(Struct, frozen=True):
    """Many searches at once: their number, the server's CPU seconds, how long each client waited."""

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
    """Every user searched once in each of `rounds`, and the server's memory before and after."""

    rounds: tuple[Pressed, ...]
    before_bytes: int
    after_bytes: int


class Outcome(Struct, frozen=True):
    rows: tuple[Row, ...]
    crowd: Pressed
    rotation: Rotation

    def total(self, scale: str) -> Row:
        """All kinds of query together, each as often as the others."""
        turns = itertools.chain.from_iterable(row.turns for row in self.rows if row.scale == scale)
        return Row(scale, "all", tuple(turns))

    @property
    def scales(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.scale for row in self.rows))

    def growth(self) -> tuple[float, float]:
        """From the first library to the last: how much more the plain statements and the server need."""
        first, last = self.total(self.scales[0]), self.total(self.scales[-1])
        return last.plain_ms / first.plain_ms, last.ours_ms / first.ours_ms

    def as_line(self) -> str:
        row = self.total(self.scales[0])
        return (
            f"RESULT cpu_ms={row.ours_ms:.3f} floor_cpu_ms={row.plain_ms:.3f} cpu_ratio={row.ratio:.2f} "
            f"p50_ms={percentile(row.wall_ms, 50):.1f} p99_ms={percentile(row.wall_ms, 99):.1f} "
            f"rps_per_core={self.crowd.calls_per_cpu_s:.1f}"
        )


# -- a server, and those who ask it ------------------------------------------------------------------------------------


class Server(Struct, frozen=True):
    """A server that is up. All processes it is measured with end when it does."""

    pid: int
    opening: Opening
    cores: Cores
    scratch: Path

    @property
    def url(self) -> str:
        return f"{self.opening.url}/mcp"

    def asked(self, queries: Sequence[str]) -> tuple[Asked, ...]:
        """The users take turns."""
        accounts = itertools.cycle(self.opening.accounts)
        return tuple(Asked(account.token, query) for account, query in zip(accounts, queries, strict=False))

    @contextmanager
    def askers(self, count: int) -> Iterator[Child]:
        with child(python("bench.askers", self.url, str(count)), self.cores.others, self.scratch / "askers.log") as one:
            yield one

    def press(self, askers: Child, clients: int, queries: Sequence[str]) -> Pressed:
        before = cpu_seconds(self.pid)
        heard = put(askers, Lot(self.url, clients, self.asked(queries)))
        time.sleep(_SETTLING_S)
        return Pressed(len(queries), cpu_seconds(self.pid) - before, heard.wall_ms)


@contextmanager
def serving(library: Path, users: int, cores: Cores) -> Iterator[Server]:
    """For as long as the block, each user has a copy of the library."""
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        scratch = Path(name)
        command = python("bench.servers.library", str(scratch / "data"), str(library), str(users))
        with child(command, cores.servers, scratch / "server.log") as server:
            opening = msgspec.json.decode(server.hear(), type=Opening)
            yield Server(server.pid, opening, cores, scratch)


def put(askers: Child, lot: Lot) -> Heard:
    askers.say(msgspec.json.encode(lot))
    return msgspec.json.decode(askers.hear(), type=Heard)


def queries_of(kind: str, stream: str, count: int) -> list[str]:
    prose = Prose(SEED, stream=f"search {stream} {kind}")
    return [KINDS[kind](prose) for _ in range(count)]


def mixed_queries(stream: str, count: int) -> list[str]:
    """The kinds in turn."""
    by_kind = [queries_of(kind, stream, -(-count // len(ORDINARY))) for kind in ORDINARY]
    return list(itertools.chain.from_iterable(zip(*by_kind, strict=True)))[:count]


# -- one search at a time, against the plain statements ----------------------------------------------------------------


def measure_alone(library: Path, scale: Scale, cores: Cores) -> list[Row]:
    with ExitStack() as stack:
        server = stack.enter_context(serving(library, 1, cores))
        askers = stack.enter_context(server.askers(1))
        reader = python("bench.plain_reader", server.opening.home)
        plain = stack.enter_context(child(reader, cores.servers, server.scratch / "plain.log"))
        pair = _Pair(server, askers, plain)
        pair.turns(mixed_queries("warmup", scale.warmup))
        return [Row(scale.title, kind, pair.turns(queries_of(kind, scale.title, scale.queries))) for kind in ORDINARY]


class _Pair:
    """The server and the plain statements, in turn."""

    def __init__(self, server: Server, askers: Child, plain: Child) -> None:
        self._server = server
        self._askers = askers
        self._plain = plain

    def turns(self, queries: Sequence[str]) -> tuple[Turn, ...]:
        """Every second query is put to the server first. Its CPU time is read before each search and once at the end,
        so that what it does behind an answer is counted too."""
        plain: list[Plainly] = []
        wall: list[float] = []
        marks: list[float] = []
        for number, query in enumerate(queries):
            if number % 2:
                plain.append(self._ask_plainly(query))
            marks.append(cpu_seconds(self._server.pid))
            wall += put(self._askers, Lot(self._server.url, 1, self._server.asked([query]))).wall_ms
            if not number % 2:
                plain.append(self._ask_plainly(query))
        time.sleep(_SETTLING_S)
        marks.append(cpu_seconds(self._server.pid))
        ours = [(after - before) * 1000 for before, after in itertools.pairwise(marks)]
        return tuple(Turn(p.cpu_ms, p.ranked_ms, o, w) for p, o, w in zip(plain, ours, wall, strict=True))

    def _ask_plainly(self, query: str) -> Plainly:
        self._plain.say(query.encode())
        return msgspec.json.decode(self._plain.hear(), type=Plainly)


# -- many at once ------------------------------------------------------------------------------------------------------


def measure_crowd(library: Path, effort: Effort, cores: Cores) -> Pressed:
    with serving(library, effort.crowd_users, cores) as server, server.askers(effort.clients) as askers:
        server.press(askers, effort.clients, mixed_queries("warmup", effort.crowd.warmup))
        return server.press(askers, effort.clients, mixed_queries("crowd", effort.crowd.queries))


def measure_rotation(library: Path, effort: Effort, cores: Cores) -> Rotation:
    with serving(library, effort.tenants, cores) as server, server.askers(1) as askers:
        before = resident_bytes(server.pid)
        queries = [mixed_queries(f"round {number}", effort.tenants) for number in range(effort.rounds)]
        rounds = tuple([server.press(askers, 1, asked) for asked in queries])
        return Rotation(rounds, before, resident_bytes(server.pid))


# -- the run -----------------------------------------------------------------------------------------------------------


async def build_libraries(effort: Effort, scratch: Path, shelf: Path) -> Mapping[Sizes, Path]:
    wanted = dict.fromkeys([*(scale.sizes for scale in effort.scales), effort.crowd.sizes])
    kept = {sizes: await kept_library(sizes, shelf) for sizes in wanted}
    forget_stale_libraries(list(kept.values()), shelf, time.time())
    await build_library(scratch / "visited", effort.visited)
    return {**kept, effort.visited: scratch / "visited"}


def measure(effort: Effort, cores: Cores) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        scratch = Path(name)
        shelf = Path(tempfile.gettempdir()) if effort.keeps_libraries else scratch
        libraries = asyncio.run(build_libraries(effort, scratch, shelf))
        rows = [row for scale in effort.scales for row in measure_alone(libraries[scale.sizes], scale, cores)]
        crowd = measure_crowd(libraries[effort.crowd.sizes], effort, cores)
        return Outcome(tuple(rows), crowd, measure_rotation(libraries[effort.visited], effort, cores))


def report(effort: Effort, outcome: Outcome) -> Iterator[str]:
    title = f"one search at a time, limit {LIMIT}"
    yield f"{title:<30} {'plain':>8} {'by rank':>8} {'ours':>8} {'ratio':>6}   {'p50':>8} {'p99':>8}"
    for scale in outcome.scales:
        for row in [*(one for one in outcome.rows if one.scale == scale), outcome.total(scale)]:
            yield (
                f"{row.scale:<4} {row.kind:<25} {row.plain_ms:>8.3f} {row.ranked_ms:>8.3f} {row.ours_ms:>8.3f} "
                f"{row.ratio:>6.2f}   "
                f"{percentile(row.wall_ms, 50):>8.1f} {percentile(row.wall_ms, 99):>8.1f}"
            )
    plain, ours = outcome.growth()
    yield f"from {outcome.scales[0]} to {outcome.scales[-1]}: plain {plain:.2f} times, ours {ours:.2f} times"
    yield _pressed(f"{effort.clients} clients of {effort.crowd_users} users, {effort.crowd.title}", outcome.crowd)
    for number, pressed in enumerate(outcome.rotation.rounds, 1):
        yield _pressed(f"{effort.tenants} users in rotation, round {number}", pressed)
    before, after = outcome.rotation.before_bytes / MEGABYTE, outcome.rotation.after_bytes / MEGABYTE
    yield f"{effort.tenants} users in rotation: resident MB {before:.1f} before, {after:.1f} after"


def _pressed(title: str, pressed: Pressed) -> str:
    return (
        f"{title}: CPU ms {pressed.cpu_ms:.3f}, {pressed.calls_per_cpu_s:.1f} searches per CPU second, "
        f"wall ms p50 {percentile(pressed.wall_ms, 50):.1f}, p99 {percentile(pressed.wall_ms, 99):.1f}"
    )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.search", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny libraries: shows that it works, measures nothing")
    effort = QUICK if parser.parse_args(arguments).quick else FULL
    if not sys.platform.startswith("linux"):
        sys.exit("bench.search reads processor time and memory from the Linux kernel; run it on Linux")
    outcome = measure(effort, Cores.choose())
    for line in [*report(effort, outcome), outcome.as_line()]:
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
