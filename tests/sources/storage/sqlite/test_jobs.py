"""Jobs: deadlines, cancellation, queueing, and cleanup after a failed job."""

import asyncio
import gc
import sqlite3
import threading
import time
import weakref
from pathlib import Path

import pytest

from config.errors import SourceTimeout, StorageError, Unavailable
from sources.storage.job_queue import JobQueue
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.connection.database import Database
from tests.sources.storage.sqlite.conftest import INDEX, MakeDatabase
from tests.sources.storage.sqlite.file_checks import open_file
from tests.sources.storage.sqlite.words import TIMEOUT_S, GatedJob, add_word, all_words, insert_word, run_endless_query


async def databases_with_one_slot(make_database: MakeDatabase, folder: Path) -> tuple[Database, Database]:
    """Returns two files whose jobs share a single slot. The first contains tea, the second milk."""
    jobs = JobQueue(1)
    one, other = (make_database(path=folder / name, jobs=jobs) for name in ("one.db", "other.db"))
    await add_word(one, "tea")
    await add_word(other, "milk")
    return one, other


def loop_of_small_queries(connection: sqlite3.Connection) -> None:
    while True:
        connection.execute("SELECT 1").fetchall()


@pytest.mark.parametrize("work", [run_endless_query, loop_of_small_queries])
async def test_read_times_out_at_its_deadline_and_the_next_succeeds(database: Database, work: object) -> None:
    await add_word(database, "tea")
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(SourceTimeout, match="words did not respond within 30 ms"):
            await database.read("words", work, 30)  # type: ignore[arg-type]  # one of the two functions above
        assert await all_words(database) == ["tea"]


@pytest.mark.parametrize("work", [run_endless_query, loop_of_small_queries])
async def test_write_over_its_deadline_is_rolled_back(make_database: MakeDatabase, work: object) -> None:
    database = make_database(deadline_ms=200)
    await add_word(database, "tea")

    def slow(connection: sqlite3.Connection) -> None:
        insert_word("milk")(connection)
        work(connection)  # type: ignore[operator]  # one of the two functions above

    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(SourceTimeout):
            await database.write("words", INDEX, slow)
        await add_word(database, "sugar")
        assert await all_words(database) == ["tea", "sugar"]


async def test_result_is_freed_without_the_garbage_collector(database: Database) -> None:
    """Otherwise the texts of many hits wait for it, and it stops all calls while it looks for them."""
    await add_word(database, "tea")
    gc.disable()
    try:
        result = await database.read("words", lambda _: frozenset(("a", "result")))
        reference = weakref.ref(result)
        del result
        # The thread drops the last job when it gets the next one.
        assert await all_words(database) == ["tea"]
        assert reference() is None
    finally:
        gc.enable()


async def test_deadline_is_enforced_while_the_event_loop_is_blocked(database: Database) -> None:
    await add_word(database, "tea")
    task = asyncio.create_task(database.read("words", run_endless_query, 20))
    await asyncio.sleep(0)
    time.sleep(0.2)  # blocks the event loop, so only the connection's own thread can stop the statement
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(SourceTimeout):
            await task
        assert await all_words(database) == ["tea"]


async def test_cancelled_read_interrupts_its_statement(database: Database) -> None:
    await add_word(database, "tea")
    gate = GatedJob(then=run_endless_query)
    task = asyncio.create_task(database.read("words", gate))
    await asyncio.to_thread(gate.started.wait, TIMEOUT_S)
    gate.released.set()
    task.cancel()
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await all_words(database) == ["tea"]


async def test_write_cancelled_while_waiting_never_runs(database: Database) -> None:
    await add_word(database, "tea")
    gate = GatedJob(then=insert_word("milk"))
    first = asyncio.create_task(database.write("words", INDEX, gate))
    await asyncio.to_thread(gate.started.wait, TIMEOUT_S)
    second = asyncio.create_task(add_word(database, "sugar"))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.released.set()
    await first
    assert await all_words(database) == ["tea", "milk"]


async def test_write_cancelled_while_running_leaves_no_open_transaction(database: Database, file: Path) -> None:
    await add_word(database, "tea")

    def half_done(connection: sqlite3.Connection) -> None:
        insert_word("milk")(connection)
        gate(connection)
        insert_word("sugar")(connection)

    gate = GatedJob()
    task = asyncio.create_task(database.write("words", INDEX, half_done))
    await asyncio.to_thread(gate.started.wait, TIMEOUT_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.released.set()
    await add_word(database, "honey")
    assert await all_words(database) == ["tea", "honey"]
    with open_file(file) as other:
        other.execute("BEGIN IMMEDIATE")


async def test_failed_write_is_rolled_back(database: Database) -> None:
    await add_word(database, "tea")

    def failing(connection: sqlite3.Connection) -> None:
        insert_word("milk")(connection)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.write("words", INDEX, failing)
    await add_word(database, "sugar")
    assert await all_words(database) == ["tea", "sugar"]


async def test_reads_are_served_during_a_write(database: Database) -> None:
    await add_word(database, "tea")
    gate = GatedJob(then=insert_word("milk"))
    writing = asyncio.create_task(database.write("words", INDEX, gate))
    await asyncio.to_thread(gate.started.wait, TIMEOUT_S)
    assert await all_words(database) == ["tea"]
    gate.released.set()
    await writing
    assert await all_words(database) == ["tea", "milk"]


async def test_calls_over_the_queue_limit_are_rejected(make_database: MakeDatabase) -> None:
    database = make_database(queue_max=2)
    gate = GatedJob()
    running = asyncio.create_task(database.write("words", INDEX, gate))
    await asyncio.to_thread(gate.started.wait, TIMEOUT_S)
    waiting = asyncio.create_task(add_word(database, "tea"))
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="too many calls are waiting"):
        await add_word(database, "milk")
    gate.released.set()
    await asyncio.gather(running, waiting)
    assert await all_words(database) == ["tea"]


async def test_slots_limit_concurrent_jobs(make_database: MakeDatabase, tmp_path: Path) -> None:
    one, other = await databases_with_one_slot(make_database, tmp_path)
    gate = GatedJob()
    first = asyncio.create_task(one.read("words", gate))
    await asyncio.to_thread(gate.started.wait, TIMEOUT_S)
    second = asyncio.create_task(all_words(other))
    done, _ = await asyncio.wait([second], timeout=0.05)
    assert not done
    gate.released.set()
    await first
    assert await second == ["milk"]


async def test_time_in_the_queue_does_not_count_against_the_deadline(
    make_database: MakeDatabase, tmp_path: Path
) -> None:
    one, other = await databases_with_one_slot(make_database, tmp_path)
    gate = GatedJob()
    running = asyncio.create_task(one.read("words", gate))
    await asyncio.to_thread(gate.started.wait, TIMEOUT_S)
    waiting = asyncio.create_task(
        other.read("words", lambda connection: connection.execute("SELECT 1").fetchall(), 200)
    )
    await asyncio.sleep(0.5)
    gate.released.set()
    await running

    assert await waiting == [(1,)]


async def test_job_waiting_for_a_slot_fails_when_its_file_is_closed(
    make_database: MakeDatabase, tmp_path: Path
) -> None:
    one, other = await databases_with_one_slot(make_database, tmp_path)
    gate = GatedJob()
    running = asyncio.create_task(one.read("words", gate))
    await asyncio.to_thread(gate.started.wait, TIMEOUT_S)
    waiting = asyncio.create_task(add_word(other, "sugar"))
    await asyncio.sleep(0)

    async with asyncio.timeout(TIMEOUT_S):
        await other.close()
        with pytest.raises(Unavailable, match="being closed"):
            await waiting
        gate.released.set()
        await running


async def test_job_that_cannot_be_interrupted_does_not_hold_up_other_users(
    make_database: MakeDatabase, tmp_path: Path
) -> None:
    one, other = await databases_with_one_slot(make_database, tmp_path)
    gate = GatedJob()
    stuck = asyncio.create_task(one.read("words", gate, 50))

    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(SourceTimeout):
            await stuck
        assert await all_words(other) == ["milk"]
    gate.released.set()


async def test_lock_of_another_process_is_waited_for_until_the_deadline(
    make_database: MakeDatabase, file: Path
) -> None:
    impatient, patient = make_database(deadline_ms=300), make_database()
    await add_word(impatient, "tea")
    await add_word(patient, "milk")
    with open_file(file) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="words is busy"):
            await add_word(impatient, "honey")
        assert await all_words(impatient) == ["tea", "milk"]
        waiting = asyncio.create_task(add_word(patient, "sugar"))
        await until_running(patient)
        other.execute("COMMIT")
        await waiting
    assert await all_words(patient) == ["tea", "milk", "sugar"]


async def until_running(database: Database) -> None:
    """Returns when a job of the writer has been started. It may be waiting for a lock."""
    assert database._writer.connection is not None
    connection = database._writer.connection._connection
    assert isinstance(connection, JobConnection)
    async with asyncio.timeout(TIMEOUT_S):
        while connection._job is None:
            await asyncio.sleep(0.001)


async def test_reader_cannot_write(database: Database) -> None:
    await add_word(database, "tea")
    with pytest.raises(StorageError, match="read-only"):
        await database.read("words", insert_word("milk"))
    assert await all_words(database) == ["tea"]


async def test_running_job_fails_when_the_file_is_closed(database: Database) -> None:
    await add_word(database, "tea")
    gate = GatedJob(then=run_endless_query)
    task = asyncio.create_task(database.write("words", INDEX, gate))
    await asyncio.to_thread(gate.started.wait, TIMEOUT_S)
    gate.released.set()
    async with asyncio.timeout(TIMEOUT_S):
        await database.close()
        with pytest.raises(Unavailable, match="being closed"):
            await task


async def test_closing_a_file_removes_its_log(database: Database, file: Path) -> None:
    await add_word(database, "tea")
    await all_words(database)
    await database.close()
    assert [path.name for path in file.parent.iterdir()] == [file.name]


class StuckJob:
    """A job that no interrupt stops, like an FTS5 function on a long text, until it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def __call__(self, connection: sqlite3.Connection) -> None:
        assert self.released.wait(TIMEOUT_S)


async def close_and_wait(database: Database, *jobs: StuckJob) -> None:
    """Lets the jobs end. Their threads report to the event loop, which must still be running then."""
    for job in jobs:
        job.released.set()
    await database.close()
    for thread in threading.enumerate():
        if "_connection_worker_thread" in thread.name:
            await asyncio.to_thread(thread.join, TIMEOUT_S)


async def test_connection_with_a_job_that_does_not_stop_is_replaced(make_database: MakeDatabase) -> None:
    database, stuck = make_database(stop_ms=20), StuckJob()
    await add_word(database, "tea")
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(SourceTimeout):
            await database.read("words", stuck, 30)
        # Waits behind the job at first, and runs on the new connection.
        assert await all_words(database) == ["tea"]
        assert not stuck.released.is_set()
    await close_and_wait(database, stuck)


async def read_until_it_fails(database: Database) -> None:
    """A job counts as stuck a little after its deadline."""
    while True:
        await all_words(database)


async def test_library_with_too_many_jobs_that_do_not_stop_is_unavailable(make_database: MakeDatabase) -> None:
    database, jobs = make_database(stop_ms=20), [StuckJob(), StuckJob()]
    await add_word(database, "tea")
    async with asyncio.timeout(TIMEOUT_S):
        for job in jobs:
            with pytest.raises(SourceTimeout):
                await database.read("words", job, 30)
        with pytest.raises(Unavailable, match="earlier calls to this library cannot be interrupted"):
            await read_until_it_fails(database)
        jobs[0].released.set()
        while True:
            try:
                assert await all_words(database) == ["tea"]
            except Unavailable:
                await asyncio.sleep(0.01)
            else:
                break
    await close_and_wait(database, *jobs)


async def test_closing_does_not_wait_for_a_job_that_does_not_stop(make_database: MakeDatabase) -> None:
    database, stuck = make_database(stop_ms=20), StuckJob()
    await add_word(database, "tea")
    with pytest.raises(SourceTimeout):
        await database.read("words", stuck, 30)
    async with asyncio.timeout(TIMEOUT_S):
        await database.close()
    assert not stuck.released.is_set()
    await close_and_wait(database, stuck)
