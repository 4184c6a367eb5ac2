"""Jobs on PostgreSQL: lost connections, deadlines, callers that give up, writers that take turns."""

import asyncio
import threading
import time
from pathlib import Path
from random import Random

import asyncpg
import pytest

from config.errors import DatabaseUnavailable, InvalidParams, SourceTimeout, Unavailable
from config.settings import Settings
from sources.drafts import ConversationDraft, MessageDraft, NoteDraft, PromptDraft
from sources.importers.engine.discovery import discover
from sources.importers.engine.import_runner import run_import
from sources.importers.engine.limits import ImportProgress, import_limits
from sources.importers.engine.summary import OutcomeCounts
from sources.storage.contract import Library
from sources.storage.job_queue import background_jobs
from sources.storage.tables.sql import NOTES_INDEX, SqlConnection
from tests.sources.importers.line_format import LINES, Line, write_lines
from tests.sources.storage.postgres.conftest import OpenEngine

pytestmark = pytest.mark.slow("makes a database for each test")

_OTHER_SESSIONS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


async def _execute(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


async def _count(url: str, condition: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        count: int = await connection.fetchval(f"SELECT count(*) {_OTHER_SESSIONS} AND {condition}")
        return count
    finally:
        await connection.close()


def _sleep(connection: SqlConnection) -> None:
    connection.execute("SELECT pg_sleep(30)")


async def _notes(library: Library) -> list[str]:
    return [note.title for note in (await library.notes.list(100, 0)).rows]


async def test_a_lost_connection_is_replaced(open_engine: OpenEngine, database_url: str) -> None:
    async with open_engine() as (_, libraries), libraries.library("ada") as ada:
        for number in range(3):
            await ada.notes.create(NoteDraft(title=str(number)))
            await _execute(database_url, f"SELECT pg_terminate_backend(pid) {_OTHER_SESSIONS}")
        assert await _notes(ada) == ["2", "1", "0"]


async def test_no_call_waits_for_a_background_job(open_engine: OpenEngine) -> None:
    started, may_end = threading.Event(), threading.Event()

    def wait(connection: SqlConnection) -> None:
        started.set()
        may_end.wait(30)

    async with open_engine(options={"connections": 9}) as (engine, libraries), libraries.library("ada") as ada:
        await _notes(ada)
        database = await engine._database(libraries.context("ada").user_id)
        with background_jobs():
            background = asyncio.create_task(database.read("notes", wait, deadline_ms=60_000))
        await asyncio.to_thread(started.wait, 30)
        try:
            async with asyncio.timeout(20):
                assert await asyncio.gather(*(_notes(ada) for _ in range(8))) == [[]] * 8
        finally:
            may_end.set()
            await background


async def test_calls_that_wait_while_the_engine_is_closed_get_an_answer(
    open_engine: OpenEngine, database_url: str
) -> None:
    async with open_engine(options={"connections": 1}) as (engine, libraries), libraries.library("ada") as ada:
        await _notes(ada)
        database = await engine._database(libraries.context("ada").user_id)
        calls = [asyncio.create_task(database.read("notes", _sleep)) for _ in range(4)]
        while not await _count(database_url, "query LIKE '%pg_sleep%' AND state = 'active'"):
            await asyncio.sleep(0.01)
        await engine.close()
        _, waiting = await asyncio.wait(calls, timeout=20)

    assert not waiting
    assert [type(call.exception()) for call in calls] == [SourceTimeout] + [Unavailable] * 3


async def test_a_read_ends_at_its_deadline_and_its_statement_is_cancelled(
    open_engine: OpenEngine, database_url: str
) -> None:
    async with open_engine() as (engine, libraries), libraries.library("ada") as ada:
        await _notes(ada)
        database = await engine._database(libraries.context("ada").user_id)
        with pytest.raises(SourceTimeout):
            await database.read("notes", _sleep, deadline_ms=100)
        assert await _notes(ada) == []
        while await _count(database_url, "query LIKE '%pg_sleep%' AND state = 'active'"):
            await asyncio.sleep(0.01)


async def test_cancelling_the_caller_cancels_the_statement(open_engine: OpenEngine, database_url: str) -> None:
    async with open_engine() as (engine, libraries), libraries.library("ada") as ada:
        await _notes(ada)
        database = await engine._database(libraries.context("ada").user_id)
        call = asyncio.create_task(database.write("notes", NOTES_INDEX, _sleep))
        while not await _count(database_url, "query LIKE '%pg_sleep%' AND state = 'active'"):
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        # The lock of the writer is free again.
        await ada.notes.create(NoteDraft(title="after"))
        assert await _notes(ada) == ["after"]


async def test_a_writer_of_another_server_is_waited_for_and_then_reported(
    open_engine: OpenEngine, database_url: str
) -> None:
    async with (
        open_engine() as (engine, libraries),
        open_engine(options={"lock_timeout_ms": 100}) as (_, others),
        libraries.library("ada") as ada,
        others.library("ada") as other,
    ):
        await _notes(ada)
        database = await engine._database(libraries.context("ada").user_id)
        holding = asyncio.create_task(database.write("notes", NOTES_INDEX, _sleep))
        while not await _count(database_url, "query LIKE '%pg_sleep%' AND state = 'active'"):
            await asyncio.sleep(0.01)
        with pytest.raises(Unavailable, match="is busy"):
            await other.notes.create(NoteDraft(title="refused"))
        assert await _notes(other) == []
        holding.cancel()
        await asyncio.wait([holding])
        await other.notes.create(NoteDraft(title="after"))


async def test_a_server_that_cannot_be_reached_is_reported(open_engine: OpenEngine) -> None:
    options = {"url": "postgresql://nobody@127.0.0.1:1/none"}
    async with open_engine(options=options) as (_, libraries), libraries.library("ada") as ada:
        with pytest.raises(DatabaseUnavailable):
            await _notes(ada)


async def test_a_transaction_that_the_server_ended_because_it_was_idle_is_run_again(open_engine: OpenEngine) -> None:
    pauses = [0.5]

    def work(connection: SqlConnection) -> int:
        count: int = connection.execute("SELECT count(*) FROM notes").fetchone()[0]
        if pauses:
            time.sleep(pauses.pop())
        connection.execute("SELECT 1")
        return count

    async with open_engine(options={"idle_timeout_ms": 100}) as (engine, libraries), libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(title="tea"))
        database = await engine._database(libraries.context("ada").user_id)
        assert await database.write("notes", NOTES_INDEX, work) == 1
        assert await _notes(ada) == ["tea"]
    assert not pauses


async def test_writes_of_two_servers_are_all_kept(open_engine: OpenEngine) -> None:
    async with (
        open_engine() as (_, one),
        open_engine() as (_, other),
        one.library("ada") as ada,
        other.library("ada") as same,
    ):
        note = await ada.notes.create(NoteDraft(title="log"))
        await asyncio.gather(*(library.notes.append(note.uuid, "x") for library in (ada, same) * 10))
        stored = await ada.notes.get(note.uuid)
        assert (stored.content, stored.version) == ("x" * 20, 21)


# SQLite has no limit for this. A random text cannot be compressed.
_TOO_LONG = "".join(chr(code) for code in Random(1).choices(range(0x4E00, 0x9FA0), k=2_000))


async def test_a_text_that_is_too_long_for_an_index_is_an_error_of_the_caller(open_engine: OpenEngine) -> None:
    name = _TOO_LONG
    async with open_engine() as (_, libraries), libraries.library("ada") as ada:
        with pytest.raises(InvalidParams, match="2,600 bytes"):
            await ada.prompts.create(PromptDraft(name=name))
        await ada.prompts.create(PromptDraft(name=name[:800]))
        assert (await ada.prompts.get_by_name(name[:800])).name == name[:800]


async def test_an_import_refuses_only_the_item_that_is_too_long_for_an_index(
    open_engine: OpenEngine, tmp_path: Path
) -> None:
    chats = [
        Line(
            chat=ConversationDraft(uuid=f"c{number}", session_id=_TOO_LONG if number == 3 else str(number)),
            messages=(MessageDraft(uuid=f"m{number}", role="user", content="x"),),
        )
        for number in range(8)
    ]
    found = list(discover([write_lines(tmp_path / "a.lines", *chats)], import_limits(Settings()), [LINES]))
    async with open_engine() as (_, libraries), libraries.library("ada") as ada:
        summary = await run_import(ada, found, Settings(), ImportProgress())
        assert await ada.chats.ids("", 10) == [f"c{number}" for number in range(8) if number != 3]
    assert summary.kinds == {"chats": OutcomeCounts(new=7, refused=1), "messages": OutcomeCounts(new=7)}
    assert [(problem.location, "2,600 bytes" in problem.problem) for problem in summary.problems] == [
        ("chats: (c3)", True)
    ]
