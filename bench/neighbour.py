"""`make bench-neighbour`: how much slower a quiet user's searches become next to busy users.

A quiet user searches a few times per second: alone, next to 8 searchers who send one search after the other, and
next to an import and 16 such searchers. The three take turns in short rounds, so that they see the same machine,
and the 99th percentile of the quiet user's response time is compared.
"""

import argparse
import asyncio
import io
import itertools
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.callers import CallResult, Load
from bench.library import REFERENCE, SEED, Sizes, cached_library
from bench.processes import Child, Cores, child, describe_machine_load, python
from bench.prose import Prose
from bench.search import BenchServer, make_queries, mixed_queries, start_server
from bench.search_clients import SearchRequest
from bench.sources import percentile

_SEARCHERS = 8
_SEARCHERS_WITH_IMPORT = 16
_IMPORT_PATH = "/api/v1/import"
_NOTE_WORDS = 120
# Generating a text takes longer than importing it, so some notes have the same.
_TEXTS = 200


class Effort(Struct, frozen=True):
    """Busy users have a library of `sizes`, as the quiet one has, and each searcher belongs to one of `busy_users`."""

    sizes: Sizes
    busy_users: int
    rounds: int
    seconds: float
    pause_s: float
    imported_notes: int
    caches_libraries: bool


FULL = Effort(
    sizes=REFERENCE.times(0.1),
    busy_users=4,
    rounds=4,
    seconds=12,
    pause_s=0.05,
    imported_notes=15_000,
    caches_libraries=True,
)
QUICK = Effort(
    sizes=REFERENCE.times(0.002),
    busy_users=2,
    rounds=1,
    seconds=1,
    pause_s=0.02,
    imported_notes=200,
    caches_libraries=False,
)


class NeighbourResult(Struct, frozen=True):
    """The quiet user's response times in milliseconds, and the busy users' searches and imported items per second."""

    alone_ms: tuple[float, ...]
    with_searchers_ms: tuple[float, ...]
    with_import_ms: tuple[float, ...]
    searches_per_s: float
    searches_beside_import_per_s: float
    imported_per_s: float

    @property
    def search_ratio(self) -> float:
        return percentile(self.with_searchers_ms, 99) / percentile(self.alone_ms, 99)

    @property
    def import_ratio(self) -> float:
        return percentile(self.with_import_ms, 99) / percentile(self.alone_ms, 99)

    def as_line(self) -> str:
        return f"RESULT search_p99_x={self.search_ratio:.1f} import_p99_x={self.import_ratio:.1f}"


class ImportState(Struct, frozen=True):
    id: str
    state: str
    items: int


class _Rest:
    """Calls of one user over REST."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}

    def start_import(self, file: bytes, name: str) -> ImportState:
        headers = {**self._headers, "Content-Type": "application/octet-stream"}
        return self._send(f"{_IMPORT_PATH}?name={name}", "POST", headers, file)

    def get_import(self, job_id: str) -> ImportState:
        return self._send(f"{_IMPORT_PATH}/{job_id}", "GET", self._headers)

    def cancel_import(self, job_id: str) -> ImportState:
        return self._send(f"{_IMPORT_PATH}/{job_id}", "DELETE", self._headers)

    def _send(self, path: str, method: str, headers: dict[str, str], body: bytes | None = None) -> ImportState:
        request = urllib.request.Request(self._url + path, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as response:
            return msgspec.json.decode(response.read(), type=ImportState)


def markdown_vault(notes: int, stream: str) -> bytes:
    """Returns a zip of Markdown files. Each stream has different texts, so that importing another one is new work."""
    prose, file = Prose(SEED, stream=f"neighbour {stream}"), io.BytesIO()
    texts = [prose.text(_NOTE_WORDS) for _ in range(_TEXTS)]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for number in range(notes):
            archive.writestr(f"vault/{stream}-{number}.md", f"# {prose.words(3)}\n\n{texts[number % _TEXTS]}\n")
    return file.getvalue()


class _Neighbourhood:
    """A server with a quiet user, the first account, and busy users, the others; and the processes that call it."""

    def __init__(self, server: BenchServer, quiet: Child, busy: Child, effort: Effort) -> None:
        self._server = server
        self._quiet = quiet
        self._busy = busy
        self._effort = effort
        self._queries = itertools.cycle(mixed_queries("neighbour", 600))
        self._broad_queries = make_queries("question", "neighbour", 200)
        self.searches = 0
        self.searches_beside_import = 0
        self.imported = 0

    def run_alone(self, seconds: float) -> list[float]:
        token = self._server.announcement.accounts[0].token
        searches = tuple(SearchRequest(token, next(self._queries)) for _ in range(100))
        load = Load(self._server.url, seconds, (searches,), pause_s=self._effort.pause_s)
        self._quiet.send(msgspec.json.encode(load))
        for _ in ("started", "stopped"):
            self._quiet.receive()
        results = msgspec.json.decode(self._quiet.receive(), type=list[CallResult])
        assert all(result.outcome == "complete" for result in results), results
        return [result.wall_ms for result in results]

    def run_beside_searchers(self, seconds: float, searchers: int = _SEARCHERS) -> tuple[list[float], int]:
        """Returns the quiet user's times and the number of the others' searches. They start first and stop later."""
        accounts = self._server.announcement.accounts[1:]
        load = Load(
            self._server.url,
            seconds + 2,
            tuple(
                tuple(SearchRequest(accounts[number % len(accounts)].token, query) for query in self._broad_queries)
                for number in range(searchers)
            ),
        )
        self._busy.send(msgspec.json.encode(load))
        self._busy.receive()
        time.sleep(1.0)
        wall_ms = self.run_alone(seconds)
        self._busy.receive()
        results = msgspec.json.decode(self._busy.receive(), type=list[CallResult])
        return wall_ms, sum(result.outcome == "complete" for result in results)

    @contextmanager
    def importing(self, stream: str) -> Iterator[None]:
        """Imports for the duration of the block, which begins when the first items are written."""
        rest = _Rest(self._server.announcement.url, self._server.announcement.accounts[-1].token)
        job = rest.start_import(markdown_vault(self._effort.imported_notes, stream), f"{stream}.zip")
        while not (before := rest.get_import(job.id)).items and before.state == "running":
            time.sleep(0.1)
        yield
        self.imported += rest.cancel_import(job.id).items - before.items


def measure(effort: Effort, cores: Cores) -> NeighbourResult:
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        scratch = Path(name)
        cache_dir = Path(tempfile.gettempdir()) if effort.caches_libraries else scratch
        library = asyncio.run(cached_library(effort.sizes, cache_dir))
        command = python("bench.callers")
        with (
            start_server(library, 1 + effort.busy_users, cores) as server,
            child(command, cores.others, scratch / "quiet.log") as quiet,
            child(command, cores.others, scratch / "busy.log") as busy,
        ):
            return _measure(_Neighbourhood(server, quiet, busy, effort), effort)


def _measure(neighbourhood: _Neighbourhood, effort: Effort) -> NeighbourResult:
    neighbourhood.run_beside_searchers(effort.seconds / 4)  # warm-up, which opens every library
    alone, beside_searchers, beside_import = list[float](), list[float](), list[float]()
    searches = searches_beside_import = 0
    for number in range(effort.rounds):
        alone += neighbourhood.run_alone(effort.seconds)
        wall_ms, count = neighbourhood.run_beside_searchers(effort.seconds)
        beside_searchers += wall_ms
        searches += count
        with neighbourhood.importing(f"round-{number}"):
            wall_ms, count = neighbourhood.run_beside_searchers(effort.seconds, _SEARCHERS_WITH_IMPORT)
        beside_import += wall_ms
        searches_beside_import += count
    seconds = effort.rounds * (effort.seconds + 2)
    return NeighbourResult(
        tuple(alone),
        tuple(beside_searchers),
        tuple(beside_import),
        searches / seconds,
        searches_beside_import / seconds,
        neighbourhood.imported / seconds,
    )


def report(result: NeighbourResult) -> Iterator[str]:
    yield describe_machine_load()
    yield f"{'a quiet user searches':<36} {'searches':>8} {'p50 ms':>7} {'p99 ms':>7} {'x alone':>8}"
    rows = (
        ("alone", result.alone_ms, 1.0),
        (f"with {_SEARCHERS} searchers", result.with_searchers_ms, result.search_ratio),
        (f"with an import and {_SEARCHERS_WITH_IMPORT} searchers", result.with_import_ms, result.import_ratio),
    )
    for title, wall_ms, ratio in rows:
        p50, p99 = percentile(wall_ms, 50), percentile(wall_ms, 99)
        yield f"{title:<36} {len(wall_ms):>8} {p50:>7.1f} {p99:>7.1f} {ratio:>8.1f}"
    yield (
        f"the others: {result.searches_per_s:.1f} searches/s; with the import "
        f"{result.searches_beside_import_per_s:.1f} searches/s and {result.imported_per_s:.0f} imported items/s"
    )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.neighbour", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="checks that the benchmark works; the figures are meaningless"
    )
    effort = QUICK if parser.parse_args(arguments).quick else FULL
    result = measure(effort, Cores.choose())
    for line in [*report(result), result.as_line()]:
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
