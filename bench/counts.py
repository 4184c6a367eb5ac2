"""`make bench-counts`: how many functions and statements a call executes, and what commands load.

Unlike times, these figures are nearly the same on every machine. `bench/counts.toml` has them as of the last change
that was meant; the benchmark fails if one has grown by more than 5 %. `--update` writes the file.
"""

import argparse
import socket
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from bench.load import parse_http_response, split_response
from bench.processes import Child, Cores, child, python
from bench.protocol_cases import ECHO, INFO
from bench.request_templates import FIRST_ID, ToolCall, modern_request
from bench.servers import Announcement
from bench.servers.counted import Counts
from bench.startup import INITIALIZE, environment, free_port, wait_until_open

TABLE = Path(__file__).with_suffix(".toml")
GROWTH_MAX = 1.05
# The figures of a call are the medians of this many: other tasks of the server run now and then.
_CALLS = 9
_WARMUP_CALLS = 5
_TIMEOUT_S = 60.0
_QUERY = "what happened to wheel seven"
# Starts a command as its script does, and prints the number of loaded modules and the CPU seconds when it ends.
_LAUNCHER = """
import atexit, sys, time
atexit.register(lambda: print(len(sys.modules), time.process_time(), file=sys.stderr))
sys.argv = ["florilegium", *sys.argv[1:]]
from importlib.metadata import entry_points
[script] = entry_points(group="console_scripts", name="florilegium")
script.load()()
"""


class CountedServer:
    def __init__(self, process: Child) -> None:
        announcement = msgspec.json.decode(process.receive(), type=Announcement)
        address = urlsplit(announcement.url)
        self._process = process
        self._url = f"{announcement.url}/mcp"
        self._token = announcement.accounts[0].token
        self._connection = socket.create_connection((address.hostname, address.port), _TIMEOUT_S)
        self._last_id = FIRST_ID

    def close(self) -> None:
        self._connection.close()

    def count(self, call: ToolCall) -> Counts:
        """Returns the medians of several calls, without what the server does to start and end a count."""
        for _ in range(_WARMUP_CALLS):
            self._send(call)
        counted = [self._count_one(call) for _ in range(_CALLS)]
        nothing = [self._count_one(None) for _ in range(_CALLS)]
        return Counts(
            python=_median(counts.python for counts in counted) - _median(counts.python for counts in nothing),
            c=_median(counts.c for counts in counted) - _median(counts.c for counts in nothing),
            statements=_median(counts.statements for counts in counted),
        )

    def _count_one(self, call: ToolCall | None) -> Counts:
        self._process.send(b"")
        self._process.receive()
        if call is not None:
            self._send(call)
        self._process.send(b"")
        return msgspec.json.decode(self._process.receive(), type=Counts)

    def _send(self, call: ToolCall) -> None:
        self._last_id += 1
        self._connection.sendall(modern_request(self._url, call, self._token).render(self._last_id))
        received = b""
        while (parsed := parse_http_response(received)) is None:
            received += self._connection.recv(65_536)
        split_response(parsed[0], self._last_id, "")


def _median(values: Iterable[int]) -> int:
    return statistics.median_low(values)


def measure_calls(scratch: Path, cores: Cores) -> dict[str, int]:
    with child(
        python("bench.servers.counted", str(scratch / "data")), cores.servers, scratch / "counted.log"
    ) as process:
        server = CountedServer(process)
        try:
            echo, info = server.count(ECHO), server.count(INFO)
            search = server.count(ToolCall("knowledge_search", {"query": _QUERY, "dedupe": "off"}))
            one_source = server.count(ToolCall("notes_search", {"query": "wheel"}))
            write = server.count(ToolCall("notes_create", {"title": "Wheel seven", "content": "It was greased again."}))
        finally:
            server.close()
    return {
        "echo_calls": echo.python + echo.c,
        "info_calls": info.python + info.c,
        "search_calls": search.python + search.c,
        "search_statements": search.statements,
        "one_source_calls": one_source.python + one_source.c,
        "one_source_statements": one_source.statements,
        "write_calls": write.python + write.c,
        "write_statements": write.statements,
    }


def measure_commands(scratch: Path) -> tuple[dict[str, int], dict[str, float]]:
    """Returns the numbers of loaded modules, and CPU seconds, which are printed only."""
    data = environment(data_dir=str(scratch / "library"), semantic_model="off")
    commands: dict[str, tuple[list[str], bytes]] = {
        "demo": (["demo"], b""),
        "version": (["--version"], b""),
        "search_help": (["search", "--help"], b""),
        "search": (["search", "wheel"], b""),
        "stdio": (["stdio"], msgspec.json.encode(INITIALIZE) + b"\n"),
        "serve_help": (["serve", "--help"], b""),
    }
    modules, seconds = {}, {}
    for name, (arguments, text) in commands.items():
        command = [sys.executable, "-c", _LAUNCHER, *arguments]
        # Twice, because the first run may compile modules.
        done = [
            subprocess.run(command, input=text, capture_output=True, env=data, cwd=scratch, check=True)
            for _ in range(2)
        ]
        count, cpu_s = done[-1].stderr.decode().split()[-2:]
        modules[f"{name}_modules"], seconds[name] = int(count), float(cpu_s)
    modules["serve_modules"], seconds["serve"] = _measure_serve(scratch, data)
    return modules, seconds


def _measure_serve(scratch: Path, variables: Mapping[str, str]) -> tuple[int, float]:
    port = free_port()
    command = [sys.executable, "-c", _LAUNCHER, "serve", "--port", str(port)]
    log = scratch / "serve.log"
    with child(command, Cores.choose().servers, log, variables, scratch):
        wait_until_open(port)
    count, cpu_s = log.read_text().split()[-2:]
    return int(count), float(cpu_s)


def grown(figures: Mapping[str, int], before: Mapping[str, int]) -> list[str]:
    """Returns a line for each figure that has grown too much, or that is not in the table."""
    lines = []
    for name, value in figures.items():
        if name not in before:
            lines.append(f"{name} is not in {TABLE.name}")
        elif value > before[name] * GROWTH_MAX:
            lines.append(f"{name} has grown from {before[name]} to {value}")
    return lines


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.counts", description=__doc__)
    parser.add_argument("--update", action="store_true", help=f"write the figures to {TABLE.name}")
    is_update = parser.parse_args(arguments).update
    before = tomllib.loads(TABLE.read_text())["counts"] if TABLE.exists() else {}
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        figures = measure_calls(Path(name), Cores.choose())
        modules, seconds = measure_commands(Path(name))
    figures |= modules
    print(f"{'':<24} {'now':>8} {'table':>8}")
    for key, value in figures.items():
        print(f"{key:<24} {value:>8} {before.get(key, '-'):>8}")
    print("CPU seconds: " + ", ".join(f"{key} {value:.2f}" for key, value in seconds.items()))
    if is_update:
        lines = [f"{key} = {value}" for key, value in figures.items()]
        TABLE.write_text(
            "\n".join(["# What `make bench-counts` compares with; see bench/counts.py.", "[counts]", *lines, ""])
        )
    print("RESULT " + " ".join(f"{key}={value}" for key, value in figures.items()))
    if not is_update and (problems := grown(figures, before)):
        sys.exit(
            "\n".join([*problems, "If that is meant, run `make bench-counts ARGS=--update` and commit the table."])
        )


if __name__ == "__main__":
    main(sys.argv[1:])
