"""Starts Python programs by forking a process that has already imported them.

Importing takes longer than most programs run. A forked process has its own directory, environment and streams, and ends
like any other process. Only tests that depend on how Python starts need a new process instead.

There are two such processes: one for the commands, and a smaller one for the reader of imported files, which limits its
memory.
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
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import IO, Any, Generic, TypeVar
from unittest.mock import patch

from server.cli import COMMANDS
from server.cli import main as commands_main
from sources.importers.engine import reader_process
from sources.importers.reader import _main as reader_main

_ROOT = Path(__file__).parents[2]
# What `serve` imports when it runs.
_IMPORTED_BY_SERVE = ("server.app", "server.serving", "server.lifespan", "server.metrics")

Text = TypeVar("Text", str, bytes)


class ForkedProcess(Generic[Text]):
    """A process with the interface of `subprocess.Popen`. Its exit code comes from the process that forked it."""

    def __init__(self, pid: int, status: IO[bytes], stdin: IO[Text], stdout: IO[Text]) -> None:
        self.pid = pid
        self.stdin: IO[Text] = stdin
        self.stdout: IO[Text] = stdout
        self.returncode: int | None = None
        self._status = status

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            with self._status:
                self.returncode = int(self._status.readline())
        return self.returncode

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> "ForkedProcess[Text]":
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout):
            with suppress(BrokenPipeError):
                stream.close()
        self.wait()


class ForkServer:
    """The process that forks. It ends with the process that started it."""

    def __init__(self, program: str) -> None:
        self._socket, other_end = socket.socketpair()
        self._lock = Lock()
        with other_end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.servers.fork_server", program, str(other_end.fileno())],
                cwd=_ROOT,
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(_ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[other_end.fileno()],
            )

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def start(
        self,
        arguments: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        streams: Sequence[int],
    ) -> tuple[int, IO[bytes]]:
        """Returns the id of the process, and a stream with its exit code once it has ended."""
        command = {"arguments": arguments, "directory": str(directory), "environment": dict(environment)}
        read_status, write_status = os.pipe()
        status = os.fdopen(read_status, "rb", buffering=0)
        with self._lock:  # the next command is sent when this one was received
            socket.send_fds(self._socket, [json.dumps(command).encode() + b"\n"], [*streams, write_status])
            pid = int(status.readline())
        os.close(write_status)
        return pid, status


@cache
def _fork_server(program: str) -> ForkServer:
    server = ForkServer(program)
    atexit.register(server.close)
    return server


def start_command(
    arguments: Sequence[str], directory: Path, environment: Mapping[str, str], stderr: IO[Any]
) -> ForkedProcess[str]:
    """Starts a command of the program with pipes for text."""
    return _start("commands", arguments, directory, environment, stderr, _open_text)


def run_command(
    arguments: Sequence[str], directory: Path, environment: Mapping[str, str], stdin: bytes, timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    """Runs a command of the program to its end."""
    with (
        tempfile.TemporaryFile() as stderr,
        _start("commands", arguments, directory, environment, stderr, _open_binary) as process,
        ThreadPoolExecutor() as threads,
    ):
        output = threads.submit(process.stdout.read)
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(stdin)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        stderr.seek(0)
        return subprocess.CompletedProcess(list(arguments), code, output.result(), stderr.read())


def _open_binary(descriptor: int, mode: str) -> IO[bytes]:
    return os.fdopen(descriptor, f"{mode}b")


def _open_text(descriptor: int, mode: str) -> IO[str]:
    return os.fdopen(descriptor, mode)


def _start(
    program: str,
    arguments: Sequence[str],
    directory: Path,
    environment: Mapping[str, str],
    stderr: IO[Any],
    open_stream: Callable[[int, str], IO[Text]],
) -> ForkedProcess[Text]:
    (read_stdin, write_stdin), (read_stdout, write_stdout) = os.pipe(), os.pipe()
    streams = (read_stdin, write_stdout, stderr.fileno())
    pid, status = _fork_server(program).start(arguments, directory, environment, streams)
    os.close(read_stdin)
    os.close(write_stdout)
    return ForkedProcess(pid, status, open_stream(write_stdin, "w"), open_stream(read_stdout, "r"))


@contextmanager
def forked_readers() -> Iterator[None]:
    """Makes imports in this process fork the readers of files."""

    def start(
        command: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        stderr: IO[bytes],
        env: Mapping[str, str],
        process_group: int,
    ) -> ForkedProcess[bytes]:
        assert (stdin, stdout, process_group) == (subprocess.PIPE, subprocess.PIPE, 0)
        return _start("reader", command[-1:], Path.cwd(), env, stderr, _open_binary)

    replacement = SimpleNamespace(PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired, Popen=start)
    with patch.object(reader_process, "subprocess", replacement):
        yield


# -- the process that forks --------------------------------------------------------------------------------------------


def fork_commands(requests: socket.socket) -> None:
    """Forks for each command. Returns in the forked processes only, which then run their command."""
    # Where to report the exit code of each process.
    reports: dict[int, int] = {}
    # The end of a process interrupts the wait for the next command.
    ended, wake = os.pipe2(os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    while True:
        ready = select.select([requests.fileno(), ended], [], [])[0]
        if ended in ready:
            os.read(ended, 4_096)
            report_exit_codes(reports)
        if requests.fileno() not in ready:
            continue
        command, descriptors = receive(requests)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for other in (*reports.values(), ended, wake):
                os.close(other)
            requests.close()
            prepare(command, descriptors)
            return
        *streams, report = descriptors
        for stream in streams:
            os.close(stream)
        # Here, because it has to have happened when the process is known, and readers are ended as a group.
        os.setpgid(pid, pid)
        os.write(report, b"%d\n" % pid)
        reports[pid] = report


def receive(requests: socket.socket) -> tuple[dict[str, Any], list[int]]:
    message, descriptors, _, _ = socket.recv_fds(requests, 65_536, 4)
    if not message:
        os._exit(0)
    while not message.endswith(b"\n"):
        message += requests.recv(65_536)
    return json.loads(message), descriptors


def report_exit_codes(reports: dict[int, int]) -> None:
    for pid in list(reports):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            report = reports.pop(pid)
            with suppress(BrokenPipeError):  # nobody waits for it
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


def main() -> None:
    program, descriptor = sys.argv[1:]
    if program == "commands":
        for name in (*(name.partition(":")[0] for name in COMMANDS.values()), *_IMPORTED_BY_SERVE):
            import_module(name)
    gc.freeze()  # otherwise collections would copy the memory that the processes share
    fork_commands(socket.socket(fileno=int(descriptor)))
    run = commands_main if program == "commands" else partial(reader_main, int(sys.argv[1]))
    # Like multiprocessing: taking down the interpreter would copy all memory that the processes share.
    os._exit(exit_code(run))


def exit_code(run: Callable[[], None]) -> int:
    """Runs a program, and what Python runs at the end of one."""
    code: object = 0
    try:
        run()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    assert code is None or isinstance(code, int)
    return code or 0


if __name__ == "__main__":
    main()
