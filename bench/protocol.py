"""`make bench-protocol`: processor time per tool call of our doors, of the official SDK and of bare Starlette.

All servers are up together and are loaded one at a time by a process of its own, in an order that turns round with
every round. Processor time is compared, because it says the same on a busy machine; wall time would not.
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

from bench.load import READY, Answered, Job
from bench.processes import Child, ChildDied, Cores, child, cpu_seconds, python
from bench.servers import Announcement
from bench.startup import IdleMemory, idle_memory, stdio_start_cpu_seconds
from bench.subjects import SERVERS, SUBJECTS, ServerName, Subject, lines_of

MEGABYTE = 1_000_000


class Effort(Struct, frozen=True):
    """How much is measured."""

    rounds: int
    seconds: float
    connections: int
    warmup_calls: int
    starts: int


FULL = Effort(rounds=5, seconds=2.0, connections=32, warmup_calls=20, starts=5)
QUICK = Effort(rounds=3, seconds=0.05, connections=8, warmup_calls=1, starts=1)


class Measured(Struct, frozen=True):
    """One subject's processor time per call, a number for each round."""

    subject: Subject
    calls: int
    cpu_ms: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.cpu_ms)


class Figures(Struct, frozen=True):
    """What the benchmark is for."""

    http_cpu_ms: float
    ws_cpu_ms: float
    sdk_ratio: float
    sdk_modern_ratio: float
    stdio_start_cpu_s: float
    idle_rss_mb: float

    def as_line(self) -> str:
        return (
            f"RESULT http_cpu_ms={self.http_cpu_ms:.3f} ws_cpu_ms={self.ws_cpu_ms:.3f} sdk_ratio={self.sdk_ratio:.2f} "
            f"sdk_modern_ratio={self.sdk_modern_ratio:.2f} stdio_start_cpu_s={self.stdio_start_cpu_s:.3f} "
            f"idle_rss_mb={self.idle_rss_mb:.1f}"
        )


class Running(Struct, frozen=True):
    """A server that is up."""

    process: Child
    announcement: Announcement


def measure_calls(scratch: Path, cores: Cores, effort: Effort) -> dict[str, Measured]:
    with ExitStack() as stack:
        servers = {name: _start(stack, name, scratch, cores) for name in SERVERS}
        load = stack.enter_context(child(python("bench.load"), cores.others, scratch / "load.log"))
        jobs = [_job(subject, servers[subject.server].announcement, effort) for subject in SUBJECTS]
        samples: dict[str, list[tuple[int, float]]] = {subject.name: [] for subject in SUBJECTS}
        for number in range(effort.rounds):
            order = list(zip(SUBJECTS, jobs, strict=True))
            for subject, job in order if number % 2 == 0 else reversed(order):
                samples[subject.name].append(_measure(load, job, servers[subject.server].process.pid))
    return {subject.name: _measured(subject, samples[subject.name]) for subject in SUBJECTS}


def _start(stack: ExitStack, name: ServerName, scratch: Path, cores: Cores) -> Running:
    command = python(f"bench.servers.{name}", str(scratch / name))
    process = stack.enter_context(child(command, cores.servers, scratch / f"{name}.log"))
    return Running(process, msgspec.json.decode(process.hear(), type=Announcement))


def _job(subject: Subject, announcement: Announcement, effort: Effort) -> Job:
    address = urlsplit(announcement.url)
    assert address.hostname is not None
    assert address.port is not None
    return Job(
        host=address.hostname,
        port=address.port,
        framing=subject.framing,
        lines=lines_of(subject, announcement, effort.connections),
        expected=subject.expected,
        warmup_calls=effort.warmup_calls,
        seconds=effort.seconds,
    )


def _measure(load: Child, job: Job, server_pid: int) -> tuple[int, float]:
    """Calls answered and the server's processor seconds while they were."""
    load.say(msgspec.json.encode(job))
    if load.hear() != READY:
        raise ChildDied("the load generator did not get ready")
    before = cpu_seconds(server_pid)
    load.say(b"go")
    answered = msgspec.json.decode(load.hear(), type=Answered)
    return answered.calls, cpu_seconds(server_pid) - before


def _measured(subject: Subject, samples: Sequence[tuple[int, float]]) -> Measured:
    per_call = tuple(seconds * 1000 / calls for calls, seconds in samples)
    return Measured(subject, sum(calls for calls, _ in samples), per_call)


def sdk_ratios(measured: Mapping[str, Measured]) -> dict[str, float]:
    """The SDK against ours, the same tool over the same era's wire."""
    return {
        "modern": measured["sdk_echo"].median / measured["http_echo"].median,
        "legacy": measured["sdk_echo_legacy"].median / measured["http_echo_legacy"].median,
    }


def figures(measured: Mapping[str, Measured], starts: Sequence[float], memory: IdleMemory) -> Figures:
    return Figures(
        http_cpu_ms=measured["http_info"].median,
        ws_cpu_ms=measured["ws_info"].median,
        sdk_ratio=sdk_ratios(measured)["legacy"],
        sdk_modern_ratio=sdk_ratios(measured)["modern"],
        stdio_start_cpu_s=statistics.median(starts),
        idle_rss_mb=max(memory.after_start_bytes, memory.after_call_bytes) / MEGABYTE,
    )


def report(measured: Mapping[str, Measured], starts: Sequence[float], memory: IdleMemory) -> list[str]:
    floor = measured["floor"].median
    rows = [
        f"{m.subject.title:<44} {m.median:>8.3f} {min(m.cpu_ms):>8.3f} {max(m.cpu_ms):>8.3f} {m.median / floor:>7.2f}x"
        f" {m.calls:>8}"
        for m in measured.values()
    ]
    ratios = sdk_ratios(measured)
    resident = (memory.after_start_bytes / MEGABYTE, memory.after_call_bytes / MEGABYTE)
    return [
        f"{'CPU ms per tools/call':<44} {'median':>8} {'least':>8} {'most':>8} {'/floor':>8} {'calls':>8}",
        *rows,
        f"SDK / ours, echo: modern wire {ratios['modern']:.2f}, legacy wire {ratios['legacy']:.2f}",
        f"stdio start to the answer of initialize: CPU s {', '.join(f'{s:.3f}' for s in starts)}",
        f"florilegium serve, resident MB: {resident[0]:.1f} after start, {resident[1]:.1f} after one call",
    ]


def run(effort: Effort, cores: Cores) -> list[str]:
    """The lines to print; the last is the result."""
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        scratch = Path(name)
        starts = stdio_start_cpu_seconds(scratch, cores, effort.starts)
        memory = idle_memory(scratch, cores)
        measured = measure_calls(scratch, cores, effort)
    return [*report(measured, starts, memory), figures(measured, starts, memory).as_line()]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.protocol", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few calls each: shows that it works, measures nothing")
    effort = QUICK if parser.parse_args(arguments).quick else FULL
    if not sys.platform.startswith("linux"):
        sys.exit("bench.protocol reads processor time and memory from the Linux kernel; run it on Linux")
    cores = Cores.choose()
    where = "processors of their own" if cores.apart else "one processor"
    print(
        f"{effort.rounds} rounds of {effort.seconds:g} s, {effort.connections} connections, servers and load on {where}"
    )
    for line in run(effort, cores):
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
