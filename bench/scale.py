"""`make bench-scale`: searches of many users on PostgreSQL and Valkey, with one and two workers.

`knowledge_search` is called over HTTP on `florilegium serve`, one call after the other, in turn with the plain SQL of
the same queries: for each source the statement that finds and ranks the matching entries, and the one that reads their
rows, sent by asyncpg to the same server. Then concurrent clients of many users call servers with one and two workers.
Every answer is checked: all titles must have the mark of the user who asked.
"""

import argparse
import asyncio
import itertools
import os
import random
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import msgspec
from msgspec import Struct

from bench import redis_cost
from bench.library import SEED
from bench.load import UnexpectedResponse
from bench.processes import describe_machine_load, private_bytes
from bench.prose import Prose
from bench.request_templates import FIRST_ID, ToolCall, modern_request
from bench.scale_libraries import LibrarySizes, LibraryUser, build_users
from bench.search_clients import SearchClient
from bench.sources import KINDS, LIMIT, ORDINARY_KINDS, percentile
from config.settings import Settings, check
from sources.query import parse
from sources.storage.postgres.search.tsquery_engine import TARGETS, TSQUERY, EntrySql
from sources.storage.postgres.statements import tenant_statement
from sources.storage.postgres.tables import TENANT_SETTING
from sources.storage.search.engine import SearchTarget, select_listed
from sources.storage.search.text_search import MatchTier
from sources.storage.tables.dialect import POSTGRES
from sources.storage.tables.sql import SqlFilter, json_array
from tests.build_settings import build_settings
from tests.live import free_port
from tests.servers.postgres import create_database, postgres_server
from tests.servers.shared import prepare_directory, remove_directory, running_servers
from tests.servers.valkey import own_valkey

_STARTS_WITHIN_S = 60.0
# How many libraries one backend searches to see how much it grows.
_BACKEND_LIBRARIES = 300
# Of the server and of the plain SQL.
_STATEMENT_CACHE = 1_000
_PASSED_SETTINGS = (
    "data_dir",
    "port",
    "jwt_secret",
    "storage_url",
    "session_url",
    "semantic_model",
    "postgres_statement_cache",
    "rate_user_per_minute",
    "rate_tool_per_minute",
)
_TARGETS = (
    TARGETS["notes"],
    TARGETS["media"],
    TARGETS["chats"],
    TARGETS["characters"],
    TARGETS["prompts"],
)


class Effort(Struct, frozen=True):
    users: int
    searches: int
    warmup: int
    clients: int
    load_s: float
    redis_calls: int


FULL = Effort(users=5_000, searches=200, warmup=40, clients=16, load_s=10.0, redis_calls=400)
QUICK = Effort(users=4, searches=6, warmup=2, clients=2, load_s=1.0, redis_calls=10)


class ScaleResult(Struct, frozen=True):
    """Times in milliseconds; `rates` are the answers per second by number of workers."""

    libraries: int
    sizes: LibrarySizes
    build_s: float
    plain_ms: tuple[float, ...]
    ours_ms: tuple[float, ...]
    rates: dict[int, float]
    backend_bytes: int
    libraries_touched: int
    redis: redis_cost.RedisCost
    answers: int
    wrong_tenant: int

    @property
    def ratio(self) -> float:
        return statistics.median(self.ours_ms) / statistics.median(self.plain_ms)

    def as_line(self) -> str:
        rates = " ".join(f"rps_{workers}={rate:.1f}" for workers, rate in self.rates.items())
        return (
            f"RESULT pg_ratio={self.ratio:.2f} pg_ms={statistics.median(self.ours_ms):.1f} {rates} "
            f"create_user_ms={self.sizes.create_ms:.1f} bytes_per_empty_user={self.sizes.empty_bytes:.0f} "
            f"relations={self.sizes.relations[1]} redis_added_p50_ms={self.redis.added_ms:.2f} "
            f"wrong_tenant={self.wrong_tenant}"
        )


# -- the plain SQL -----------------------------------------------------------------------------------------------------


class PlainSearch:
    """Runs the statements of a search on one connection, which keeps its prepared statements."""

    def __init__(self, connection: "asyncpg.Connection[Any]") -> None:
        self._connection = connection

    async def use(self, tenant: str) -> None:
        """Lexemes in queries get the tenant of the session."""
        await self._connection.execute(f"SET {TENANT_SETTING} = '{tenant}'")

    async def run(self, tenant: str, query: str) -> int:
        """Returns the number of rows."""
        found = 0
        for target in _TARGETS:
            numbers = [number for number, _, _ in await self._fetch(tenant, *_entries_sql(target, query))]
            if numbers:
                found += len(await self._fetch(tenant, select_listed(target.select, POSTGRES), (json_array(numbers),)))
        return found

    async def _fetch(self, tenant: str, sql: str, parameters: Sequence[Any]) -> list[Any]:
        return await self._connection.fetch(tenant_statement(sql).text, tenant, *parameters)


def _entries_sql(target: SearchTarget, query: str) -> tuple[str, Sequence[Any]]:
    expression = parse(query).expression
    assert expression is not None
    tier = MatchTier(TSQUERY.match_text(expression, target), "rank")
    return EntrySql(target, tier, SqlFilter(), target.item_bits, True).select_entries(LIMIT + 1, 0)


# -- the server and its clients ----------------------------------------------------------------------------------------


class _Hit(Struct, frozen=True):
    title: str


class _Content(Struct, frozen=True):
    results: list[_Hit]


class _Result(Struct, frozen=True, rename="camel"):
    structured_content: _Content


class _Response(Struct, frozen=True):
    id: int
    result: _Result


_decode = msgspec.json.Decoder(_Response).decode


class CheckedClient:
    """One connection. Counts the answers, and those with a hit of another user."""

    def __init__(self, url: str, client: SearchClient) -> None:
        self._url = url
        self._client = client
        self.answers = 0
        self.wrong = 0

    @classmethod
    async def open(cls, url: str) -> "CheckedClient":
        address = urlsplit(url)
        return cls(url, SearchClient(*await asyncio.open_connection(address.hostname, address.port)))

    async def search(self, user: LibraryUser, query: str) -> float:
        """Returns how long the answer took, in milliseconds."""
        call = ToolCall("knowledge_search", {"query": query, "limit": LIMIT})
        request_id = FIRST_ID + self.answers
        request = modern_request(self._url, call, user.token).render(request_id)
        started_at = time.perf_counter()
        body = await self._client.send(request)
        elapsed_ms = (time.perf_counter() - started_at) * 1000
        try:
            response = _decode(body)
        except msgspec.DecodeError as error:
            raise UnexpectedResponse(f"unexpected response {body[:500]!r}") from error
        self.answers += 1
        is_own = all(hit.title.endswith(user.mark) for hit in response.result.structured_content.results)
        self.wrong += not is_own or response.id != request_id
        return elapsed_ms

    async def close(self) -> None:
        await self._client.close()


def server_settings(directory: Path, storage_url: str, session_url: str) -> Settings:
    settings = build_settings(
        data_dir=str(directory),
        port=free_port(),
        jwt_secret=secrets.token_urlsafe(32),
        storage_url=storage_url,
        session_url=session_url,
        semantic_model="off",
        postgres_statement_cache=_STATEMENT_CACHE,
        rate_user_per_minute=1e6,
        rate_user_burst=1_000_000,
        rate_tool_per_minute=1e6,
        rate_tool_burst=1_000_000,
    )
    check(settings)
    return settings


@contextmanager
def serve(settings: Settings, workers: int) -> Iterator[str]:
    """Runs `florilegium serve` for the duration of the block and yields the address of its MCP endpoint."""
    environment = {f"FLORILEGIUM_{name.upper()}": str(getattr(settings, name)) for name in _PASSED_SETTINGS}
    log = Path(settings.data_dir) / f"server{workers}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "server.cli", "serve", "--workers", str(workers)],
            env={**os.environ, **environment},
            stdout=output,
            stderr=output,
        )
    url = f"http://127.0.0.1:{settings.port}/mcp"
    try:
        asyncio.run(_wait_until_open(settings.port, process, log))
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


async def _wait_until_open(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    async with asyncio.timeout(_STARTS_WITHIN_S):
        while process.poll() is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                return
    raise RuntimeError(f"the server did not start:\n{log.read_text()[-2000:]}")


def make_queries(stream: str) -> Iterator[str]:
    """Yields queries of alternating kinds, without end."""
    prose = Prose(SEED, stream=f"scale {stream}")
    for kind in itertools.cycle(ORDINARY_KINDS):
        yield KINDS[kind](prose)


# -- measurements ------------------------------------------------------------------------------------------------------


async def compare(
    url: str, settings: Settings, users: Sequence[LibraryUser], effort: Effort
) -> tuple[tuple[float, ...], tuple[float, ...], CheckedClient]:
    """Returns the times of the plain SQL and of `knowledge_search`, for the same queries of the same users."""
    connection = await asyncpg.connect(settings.storage_url, statement_cache_size=_STATEMENT_CACHE)
    client, plain = await CheckedClient.open(url), PlainSearch(connection)
    plain_ms, ours_ms = [], []
    choice, queries = random.Random(SEED), make_queries("compare")
    for number in range(effort.warmup + effort.searches):
        user, query = choice.choice(users), next(queries)
        # In turn the first: the second of the two finds the pages in memory.
        for is_plain in (True, False) if number % 2 else (False, True):
            if is_plain:
                await plain.use(user.tenant)
                started_at = time.perf_counter()
                await plain.run(user.tenant, query)
                plain_ms.append((time.perf_counter() - started_at) * 1000)
            else:
                ours_ms.append(await client.search(user, query))
    await connection.close()
    await client.close()
    return tuple(plain_ms[effort.warmup :]), tuple(ours_ms[effort.warmup :]), client


async def run_load(url: str, users: Sequence[LibraryUser], effort: Effort, stream: str) -> tuple[float, int, int]:
    """Returns the answers per second of concurrent clients, all answers, and those with hits of another user."""
    clients = [await CheckedClient.open(url) for _ in range(effort.clients)]
    ends_at = time.perf_counter() + effort.load_s

    async def work(number: int, client: CheckedClient) -> None:
        choice, queries = random.Random(f"{stream} {number}"), make_queries(f"{stream} {number}")
        while time.perf_counter() < ends_at:
            await client.search(choice.choice(users), next(queries))

    started_at = time.perf_counter()
    await asyncio.gather(*(work(number, client) for number, client in enumerate(clients)))
    elapsed_s = time.perf_counter() - started_at
    for client in clients:
        await client.close()
    answers = sum(client.answers for client in clients)
    return answers / elapsed_s, answers, sum(client.wrong for client in clients)


async def measure_backend(settings: Settings, users: Sequence[LibraryUser]) -> int:
    """Returns by how many bytes a backend grows that searches these libraries."""
    connection = await asyncpg.connect(settings.storage_url, statement_cache_size=0)
    pid, plain, query = (
        await connection.fetchval("SELECT pg_backend_pid()"),
        PlainSearch(connection),
        Prose(SEED).words(1),
    )
    for user in users[:1]:
        await plain.use(user.tenant)
        await plain.run(user.tenant, query)
    before = private_bytes(pid)
    for user in users:
        await plain.use(user.tenant)
        await plain.run(user.tenant, query)
    grown = private_bytes(pid) - before
    await connection.close()
    return grown


def measure(effort: Effort, directory: Path) -> ScaleResult:
    valkey_directory = directory / "valkey"
    valkey_directory.mkdir()
    with own_valkey(valkey_directory) as valkey:
        settings = server_settings(directory, create_database(postgres_server()), valkey.url)
        started_at = time.perf_counter()
        users, sizes = asyncio.run(build_users(settings, effort.users))
        build_s = time.perf_counter() - started_at
        rates, answers, wrong = {}, 0, 0
        with serve(settings, 1) as url:
            plain_ms, ours_ms, client = asyncio.run(compare(url, settings, users, effort))
            answers, wrong = client.answers, client.wrong
        for workers in (1, 2):
            with serve(settings, workers) as url:
                asyncio.run(run_load(url, users, effort, f"warm up {workers}"))
                rates[workers], more_answers, more_wrong = asyncio.run(run_load(url, users, effort, f"load {workers}"))
                answers, wrong = answers + more_answers, wrong + more_wrong
        touched = users[:_BACKEND_LIBRARIES]
        backend_bytes = asyncio.run(measure_backend(settings, touched))
    redis = asyncio.run(redis_cost.measure(effort.redis_calls))
    return ScaleResult(
        len(users), sizes, build_s, plain_ms, ours_ms, rates, backend_bytes, len(touched), redis, answers, wrong
    )


def report(result: ScaleResult) -> Iterator[str]:
    sizes = result.sizes
    yield f"{result.libraries:,} libraries built in {result.build_s:.0f} s, {sizes.copy_s:.2f} s for a copy"
    yield (
        f"a user with an empty library: {sizes.empty_bytes:.0f} bytes; the rows of 200 items: "
        f"{sizes.full_bytes / 1e6:.2f} MB; relations: {sizes.relations[0]} before, {sizes.relations[1]} after"
    )
    yield (
        f"a backend that has searched {result.libraries_touched:,} libraries: {result.backend_bytes / 1e6:.1f} MB more"
    )
    for name, times in (("plain SQL", result.plain_ms), ("knowledge_search", result.ours_ms)):
        yield f"{name}: p50 {percentile(times, 50):.1f} ms, p95 {percentile(times, 95):.1f} ms"
    yield f"answers checked: {result.answers:,}"
    yield f"without Redis {result.redis.without_ms:.2f} ms, with it {result.redis.with_ms:.2f} ms"
    yield result.as_line()


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that everything works")
    parser.add_argument("--users", type=int, help="the number of libraries")
    options = parser.parse_args(arguments)
    effort = QUICK if options.quick else FULL
    if options.users:
        effort = msgspec.structs.replace(effort, users=options.users)
    print(describe_machine_load())
    prepare_directory()
    try:
        with tempfile.TemporaryDirectory(prefix="florilegium-scale-") as directory:
            for line in report(measure(effort, Path(directory))):
                print(line)
    finally:
        for server in running_servers().values():
            if server.pid is not None:
                os.kill(server.pid, signal.SIGINT)
        remove_directory()


if __name__ == "__main__":
    main(sys.argv[1:])
