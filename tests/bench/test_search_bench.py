"""The search benchmark runs end to end, compares equal results, and rejects responses that lack a source."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.baseline_reader import BY_BM25, BY_RANK, BaselineReader
from bench.library import OWNER, REFERENCE, build_library
from bench.load import UnexpectedResponse
from bench.local_runtime import open_local_runtime, user_id_for
from bench.search import LoadResult, Outcome, Rotation, Row, Sample, SharedSearches, mixed_queries
from bench.search_clients import SearchBatch, SearchRequest, count_hits, open_clients
from bench.servers.library import create_user
from bench.servers.ours import settings_for
from bench.sources import ORDINARY_KINDS
from config.paths import DataRoot
from config.settings import Settings
from server.lifespan import open_runtime
from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.storage.contract import Library
from tests.bench.runs import output_of

NUMBER = r"[0-9]+\.[0-9]+"
RESULT = re.compile(
    rf"RESULT cpu_ms=({NUMBER}) floor_cpu_ms=({NUMBER}) cpu_ratio=({NUMBER}) cpu_ratio_fast=({NUMBER}) "
    rf"cpu_ratio_minilm=({NUMBER}) cpu_ratio_multilingual=({NUMBER}) query_ms_fast=({NUMBER}) "
    rf"query_ms_minilm=({NUMBER}) query_ms_multilingual=({NUMBER}) p50_ms=({NUMBER}) "
    rf"p99_ms=({NUMBER}) rps_per_core=({NUMBER}) shared_cpu_ratio=({NUMBER}) shared_wall_ratio=({NUMBER})"
)


def test_quick_run_measures_every_kind_and_prints_the_result() -> None:
    *report, last = output_of("bench.search", "--quick")
    for kind in (*ORDINARY_KINDS, "all"):
        assert sum(bool(re.match(rf"x10? +{kind} ", line)) for line in report) == 2
        assert kind == "all" or sum(bool(re.match(rf"x1 +{kind}, (fast|minilm) ", line)) for line in report) == 2
    assert sum("users in rotation, round" in line for line in report) == 2
    result = RESULT.fullmatch(last)
    assert result
    assert all(float(number) > 0 for number in result.groups())


# -- the baseline ------------------------------------------------------------------------------------------------------


async def write_one_of_each(library: Library) -> None:
    """Stores a different word in every table that the statements search."""
    await library.notes.create(NoteDraft(title="A note", content="alder"))
    await library.media.create(MediaDraft(title="A film", content="birch", media_type="video"))
    message = MessageDraft(role="user", sender="Ana", content="cedar")
    await library.chats.create(ConversationDraft(title="Elder"), [message])
    await library.characters.create(CharacterDraft(name="Guide", description="damson"))
    await library.prompts.create(PromptDraft(name="Ask", user_prompt="fir"))


@pytest.mark.parametrize(
    ("word", "table"),
    [
        ("alder", "notes"),
        ("birch", "media"),
        ("cedar", "chats"),
        ("damson", "characters"),
        ("elder", "chat titles"),
        ("fir", "prompts"),
    ],
)
async def test_each_of_the_six_statements_searches_its_own_table(tmp_path: Path, word: str, table: str) -> None:
    async with open_local_runtime(tmp_path) as runtime:
        context = runtime.context_for(OWNER)
        async with runtime.libraries.library(context) as library:
            await write_one_of_each(library)
    baseline = BaselineReader(context.db_paths.chacha.parent, Settings())

    match = baseline.matches(word)
    row_counts = {name: len(baseline.rows(statement, match[name])) for name, statement in BY_BM25.items()}
    result = baseline.measure(word)
    baseline.close()

    assert row_counts == {**dict.fromkeys(BY_BM25, 0), table: 1}
    assert result.rows == 1


async def test_statements_by_rank_return_the_same_rows(tmp_path: Path) -> None:
    await build_library(tmp_path, REFERENCE.times(0.01))
    baseline = BaselineReader(DataRoot(tmp_path).paths_of(user_id_for(OWNER)).chacha.parent, Settings())

    for query in mixed_queries("test", 6):
        for name, match in baseline.matches(query).items():
            assert baseline.rows(BY_RANK[name], match) == baseline.rows(BY_BM25[name], match)
    baseline.close()


# -- the server's users ------------------------------------------------------------------------------------------------


async def test_each_user_of_the_server_has_a_separate_copy(tmp_path: Path) -> None:
    await build_library(tmp_path / "template", REFERENCE.times(0.001))
    template = DataRoot(tmp_path / "template").paths_of(user_id_for(OWNER))

    async with open_runtime(settings_for(str(tmp_path / "data"))) as runtime:
        one, home = await create_user(runtime, "one", template)
        other, other_home = await create_user(runtime, "other", template)

    assert one.token != other.token
    assert home != other_home
    for copy in (home, other_home):
        assert (copy / "chacha.db").read_bytes() == template.chacha.read_bytes()


# -- the clients -------------------------------------------------------------------------------------------------------


def response_body(request_id: int, hits: int = 2, status: str = "ok", **more: Any) -> bytes:
    content = {"results": [{"id": hit} for hit in range(hits)], "sources": {"notes": {"status": status, "ms": 1}}}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "result": {"structuredContent": content, **more}})


def test_hits_of_a_valid_response_are_counted() -> None:
    assert count_hits(response_body(7, hits=3), 7) == 3


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(response_body(8), id="another id"),
        pytest.param(response_body(7, isError=True), id="an error"),
        pytest.param(response_body(7, status="timeout"), id="a source that was late"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"no"}}', id="no result"),
        pytest.param(b"<html>", id="no JSON"),
    ],
)
def test_unexpected_response_ends_the_measurement(body: bytes) -> None:
    with pytest.raises(UnexpectedResponse):
        count_hits(body, 7)


class BarrierServer:
    """A server that responds when the given number of searches are waiting."""

    def __init__(self, concurrency: int) -> None:
        self.queries: list[str] = []
        self._barrier = asyncio.Barrier(concurrency)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):  # the client disconnected
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                assert length
                call = msgspec.json.decode(await reader.readexactly(int(length[1])))
                self.queries.append(call["params"]["arguments"]["query"])
                await self._barrier.wait()
                body = response_body(call["id"])
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()


@asynccontextmanager
async def run_server(concurrency: int) -> AsyncIterator[tuple[str, BarrierServer]]:
    server = BarrierServer(concurrency)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp", server


async def test_every_search_of_a_batch_is_sent_once_by_the_given_number_of_clients() -> None:
    requests = tuple(SearchRequest("a token", f"query {number}") for number in range(6))
    async with run_server(concurrency=3) as (url, server), open_clients(url, 4) as clients:
        result = await clients.run(SearchBatch(url, 3, requests))

    assert sorted(server.queries) == [one.query for one in requests]
    assert result.hits == 12
    assert len(result.wall_ms) == 6
    assert all(wall > 0 for wall in result.wall_ms)


# -- figures -----------------------------------------------------------------------------------------------------------


def row(scale: str, kind: str, *samples: tuple[float, float]) -> Row:
    return Row(scale, kind, tuple(Sample(baseline, baseline / 2, ours, ours + 1) for baseline, ours in samples))


def test_result_covers_all_kinds_in_the_first_library() -> None:
    rows = (
        row("x1", "one word", (1.0, 4.0), (3.0, 6.0)),
        row("x1", "question", (4.0, 8.0), (8.0, 14.0)),
        row("x10", "one word", (40.0, 32.0)),
    )
    load = LoadResult(100, 2.0, (1.0,))
    shared = SharedSearches((6.0, 6.6), (6.0, 6.0), (9.0, 9.0), (6.0, 6.0))
    outcome = Outcome(rows, load, Rotation((load,), 1, 2), shared)

    assert outcome.as_line() == (
        "RESULT cpu_ms=8.000 floor_cpu_ms=4.000 cpu_ratio=2.00 p50_ms=7.0 p99_ms=15.0 rps_per_core=50.0 "
        "shared_cpu_ratio=1.05 shared_wall_ratio=1.50"
    )
    assert outcome.growth() == (10.0, 4.0)
    assert load.cpu_ms == 20.0


def test_queries_alternate_between_kinds_and_are_unique() -> None:
    queries = mixed_queries("test", 31)

    assert len(set(queries)) == len(queries) == 31
    assert [query.endswith("?") for query in queries[:6]] == [False, False, True] * 2
