"""Servers that all processes of a test run share.

pytest-xdist runs tests in several processes. The main process creates a directory and passes it on in the environment.
The first process that needs a server starts it and writes its address there; the main process stops it.
"""

import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct, json

# Without the prefix of the settings: programs that tests start reject unknown ones.
_VARIABLE = "TEST_SERVERS"


class SharedServer(Struct, frozen=True):
    """A server in use. `pid` is None if another program started it, which also stops it."""

    url: str
    version: str
    pid: int | None = None


def prepare_directory() -> None:
    """Called in the main process, before it starts others."""
    directory = tempfile.mkdtemp(prefix="florilegium-servers-")
    # Servers that refuse to run as root need to reach their own directories in it.
    Path(directory).chmod(0o711)
    os.environ[_VARIABLE] = directory


def directory() -> Path:
    return Path(os.environ[_VARIABLE])


def shared_server(name: str, start: Callable[[Path], SharedServer]) -> SharedServer:
    """Returns the server of this name. `start` is called once per run, with a directory for the server's files."""
    file = directory() / f"{name}.json"
    with (directory() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            home = directory() / name
            home.mkdir(mode=0o711)
            file.write_bytes(json.encode(start(home)))
        return json.decode(file.read_bytes(), type=SharedServer)


def running_servers() -> dict[str, SharedServer]:
    return {file.stem: json.decode(file.read_bytes(), type=SharedServer) for file in sorted(directory().glob("*.json"))}


@contextmanager
def prepared_directory() -> Iterator[None]:
    """Prepares the servers of a program other than pytest. One that a test started uses the servers of that run."""
    if _VARIABLE in os.environ:
        yield
        return
    prepare_directory()
    try:
        yield
    finally:
        stop_servers()


def stop_servers() -> None:
    """Stops the servers that were started, and removes their files. Called in the main process."""
    for server in running_servers().values():
        if server.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(server.pid, signal.SIGINT)
    remove_directory()


def remove_directory() -> None:
    shutil.rmtree(directory(), ignore_errors=True)
    del os.environ[_VARIABLE]
