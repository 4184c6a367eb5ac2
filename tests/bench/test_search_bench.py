"""The benchmark of one search over all sources: it runs from end to end, compares like with like, and believes no
answer to which a source did not contribute."""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.askers import Asked, Lot, count_hits, open_crowd
from bench.library import OWNER, REFERENCE, build_library
from bench.load import WrongAnswer
from bench.plain_reader import RANKED, SIX, PlainReader
from bench.reading_desk import open_desk, user_id_of
from bench.search import Outcome, Pressed, Rotation, Row, Turn, mixed_queries
from bench.servers.library import welcome
from bench.servers.ours import settings_for
from bench.sources import ORDINARY
from config.paths import DataRoot
from config.settings import Settings
from server.lifespan import open_runtime
from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.storage.contract import Library

ROOT = Path(__file__).parents[2]
NUMBER = r"[0-9]+\.[0-9]+"
RESULT = re.compile(
    rf"RESULT cpu_ms=({NUMBER}) floor_cpu_ms=({NUMBER}) cpu_ratio=({NUMBER}) p50_ms=({NUMBER}) p99_ms=({NUMBER}) "
    rf"rps_per_core=({NUMBER})"
)


def test_quick_run_measures_every_kind_and_ends_with_the_result() -> None:
    quick = [sys.executable, "-m", "bench.search", "--quick"]

    ran = subprocess.run(quick, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

    assert ran.returncode == 0, ran.stderr
    *report, last = ran.stdout.splitlines()
    for kind in (*ORDINARY, "all"):
        assert sum(bool(re.match(rf"x10? +{kind} ", line)) for line in report) == 2
    assert sum("users in rotation, round" in line for line in report) == 2
    found = RESULT.fullmatch(last)
    assert found
    assert all(float(number) > 0 for number in found.groups())


# -- the plain statements ----------------------------------------------------------------------------------------------


async def write_one_of_each(library: Library) -> None:
    """A word of its own in every place that one of the statements looks at."""
    await library.notes.create(NoteDraft(title="A note", content="alder"))
    await library.media.create(MediaDraft(title="A film", content="birch", media_type="video"))
    message = MessageDraft(role="user", sender="Ana", content="cedar")
    await library.chats.create(ConversationDraft(title="Elder"), [message])
    await library.characters.create(CharacterDraft(name="Guide", description="damson"))
    await library.prompts.create(PromptDraft(name="Ask", user_prompt="fir"))


@pytest.mark.parametrize(
    ("word", "place"),
    [
        ("alder", "notes"),
        ("birch", "media"),
        ("cedar", "chats"),
        ("damson", "characters"),
        ("elder", "chat titles"),
        ("fir", "prompts"),
    ],
)
async def test_each_of_the_six_statements_finds_what_stands_in_its_place(tmp_path: Path, word: str, place: str) -> None:
    async with open_desk(tmp_path) as desk:
        reader = desk.reader(OWNER)
        async with desk.libraries.library(reader) as library:
            await write_one_of_each(library)
    plain = PlainReader(reader.db_paths.chacha.parent, Settings())

    match = plain.matches(word)
    found = {name: len(plain.rows(statement, match[name])) for name, statement in SIX.items()}
    asked = plain.ask(word)
    plain.close()

    assert found == {**dict.fromkeys(SIX, 0), place: 1}
    assert asked.rows == 1


async def test_ordered_by_rank_the_statements_give_the_same_rows(tmp_path: Path) -> None:
    await build_library(tmp_path, REFERENCE.times(0.01))
    plain = PlainReader(DataRoot(tmp_path).paths_of(user_id_of(OWNER)).chacha.parent, Settings())

    for query in mixed_queries("test", 6):
        for name, match in plain.matches(query).items():
            assert plain.rows(RANKED[name], match) == plain.rows(SIX[name], match)
    plain.close()


# -- the server's users ------------------------------------------------------------------------------------------------


async def test_each_user_of_the_server_has_a_copy_of_its_own(tmp_path: Path) -> None:
    await build_library(tmp_path / "template", REFERENCE.times(0.001))
    template = DataRoot(tmp_path / "template").paths_of(user_id_of(OWNER))

    async with open_runtime(settings_for(str(tmp_path / "data"))) as runtime:
        one, home = await welcome(runtime, "one", template)
        other, other_home = await welcome(runtime, "other", template)

    assert one.token != other.token
    assert home != other_home
    for copied in (home, other_home):
        assert (copied / "chacha.db").read_bytes() == template.chacha.read_bytes()


# -- the clients -------------------------------------------------------------------------------------------------------


def answer(request_id: int, hits: int = 2, status: str = "ok", **more: Any) -> bytes:
    content = {"results": [{"id": hit} for hit in range(hits)], "sources": {"notes": {"status": status, "ms": 1}}}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "result": {"structuredContent": content, **more}})


def test_hits_of_a_good_answer_are_counted() -> None:
    assert count_hits(answer(7, hits=3), 7) == 3


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(answer(8), id="another id"),
        pytest.param(answer(7, isError=True), id="an error"),
        pytest.param(answer(7, status="timeout"), id="a source that was late"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"no"}}', id="no result"),
        pytest.param(b"<html>", id="no JSON"),
    ],
)
def test_a_wrong_answer_ends_the_measurement(body: bytes) -> None:
    with pytest.raises(WrongAnswer):
        count_hits(body, 7)


class Answering:
    """A server that answers each search after as many others as it was told to wait for."""

    def __init__(self, together: int) -> None:
        self.queries: list[str] = []
        self._together = asyncio.Barrier(together)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):  # the client left
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                assert length
                call = msgspec.json.decode(await reader.readexactly(int(length[1])))
                self.queries.append(call["params"]["arguments"]["query"])
                await self._together.wait()
                body = answer(call["id"])
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()


@asynccontextmanager
async def answering(together: int) -> AsyncIterator[tuple[str, Answering]]:
    server = Answering(together)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp", server


async def test_every_search_of_a_lot_is_put_once_by_as_many_clients_as_it_says() -> None:
    asked = tuple(Asked("a token", f"query {number}") for number in range(6))
    async with answering(together=3) as (url, server), open_crowd(url, 4) as crowd:
        heard = await crowd.put(Lot(url, 3, asked))

    assert sorted(server.queries) == [one.query for one in asked]
    assert heard.hits == 12
    assert len(heard.wall_ms) == 6
    assert all(wall > 0 for wall in heard.wall_ms)


# -- figures -----------------------------------------------------------------------------------------------------------


def row(scale: str, kind: str, *turns: tuple[float, float]) -> Row:
    return Row(scale, kind, tuple(Turn(plain, plain / 2, ours, ours + 1) for plain, ours in turns))


def test_the_result_is_of_all_kinds_in_the_first_library() -> None:
    rows = (
        row("x1", "one word", (1.0, 4.0), (3.0, 6.0)),
        row("x1", "question", (4.0, 8.0), (8.0, 14.0)),
        row("x10", "one word", (40.0, 32.0)),
    )
    crowd = Pressed(100, 2.0, (1.0,))
    outcome = Outcome(rows, crowd, Rotation((crowd,), 1, 2))

    assert outcome.as_line() == (
        "RESULT cpu_ms=8.000 floor_cpu_ms=4.000 cpu_ratio=2.00 p50_ms=7.0 p99_ms=15.0 rps_per_core=50.0"
    )
    assert outcome.growth() == (10.0, 4.0)
    assert crowd.cpu_ms == 20.0


def test_queries_are_of_all_kinds_in_turn_and_none_comes_twice() -> None:
    queries = mixed_queries("test", 31)

    assert len(set(queries)) == len(queries) == 31
    assert [query.endswith("?") for query in queries[:6]] == [False, False, True] * 2
