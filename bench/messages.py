"""`make bench-messages`: message searches and conversation lists in a history of a million messages, against plain SQL.

Each request is processed from request to response in this process, without a socket and without authentication. The
baseline statement (`bench.baseline_messages`) runs on the same file, alternating query by query, and must return the
same rows. CPU time is compared, because it does not depend on how busy the machine is.
"""

import argparse
import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Struct
from starlette.types import ASGIApp

from auth.context import SCOPES, ClientId, Principal, build_context
from bench.baseline_messages import BaselineMessages, open_baseline_messages
from bench.in_process import InProcessRequest
from bench.library import OWNER, SEED, Sizes, cached_library, delete_stale_libraries
from bench.local_runtime import user_id_for
from bench.prose import MOST_COMMON_WORD, Prose
from bench.request_templates import MODERN, ToolCall
from bench.sources import percentile
from config.times import parse_time
from server.app import build_app
from server.compat.letta.tools import NO_MATCHES, SEPARATOR
from server.lifespan import open_runtime
from server.metrics import Metrics
from server.serving import run
from sources.storage.contract import ExactSearch, Library, MessageSearch
from sources.storage.sqlite.index.message_index import MessageIndex
from sources.storage.sqlite.search.exact import EXACT_INDEX
from sources.storage.sqlite.search.substring import SUBSTRING_INDEX
from tests.build_settings import build_settings

T = TypeVar("T")

LIMIT = 50
WARMUP_QUERIES = 3
_TOOL_HEADERS = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "MCP-Protocol-Version": MODERN,
    "Mcp-Method": "tools/call",
}
_INDEX_DEADLINE_MS = 600_000
# Text that occurs nowhere, so finding it needs a complete scan or an index.
_MISSING_TEXT = "qqqqqqqq"
_INDEX_POLL_S = 0.5
_UNRANKED = b"the newest come first"
# Messages are identified by the beginning of their text.
_KEY_CHARS = 80


class RowMismatch(Exception):
    """Server and baseline returned different rows, so a ratio would be meaningless."""


class Effort(Struct, frozen=True):
    """The size of the history and the number of queries of each kind.

    `limits` are lowered for a short history, so that it takes the same code paths as a long one.
    """

    sizes: Sizes
    queries: int
    limits: Mapping[str, Any]
    caches_library: bool


def _history(conversations: int, messages_each: int) -> Sizes:
    return Sizes(
        notes=0,
        note_words=0,
        media=0,
        media_words=0,
        conversations=conversations,
        messages_each=messages_each,
        message_words=40,
        characters=0,
        prompts=0,
    )


FULL = Effort(sizes=_history(20_000, 50), queries=60, limits={}, caches_library=True)
QUICK = Effort(
    sizes=_history(40, 10),
    queries=3,
    limits={"search_ranked_rows_max": 25, "message_scan_max_rows": 100},
    caches_library=False,
)


class Case(Struct, frozen=True, kw_only=True):
    """A request and the baseline statement that fetches its rows."""

    tool: str | None = None
    path: str = ""
    arguments: Mapping[str, Any] = {}
    statement: str
    values: Mapping[str, Any]


MakeCase = Callable[[Prose], Case]


class Sample(Struct, frozen=True):
    """One query: CPU milliseconds of baseline and server, and the wall time of the server."""

    baseline_ms: float
    ours_ms: float
    wall_ms: float


class Row(Struct, frozen=True):
    endpoint: str
    kind: str
    samples: tuple[Sample, ...]

    @property
    def baseline_ms(self) -> float:
        return statistics.median(one.baseline_ms for one in self.samples)

    @property
    def ours_ms(self) -> float:
        return statistics.median(one.ours_ms for one in self.samples)

    @property
    def ratio(self) -> float:
        return statistics.median(one.ours_ms / one.baseline_ms for one in self.samples)

    def wall_ms(self, percent: int) -> float:
        return percentile([one.wall_ms for one in self.samples], percent)


# -- the cases ---------------------------------------------------------------------------------------------------------


def _tool_search(words: str, statement: str) -> Case:
    values = {"words": words, "limit": LIMIT}
    return Case(tool="msg_search", arguments={"query": words}, statement=statement, values=values)


def _rest_search(words: str, statement: str) -> Case:
    values = {"words": words, "limit": LIMIT}
    return Case(path="/api/search", arguments={"q": words}, statement=statement, values=values)


def _substring_search(text: str, statement: str, **filters: Any) -> Case:
    trigrams = " AND ".join(f'"{text[start : start + 3]}"' for start in range(len(text) - 2))
    values = {"text": f"%{text}%", "trigrams": trigrams, "limit": LIMIT, **_filter_values(filters)}
    return Case(tool="conversation_search", arguments={"query": text, **filters}, statement=statement, values=values)


def _filter_values(filters: Mapping[str, Any]) -> dict[str, Any]:
    if "roles" in filters:
        return {"role": filters["roles"][0]}
    if "start_date" in filters:
        return {"start": f"{filters['start_date']}T00:00:00.000Z", "end": f"{filters['end_date']}T23:59:59.999Z"}
    return {}


def _list_page(offset: int) -> Case:
    values = {"limit": LIMIT, "offset": offset}
    return Case(path="/conversations", arguments=values, statement="list", values=values)


def _quarter(prose: Prose) -> dict[str, str]:
    """Returns date filters for about three months of the history."""
    start = parse_time(prose.time())
    return {"start_date": f"{start:%Y-%m-%d}", "end_date": f"{start + timedelta(days=90):%Y-%m-%d}"}


def cases(sizes: Sizes) -> Iterator[tuple[str, str, MakeCase]]:
    """Yields endpoints with a kind of request and a function that generates one."""
    deep = sizes.conversations // 2
    yield "msg_search", "rare word", lambda prose: _tool_search(prose.words(1), "full text")
    yield "msg_search", "two words", lambda prose: _tool_search(prose.words(2), "full text")
    yield "msg_search", "commonest word", lambda _: _tool_search(MOST_COMMON_WORD, "full text, newest")
    yield "/api/search", "rare word", lambda prose: _rest_search(prose.words(1), "full text")
    yield "/api/search", "two words", lambda prose: _rest_search(prose.words(2), "full text")
    yield "/api/search", "commonest word", lambda _: _rest_search(MOST_COMMON_WORD, "full text, newest")
    endpoint = "conversation_search"
    yield endpoint, "rare text", lambda prose: _substring_search(prose.words(1), "substring")
    yield (
        endpoint,
        "rare text, role",
        lambda prose: _substring_search(prose.words(1), "substring, role", roles=["assistant"]),
    )
    yield (
        endpoint,
        "rare text, dates",
        lambda prose: _substring_search(prose.words(1), "substring, dates", **_quarter(prose)),
    )
    yield endpoint, "common text", lambda _: _substring_search(MOST_COMMON_WORD, "common substring")
    yield (
        endpoint,
        "common text, role",
        lambda _: _substring_search(MOST_COMMON_WORD, "common substring, role", roles=["assistant"]),
    )
    yield (
        endpoint,
        "common text, dates",
        lambda prose: _substring_search(MOST_COMMON_WORD, "common substring, dates", **_quarter(prose)),
    )
    yield "/conversations", "first page", lambda _: _list_page(0)
    yield "/conversations", "deep page", lambda _: _list_page(deep)


# -- server and baseline -----------------------------------------------------------------------------------------------


class NoAuthentication:
    """Accepts every caller as the owner of the history; see `bench.protocol` for the cost of credentials."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal

    async def authenticate(self, authorization: str | None, *, address: str = "") -> Principal:
        return self._principal

    async def authenticate_operator(self, user_name: str | None) -> Principal:
        return self._principal

    async def recheck(self, principal: Principal) -> Principal:
        return principal

    async def flush(self) -> None:
        return None


class MessageComparison:
    """Runs the application and the baseline statements on one history."""

    def __init__(self, app: ASGIApp, baseline: BaselineMessages) -> None:
        self._app = app
        self._baseline = baseline

    async def measure(self, endpoint: str, kind: str, make_case: MakeCase, queries: int) -> Row:
        prose = Prose(SEED, stream=f"{endpoint} {kind}")
        samples: list[Sample] = []
        for number in range(2 * (WARMUP_QUERIES + queries)):
            sample = await self.sample(make_case(prose), is_ours_first=bool(number % 2))
            samples += [sample] if sample is not None else []
            if len(samples) == WARMUP_QUERIES + queries:
                return Row(endpoint, kind, tuple(samples[WARMUP_QUERIES:]))
        raise RowMismatch(f"{endpoint} {kind}: half of the words are too common to be ranked")

    async def sample(self, case: Case, *, is_ours_first: bool) -> Sample | None:
        """Returns None for a word that is too common to be ranked; such words have a case of their own."""
        request = self.request(case)
        if is_ours_first:
            body, ours = await _timed(request.send)
            rows, baseline = await _timed(lambda: self._baseline.rows(case.statement, case.values))
        else:
            rows, baseline = await _timed(lambda: self._baseline.rows(case.statement, case.values))
            body, ours = await _timed(request.send)
        if case.statement == "full text" and _UNRANKED in body:
            return None
        if row_keys(body) != [_row_key(case, row) for row in rows]:
            raise RowMismatch(f"{case.statement} {case.values}")
        return Sample(baseline.cpu_ms, ours.cpu_ms, ours.wall_ms)

    def request(self, case: Case) -> InProcessRequest:
        """Returns the request as a client would send it."""
        if case.tool is None:
            return InProcessRequest(self._app, "GET", f"{case.path}?{urlencode(case.arguments)}", {})
        call = ToolCall(case.tool, case.arguments)
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call.params(modern=True)}
        headers = {**_TOOL_HEADERS, "Mcp-Name": case.tool}
        return InProcessRequest(self._app, "POST", "/mcp", headers, msgspec.json.encode(request))


class _Cost(Struct, frozen=True):
    """`cpu_ms` is that of all threads, since SQLite runs on its own."""

    cpu_ms: float
    wall_ms: float


async def _timed(work: Callable[[], Awaitable[T]]) -> tuple[T, _Cost]:
    started_at, cpu_started_at = time.perf_counter_ns(), time.process_time_ns()
    result = await work()
    cpu, wall = time.process_time_ns() - cpu_started_at, time.perf_counter_ns() - started_at
    return result, _Cost(cpu / 1_000_000, wall / 1_000_000)


def row_keys(response: bytes) -> list[str]:
    """Returns a key for each row of a response: its id, or for `conversation_search` the beginning of its text."""
    body = msgspec.json.decode(response)
    body = body.get("result", body)
    if "isError" in body:
        raise RowMismatch(str(body["content"]))
    body = body.get("structuredContent", body)
    if "content" not in body:
        return [row["id"] for row in body.get("results", body.get("conversations"))]
    blocks = body["content"][0]["text"].split(SEPARATOR)
    return [block.partition("\n")[2][:_KEY_CHARS] for block in blocks if block != NO_MATCHES]


def _row_key(case: Case, row: Sequence[Any]) -> str:
    return str(row[1])[:_KEY_CHARS] if case.tool == "conversation_search" else str(row[0])


@asynccontextmanager
async def open_comparison(root: Path, limits: Mapping[str, Any]) -> AsyncIterator[MessageComparison]:
    """Opens a history after building all its indexes, which is not measured."""
    settings = build_settings(
        data_dir=str(root),
        rate_user_per_minute=0,
        rate_tool_per_minute=0,
        log_requests=False,
        semantic_model="off",
        **limits,
    )
    owner = Principal(user_id_for(OWNER), OWNER, ClientId("bench"), frozenset(SCOPES), "local", "bench")
    async with open_runtime(settings, authenticator=NoAuthentication(owner)) as runtime:
        context = build_context(owner, runtime.data_root, "bench")
        async with runtime.libraries.library(context) as library:
            await build_indexes(library, context.db_paths.chacha)
            async with open_baseline_messages(context.db_paths.chacha, settings.library_cache_kib) as baseline:
                yield MessageComparison(build_app(runtime, Metrics()), baseline)


async def build_indexes(library: Library, file: Path) -> None:
    """Searches for what needs an index, and waits until both indexes are built in the background."""
    await library.chats.match_messages(
        ExactSearch(expression=_MISSING_TEXT, limit=1, deadline_ms=_INDEX_DEADLINE_MS),
    )
    await library.chats.find_messages(MessageSearch(text=_MISSING_TEXT, limit=1, deadline_ms=_INDEX_DEADLINE_MS))
    with closing(sqlite3.connect(file)) as connection:
        while not all(_is_built(index, connection) for index in (EXACT_INDEX, SUBSTRING_INDEX)):
            await asyncio.sleep(_INDEX_POLL_S)


def _is_built(index: MessageIndex, connection: sqlite3.Connection) -> bool:
    progress = index.progress(connection)
    return progress is not None and progress.is_complete


# -- the run -----------------------------------------------------------------------------------------------------------


async def measure(effort: Effort, cache_dir: Path) -> list[Row]:
    root = await cached_library(effort.sizes, cache_dir)
    delete_stale_libraries([root], cache_dir, time.time())
    async with open_comparison(root, effort.limits) as comparison:
        return [
            await comparison.measure(endpoint, kind, make_case, effort.queries)
            for endpoint, kind, make_case in cases(effort.sizes)
        ]


def report(rows: Sequence[Row]) -> Iterator[str]:
    yield f"{'CPU ms, limit ' + str(LIMIT):<42} {'baseline':>9} {'ours':>9} {'ratio':>6} {'wall p50':>9} {'p99':>9}"
    for row in rows:
        yield (
            f"{row.endpoint:<20} {row.kind:<21} {row.baseline_ms:>9.3f} {row.ours_ms:>9.3f} {row.ratio:>6.2f} "
            f"{row.wall_ms(50):>9.3f} {row.wall_ms(99):>9.3f}"
        )
    yield f"RESULT worst_ratio={max(row.ratio for row in rows):.2f}"


async def perform(effort: Effort) -> None:
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as scratch:
        cache_dir = Path(tempfile.gettempdir()) if effort.caches_library else Path(scratch)
        rows = await measure(effort, cache_dir)
    print(f"{effort.sizes.conversations * effort.sizes.messages_each:,} messages of one user")
    for line in report(rows):
        print(line)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.messages", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="use a short history: checks that the benchmark works, the figures are meaningless",
    )
    run(perform(QUICK if parser.parse_args(arguments).quick else FULL))


if __name__ == "__main__":
    main(sys.argv[1:])
