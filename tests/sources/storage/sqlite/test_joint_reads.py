"""The reads of one call in one file: they share a job, but not their failures."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

from config.errors import InvalidParams, SourceTimeout, StorageError
from sources.storage.job_queue import CallGroup, JobGroup, job_group
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.connection.database import Database
from tests.sources.storage.sqlite.words import TIMEOUT_S, GatedJob, add_word, all_words, run_endless_query

Work = Callable[[JobConnection], Any]


async def _read(database: Database, call: CallGroup, work: Work, deadline_ms: int = 60_000) -> Any:
    with job_group(JobGroup(call=call)):
        return await database.read("words", work, deadline_ms)


async def _read_all(database: Database, *works: Work) -> list[Any]:
    """Reads as the sources of one search do; returns results and errors."""
    call = CallGroup(60.0)
    return await asyncio.gather(*(_read(database, call, work) for work in works), return_exceptions=True)


def _job(connection: JobConnection) -> int:
    return connection.job_number


def _invalid(_connection: JobConnection) -> object:
    raise InvalidParams("tags: expected a list")


def _fail(connection: JobConnection) -> object:
    return connection.execute("SELECT * FROM missing")


async def test_the_reads_of_a_call_share_a_job(database: Database) -> None:
    await add_word(database, "tea")
    assert len(set(await _read_all(database, _job, _job, _job))) == 1
    separate = [_read(database, CallGroup(60.0), _job) for _ in range(3)]
    assert len(set(await asyncio.gather(*separate))) == 3


async def test_a_read_that_fails_does_not_affect_the_others(database: Database) -> None:
    await add_word(database, "tea")
    one, invalid, failed, other = await _read_all(database, _job, _invalid, _fail, _job)
    assert isinstance(one, int)
    assert isinstance(other, int)
    assert isinstance(invalid, InvalidParams)
    assert isinstance(failed, StorageError)


async def test_a_read_ends_at_its_deadline_and_the_others_are_answered(database: Database) -> None:
    await add_word(database, "tea")
    call = CallGroup(60.0)
    reads = [
        _read(database, call, _job),
        _read(database, call, run_endless_query, deadline_ms=50),
        _read(database, call, _job),
    ]
    async with asyncio.timeout(TIMEOUT_S):
        one, late, other = await asyncio.gather(*reads, return_exceptions=True)
    assert isinstance(one, int)
    assert isinstance(other, int)
    assert isinstance(late, SourceTimeout)
    assert late.message == "words did not respond within 50 ms"


async def test_a_slow_read_does_not_hold_up_those_that_are_done(database: Database) -> None:
    await add_word(database, "tea")
    call, gate = CallGroup(60.0), GatedJob()
    first = asyncio.create_task(_read(database, call, _job))
    slow = asyncio.create_task(_read(database, call, gate))
    last = asyncio.create_task(_read(database, call, _job))
    async with asyncio.timeout(TIMEOUT_S):
        job = await first
        assert not slow.done()
        gate.released.set()
        await slow
        # It did not wait in the job of the slow one, whose time would have counted as its own.
        assert await last > job


async def test_cancelling_a_read_that_runs_lets_the_others_run_alone(database: Database) -> None:
    await add_word(database, "tea")
    call, gate = CallGroup(60.0), GatedJob(then=run_endless_query)
    slow = asyncio.create_task(_read(database, call, gate))
    others = [asyncio.create_task(_read(database, call, _job)) for _ in range(2)]
    await asyncio.to_thread(gate.started.wait, TIMEOUT_S)
    gate.released.set()
    slow.cancel()
    async with asyncio.timeout(TIMEOUT_S):
        assert len(set(await asyncio.gather(*others))) == 2
    assert slow.cancelled()


async def test_a_read_that_is_cancelled_before_its_turn_is_left_out(database: Database) -> None:
    await add_word(database, "tea")
    call, gate = CallGroup(60.0), GatedJob()
    ran: list[str] = []
    first = asyncio.create_task(_read(database, call, gate))
    second = asyncio.create_task(_read(database, call, lambda _: ran.append("second")))
    await asyncio.to_thread(gate.started.wait, TIMEOUT_S)
    second.cancel()
    await asyncio.wait([second])
    gate.released.set()
    async with asyncio.timeout(TIMEOUT_S):
        await first
        assert await all_words(database) == ["tea"]
    assert not ran


async def test_results_are_freed_without_the_garbage_collector(database: Database) -> None:
    await add_word(database, "tea")
    gc.disable()
    try:
        results = await _read_all(database, *[lambda _: frozenset(("a", "result"))] * 2)
        reference = weakref.ref(results[0])
        del results
        assert await all_words(database) == ["tea"]
        assert reference() is None
    finally:
        gc.enable()
