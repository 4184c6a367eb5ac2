"""What the command costs before any load: processor time until stdio answers, memory of a server that idles."""

import os
import secrets
import socket
import sys
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from auth.principal import READ
from auth.tokens import mint_token
from bench.load import split_answer, take_http
from bench.processes import Cores, child, cpu_seconds, resident_bytes
from bench.subjects import INFO
from bench.wires import FIRST_ID, LEGACY, modern_line
from config.settings import Settings

START_TIMEOUT_S = 30.0
_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}


class IdleMemory(Struct, frozen=True):
    after_start_bytes: int
    after_call_bytes: int


def command() -> str:
    """The installed script of the environment that runs the benchmark."""
    return str(Path(sys.executable).with_name("florilegium"))


def environment(**settings: str) -> dict[str, str]:
    """Ours, without the settings that happen to be set in it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLORILEGIUM_")}
    return kept | {f"FLORILEGIUM_{name.upper()}": value for name, value in settings.items()}


def stdio_start_cpu_seconds(scratch: Path, cores: Cores, runs: int) -> list[float]:
    """From the start of the process to its answer to `initialize`, each time with an empty data directory.

    One run before them is not counted: it compiles the modules, which an installed package does only once.
    """
    return [_one_start(scratch, scratch / f"stdio{number}", cores) for number in range(runs + 1)][1:]


def _one_start(scratch: Path, data_dir: Path, cores: Cores) -> float:
    start = [command(), "stdio"]
    with child(start, cores.servers, scratch / "stdio.log", environment(data_dir=str(data_dir)), scratch) as stdio:
        stdio.say(msgspec.json.encode(_INITIALIZE))
        answer = msgspec.json.decode(stdio.hear())
        spent = cpu_seconds(stdio.pid)
    assert answer["result"]["protocolVersion"] == LEGACY
    return spent


def idle_memory(scratch: Path, cores: Cores) -> IdleMemory:
    """`florilegium serve` with tokens configured: before anybody called, and after one authenticated call."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    settings = Settings(data_dir=str(scratch / "idle"), port=port, jwt_secret=secrets.token_urlsafe(32))
    told = environment(
        data_dir=settings.data_dir, port=str(port), jwt_secret=settings.jwt_secret, jwt_create_users="true"
    )
    with child([command(), "serve"], cores.servers, scratch / "idle.log", told, scratch) as server:
        _wait_until_open(port)
        after_start = resident_bytes(server.pid)
        _call_once(settings)
        return IdleMemory(after_start, resident_bytes(server.pid))


def _wait_until_open(port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _call_once(settings: Settings) -> None:
    token = mint_token(settings, "idle", (READ,), lifetime_s=600, now=time.time(), client_id="bench")
    line = modern_line(settings.resource_url, INFO, token)
    with socket.create_connection((settings.host, settings.port), timeout=START_TIMEOUT_S) as connection:
        connection.sendall(b"%b%d%b" % (line.before, FIRST_ID, line.after))
        received = b""
        while (taken := take_http(received)) is None:
            received += connection.recv(65_536)
    split_answer(taken[0], FIRST_ID, '"name":"florilegium"')
