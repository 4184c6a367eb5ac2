"""The cost of starting: CPU time until stdio answers `initialize`, and the memory of an idle server."""

import os
import secrets
import socket
import sys
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from auth.context import READ
from auth.tokens import mint_token
from bench.load import parse_http_response, split_response
from bench.processes import Child, Cores, child, cpu_seconds, resident_bytes
from bench.protocol_cases import INFO
from bench.request_templates import FIRST_ID, LEGACY, modern_request
from config.settings import Settings

START_TIMEOUT_S = 30.0
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}


class IdleMemory(Struct, frozen=True):
    after_start_bytes: int
    after_call_bytes: int


def command() -> str:
    """Returns the installed script of the environment that runs the benchmark."""
    return str(Path(sys.executable).with_name("florilegium"))


def environment(**settings: str) -> dict[str, str]:
    """Returns this process's environment with these settings instead of any that are set in it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FLORILEGIUM_")}
    return inherited | {f"FLORILEGIUM_{name.upper()}": value for name, value in settings.items()}


def stdio_start_cpu_seconds(scratch: Path, cores: Cores, runs: int) -> list[float]:
    """Measures from process start to the response to `initialize`, each time with an empty data directory.

    A first run is not counted, because it compiles the modules.
    """
    return [_measure_start(scratch, scratch / f"stdio{number}", cores) for number in range(runs + 1)][1:]


def _measure_start(scratch: Path, data_dir: Path, cores: Cores) -> float:
    start = [command(), "stdio"]
    with child(start, cores.servers, scratch / "stdio.log", environment(data_dir=str(data_dir)), scratch) as stdio:
        stdio.send(msgspec.json.encode(INITIALIZE))
        response = msgspec.json.decode(stdio.receive())
        cpu_s = cpu_seconds(stdio.pid)
    assert response["result"]["protocolVersion"] == LEGACY
    return cpu_s


def idle_memory(scratch: Path, cores: Cores) -> IdleMemory:
    """Measures `florilegium serve` with tokens configured: before any call, and after one authenticated call."""
    port = free_port()
    settings = Settings(data_dir=str(scratch / "idle"), port=port, jwt_secret=secrets.token_urlsafe(32))
    variables = environment(
        data_dir=settings.data_dir, port=str(port), jwt_secret=settings.jwt_secret, jwt_create_users="true"
    )
    with child([command(), "serve"], cores.servers, scratch / "idle.log", variables, scratch) as server:
        wait_until_open(port)
        after_start = resident_bytes(server.pid)
        _call_once(settings)
        return IdleMemory(after_start, resident_bytes(server.pid))


def announced_mcp_url(server: Child) -> str:
    """Returns the MCP address of a server that prints the one of its console first."""
    [console_url] = [word for word in server.receive().decode().split() if word.startswith("http")]
    return f"{console_url}mcp"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def wait_until_open(port: int) -> None:
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
    request = modern_request(settings.resource_url, INFO, token)
    with socket.create_connection((settings.host, settings.port), timeout=START_TIMEOUT_S) as connection:
        connection.sendall(request.render(FIRST_ID))
        received = b""
        while (parsed := parse_http_response(received)) is None:
            received += connection.recv(65_536)
    split_response(parsed[0], FIRST_ID, '"name":"florilegium"')
