"""`make bench-protocol`: CPU time per tool call of our transports, the official SDK and bare Starlette.

All servers run at the same time. A separate process loads one after the other, in an order that alternates from round
to round. CPU time is compared, because unlike wall time it does not depend on how busy the machine is.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from bench.load import READY, CallCount, Job
from bench.processes import Child, ChildExited, Cores, child, cpu_seconds, python
from bench.protocol_cases import CASES, SERVERS, Case, ServerName, requests_for
from bench.servers import Announcement
from bench.startup import IdleMemory, idle_memory, stdio_start_cpu_seconds

MEGABYTE = 1_000_000


class Effort(Struct, frozen=True):
    """How much is results."""

    rounds: int
    seconds: float
    connections: int
    warmup_calls: int
    starts: int


FULL = Effort(rounds=5, seconds=2.0, connections=32, warmup_calls=20, starts=5)
QUICK = Effort(rounds=3, seconds=0.05, connections=8, warmup_calls=1, starts=1)


class CaseResult(Struct, frozen=True):
    """The CPU time per call of one case, for each round."""

    case: Case
    calls: int
    cpu_ms: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.cpu_ms)


class Figures(Struct, frozen=True):
    """The figures in the RESULT line."""

    http_cpu_ms: float
    http_x_floor: float
    ws_cpu_ms: float
    sdk_ratio: float
    sdk_modern_ratio: float
    stdio_start_cpu_s: float
    idle_rss_mb: float

    def as_line(self) -> str:
        return (
            f"RESULT http_cpu_ms={self.http_cpu_ms:.3f} http_x_floor={self.http_x_floor:.2f} "
            f"ws_cpu_ms={self.ws_cpu_ms:.3f} sdk_ratio={self.sdk_ratio:.2f} "
            f"sdk_modern_ratio={self.sdk_modern_ratio:.2f} stdio_start_cpu_s={self.stdio_start_cpu_s:.3f} "
            f"idle_rss_mb={self.idle_rss_mb:.1f}"
        )


class RunningServer(Struct, frozen=True):
    """A server process and what it announced."""

    process: Child
    announcement: Announcement


def measure_calls(scratch: Path, cores: Cores, effort: Effort) -> dict[str, CaseResult]:
    with ExitStack() as stack:
        servers = {name: _start(stack, name, scratch, cores) for name in SERVERS}
        load = stack.enter_context(child(python("bench.load"), cores.others, scratch / "load.log"))
        jobs = [_job(case, servers[case.server].announcement, effort) for case in CASES]
        samples: dict[str, list[tuple[int, float]]] = {case.name: [] for case in CASES}
        for number in range(effort.rounds):
            order = list(zip(CASES, jobs, strict=True))
            for case, job in order if number % 2 == 0 else reversed(order):
                samples[case.name].append(_measure(load, job, servers[case.server].process.pid))
    return {case.name: _result(case, samples[case.name]) for case in CASES}


def _start(stack: ExitStack, name: ServerName, scratch: Path, cores: Cores) -> RunningServer:
    command = python(f"bench.servers.{name}", str(scratch / name))
    process = stack.enter_context(child(command, cores.servers, scratch / f"{name}.log"))
    return RunningServer(process, msgspec.json.decode(process.receive(), type=Announcement))


def _job(case: Case, announcement: Announcement, effort: Effort) -> Job:
    address = urlsplit(announcement.url)
    assert address.hostname is not None
    assert address.port is not None
    return Job(
        host=address.hostname,
        port=address.port,
        framing=case.framing,
        requests=requests_for(case, announcement, effort.connections),
        expected=case.expected,
        warmup_calls=effort.warmup_calls,
        seconds=effort.seconds,
    )


def _measure(load: Child, job: Job, server_pid: int) -> tuple[int, float]:
    """Returns the number of completed calls and the CPU seconds that the server used for them."""
    load.send(msgspec.json.encode(job))
    if load.receive() != READY:
        raise ChildExited("the load generator did not become ready")
    before = cpu_seconds(server_pid)
    load.send(b"go")
    count = msgspec.json.decode(load.receive(), type=CallCount)
    return count.calls, cpu_seconds(server_pid) - before


def _result(case: Case, samples: Sequence[tuple[int, float]]) -> CaseResult:
    per_call = tuple(seconds * 1000 / calls for calls, seconds in samples)
    return CaseResult(case, sum(calls for calls, _ in samples), per_call)


def sdk_ratios(results: Mapping[str, CaseResult]) -> dict[str, float]:
    """Returns the CPU time of the SDK divided by ours, for the same tool and protocol version."""
    return {
        "modern": results["sdk_echo"].median / results["http_echo"].median,
        "legacy": results["sdk_echo_legacy"].median / results["http_echo_legacy"].median,
    }


def figures(results: Mapping[str, CaseResult], starts: Sequence[float], memory: IdleMemory) -> Figures:
    return Figures(
        http_cpu_ms=results["http_info"].median,
        http_x_floor=results["http_echo"].median / results["floor"].median,
        ws_cpu_ms=results["ws_info"].median,
        sdk_ratio=sdk_ratios(results)["legacy"],
        sdk_modern_ratio=sdk_ratios(results)["modern"],
        stdio_start_cpu_s=statistics.median(starts),
        idle_rss_mb=max(memory.after_start_bytes, memory.after_call_bytes) / MEGABYTE,
    )


def report(results: Mapping[str, CaseResult], starts: Sequence[float], memory: IdleMemory) -> list[str]:
    floor = results["floor"].median
    rows = [
        f"{m.case.title:<44} {m.median:>8.3f} {min(m.cpu_ms):>8.3f} {max(m.cpu_ms):>8.3f} {m.median / floor:>7.2f}x"
        f" {m.calls:>8}"
        for m in results.values()
    ]
    ratios = sdk_ratios(results)
    resident = (memory.after_start_bytes / MEGABYTE, memory.after_call_bytes / MEGABYTE)
    return [
        f"{'CPU ms per tools/call':<44} {'median':>8} {'min':>8} {'max':>8} {'/floor':>8} {'calls':>8}",
        *rows,
        f"SDK / ours, echo: modern {ratios['modern']:.2f}, legacy {ratios['legacy']:.2f}",
        f"stdio, start to initialize response: CPU s {', '.join(f'{s:.3f}' for s in starts)}",
        f"florilegium serve, resident MB: {resident[0]:.1f} after start, {resident[1]:.1f} after one call",
    ]


def run(effort: Effort, cores: Cores) -> list[str]:
    """Returns the lines to print. The last one is the result."""
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        scratch = Path(name)
        starts = stdio_start_cpu_seconds(scratch, cores, effort.starts)
        memory = idle_memory(scratch, cores)
        results = measure_calls(scratch, cores, effort)
    return [*report(results, starts, memory), figures(results, starts, memory).as_line()]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.protocol", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="make only a few calls: checks that the benchmark works, the figures are meaningless",
    )
    effort = QUICK if parser.parse_args(arguments).quick else FULL
    if not sys.platform.startswith("linux"):
        sys.exit("bench.protocol reads CPU time and memory from the Linux kernel; run it on Linux")
    cores = Cores.choose()
    where = "separate cores" if cores.are_separate else "one core"
    print(
        f"{effort.rounds} rounds of {effort.seconds:g} s, {effort.connections} connections, servers and load on {where}"
    )
    for line in run(effort, cores):
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
