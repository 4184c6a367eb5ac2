"""`make bench-overload`: answers per second with more and more callers, how fast refusals are, and how soon a lone
caller gets complete answers when the load has ended.

The server runs as deployed, with default settings except for the rate limits. Every caller has one search in flight. A
refused caller waits for a second, as `Retry-After` asks. A last level has callers that call again at once. The machine
may be busy with other things, so levels are compared with each other within one run.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.callers import CallResult, Load, Outcome
from bench.library import REFERENCE, Sizes, cached_library
from bench.processes import Child, Cores, child, cpu_seconds, describe_machine_load, python
from bench.search import BenchServer, mixed_queries, start_server
from bench.search_clients import SearchRequest
from bench.sources import percentile

# A caller repeats this many different searches.
_QUERIES_PER_CALLER = 20
_REFUSED_PAUSE_S = 1.0


class Effort(Struct, frozen=True):
    """`warmup_s` of every level is not counted: the queue has to fill first."""

    sizes: Sizes
    users: int
    levels: tuple[int, ...]
    seconds: float
    warmup_s: float
    lone_seconds: float
    caches_libraries: bool


FULL = Effort(
    sizes=REFERENCE.times(0.1),
    users=32,
    levels=(4, 64, 128, 256, 512),
    seconds=20,
    warmup_s=4,
    lone_seconds=3,
    caches_libraries=True,
)
QUICK = Effort(
    sizes=REFERENCE.times(0.002),
    users=4,
    levels=(2, 16),
    seconds=1.5,
    warmup_s=0.2,
    lone_seconds=1,
    caches_libraries=False,
)


class Level(Struct, frozen=True):
    """The calls of one level that were answered after the warm-up and before the callers stopped."""

    callers: int
    is_impatient: bool
    results: tuple[CallResult, ...]
    seconds: float
    cpu_s: float

    def wall_ms(self, outcome: Outcome) -> tuple[float, ...]:
        return tuple(result.wall_ms for result in self.results if result.outcome == outcome)

    def count(self, outcome: Outcome) -> int:
        return len(self.wall_ms(outcome))

    @property
    def goodput(self) -> float:
        """Complete answers per second."""
        return self.count("complete") / self.seconds

    @property
    def refused_p99_ms(self) -> float:
        wall_ms = self.wall_ms("refused")
        return percentile(wall_ms, 99) if wall_ms else 0.0


class OverloadResult(Struct, frozen=True):
    """The levels, and the results of the lone caller, from the moment the last call of the last patient level was
    answered."""

    levels: tuple[Level, ...]
    lone: tuple[CallResult, ...]

    @property
    def patient(self) -> tuple[Level, ...]:
        return tuple(level for level in self.levels if not level.is_impatient)

    @property
    def peak(self) -> float:
        return max(level.goodput for level in self.patient)

    @property
    def recovery_s(self) -> float:
        """Time until the first of the answers that are all complete; infinite if the last one is not."""
        incomplete = [number for number, result in enumerate(self.lone) if result.outcome != "complete"]
        first = incomplete[-1] + 1 if incomplete else 0
        return self.lone[first].at_s if first < len(self.lone) else float("inf")

    def as_line(self) -> str:
        last = self.patient[-1]
        return (
            f"RESULT goodput_{last.callers}_ratio={last.goodput / self.peak:.2f} "
            f"refused_p99_ms={last.refused_p99_ms:.0f} recovery_s={self.recovery_s:.2f}"
        )


class _LoadGenerator:
    """Two processes with callers: one for the load, and one for a lone caller."""

    def __init__(self, server: BenchServer, callers: Child, lone: Child, effort: Effort) -> None:
        self._server = server
        self._callers = callers
        self._lone = lone
        self._effort = effort
        self._queries = mixed_queries("overload", 600)

    def searches(self, number: int) -> tuple[SearchRequest, ...]:
        """Returns the searches of a caller. Users take turns, and no two callers have the same list."""
        accounts = self._server.announcement.accounts
        first = number * 7 % (len(self._queries) - _QUERIES_PER_CALLER)
        token = accounts[number % len(accounts)].token
        return tuple(SearchRequest(token, query) for query in self._queries[first : first + _QUERIES_PER_CALLER])

    def warm_up(self) -> None:
        """Opens every library."""
        self._run(self._effort.users, self._effort.seconds / 2, _REFUSED_PAUSE_S)

    def run_level(self, callers: int, *, is_impatient: bool = False) -> Level:
        cpu_s = self._start(callers, self._effort.seconds, 0.0 if is_impatient else _REFUSED_PAUSE_S)
        return self._finish(callers, cpu_s, is_impatient=is_impatient)

    def run_lone_caller(self) -> tuple[CallResult, ...]:
        """Searches for one user of the load, who calls again at once."""
        self._lone.send(msgspec.json.encode(Load(self._server.url, self._effort.lone_seconds, (self.searches(0),))))
        for _ in ("started", "stopped"):
            self._lone.receive()
        return msgspec.json.decode(self._lone.receive(), type=tuple[CallResult, ...])

    def _run(self, callers: int, seconds: float, pause_s: float) -> None:
        self._start(callers, seconds, pause_s)
        self._callers.receive()

    def _start(self, callers: int, seconds: float, pause_s: float) -> float:
        """Starts the callers, returns when they have stopped, with the CPU seconds that the server used meanwhile."""
        searches = tuple(self.searches(number) for number in range(callers))
        self._callers.send(msgspec.json.encode(Load(self._server.url, seconds, searches, refused_pause_s=pause_s)))
        self._callers.receive()
        before = cpu_seconds(self._server.pid)
        self._callers.receive()
        return cpu_seconds(self._server.pid) - before

    def _finish(self, callers: int, cpu_s: float, *, is_impatient: bool) -> Level:
        results = msgspec.json.decode(self._callers.receive(), type=tuple[CallResult, ...])
        start, end = self._effort.warmup_s, self._effort.seconds
        counted = tuple(result for result in results if start <= result.at_s <= end)
        return Level(callers, is_impatient, counted, end - start, cpu_s)


def measure(effort: Effort, cores: Cores) -> OverloadResult:
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        scratch = Path(name)
        cache_dir = Path(tempfile.gettempdir()) if effort.caches_libraries else scratch
        library = asyncio.run(cached_library(effort.sizes, cache_dir))
        command = python("bench.callers")
        with (
            start_server(library, effort.users, cores, deadline_factor=1) as server,
            child(command, cores.others, scratch / "callers.log") as callers,
            child(command, cores.others, scratch / "lone.log") as lone,
        ):
            generator = _LoadGenerator(server, callers, lone, effort)
            generator.warm_up()
            levels = [generator.run_level(count) for count in effort.levels]
            lone_results = generator.run_lone_caller()
            impatient = generator.run_level(effort.levels[-1], is_impatient=True)
            return OverloadResult((*levels, impatient), lone_results)


def report(result: OverloadResult) -> Iterator[str]:
    yield describe_machine_load()
    yield (
        f"{'callers':<22} {'answers/s':>9} {'of peak':>8} {'p50 ms':>8} {'p99 ms':>8} {'incomplete':>10} "
        f"{'refused/s':>9} {'p50 ms':>7} {'p99 ms':>7} {'CPU':>5}"
    )
    for level in result.levels:
        title = f"{level.callers}{', calling at once' if level.is_impatient else ''}"
        complete, refused = level.wall_ms("complete") or (0.0,), level.wall_ms("refused") or (0.0,)
        incomplete = level.count("partial") + level.count("empty")
        yield (
            f"{title:<22} {level.goodput:>9.1f} {level.goodput / result.peak:>8.2f} {percentile(complete, 50):>8.0f} "
            f"{percentile(complete, 99):>8.0f} {incomplete:>10} {level.count('refused') / level.seconds:>9.1f} "
            f"{percentile(refused, 50):>7.0f} {percentile(refused, 99):>7.0f} {level.cpu_s / level.seconds:>5.2f}"
        )
    wall_ms = [call.wall_ms for call in result.lone]
    yield (
        f"a lone caller when the load ends: {len(result.lone)} calls, p50 {percentile(wall_ms, 50):.0f} ms, complete "
        f"after {result.recovery_s:.2f} s"
    )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.overload", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="checks that the benchmark works; the figures are meaningless"
    )
    effort = QUICK if parser.parse_args(arguments).quick else FULL
    if not sys.platform.startswith("linux"):
        sys.exit("bench.overload reads CPU time from the Linux kernel; run it on Linux")
    result = measure(effort, Cores.choose())
    for line in [*report(result), result.as_line()]:
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
