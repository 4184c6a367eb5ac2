"""`make bench-scale`: searches of many users on PostgreSQL and Valkey, with one and two workers.

`knowledge_search` is called over HTTP on `florilegium serve`, one call after the other, in turn with the plain SQL of
the same queries: for each source the statement that finds and ranks the matching entries, and the one that reads their
rows, sent by asyncpg to the same server. `pg_ratio` is the median time of the calls divided by that of the plain SQL,
for users who have searched before. Their first searches are reported, too, the searches of which the plain SQL found
something (it looks for no similar words), and the CPU time. Then concurrent clients of many users call servers with one
and two workers. Every answer is checked: all titles must have the mark of the user who asked.
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
from bench.processes import cpu_seconds, describe_machine_load, private_bytes
from bench.prose import Prose
from bench.request_templates import FIRST_ID, ToolCall, modern_request
from bench.scale_libraries import LibrarySizes, LibraryUser, build_users
from bench.search_clients import SearchClient
from bench.sources import KINDS, LIMIT, ORDINARY_KINDS, percentile
from config.settings import Settings, check
from server.protocol.call import RETRY_AFTER_KEY
from sources.query import parse
from sources.storage.postgres.search.tsquery_engine import TARGETS, TSQUERY, EntrySql
from sources.storage.postgres.statements import tenant_statement
from sources.storage.postgres.tables import TENANT_SETTING
from sources.storage.search.engine import MatchTier, SearchTarget, select_listed
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
_PASSED_SETTINGS = (
    "data_dir",
    "port",
    "jwt_secret",
    "storage_url",
    "session_url",
    "semantic_model",
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
    # The users whose searches are compared with the plain SQL.
    searchers: int
    clients: int
    load_s: float
    redis_calls: int


FULL = Effort(users=5_000, searches=200, searchers=40, clients=16, load_s=10.0, redis_calls=400)
QUICK = Effort(users=4, searches=6, searchers=2, clients=2, load_s=1.0, redis_calls=10)


class Compared(Struct, frozen=True):
    """One query, in milliseconds. `is_first` marks the first search of a user, and `is_found` one of which the plain
    SQL found something."""

    plain_ms: float
    ours_ms: float
    is_first: bool
    is_found: bool


class Comparison(Struct, frozen=True):
    """The CPU times are those of the client or server and of its connections to PostgreSQL, and of these alone, per
    search in milliseconds, without first searches."""

    searches: tuple[Compared, ...]
    plain_cpu_ms: float
    ours_cpu_ms: float
    plain_postgres_ms: float
    ours_postgres_ms: float

    def report(self) -> Iterator[str]:
        first = [one for one in self.searches if one.is_first]
        later = self.later
        groups = {"first searches": first, "later searches": later, "… that found": [s for s in later if s.is_found]}
        for name, searches in groups.items():
            if searches:
                plain, ours = [one.plain_ms for one in searches], [one.ours_ms for one in searches]
                yield (
                    f"{name} ({len(searches)}): plain SQL p50 {percentile(plain, 50):.1f} ms, p95 "
                    f"{percentile(plain, 95):.1f} ms; knowledge_search p50 {percentile(ours, 50):.1f} ms, p95 "
                    f"{percentile(ours, 95):.1f} ms; ratio {ratio(searches):.2f}"
                )
        yield (
            f"CPU time of a later search: plain SQL {self.plain_cpu_ms:.1f} ms, knowledge_search "
            f"{self.ours_cpu_ms:.1f} ms; ratio {self.ours_cpu_ms / self.plain_cpu_ms:.2f}; of PostgreSQL alone: "
            f"{self.plain_postgres_ms:.2f} and {self.ours_postgres_ms:.2f} ms; "
            f"ratio {self.ours_postgres_ms / self.plain_postgres_ms:.2f}"
        )

    @property
    def later(self) -> Sequence[Compared]:
        return [one for one in self.searches if not one.is_first]


def ratio(searches: Sequence[Compared]) -> float:
    return statistics.median(one.ours_ms for one in searches) / statistics.median(one.plain_ms for one in searches)


class ScaleResult(Struct, frozen=True):
    """`rates` are the answers per second by number of workers, and `refused` the calls that the servers refused because
    of their load, which the clients repeated."""

    libraries: int
    sizes: LibrarySizes
    build_s: float
    comparison: Comparison
    rates: dict[int, float]
    backend_bytes: int
    libraries_touched: int
    redis: redis_cost.RedisCost
    answers: int
    refused: int
    wrong_tenant: int

    def as_line(self) -> str:
        rates = " ".join(f"rps_{workers}={rate:.1f}" for workers, rate in self.rates.items())
        later = self.comparison.later
        return (
            f"RESULT pg_ratio={ratio(later):.2f} pg_ms={statistics.median(one.ours_ms for one in later):.1f} {rates} "
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
    tier = MatchTier(TSQUERY.compiler(target)(expression), "rank")
    return EntrySql(target, tier, SqlFilter(), target.item_bits, True).select_entries(LIMIT + 1, 0)


# -- the server and its clients ----------------------------------------------------------------------------------------


class _Hit(Struct, frozen=True):
    title: str


class _Content(Struct, frozen=True):
    results: list[_Hit]


class _Meta(Struct, frozen=True):
    retry_after_s: float | None = msgspec.field(name=RETRY_AFTER_KEY, default=None)


class _Result(Struct, frozen=True, rename="camel"):
    """`meta` says when to repeat a call that was refused because of the load."""

    structured_content: _Content | None = None
    meta: _Meta = msgspec.field(name="_meta", default=_Meta())


class _Response(Struct, frozen=True):
    id: int
    result: _Result


_decode = msgspec.json.Decoder(_Response).decode


class CheckedClient:
    """One connection. Counts the answers, those with a hit of another user, and the refusals."""

    def __init__(self, url: str, client: SearchClient) -> None:
        self._url = url
        self._client = client
        self.answers = 0
        self.wrong = 0
        self.refused = 0

    @classmethod
    async def open(cls, url: str) -> "CheckedClient":
        address = urlsplit(url)
        return cls(url, SearchClient(*await asyncio.open_connection(address.hostname, address.port)))

    async def search(self, user: LibraryUser, query: str) -> float:
        """Returns how long the answer took, in milliseconds. A call that is refused because of the load is repeated
        when the server says."""
        call = ToolCall("knowledge_search", {"query": query, "limit": LIMIT})
        while True:
            request_id = FIRST_ID + self.answers + self.refused
            request = modern_request(self._url, call, user.token).render(request_id)
            started_at = time.perf_counter()
            body = await self._client.send(request)
            elapsed_ms = (time.perf_counter() - started_at) * 1000
            try:
                response = _decode(body)
            except msgspec.DecodeError as error:
                raise UnexpectedResponse(f"unexpected response {body[:500]!r}") from error
            content, retry_after_s = response.result.structured_content, response.result.meta.retry_after_s
            if content is not None:
                self.answers += 1
                is_own = all(hit.title.endswith(user.mark) for hit in content.results)
                self.wrong += not is_own or response.id != request_id
                return elapsed_ms
            if retry_after_s is None:
                raise UnexpectedResponse(f"unexpected response {body[:500]!r}")
            self.refused += 1
            await asyncio.sleep(retry_after_s)

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
        rate_user_per_minute=1e6,
        rate_user_burst=1_000_000,
        rate_tool_per_minute=1e6,
        rate_tool_burst=1_000_000,
    )
    check(settings)
    return settings


@contextmanager
def serve(settings: Settings, workers: int) -> Iterator[tuple[str, int]]:
    """Runs `florilegium serve` for the duration of the block and yields the address of its MCP endpoint and its pid."""
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
        yield url, process.pid
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
    url: str, pid: int, settings: Settings, users: Sequence[LibraryUser], effort: Effort
) -> tuple[Comparison, CheckedClient]:
    """Runs the same queries of the same users as plain SQL and as calls of the server with this pid."""
    connection = await asyncpg.connect(settings.storage_url, statement_cache_size=1_000)
    own_backend = await connection.fetchval("SELECT pg_backend_pid()")
    client, plain = await CheckedClient.open(url), PlainSearch(connection)
    choice, queries = random.Random(SEED), make_queries("compare")
    searchers = choice.sample(users, min(len(users), effort.searchers))
    searches: list[Compared] = []
    plain_cpu_s, cpu_before_s = 0.0, {}
    for number in range(len(searchers) + effort.searches):
        is_first = number < len(searchers)
        user, query = searchers[number] if is_first else choice.choice(searchers), next(queries)
        if number == len(searchers):
            # Those of the server and of this connection.
            backends = await connection.fetchval(
                "SELECT array_agg(pid) FROM pg_stat_activity WHERE datname = current_database()"
            )
            plain_cpu_s, cpu_before_s = 0.0, {process: cpu_seconds(process) for process in (pid, *backends)}
        plain_ms = ours_ms = 0.0
        found = 0
        # In turn the first: the second of the two finds the pages in memory.
        for is_plain in (True, False) if number % 2 else (False, True):
            if is_plain:
                await plain.use(user.tenant)
                started_at, cpu_started_s = time.perf_counter(), time.process_time()
                found = await plain.run(user.tenant, query)
                plain_ms = (time.perf_counter() - started_at) * 1000
                plain_cpu_s += time.process_time() - cpu_started_s
            else:
                ours_ms = await client.search(user, query)
        searches.append(Compared(plain_ms, ours_ms, is_first, found > 0))
    per_search_ms = 1000 / effort.searches
    cpu_ms = {process: (cpu_seconds(process) - before_s) * per_search_ms for process, before_s in cpu_before_s.items()}
    await connection.close()
    await client.close()
    plain_postgres_ms, server_ms = cpu_ms.pop(own_backend), cpu_ms.pop(pid)
    ours_postgres_ms = sum(cpu_ms.values())
    comparison = Comparison(
        tuple(searches),
        plain_cpu_ms=plain_cpu_s * per_search_ms + plain_postgres_ms,
        ours_cpu_ms=server_ms + ours_postgres_ms,
        plain_postgres_ms=plain_postgres_ms,
        ours_postgres_ms=ours_postgres_ms,
    )
    return comparison, client


async def run_load(
    url: str, users: Sequence[LibraryUser], effort: Effort, stream: str
) -> tuple[float, Sequence[CheckedClient]]:
    """Returns the answers per second of concurrent clients, and the clients."""
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
    return sum(client.answers for client in clients) / elapsed_s, clients


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
        rates = {}
        with serve(settings, 1) as (url, pid):
            comparison, client = asyncio.run(compare(url, pid, settings, users, effort))
        clients = [client]
        for workers in (1, 2):
            with serve(settings, workers) as (url, _):
                asyncio.run(run_load(url, users, effort, f"warm up {workers}"))
                rates[workers], callers = asyncio.run(run_load(url, users, effort, f"load {workers}"))
                clients += callers
        touched = users[:_BACKEND_LIBRARIES]
        backend_bytes = asyncio.run(measure_backend(settings, touched))
    redis = asyncio.run(redis_cost.measure(effort.redis_calls))
    return ScaleResult(
        len(users),
        sizes,
        build_s,
        comparison,
        rates,
        backend_bytes,
        len(touched),
        redis,
        answers=sum(client.answers for client in clients),
        refused=sum(client.refused for client in clients),
        wrong_tenant=sum(client.wrong for client in clients),
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
    yield from result.comparison.report()
    yield f"answers checked: {result.answers:,}; calls refused and repeated: {result.refused:,}"
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
