"""Child processes and what the kernel says of them: processor time to the nanosecond, resident memory. Linux only."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

STOP_TIMEOUT_S = 15.0
_LAST_WORDS_CHARS = 2000
# The kernel's clock id of another process (CPUCLOCK_SCHED in include/linux/posix-timers_types.h), which
# clock_getcpuclockid(3) computes too: user and system time of all its threads, where /proc has ticks of 10 ms.
_CPUCLOCK_SCHED = 2


class ChildDied(Exception):
    """A child ended before it said what it was asked."""


def cpu_seconds(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)


def resident_bytes(pid: int) -> int:
    """VmRSS of proc(5)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ChildDied(f"process {pid} has no memory any more")


class Cores:
    """One processor for the servers and another for everybody else, where there are two and we may choose."""

    def __init__(self, allowed: Sequence[int]) -> None:
        apart = len(allowed) >= 2
        self.servers = frozenset(allowed[:1]) if apart else frozenset(allowed)
        self.others = frozenset(allowed[1:]) if apart else frozenset(allowed)
        self.apart = apart

    @classmethod
    def choose(cls) -> "Cores":
        return cls(sorted(os.sched_getaffinity(0)))


class Child:
    """A process that speaks in lines."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin: IO[bytes] = process.stdin
        self._stdout: IO[bytes] = process.stdout
        self._log = log
        self.pid = process.pid

    def say(self, line: bytes) -> None:
        self._stdin.write(line + b"\n")
        self._stdin.flush()

    def hear(self) -> bytes:
        line = self._stdout.readline()
        if not line:
            raise ChildDied(f"process {self.pid} ended; its last words:\n{self._log.read_text()[-_LAST_WORDS_CHARS:]}")
        return line


@contextmanager
def child(
    command: Sequence[str],
    cores: frozenset[int],
    log: Path,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Iterator[Child]:
    """Runs for as long as the block; its standard error goes to the log."""
    pipe = subprocess.PIPE
    with log.open("ab") as errors:
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, env=environment, cwd=directory)
    try:
        with suppress(PermissionError):  # a container may forbid it; the figures are then a little noisier
            os.sched_setaffinity(process.pid, cores)
        yield Child(process, log)
    finally:
        _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    with process:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()


def python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]
