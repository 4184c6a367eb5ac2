"""The control data in PostgreSQL: what differs from a file of SQLite."""

import asyncio
import sqlite3
import sys
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from auth.authenticator import RegistryAuthenticator
from auth.context import READ
from auth.control_database import CONTROL_SCHEMA
from auth.postgres_control import PostgresControlDatabase
from auth.registry import Registry
from config.errors import ControlDatabaseLocked, DatabaseUnavailable, StorageError, Unauthenticated
from config.postgres.connection import ConnectionOptions
from tests.auth.auth_fixture import FakeClock, make_authenticator, make_settings
from tests.servers.postgres import with_database
from tests.servers.postgres_proxy import CommitProxy

COLUMNS = """SELECT table_name, column_name FROM information_schema.columns
    WHERE table_schema = 'florilegium'
    AND table_name NOT IN ('control_state', 'embedding_users', 'events', 'libraries', 'library_schema', 'store_copies',
    'tenants')"""
OPEN = """
import asyncio, sys
from auth.registry import Registry
from config.postgres.connection import ConnectionOptions

async def main():
    async with Registry.open(ConnectionOptions(url=sys.argv[1])) as registry:
        print((await registry.ensure_user("https://a", "alice")).id)

asyncio.run(main())
"""


async def fetch(location: ConnectionOptions, sql: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(location.url)
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
async def test_database_with_another_encoding_is_refused(database_url: str, encoding: str) -> None:
    server = ConnectionOptions(url=database_url)
    name = f"test_{uuid4().hex}"
    await fetch(server, f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(StorageError, match=f"the encoding {encoding}; expected UTF8"):
            async with Registry.open(ConnectionOptions(url=with_database(database_url, name))):
                pass
    finally:
        await fetch(server, f"DROP DATABASE {name} WITH (FORCE)")


async def test_both_engines_have_the_same_columns(database_url: str) -> None:
    location = ConnectionOptions(url=database_url)
    async with Registry.open(location):
        columns = await fetch(location, COLUMNS)
    with closing(sqlite3.connect(":memory:")) as db:
        for statement in chain(CONTROL_SCHEMA.statements, *CONTROL_SCHEMA.migrations):
            db.execute(statement)
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        expected = [(name, row[1]) for name in names for row in db.execute(f"PRAGMA table_info({name})")]

    assert sorted(columns) == sorted(expected)


async def test_processes_that_start_at_once_create_the_tables_once(database_url: str) -> None:
    starting = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", OPEN, database_url), stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
        )
        for _ in range(3)
    ]
    outputs = [(await process.communicate())[0] for process in starting]

    assert [process.returncode for process in starting] == [0, 0, 0]
    assert len(set(outputs)) == 1


async def test_newer_schema_is_rejected(database_url: str) -> None:
    location = ConnectionOptions(url=database_url)
    async with Registry.open(location):
        pass
    await fetch(location, "UPDATE florilegium.control_state SET version = 99")

    with pytest.raises(StorageError, match="schema version 99, written by a newer Florilegium"):
        async with Registry.open(location):
            pass


async def test_search_path_of_the_role_is_empty(postgres_location: ConnectionOptions) -> None:
    async with Registry.open(postgres_location):
        assert await fetch(postgres_location, "SHOW search_path") == [('""',)]
        with pytest.raises(asyncpg.UndefinedTableError):
            await fetch(postgres_location, "SELECT id FROM users")


async def test_locked_table_raises_an_error_and_the_next_call_works(postgres_location: ConnectionOptions) -> None:
    async with Registry.open(postgres_location, busy_timeout_s=0.01) as registry:
        other = await asyncpg.connect(postgres_location.url)
        async with other.transaction():
            await other.execute("UPDATE florilegium.control_state SET revision = revision")
            with pytest.raises(ControlDatabaseLocked):
                await registry.add_user("alice")
            assert await registry.user_by_name("alice") is None
        await other.close()

        await registry.add_user("alice")


async def test_concurrent_writes_of_two_processes_are_all_counted(postgres_location: ConnectionOptions) -> None:
    async with Registry.open(postgres_location) as one, Registry.open(postgres_location) as other:
        before = await fetch(postgres_location, "SELECT revision FROM florilegium.control_state")
        await asyncio.gather(*((one, other)[n % 2].add_user(f"user{n}") for n in range(20)))
        after = await fetch(postgres_location, "SELECT revision FROM florilegium.control_state")

        assert after[0][0] - before[0][0] == 20


async def test_a_write_ends_after_others_were_told_also_if_its_caller_is_cancelled(
    postgres_location: ConnectionOptions,
) -> None:
    async with Registry.open(postgres_location) as registry:
        alice = await registry.add_user("alice")
        database = registry.database
        assert isinstance(database, PostgresControlDatabase)
        telling, told = asyncio.Event(), asyncio.Queue[int]()

        async def announce(revision: int) -> None:
            telling.set()
            await asyncio.sleep(0.01)
            told.put_nowait(revision)

        database.announce = announce
        await registry.disable_user(alice.id)
        first = told.get_nowait()
        telling.clear()
        writing = asyncio.create_task(registry.set_role(alice.id, "reader"))
        await telling.wait()
        writing.cancel()
        async with asyncio.timeout(10):
            second = await told.get()

    assert second == first + 1


async def until_changed(registry: Registry, revision: int) -> None:
    while registry.database.revision() == revision:
        await asyncio.sleep(0.02)


async def test_access_withdrawn_by_another_process_ends(postgres_location: ConnectionOptions, clock: FakeClock) -> None:
    async with (
        Registry.open(postgres_location, clock=clock) as here,
        Registry.open(postgres_location, clock=clock) as there,
    ):
        server: RegistryAuthenticator = make_authenticator(make_settings(require_auth=True), here, clock)
        alice, bob = await there.add_user("alice"), await there.add_user("bob")
        key, alice_key = await there.create_key(alice.id, "laptop", [READ])
        _, bob_key = await there.create_key(bob.id, "laptop", [READ])
        await server.authenticate(f"Bearer {alice_key}")
        revision = here.database.revision()

        await there.revoke_key(key.id)
        await until_changed(here, revision)

        with pytest.raises(Unauthenticated):
            await server.authenticate(f"Bearer {alice_key}")
        assert (await server.authenticate(f"Bearer {bob_key}")).user_id == bob.id


@pytest.mark.slow("waits until all servers have noticed a change")
async def test_access_withdrawn_by_a_command_has_ended_when_the_command_returns(
    postgres_location: ConnectionOptions, clock: FakeClock
) -> None:
    async with (
        Registry.open(postgres_location, clock=clock) as here,
        Registry.open(postgres_location, clock=clock, waits_for_servers=True) as command,
    ):
        server = make_authenticator(make_settings(require_auth=True), here, clock)
        alice, bob = await here.add_user("alice"), await here.add_user("bob")
        _, bob_key = await here.create_key(bob.id, "laptop", [READ])
        for _ in range(3):
            key, secret = await here.create_key(alice.id, "laptop", [READ])
            await server.authenticate(f"Bearer {secret}")

            await command.revoke_key(key.id)

            with pytest.raises(Unauthenticated):
                await server.authenticate(f"Bearer {secret}")
        assert (await server.authenticate(f"Bearer {bob_key}")).user_id == bob.id


async def test_access_withdrawn_by_the_same_process_ends_at_the_next_call(
    postgres_location: ConnectionOptions, clock: FakeClock
) -> None:
    async with Registry.open(postgres_location, clock=clock) as registry:
        server = make_authenticator(make_settings(require_auth=True), registry, clock)
        alice = await registry.add_user("alice")
        key, secret = await registry.create_key(alice.id, "laptop", [READ])
        await server.authenticate(f"Bearer {secret}")

        await registry.revoke_key(key.id)

        with pytest.raises(Unauthenticated):
            await server.authenticate(f"Bearer {secret}")


async def test_closed_registry_raises_storage_error(postgres_location: ConnectionOptions) -> None:
    async with Registry.open(postgres_location) as registry:
        pass

    with pytest.raises(StorageError):
        await registry.list_users()


async def test_unreachable_server_is_named_without_its_password() -> None:
    with pytest.raises(DatabaseUnavailable) as raised:
        async with Registry.open(ConnectionOptions(url="postgresql://ada:secret@127.0.0.1:1/kb")):
            pass

    assert "secret" not in str(raised.value.__cause__)


async def test_reads_end_while_the_server_is_silent(
    postgres_location: ConnectionOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More reads than there are connections: none waits for its turn without a limit."""
    async with CommitProxy(postgres_location.url).running() as proxy:
        options = ConnectionOptions(url=proxy.url, silence_max_s=1.0, connect_timeout_s=5.0)
        async with Registry.open(options) as registry:
            await registry.add_user("ada")
            monkeypatch.setattr("auth.postgres_control._READ_MAX_S", 0.1)
            with proxy.silent():
                reads = [asyncio.create_task(registry.list_users()) for _ in range(8)]
                ended, _ = await asyncio.wait(reads, timeout=60)
                errors = [read.exception() for read in ended]
            monkeypatch.undo()
            users = await registry.list_users()

    assert [type(error) for error in errors] == [DatabaseUnavailable] * 8
    assert [user.name for user in users] == ["ada"]
