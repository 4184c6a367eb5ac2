"""What callers of a server see when PostgreSQL fails: nothing is half-written, and the next call is served."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import asyncpg
import httpx2
import pytest

from tests.live import HTTP_OPTIONS, LiveServer, live, make_settings
from tests.server.postgres.database import LIBRARY, connect, tenant_of
from tests.server.postgres.mcp_calls import call, call_tool
from tests.servers.postgres_proxy import CommitProxy

_FAIL = """
    CREATE SEQUENCE public.failures;
    CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('public.failures') <= {count} THEN RAISE EXCEPTION 'failed' USING ERRCODE = '{code}'; END IF;
        RETURN NEW;
    END $$;
    GRANT USAGE ON SEQUENCE public.failures TO florilegium_tenant;
    CREATE TRIGGER fail BEFORE INSERT ON florilegium_library.index_entries
        FOR EACH ROW EXECUTE FUNCTION public.fail();
"""

# The first transaction that inserts a note continues when the session `pid` waits for a lock.
_WAIT_FOR = """
    CREATE SEQUENCE public.attempts;
    CREATE FUNCTION public.wait_for() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('public.attempts') = 1 THEN
            WHILE NOT EXISTS (SELECT 1 FROM pg_catalog.pg_locks WHERE pid = {pid} AND NOT granted) LOOP
                PERFORM pg_catalog.pg_sleep(0.01);
            END LOOP;
        END IF;
        RETURN NEW;
    END $$;
    GRANT USAGE ON SEQUENCE public.attempts TO florilegium_tenant;
    CREATE TRIGGER wait_for BEFORE INSERT ON florilegium_library.notes
        FOR EACH ROW EXECUTE FUNCTION public.wait_for();
"""


@asynccontextmanager
async def _server(folder: Path, url: str, **settings: Any) -> AsyncIterator[tuple[LiveServer, httpx2.AsyncClient]]:
    """Starts a server on which ada and ben have a note."""
    async with (
        live(make_settings(folder, storage_url=url, **settings)) as server,
        httpx2.AsyncClient(**HTTP_OPTIONS) as client,
    ):
        for user in ("ada", "ben"):
            await call(client, server, user, "notes_create", title=f"First of {user}", content="tea")
        yield server, client


async def _tenant(connection: "asyncpg.Connection[Any]", server: LiveServer, user: str) -> str:
    return await tenant_of(connection, (await server.user(user)).id)


async def _titles(client: httpx2.AsyncClient, server: LiveServer, user: str) -> list[str]:
    found = await call(client, server, user, "notes_search", query="tea")
    return sorted(note["title"] for note in found["results"])


@pytest.mark.parametrize("code", ["40001", "40P01"], ids=["serialization failure", "deadlock"])
async def test_transaction_that_lost_a_conflict_is_repeated(tmp_path: Path, database_url: str, code: str) -> None:
    async with _server(tmp_path, database_url) as (server, client), connect(database_url) as connection:
        await connection.execute(_FAIL.format(count=2, code=code))
        created = await call(client, server, "ada", "notes_create", title="Second of ada", content="tea")
        attempts = await connection.fetchval("SELECT last_value FROM public.failures")
        titles = await _titles(client, server, "ada")

    assert (attempts, created["version"], titles) == (3, 1, ["First of ada", "Second of ada"])


async def test_write_is_repeated_after_a_real_deadlock(tmp_path: Path, database_url: str) -> None:
    async with connect(database_url) as connection:
        name = database_url.rpartition("/")[2]
        await connection.execute(f"ALTER DATABASE {name} SET deadlock_timeout = '50ms'")
        async with _server(tmp_path, database_url) as (server, client):
            tenant = await _tenant(connection, server, "ada")
            await connection.execute(_WAIT_FOR.format(pid=connection.get_server_pid()))
            async with connection.transaction():
                # The session that finds the deadlock is rolled back, and that must be the server's.
                await connection.execute("SET LOCAL deadlock_timeout = '1h'")
                await connection.execute(f"LOCK TABLE {LIBRARY}.index_entries IN EXCLUSIVE MODE")
                writing = asyncio.create_task(
                    call(client, server, "ada", "notes_create", title="Second of ada", content="tea")
                )
                while not await connection.fetchval("SELECT is_called FROM public.attempts"):
                    await asyncio.sleep(0.01)
                # The server has locked this row. When it sees that this session waits for it, it needs the table.
                await connection.execute(
                    f"SELECT 1 FROM {LIBRARY}.state WHERE tenant_id = $1 AND name = 'writes' FOR UPDATE", tenant
                )
            await writing
            attempts = await connection.fetchval("SELECT last_value FROM public.attempts")
            titles = await _titles(client, server, "ada")

    assert (attempts, titles) == (2, ["First of ada", "Second of ada"])


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("53100", "the disk is full; nothing was written"),
        ("53200", "max_locks_per_transaction must be higher"),
        ("53400", "exceeds a limit of the PostgreSQL server"),
    ],
    ids=["full disk", "no memory", "limit"],
)
async def test_lack_of_resources_is_reported_and_nothing_is_half_written(
    tmp_path: Path, database_url: str, code: str, message: str
) -> None:
    async with _server(tmp_path, database_url) as (server, client), connect(database_url) as connection:
        tenant = await _tenant(connection, server, "ada")
        # The row of the note is written before its entry in the index, which fails.
        await connection.execute(_FAIL.format(count=1, code=code))
        failed = await call_tool(client, server, "ada", "notes_create", title="Second of ada", content="tea")
        rows = await connection.fetchval(f"SELECT count(*) FROM {LIBRARY}.notes WHERE tenant_id = $1", tenant)
        await call(client, server, "ada", "notes_create", title="Third of ada", content="tea")
        after = await _titles(client, server, "ada")
        other = await _titles(client, server, "ben")

    assert message in str(failed)
    assert rows == 1
    assert (after, other) == (["First of ada", "Third of ada"], ["First of ben"])


@pytest.mark.parametrize(("loss", "is_stored"), [("before", False), ("after", True)])
async def test_write_whose_commit_was_not_confirmed_is_never_repeated_by_the_server(
    tmp_path: Path, database_url: str, loss: Literal["before", "after"], is_stored: bool
) -> None:
    second = {"title": "Second of ada", "content": "tea", "idempotency_key": "second"}
    async with CommitProxy(database_url).running() as proxy, _server(tmp_path, proxy.url) as (server, client):
        # Not by its SQL, which is not sent again if the statement is prepared.
        proxy.lose_next(loss, after=second["title"].encode())
        failed = await call_tool(client, server, "ada", "notes_create", **second)
        stored = await _titles(client, server, "ada")
        repeated = await call(client, server, "ada", "notes_create", **second)
        titles = await _titles(client, server, "ada")
        other = await _titles(client, server, "ben")

    assert "it may or may not have been stored; repeat it with the same idempotency key" in str(failed)
    assert ("Second of ada" in stored) is is_stored
    assert repeated["version"] == 1
    assert (titles, other) == (["First of ada", "Second of ada"], ["First of ben"])
