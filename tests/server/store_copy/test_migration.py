"""Whole deployments: what a server writes meanwhile, interruptions, and the way back."""

import asyncio
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from auth.context import READ, SCOPES, ClientId, Principal, build_context
from auth.registry import Registry, UserRecord
from config.errors import FlorilegiumError, StorageError
from config.paths import DataRoot
from config.postgres.connection import ConnectionOptions
from config.settings import Settings
from server.directory_lock import locked_directory
from server.lifespan import open_runtime
from server.store_copy.libraries import LibraryCopy
from server.store_copy.migration import MigrationResult, migrate_to_postgres, migrate_to_sqlite
from sources.drafts import NoteDraft
from sources.storage.sqlite import SqliteLibraries
from tests.server.store_copy.test_libraries import rows_of

USERS = 4
NOTES = 30
MIGRATE = """
import asyncio, sys
from pathlib import Path
from config.paths import DataRoot
from config.postgres.connection import ConnectionOptions
from config.settings import Settings
from server.store_copy.migration import migrate_to_postgres

def progress(user, copy):
    print(user.name, flush=True)

source = DataRoot(Path(sys.argv[1]))
options = ConnectionOptions(url=sys.argv[2])
asyncio.run(migrate_to_postgres(Settings(data_dir=sys.argv[1]), source, options, progress))
"""


class Deployment:
    """A data directory with users who have notes."""

    def __init__(self, root: Path) -> None:
        self.data_root = DataRoot(root)
        self.settings = Settings(data_dir=str(root))
        self.users: list[UserRecord] = []

    async def fill(self) -> None:
        self.data_root.prepare()
        async with Registry.open(self.data_root.control_path) as registry:
            for number in range(USERS):
                user = await registry.add_user(f"user{number}")
                await registry.create_key(user.id, "laptop", [READ])
                self.users.append(user)
        for user in self.users:
            await self.write(user, NOTES)

    async def write(self, user: UserRecord, notes: int) -> None:
        """Writes notes, a minute ago: files that were written just now are always copied again."""
        principal = Principal(user.id, user.name, ClientId("test"), frozenset(SCOPES), "local", user.name)
        libraries = SqliteLibraries(self.data_root, self.settings)
        try:
            async with libraries.library(build_context(principal, self.data_root, "request")) as library:
                drafts = [NoteDraft(title=f"{user.name} {number}", content="kettle") for number in range(notes)]
                await library.notes.create_many(drafts)
        finally:
            await libraries.close()
        a_minute_ago = time.time() - 60
        for path in self.data_root.paths_of(user.id).chacha.parent.iterdir():
            os.utime(path, (a_minute_ago, a_minute_ago))

    async def to_postgres(self, target: ConnectionOptions) -> tuple[MigrationResult, list[str]]:
        copied: list[str] = []
        result = await migrate_to_postgres(self.settings, self.data_root, target, _names(copied))
        return result, copied

    async def back(self, source: ConnectionOptions, target: DataRoot) -> tuple[MigrationResult, list[str]]:
        copied: list[str] = []
        return await migrate_to_sqlite(self.settings, source, target, _names(copied)), copied

    def rows(self, data_root: DataRoot) -> list[dict[str, list[Any]]]:
        return [rows_of(data_root, user.id) for user in self.users]


async def refusal_to_serve(data_dir: Path, storage_url: str = "") -> str:
    """Starts a server. Returns why it does not start, or an empty text."""
    try:
        async with open_runtime(Settings(data_dir=str(data_dir), storage_url=storage_url)):
            return ""
    except FlorilegiumError as error:
        return error.message


def _names(copied: list[str]) -> Callable[[UserRecord, LibraryCopy | None], None]:
    return lambda user, copy: copied.append(user.name) if copy is not None else None


@pytest.fixture
async def deployment(tmp_path: Path) -> Deployment:
    deployment = Deployment(tmp_path / "data")
    await deployment.fill()
    return deployment


@pytest.mark.slow("copies a deployment twice")
async def test_round_trip_is_equal(deployment: Deployment, tmp_path: Path, database_url: str) -> None:
    postgres, back = ConnectionOptions(url=database_url), DataRoot(tmp_path / "back")

    there, _ = await deployment.to_postgres(postgres)
    returned, _ = await deployment.back(postgres, back)

    assert (there.users, there.pending) == (returned.users, returned.pending) == (USERS, "")
    assert there.rows == returned.rows
    assert deployment.rows(back) == deployment.rows(deployment.data_root)
    async with Registry.open(back.control_path) as after, Registry.open(deployment.data_root.control_path) as before:
        assert await after.list_users() == await before.list_users()
        assert await after.list_keys() == await before.list_keys()


@pytest.mark.slow("copies a deployment several times")
async def test_a_row_that_postgres_cannot_store_is_named_and_does_not_stop_other_libraries(
    deployment: Deployment, tmp_path: Path, database_url: str
) -> None:
    """SQLite can index any text. A random one cannot be compressed. NUL and bytes that are not UTF-8 are damage."""
    too_long = "".join(chr(code) for code in Random(1).choices(range(0x4E00, 0x9FA0), k=2_000))

    def execute(number: int, sql: str, *values: Any) -> None:
        path = deployment.data_root.paths_of(deployment.users[number].id).chacha
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(sql, values)

    execute(1, "INSERT INTO namespaces (name) VALUES (?)", too_long)
    execute(2, "UPDATE notes SET content = 'a' || char(0) || CAST(x'eda080' AS TEXT) WHERE id = 1")
    postgres, back = ConnectionOptions(url=database_url), DataRoot(tmp_path / "back")

    copied: list[str] = []
    with pytest.raises(StorageError, match=rf"^1 of 4 .* user1: .*2,600 bytes \(namespaces, name {too_long[:80]}\)"):
        await migrate_to_postgres(deployment.settings, deployment.data_root, postgres, _names(copied))
    assert copied == ["user0", "user2", "user3"]
    assert "unfinished" in await refusal_to_serve(tmp_path / "new", database_url)

    execute(1, "DELETE FROM namespaces WHERE name = ?", too_long)
    assert (await deployment.to_postgres(postgres))[0].pending == ""
    await deployment.back(postgres, back)
    user = deployment.users[1]
    assert rows_of(back, user.id) == rows_of(deployment.data_root, user.id)
    with closing(sqlite3.connect(back.paths_of(deployment.users[2].id).chacha)) as connection:
        [content] = connection.execute("SELECT content FROM notes WHERE id = 1").fetchone()
    assert content == "a\ufffd\ufffd\ufffd\ufffd"


@pytest.mark.slow("copies a deployment several times")
async def test_running_server_keeps_the_last_step_pending(
    deployment: Deployment, tmp_path: Path, database_url: str
) -> None:
    postgres = ConnectionOptions(url=database_url)
    with locked_directory(deployment.data_root.root, "serve", "server"):
        first, copied = await deployment.to_postgres(postgres)
        await deployment.write(deployment.users[1], 1)
    async with Registry.open(postgres) as registry:
        assert await registry.list_users() == []
    assert "unfinished `florilegium migrate-store`" in await refusal_to_serve(tmp_path / "new", database_url)
    second, copied_again = await deployment.to_postgres(postgres)
    assert await refusal_to_serve(tmp_path / "new", database_url) == ""

    assert "in use by `florilegium serve`" in first.pending
    assert "run this command again" in first.pending
    assert (len(copied), copied_again, second.pending) == (USERS, ["user1"], "")
    async with Registry.open(postgres) as registry:
        assert [user.id for user in await registry.list_users()] == [user.id for user in deployment.users]


@pytest.mark.slow("copies a deployment several times")
async def test_running_server_keeps_the_last_step_to_files_pending(
    deployment: Deployment, tmp_path: Path, database_url: str
) -> None:
    postgres, back = ConnectionOptions(url=database_url), DataRoot(tmp_path / "back")
    await deployment.to_postgres(postgres)
    async with Registry.open(postgres):
        first, copied = await deployment.back(postgres, back)
    # With the control database of an earlier migration, the directory would be served otherwise.
    assert await refusal_to_serve(back.root) != ""
    second, copied_again = await deployment.back(postgres, back)
    assert await refusal_to_serve(back.root) == ""
    async with Registry.open(postgres):
        await deployment.back(postgres, back)
    assert "unfinished `florilegium migrate-store`" in await refusal_to_serve(back.root)

    assert "stop all servers and run this command again" in first.pending
    assert (len(copied), copied_again, second.pending) == (USERS, [], "")
    assert deployment.rows(back) == deployment.rows(deployment.data_root)


@pytest.mark.slow("kills processes")
async def test_killed_migration_continues_where_it_stopped(
    deployment: Deployment, tmp_path: Path, database_url: str
) -> None:
    postgres, back = ConnectionOptions(url=database_url), DataRoot(tmp_path / "back")
    for killed_after in (1, 2):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", MIGRATE, str(deployment.data_root.root), database_url),
            stdout=asyncio.subprocess.PIPE,
            cwd=Path(__file__).parents[3],
        )
        assert process.stdout is not None
        for _ in range(killed_after):
            assert await process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        await process.wait()

    result, copied = await deployment.to_postgres(postgres)
    await deployment.back(postgres, back)

    assert result.pending == ""
    assert len(copied) < USERS
    assert deployment.rows(back) == deployment.rows(deployment.data_root)


@pytest.mark.slow("copies a deployment several times")
async def test_libraries_that_did_not_change_are_not_copied_back_again(
    deployment: Deployment, tmp_path: Path, database_url: str
) -> None:
    postgres, back = ConnectionOptions(url=database_url), DataRoot(tmp_path / "back")
    await deployment.to_postgres(postgres)

    _, first = await deployment.back(postgres, back)
    _, second = await deployment.back(postgres, back)

    assert (len(first), second) == (USERS, [])
