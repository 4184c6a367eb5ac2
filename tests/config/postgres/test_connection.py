import asyncio
from collections.abc import Iterator
from contextlib import closing

import asyncpg
import pytest

from config.errors import DatabaseUnavailable, StorageError
from config.postgres.connection import (
    AUTOMATIC,
    ConnectionOptions,
    ConnectionThreads,
    PostgresConnection,
    StatementInterrupted,
    Transaction,
)
from config.postgres.errors import postgres_errors
from tests.servers.postgres_proxy import CommitProxy

WRITING = Transaction(schema="florilegium", lock_timeout_ms=1000)
READING = Transaction(schema="florilegium", is_read_only=True)
# Only reached if a test fails.
FAILS_AFTER_S = 60.0


@pytest.fixture
def connection(database_url: str) -> Iterator[PostgresConnection]:
    connection = PostgresConnection.connect(ConnectionOptions(url=database_url))
    connection.run_script(
        'CREATE SCHEMA florilegium; CREATE TABLE florilegium.words (id BIGINT, word TEXT COLLATE "C")'
    )
    yield connection
    connection.close()


def words(connection: PostgresConnection) -> list[str]:
    rows = connection.run(READING, lambda db: db.execute("SELECT word FROM words ORDER BY id").fetchall())
    return [word for (word,) in rows]


def test_rows_are_read_as_with_sqlite(connection: PostgresConnection) -> None:
    def work(db: PostgresConnection) -> None:
        assert db.execute("INSERT INTO words VALUES (?, ?)", (1, "one")).rowcount == 1
        db.executemany("INSERT INTO words VALUES (?2, ?1)", [("two", 2), ("three", 3)])
        db.executemany("INSERT INTO words VALUES (?, ?)", [(4, "four")])
        assert db.execute("DELETE FROM words WHERE id > ?", (9,)).rowcount == 0
        rows = db.execute("SELECT id FROM words ORDER BY id")
        assert rows.fetchone() == (1,)
        assert rows.fetchall() == [(2,), (3,), (4,)]
        assert rows.fetchone() is None

    connection.run(WRITING, work)

    assert words(connection) == ["one", "two", "three", "four"]


def test_more_rows_than_a_socket_accepts_at_once_are_written(connection: PostgresConnection) -> None:
    rows = [(number, "x" * 100_000) for number in range(200)]

    connection.run(WRITING, lambda db: db.executemany("INSERT INTO words VALUES (?, ?)", rows))

    assert connection.run(READING, lambda db: db.execute("SELECT count(*) FROM words").fetchone()) == (200,)


def test_tables_of_any_columns_are_read_in_batches(connection: PostgresConnection, database_url: str) -> None:
    with closing(PostgresConnection.connect(ConnectionOptions(url=database_url, statement_cache=AUTOMATIC))) as other:

        def read(db: PostgresConnection) -> list[list[object]]:
            return [
                list(db.iterate(sql, 2)) for sql in ("SELECT 1", "VALUES ('a', 2.5), ('b', 3), ('c', 4)", "SELECT 3")
            ]

        batches = other.run(READING, read)

    assert batches == [[(1,)], [("a", 2.5), ("b", 3), ("c", 4)], [(3,)]]


def test_error_while_a_table_is_read_in_batches_is_reported(connection: PostgresConnection) -> None:
    with pytest.raises(asyncpg.DivisionByZeroError):
        connection.run(READING, lambda db: list(db.iterate("SELECT 1 / (3 - n) FROM generate_series(1, 5) AS n", 2)))

    assert words(connection) == []


def test_of_several_hosts_one_that_accepts_writes_is_used(connection: PostgresConnection, database_url: str) -> None:
    [before, host] = database_url.split("@")
    options = ConnectionOptions(url=f"{before}@127.0.0.1:1,{host}")
    with closing(PostgresConnection.connect(options)) as other:
        other.run(WRITING, lambda db: db.execute("INSERT INTO words VALUES (1, 'one')"))
    assert words(connection) == ["one"]

    [database] = connection.run(READING, lambda db: db.execute("SELECT current_database()").fetchone()) or [""]
    connection.run_script(f'ALTER DATABASE "{database}" SET default_transaction_read_only = on')
    with pytest.raises(StorageError), postgres_errors():
        PostgresConnection.connect(options)


@pytest.mark.parametrize("hosts", ["", "127.0.0.1:1,"])
@pytest.mark.parametrize("is_pooler", [False, True])
async def test_statements_stay_prepared_unless_there_is_a_pooler(
    database_url: str, hosts: str, *, is_pooler: bool
) -> None:
    def prepared_statements(db: PostgresConnection) -> list[str]:
        assert db.execute("SELECT 1 + ?1", (1,)).fetchone() == (2,)
        rows = db.execute("SELECT statement FROM pg_catalog.pg_prepared_statements ORDER BY prepare_time").fetchall()
        return [statement for (statement,) in rows]

    async with CommitProxy(database_url, is_pooler=is_pooler).running() as proxy:
        [account, address] = proxy.url.split("@")
        options = ConnectionOptions(url=f"{account}@{hosts}{address}", statement_cache=AUTOMATIC)
        threads = ConnectionThreads(options, 1, "test")
        try:
            statements = await threads.run(READING, prepared_statements)
        finally:
            await threads.close()

    assert statements[:1] == ([] if is_pooler else ["SELECT 1 + $1"])


def test_work_that_raises_changes_nothing(connection: PostgresConnection) -> None:
    def work(db: PostgresConnection) -> None:
        db.execute("INSERT INTO words VALUES (1, 'one')")
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - raised above
        connection.run(WRITING, work)

    assert words(connection) == []


def test_settings_end_with_the_transaction(connection: PostgresConnection) -> None:
    inside = connection.run(WRITING, lambda db: db.execute("SHOW search_path").fetchone())
    connection.begin(WRITING)
    connection.rollback()
    connection.run_script("CREATE TABLE public.settings AS SELECT current_setting('search_path') AS path")
    outside = connection.run(READING, lambda db: db.execute("SELECT path FROM public.settings").fetchone())

    assert inside == ("florilegium",)
    assert outside != inside


def test_name_without_a_schema_is_an_error(connection: PostgresConnection) -> None:
    connection.run_script("CREATE TABLE public.others (id BIGINT)")

    with pytest.raises(StorageError, match="42P01"), postgres_errors():
        connection.run(WRITING, lambda db: db.run_script("SELECT id FROM others"))


async def test_interrupted_statement_ends_and_the_next_transaction_works(connection: PostgresConnection) -> None:
    sleeping = asyncio.create_task(
        asyncio.to_thread(connection.run, READING, lambda db: db.execute("SELECT pg_sleep(60)").fetchall())
    )
    while connection.statements < 3:  # CREATE, BEGIN, SELECT
        await asyncio.sleep(0.01)

    connection.interrupt()

    with pytest.raises(StatementInterrupted):
        await sleeping
    assert await asyncio.to_thread(words, connection) == []


def test_statement_timeout_interrupts(connection: PostgresConnection) -> None:
    limited = Transaction(schema="florilegium", statement_timeout_ms=20)

    with pytest.raises(StatementInterrupted):
        connection.run(limited, lambda db: db.execute("SELECT pg_sleep(60)").fetchall())


async def test_threads_replace_a_connection_on_which_the_server_falls_silent(database_url: str) -> None:
    limited = Transaction(schema="florilegium", is_read_only=True, statement_timeout_ms=100)
    async with CommitProxy(database_url).running() as proxy:
        threads = ConnectionThreads(
            ConnectionOptions(url=proxy.url, silence_max_s=0.1, connect_timeout_s=0.5), 1, "test"
        )
        pid = "SELECT pg_backend_pid()"
        try:
            before = await threads.run(READING, lambda db: db.execute(pid).fetchone())
            with proxy.silent():
                running = asyncio.ensure_future(threads.run(limited, lambda db: db.execute(pid).fetchone()))
                ended, _ = await asyncio.wait([running], timeout=FAILS_AFTER_S)
            after = await threads.run(READING, lambda db: db.execute(pid).fetchone())
        finally:
            await threads.close()

    assert ended, "the connection was still waiting"
    with pytest.raises(DatabaseUnavailable), postgres_errors():
        running.result()
    assert before != after


async def test_silent_server_is_not_waited_for_after_an_interruption(database_url: str) -> None:
    limited = Transaction(schema="florilegium", is_read_only=True, statement_timeout_ms=100)
    async with CommitProxy(database_url).running() as proxy:
        options = ConnectionOptions(url=proxy.url, silence_max_s=0.1)
        connection = await asyncio.to_thread(PostgresConnection.connect, options)
        await asyncio.to_thread(connection.begin, limited)
        with proxy.silent():
            running = asyncio.ensure_future(asyncio.to_thread(connection.execute, "SELECT 1"))
            while connection.statements < 2:
                await asyncio.sleep(0.01)
            connection.interrupt()
            await asyncio.wait([running])
            ended, _ = await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(connection.rollback))], timeout=60)
        is_closed = connection.is_closed
        await asyncio.to_thread(connection.close)

    assert isinstance(running.exception(), StatementInterrupted)
    assert ended, "the connection was still waiting"
    assert is_closed


async def test_threads_replace_connections_that_the_server_ended(database_url: str) -> None:
    threads = ConnectionThreads(ConnectionOptions(url=database_url), 2, "test")
    pid = "SELECT pg_backend_pid()"
    end_all = "SELECT pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE pid <> pg_backend_pid()"
    own = f"{end_all} AND datname = current_database()"
    try:
        await asyncio.gather(*(threads.run(READING, lambda db: db.execute("SELECT pg_sleep(0.05)")) for _ in "ab"))
        await threads.run(READING, lambda db: db.execute(own))
        rows = [await threads.run(READING, lambda db: db.execute(pid).fetchone()) for _ in range(8)]
    finally:
        await threads.close()

    assert all(rows)


@pytest.mark.parametrize(("lifetime_s", "expected_connections"), [(0.0, 3), (600.0, 1)])
async def test_connections_are_replaced_at_the_end_of_their_lifetime(
    database_url: str, lifetime_s: float, expected_connections: int
) -> None:
    threads = ConnectionThreads(ConnectionOptions(url=database_url, lifetime_s=lifetime_s), 1, "test")
    try:
        pids = {
            await threads.run(READING, lambda db: db.execute("SELECT pg_backend_pid()").fetchone()) for _ in range(3)
        }
    finally:
        await threads.close()

    assert len(pids) == expected_connections


def test_errors_name_no_values(database_url: str) -> None:
    missing = database_url.rpartition("/")[0] + "/missing"

    with pytest.raises(DatabaseUnavailable) as raised, postgres_errors():
        PostgresConnection.connect(ConnectionOptions(url="postgresql://ada:secret@127.0.0.1:1/kb"))
    assert "secret" not in raised.value.message
    with pytest.raises(StorageError, match="does not exist"), postgres_errors():
        PostgresConnection.connect(ConnectionOptions(url=missing))


def test_an_answer_that_asyncpg_does_not_expect_counts_as_a_lost_connection() -> None:
    """Seen after kill -9 of the server: a part of an answer had arrived."""
    with pytest.raises(DatabaseUnavailable), postgres_errors():
        raise asyncpg.InternalClientError("got result for unknown protocol state 12")


def test_interrupted_begin_or_commit_is_rolled_back(database_url: str) -> None:
    class Slow(Transaction, frozen=True):
        def begin(self) -> str:
            return f"{super().begin()}; SELECT pg_sleep(60)"

    threads = ConnectionThreads(ConnectionOptions(url=database_url), 1, "test")
    try:
        with pytest.raises(StatementInterrupted):
            threads.submit(Slow(statement_timeout_ms=20), lambda db: db.execute("SELECT 1")).result()
        with pytest.raises(StatementInterrupted):
            threads.submit(READING, lambda db: db.interrupt()).result()

        assert threads.submit(READING, lambda db: db.execute("SELECT 1").fetchall()).result() == [(1,)]
    finally:
        threads.close_now()


async def test_connection_that_fails_while_it_is_opened_is_closed(database_url: str) -> None:
    sessions = "SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE datname = current_database()"
    async with CommitProxy(database_url).running() as proxy:
        proxy.silent_at = b"pg_backend_pid"
        options = ConnectionOptions(url=proxy.url, statement_cache=AUTOMATIC, connect_timeout_s=1.0)
        with pytest.raises(DatabaseUnavailable) as raised, postgres_errors():
            await asyncio.to_thread(PostgresConnection.connect, options)
        observer = await asyncpg.connect(database_url)
        async with asyncio.timeout(FAILS_AFTER_S):
            while await observer.fetchval(sessions) > 1:
                await asyncio.sleep(0.01)
        await observer.close()

    assert isinstance(raised.value.__cause__, ConnectionError)  # keeps the frames, and what they refer to


async def test_interruption_while_many_rows_are_sent_ends_the_statement(
    connection: PostgresConnection, database_url: str
) -> None:
    rows = [(number, "x" * 100_000) for number in range(200)]
    insert = "INSERT INTO words SELECT CAST(? AS BIGINT), CAST(? AS TEXT) FROM pg_catalog.pg_advisory_xact_lock(7)"
    waits = "SELECT count(*) FROM pg_catalog.pg_locks WHERE NOT granted"
    observer = await asyncpg.connect(database_url)
    async with observer.transaction():
        await observer.execute("SELECT pg_advisory_xact_lock(7)")
        writing = asyncio.ensure_future(
            asyncio.to_thread(
                connection.run, Transaction(schema="florilegium"), lambda db: db.executemany(insert, rows)
            )
        )
        while not await observer.fetchval(waits):
            await asyncio.sleep(0.01)
        connection.interrupt()
        ended, _ = await asyncio.wait([writing], timeout=FAILS_AFTER_S)
    await observer.close()
    if connection._task is not None:
        connection._loop.call_soon_threadsafe(connection._give_up, connection._task)
    await asyncio.wait([writing])

    assert ended, "the connection was still waiting"
    assert isinstance(writing.exception(), StatementInterrupted | asyncpg.PostgresError | OSError)
