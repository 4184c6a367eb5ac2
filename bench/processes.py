"""Child processes, with their CPU time in nanoseconds and their resident memory from the kernel. Linux only."""

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
_LOG_TAIL_CHARS = 2000
# The clock id of another process (CPUCLOCK_SCHED in include/linux/posix-timers_types.h), as computed by
# clock_getcpuclockid(3): user and system time of all threads, whereas /proc has a resolution of 10 ms.
_CPUCLOCK_SCHED = 2


class ChildExited(Exception):
    """A child process exited before it responded."""


def cpu_seconds(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)


def describe_machine_load() -> str:
    """Returns a line for the reports of benchmarks that a busy machine distorts."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"load average of the machine (1, 5, 15 minutes): {load}"


def resident_bytes(pid: int) -> int:
    """Returns VmRSS of proc(5)."""
    return _status_bytes(pid, "VmRSS")


def private_bytes(pid: int) -> int:
    """Returns RssAnon of proc(5), which has no memory that processes share, such as the buffers of PostgreSQL."""
    return _status_bytes(pid, "RssAnon")


def _status_bytes(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise ChildExited(f"process {pid} has no resident memory")


class Cores:
    """The CPU cores for servers and for all other processes. They are separate if at least two are available."""

    def __init__(self, allowed: Sequence[int], *, may_separate: bool = True) -> None:
        self.are_separate = may_separate and len(allowed) >= 2
        self.servers = frozenset(allowed[:1]) if self.are_separate else frozenset(allowed)
        self.others = frozenset(allowed[1:]) if self.are_separate else frozenset(allowed)

    @classmethod
    def choose(cls) -> "Cores":
        return cls(sorted(os.sched_getaffinity(0)))

    def together(self) -> "Cores":
        """The same cores, all of them for every process."""
        return Cores(sorted(self.servers | self.others), may_separate=False)


class Child:
    """A process that communicates in lines over standard input and output."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin: IO[bytes] = process.stdin
        self._stdout: IO[bytes] = process.stdout
        self._log = log
        self.pid = process.pid

    def send(self, line: bytes) -> None:
        self._stdin.write(line + b"\n")
        self._stdin.flush()

    def receive(self) -> bytes:
        line = self._stdout.readline()
        if not line:
            raise ChildExited(
                f"process {self.pid} exited; its log ends with:\n{self._log.read_text()[-_LOG_TAIL_CHARS:]}"
            )
        return line


@contextmanager
def child(
    command: Sequence[str],
    cores: frozenset[int],
    log: Path,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Iterator[Child]:
    """Runs a command for the duration of the block. Its standard error is appended to the log."""
    pipe = subprocess.PIPE
    with log.open("ab") as errors:
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, env=environment, cwd=directory)
    try:
        with suppress(PermissionError):  # containers may forbid it; the figures are then a little noisier
            os.sched_setaffinity(process.pid, cores)
        yield Child(process, log)
    finally:
        _stop(process)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    with process:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()


def python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]
