"""`florilegium serve` as a process, started as systemd does it, with a socket that receives its notifications."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.live import JWT_SECRET
from tests.server.http_client import WAIT_MAX_S

# Moves the socket to descriptor 3 and becomes the server, so that LISTEN_PID is its process id.
_ACTIVATE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.execve(sys.executable, sys.argv[2:], {**os.environ, "LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())})
"""


class NotifySocket:
    """What the server tells the service manager, as lists of assignments."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.setblocking(False)

    async def wait_for(self, assignment: str) -> list[str]:
        """Returns the next message with the assignment. Others are dropped."""
        async with asyncio.timeout(WAIT_MAX_S):
            while True:
                data = await asyncio.get_running_loop().sock_recv(self._socket, 4096)
                lines = data.decode().split("\n")
                if assignment in lines:
                    return lines

    def close(self) -> None:
        self._socket.close()


class ServerProcess:
    """A running server."""

    def __init__(self, process: asyncio.subprocess.Process, notifications: NotifySocket) -> None:
        self._process = process
        self.notifications = notifications

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def wait(self) -> tuple[int | None, str]:
        """Returns the exit code and the log, once the server has ended."""
        _, stderr = await asyncio.wait_for(self._process.communicate(), WAIT_MAX_S)
        return self._process.returncode, stderr.decode()


@asynccontextmanager
async def server_process(
    config: Path, notifications: NotifySocket, listener: socket.socket, *, watchdog_s: float = 60
) -> AsyncIterator[ServerProcess]:
    """Starts a server on a listening socket. `NotifySocket.wait_for` tells when it is ready."""
    command = (sys.executable, "-m", "server.cli", "--config", str(config), "serve")
    # Variables of the test run that begin with FLORILEGIUM_ would be read as settings.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("FLORILEGIUM_")}
    variables |= {"NOTIFY_SOCKET": notifications.path, "WATCHDOG_USEC": str(round(watchdog_s * 1e6))}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _ACTIVATE, str(listener.fileno()), *command),
        env=variables,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=[listener.fileno()],
    )
    try:
        yield ServerProcess(process, notifications)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def listen() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def write_config(folder: Path, **settings: object) -> Path:
    """Writes a settings file for a server whose tokens tests can mint."""
    defaults = {"data_dir": str(folder / "data"), "jwt_secret": JWT_SECRET, "jwt_create_users": True}
    values = {**defaults, "log_format": "json", **settings}
    path = folder / "florilegium.toml"
    # JSON writes texts, numbers, booleans and lists as TOML does.
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
    path.chmod(0o600)
    return path
