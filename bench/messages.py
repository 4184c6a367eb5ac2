"""`make bench-messages`: what the searches of messages and the list of conversations cost in a history of a million
messages, against the plain SQL that fetches the same rows.

Each is asked as a client asks it, from the request to the answer, in this process and without a socket; who calls is
known beforehand. The plain statement (`bench.plain_messages`) runs on the same file, query by query in turn, and its
rows must be those of the answer. Processor time is compared, because it says the same on a busy machine.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Struct
from starlette.types import ASGIApp

from auth.context import build_context
from auth.principal import SCOPES, ClientId, Principal
from bench.in_process import Request
from bench.library import OWNER, SEED, Sizes, forget_stale_libraries, kept_library
from bench.plain_messages import PlainMessages, open_plain_messages
from bench.prose import COMMONEST, Prose
from bench.reading_desk import user_id_of
from bench.sources import percentile
from bench.wires import MODERN, ToolCall
from config.settings import Settings
from server.app import build_app
from server.compat.letta.responses import NO_MATCHES, SEPARATOR
from server.lifespan import open_runtime
from server.metrics import Metrics
from server.serving import run
from sources.storage.contract import ExactSearch, Library, MessageSearch

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
# Nothing that anybody says: to look for it, all there is has to be looked at, or an index.
_UNSAID = "qqqqqqqq"
_INDEX_POLL_S = 0.5
_UNRANKED = b"the newest come first"
# By the beginning of what was said two messages are told apart.
_SIGN_CHARS = 80


class DifferentRows(Exception):
    """The two sides did not fetch the same; a ratio of them would mean nothing."""


class Effort(Struct, frozen=True):
    """How long the history is, and how many queries of each kind are put to it. In a short one `limits` let everything
    happen that happens in a long one."""

    sizes: Sizes
    queries: int
    limits: Mapping[str, Any]
    keeps_library: bool


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


FULL = Effort(sizes=_history(20_000, 50), queries=60, limits={}, keeps_library=True)
QUICK = Effort(
    sizes=_history(40, 10),
    queries=3,
    limits={"search_ranked_rows_max": 25, "message_scan_max_rows": 100},
    keeps_library=False,
)


class Question(Struct, frozen=True, kw_only=True):
    """One request, and the plain statement that fetches its rows."""

    tool: str | None = None
    path: str = ""
    arguments: Mapping[str, Any] = {}
    statement: str
    values: Mapping[str, Any]


Asking = Callable[[Prose], Question]


class Asked(Struct, frozen=True):
    """One query: CPU milliseconds of the plain statement and of ours, and how long ours took by the clock."""

    plain_ms: float
    ours_ms: float
    wall_ms: float


class Row(Struct, frozen=True):
    what: str
    kind: str
    asked: tuple[Asked, ...]

    @property
    def plain_ms(self) -> float:
        return statistics.median(one.plain_ms for one in self.asked)

    @property
    def ours_ms(self) -> float:
        return statistics.median(one.ours_ms for one in self.asked)

    @property
    def ratio(self) -> float:
        return statistics.median(one.ours_ms / one.plain_ms for one in self.asked)

    def wall_ms(self, percent: int) -> float:
        return percentile([one.wall_ms for one in self.asked], percent)


# -- what is asked -----------------------------------------------------------------------------------------------------


def _by_tool(words: str, statement: str) -> Question:
    values = {"words": words, "limit": LIMIT}
    return Question(tool="msg_search", arguments={"query": words}, statement=statement, values=values)


def _by_address(words: str, statement: str) -> Question:
    values = {"words": words, "limit": LIMIT}
    return Question(path="/api/search", arguments={"q": words}, statement=statement, values=values)


def _holding(text: str, statement: str, **narrowed: Any) -> Question:
    parts = " AND ".join(f'"{text[at : at + 3]}"' for at in range(len(text) - 2))
    values = {"text": f"%{text}%", "parts": parts, "limit": LIMIT, **_narrowing(narrowed)}
    return Question(
        tool="conversation_search", arguments={"query": text, **narrowed}, statement=statement, values=values
    )


def _narrowing(given: Mapping[str, Any]) -> dict[str, Any]:
    if "roles" in given:
        return {"role": given["roles"][0]}
    if "start_date" in given:
        return {"start": f"{given['start_date']}T00:00:00.000Z", "end": f"{given['end_date']}T23:59:59.999Z"}
    return {}


def _listing(offset: int) -> Question:
    values = {"limit": LIMIT, "offset": offset}
    return Question(path="/conversations", arguments=values, statement="listed", values=values)


def _quarter(prose: Prose) -> dict[str, str]:
    """Some three months of the history."""
    start = datetime.fromisoformat(prose.moment()).astimezone(UTC)
    return {"start_date": f"{start:%Y-%m-%d}", "end_date": f"{start + timedelta(days=90):%Y-%m-%d}"}


def questions(sizes: Sizes) -> Iterator[tuple[str, str, Asking]]:
    """What is asked, what kind of question it is, and how one is made."""
    deep = sizes.conversations // 2
    yield "msg_search", "rare word", lambda prose: _by_tool(prose.words(1), "matched")
    yield "msg_search", "two words", lambda prose: _by_tool(prose.words(2), "matched")
    yield "msg_search", "commonest word", lambda _: _by_tool(COMMONEST, "matched newest")
    yield "/api/search", "rare word", lambda prose: _by_address(prose.words(1), "matched")
    yield "/api/search", "two words", lambda prose: _by_address(prose.words(2), "matched")
    yield "/api/search", "commonest word", lambda _: _by_address(COMMONEST, "matched newest")
    what = "conversation_search"
    yield what, "rare text", lambda prose: _holding(prose.words(1), "holding")
    yield what, "rare text, role", lambda prose: _holding(prose.words(1), "holding role", roles=["assistant"])
    yield what, "rare text, dates", lambda prose: _holding(prose.words(1), "holding dates", **_quarter(prose))
    yield what, "common text", lambda _: _holding(COMMONEST, "walked")
    yield what, "common text, role", lambda _: _holding(COMMONEST, "walked role", roles=["assistant"])
    yield what, "common text, dates", lambda prose: _holding(COMMONEST, "walked dates", **_quarter(prose))
    yield "/conversations", "first page", lambda _: _listing(0)
    yield "/conversations", "deep page", lambda _: _listing(deep)


# -- both sides --------------------------------------------------------------------------------------------------------


class KnownCaller:
    """Lets the owner of the history in: what a credential costs is measured by `bench.protocol`."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal

    async def authenticate(self, authorization: str | None, *, address: str = "") -> Principal:
        return self._principal

    async def recheck(self, principal: Principal) -> None:
        return None

    async def flush(self) -> None:
        return None


class Sides:
    """The server's application and the plain statements, on one history."""

    def __init__(self, app: ASGIApp, plain: PlainMessages) -> None:
        self._app = app
        self._plain = plain

    async def measure(self, what: str, kind: str, asking: Asking, queries: int) -> Row:
        prose = Prose(SEED, stream=f"{what} {kind}")
        asked: list[Asked] = []
        for turn in range(2 * (WARMUP_QUERIES + queries)):
            one = await self.ask(asking(prose), is_ours_first=bool(turn % 2))
            asked += [one] if one is not None else []
            if len(asked) == WARMUP_QUERIES + queries:
                return Row(what, kind, tuple(asked[WARMUP_QUERIES:]))
        raise DifferentRows(f"{what} {kind}: half of the words are too common to be ranked")

    async def ask(self, question: Question, *, is_ours_first: bool) -> Asked | None:
        """Nothing for a word that turned out too common to be ranked: there is a kind of question for those."""
        request = self.request(question)
        if is_ours_first:
            answer, ours = await _timed(request.send)
            rows, plain = await _timed(lambda: self._plain.rows(question.statement, question.values))
        else:
            rows, plain = await _timed(lambda: self._plain.rows(question.statement, question.values))
            answer, ours = await _timed(request.send)
        if question.statement == "matched" and _UNRANKED in answer:
            return None
        if told_in(answer) != [_sign_of(question, row) for row in rows]:
            raise DifferentRows(f"{question.statement} {question.values}")
        return Asked(plain.cpu_ms, ours.cpu_ms, ours.wall_ms)

    def request(self, question: Question) -> Request:
        """What a client would send; its answer is what would go over the wire."""
        if question.tool is None:
            return Request(self._app, "GET", f"{question.path}?{urlencode(question.arguments)}", {})
        call = ToolCall(question.tool, question.arguments)
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call.params(modern=True)}
        headers = {**_TOOL_HEADERS, "Mcp-Name": question.tool}
        return Request(self._app, "POST", "/mcp", headers, msgspec.json.encode(request))


class _Spent(Struct, frozen=True):
    """CPU milliseconds are those of all threads: SQLite works on its own."""

    cpu_ms: float
    wall_ms: float


async def _timed(work: Callable[[], Awaitable[T]]) -> tuple[T, _Spent]:
    began, cpu_began = time.perf_counter_ns(), time.process_time_ns()
    result = await work()
    cpu, wall = time.process_time_ns() - cpu_began, time.perf_counter_ns() - began
    return result, _Spent(cpu / 1_000_000, wall / 1_000_000)


def told_in(answer: bytes) -> list[str]:
    """Of each row of an answer what tells it from others: its id, or for `conversation_search` what was said."""
    body = msgspec.json.decode(answer)
    body = body.get("result", body)
    if "isError" in body:
        raise DifferentRows(str(body["content"]))
    body = body.get("structuredContent", body)
    if "content" not in body:
        return [row["id"] for row in body.get("results", body.get("conversations"))]
    blocks = body["content"][0]["text"].split(SEPARATOR)
    return [block.partition("\n")[2][:_SIGN_CHARS] for block in blocks if block != NO_MATCHES]


def _sign_of(question: Question, row: Sequence[Any]) -> str:
    return str(row[1])[:_SIGN_CHARS] if question.tool == "conversation_search" else str(row[0])


@asynccontextmanager
async def open_sides(root: Path, limits: Mapping[str, Any]) -> AsyncIterator[Sides]:
    """On a history all of whose indexes are made: that is done once, and not what is measured."""
    settings = Settings(
        data_dir=str(root),
        rate_user_per_minute=0,
        rate_tool_per_minute=0,
        log_requests=False,
        **limits,
    )
    owner = Principal(user_id_of(OWNER), OWNER, ClientId("bench"), frozenset(SCOPES), "local", "bench")
    async with open_runtime(settings, authenticator=KnownCaller(owner)) as runtime:
        context = build_context(owner, runtime.data_root, "bench")
        async with runtime.libraries.library(context) as library:
            await make_indexes(library)
            async with open_plain_messages(context.db_paths.chacha, settings.library_cache_kib) as plain:
                yield Sides(build_app(runtime, Metrics()), plain)


async def make_indexes(library: Library) -> None:
    """A search that needs an index makes it, and says that it is not complete before it is."""
    exact = ExactSearch(expression=_UNSAID, limit=1, deadline_ms=_INDEX_DEADLINE_MS)
    while not (await library.chats.match_messages(exact)).is_complete:
        await asyncio.sleep(_INDEX_POLL_S)
    substring = MessageSearch(text=_UNSAID, limit=1, deadline_ms=_INDEX_DEADLINE_MS)
    while not (await library.chats.find_messages(substring)).is_complete:
        await asyncio.sleep(_INDEX_POLL_S)


# -- the run -----------------------------------------------------------------------------------------------------------


async def measure(effort: Effort, shelf: Path) -> list[Row]:
    root = await kept_library(effort.sizes, shelf)
    forget_stale_libraries([root], shelf, time.time())
    async with open_sides(root, effort.limits) as sides:
        return [
            await sides.measure(what, kind, asking, effort.queries) for what, kind, asking in questions(effort.sizes)
        ]


def report(rows: Sequence[Row]) -> Iterator[str]:
    yield f"{'CPU ms, limit ' + str(LIMIT):<42} {'plain':>9} {'ours':>9} {'ratio':>6} {'wall p50':>9} {'p99':>9}"
    for row in rows:
        yield (
            f"{row.what:<20} {row.kind:<21} {row.plain_ms:>9.3f} {row.ours_ms:>9.3f} {row.ratio:>6.2f} "
            f"{row.wall_ms(50):>9.3f} {row.wall_ms(99):>9.3f}"
        )
    yield f"RESULT worst_ratio={max(row.ratio for row in rows):.2f}"


async def perform(effort: Effort) -> None:
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as scratch:
        shelf = Path(tempfile.gettempdir()) if effort.keeps_library else Path(scratch)
        rows = await measure(effort, shelf)
    print(f"{effort.sizes.conversations * effort.sizes.messages_each:,} messages of one user")
    for line in report(rows):
        print(line)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.messages", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short history: shows that it works, measures nothing")
    run(perform(QUICK if parser.parse_args(arguments).quick else FULL))


if __name__ == "__main__":
    main(sys.argv[1:])
