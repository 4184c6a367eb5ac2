"""Runs commands in processes that are forked from one that has already imported all commands.

Importing them takes longer than running most of them. A forked process has its own directory, environment and streams;
it runs the entry point of the program and ends like any other process. Tests of `serve` and `stdio`, and tests that
depend on how Python starts, need a new process instead.
"""

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import IO, Any

from server.cli import COMMANDS, main

_ROOT = Path(__file__).parents[3]
_POLL_S = 0.002


class ForkServer:
    """The process that forks. It ends with the process that started it."""

    def __init__(self) -> None:
        self._socket, other_end = socket.socketpair()
        self._lock = Lock()
        with other_end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.server.cli.fork_server", str(other_end.fileno())],
                cwd=_ROOT,
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(_ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[other_end.fileno()],
            )

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def run(
        self, arguments: Sequence[str], directory: Path, environment: Mapping[str, str], stdin: bytes, timeout_s: float
    ) -> subprocess.CompletedProcess[bytes]:
        command = {"arguments": arguments, "directory": str(directory), "environment": environment}
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            pid, status = self._start(command, stdin, stdout, stderr)
            with status:
                if not select.select([status], [], [], timeout_s)[0]:
                    os.kill(pid, signal.SIGKILL)
                    raise subprocess.TimeoutExpired(list(arguments), timeout_s)
                code = int(status.readline())
            stdout.seek(0)
            stderr.seek(0)
            return subprocess.CompletedProcess(list(arguments), code, stdout.read(), stderr.read())

    def _start(self, command: object, stdin: bytes, stdout: IO[bytes], stderr: IO[bytes]) -> tuple[int, IO[bytes]]:
        """Returns the id of the process, and a stream with its exit code once it has ended."""
        read_stdin, write_stdin = os.pipe()
        read_status, write_status = os.pipe()
        status = os.fdopen(read_status, "rb", buffering=0)
        descriptors = [read_stdin, stdout.fileno(), stderr.fileno(), write_status]
        with self._lock:  # the next command is sent when this one was received
            socket.send_fds(self._socket, [json.dumps(command).encode() + b"\n"], descriptors)
            pid = int(status.readline())
        os.close(read_stdin)
        os.close(write_status)
        with suppress(BrokenPipeError), os.fdopen(write_stdin, "wb") as file:
            file.write(stdin)
        return pid, status


@cache
def fork_server() -> ForkServer:
    server = ForkServer()
    atexit.register(server.close)
    return server


# -- the process that forks --------------------------------------------------------------------------------------------


def fork_commands(requests: socket.socket) -> None:
    """Forks for each command. Returns in the forked processes only, which then run their command."""
    # Where to report the exit code of each process.
    reports: dict[int, int] = {}
    while True:
        is_requested = select.select([requests], [], [], _POLL_S if reports else None)[0]
        report_exit_codes(reports)
        if not is_requested:
            continue
        command, descriptors = receive(requests)
        pid = os.fork()
        if pid == 0:
            for other in reports.values():
                os.close(other)
            requests.close()
            prepare(command, descriptors)
            return
        *streams, report = descriptors
        for stream in streams:
            os.close(stream)
        os.write(report, b"%d\n" % pid)
        reports[pid] = report


def receive(requests: socket.socket) -> tuple[dict[str, Any], list[int]]:
    message, descriptors, _, _ = socket.recv_fds(requests, 65_536, 4)
    if not message:
        sys.exit()
    while not message.endswith(b"\n"):
        message += requests.recv(65_536)
    return json.loads(message), descriptors


def report_exit_codes(reports: dict[int, int]) -> None:
    for pid in list(reports):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            report = reports.pop(pid)
            with suppress(BrokenPipeError):  # the command took too long
                os.write(report, b"%d\n" % os.waitstatus_to_exitcode(status))
            os.close(report)


def prepare(command: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Gives this process the streams, directory, environment and arguments of a command."""
    for target, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, target)
    for descriptor in descriptors:
        os.close(descriptor)
    os.chdir(command["directory"])
    os.environ.clear()
    os.environ.update(command["environment"])
    sys.argv[1:] = command["arguments"]


if __name__ == "__main__":
    for name in COMMANDS.values():
        import_module(name.partition(":")[0])
    gc.freeze()  # otherwise collections would copy the memory that the processes share
    fork_commands(socket.socket(fileno=int(sys.argv[1])))
    main()
