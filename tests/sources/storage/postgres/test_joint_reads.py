"""The reads of one call on PostgreSQL: they share a transaction, but not their failures."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from config.errors import InvalidParams, SourceTimeout, StorageError
from sources.storage.job_queue import CallGroup, JobGroup, job_group
from sources.storage.postgres.connection import LibraryConnection
from sources.storage.postgres.database import PostgresDatabase
from sources.storage.postgres.index.entries import ENTRIES_VERSION, index_state
from sources.storage.tables.sql import SqlConnection
from tests.sources.storage.postgres.conftest import OpenEngine

pytestmark = pytest.mark.slow("makes a database for each test")

Work = Callable[[SqlConnection], object]


async def _read(
    database: PostgresDatabase, call: CallGroup | None, work: Work, source: str = "notes", deadline_ms: int = 5_000
) -> Any:
    with job_group(JobGroup(call=call)):
        return await database.read(source, work, deadline_ms)


async def _read_all(database: PostgresDatabase, *works: Work, limit_s: float = 60.0) -> list[Any]:
    """Reads as the sources of one search do; returns results and errors."""
    call = CallGroup(limit_s)
    return await asyncio.gather(*(_read(database, call, work) for work in works), return_exceptions=True)


def _transaction(connection: SqlConnection) -> object:
    return connection.execute("SELECT pg_backend_pid(), now()::text").fetchone()


def _invalid(_connection: SqlConnection) -> object:
    raise InvalidParams("tags: expected a list")


def _fail(connection: SqlConnection) -> object:
    return connection.execute("SELECT 1 / (SELECT count(*) FROM notes)")


def _sleep(connection: SqlConnection) -> object:
    return connection.execute("SELECT pg_sleep(30)")


@pytest.fixture
async def database(open_engine: OpenEngine) -> AsyncIterator[PostgresDatabase]:
    async with open_engine(options={"connections": 5}) as (engine, libraries):
        yield await engine._database(libraries.context("ada").user_id)


async def test_the_reads_of_a_call_share_a_transaction(database: PostgresDatabase, open_engine: OpenEngine) -> None:
    await _read(database, None, _transaction)
    assert len(set(await _read_all(database, _transaction, _transaction, _transaction))) == 1
    async with open_engine() as (engine, libraries):  # it has to open the library first
        other = await engine._database(libraries.context("ada").user_id)
        assert len(set(await _read_all(other, _transaction, _transaction))) == 1
    others = [_read(database, call, _transaction) for call in (CallGroup(60.0), CallGroup(60.0), None)]
    assert len(set(await asyncio.gather(*others))) == 3


async def test_an_index_that_a_search_found_current_is_not_checked_again(
    database: PostgresDatabase, open_engine: OpenEngine
) -> None:
    def search(connection: SqlConnection) -> object:
        assert isinstance(connection, LibraryConnection)
        return index_state(connection), connection.statements

    await _read(database, None, _transaction)
    async with open_engine(options={"connections": 1}) as (engine, libraries):
        other = await engine._database(libraries.context("ada").user_id)
        [_, (state, before)] = await _read_all(other, search, search)
        await other.index_update.wait_until_finished()
        _, after = await _read(other, None, search)
    assert state.segment_version == ENTRIES_VERSION
    # The end of the first transaction, the beginning of the second, and the state.
    assert after == before + 3


async def test_a_read_that_fails_does_not_affect_the_others(database: PostgresDatabase) -> None:
    one, invalid, failed, other = await _read_all(database, _transaction, _invalid, _fail, _transaction)
    assert isinstance(one, tuple)
    assert isinstance(other, tuple)
    assert isinstance(invalid, InvalidParams)
    assert isinstance(failed, StorageError)
    assert failed.message == "PostgreSQL reported the error 22012"


async def test_a_slow_read_does_not_hold_up_the_others(database: PostgresDatabase) -> None:
    call = CallGroup(60.0)
    slow = asyncio.create_task(_read(database, call, _sleep, deadline_ms=60_000))
    others = [_read(database, call, _transaction) for _ in range(2)]
    assert all(isinstance(one, tuple) for one in await asyncio.gather(*others))
    assert not slow.done()
    slow.cancel()
    await asyncio.wait([slow])


async def test_a_read_ends_at_its_deadline_and_the_others_are_answered(database: PostgresDatabase) -> None:
    call = CallGroup(60.0)
    works = {"notes": _transaction, "media": _sleep, "chats": _transaction}
    reads = [_read(database, call, work, source, 500 if work is _sleep else 30_000) for source, work in works.items()]
    one, late, other = await asyncio.gather(*reads, return_exceptions=True)
    assert isinstance(one, tuple)
    assert isinstance(other, tuple)
    assert isinstance(late, SourceTimeout)
    assert late.message == "media did not respond within 500 ms"


async def test_cancelling_a_read_that_runs_lets_the_others_run_alone(database: PostgresDatabase) -> None:
    call, is_running = CallGroup(60.0), asyncio.Event()
    loop = asyncio.get_running_loop()

    def sleep(connection: SqlConnection) -> object:
        loop.call_soon_threadsafe(is_running.set)
        return _sleep(connection)

    slow = asyncio.create_task(_read(database, call, sleep))
    others = [asyncio.create_task(_read(database, call, _transaction)) for _ in range(2)]
    await is_running.wait()
    slow.cancel()
    assert len(set(await asyncio.gather(*others))) == 2
    assert slow.cancelled()


async def test_reads_whose_connection_is_lost_are_run_again(database: PostgresDatabase) -> None:
    losses = [True]

    def lose_connection(connection: SqlConnection) -> object:
        if losses:
            losses.pop()
            # The role of tenants must not end connections.
            assert isinstance(connection, LibraryConnection)
            connection.run_script("RESET ROLE")
            connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return _transaction(connection)

    read = await _read_all(database, _transaction, lose_connection, _transaction)
    assert all(isinstance(one, tuple) for one in read)
    assert not losses


async def test_a_result_does_not_wait_for_a_slow_read_after_it(database: PostgresDatabase) -> None:
    def search(connection: SqlConnection) -> object:
        assert isinstance(connection, LibraryConnection)
        return index_state(connection).is_small

    call = CallGroup(60.0)
    first = asyncio.create_task(_read(database, call, search))
    slow = asyncio.create_task(_read(database, call, _sleep, deadline_ms=60_000))
    assert await first is True
    assert not slow.done()
    slow.cancel()
    await asyncio.wait([slow])
