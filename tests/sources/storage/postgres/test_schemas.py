"""Schemas of users: random names, first use by several servers at once, migrations, removal."""

import asyncio
import re
import sqlite3
from pathlib import Path

import asyncpg
import pytest

from auth.registry import Registry
from config.errors import StorageError
from config.paths import UserId
from config.postgres.connection import ConnectionOptions
from sources.drafts import NoteDraft
from sources.storage.postgres.schema import FIRST_VERSION, LibraryMigration, LibrarySchemas
from tests.older_versions import postgres_script
from tests.older_versions.contents import check_contents, check_writing
from tests.sources.storage.library_fixture import open_sqlite, total_items
from tests.sources.storage.postgres.conftest import OpenEngine


async def _fetch(url: str, sql: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


async def test_two_servers_create_one_library(open_engine: OpenEngine, database_url: str) -> None:
    async with open_engine() as (_, one), open_engine() as (_, other):

        async def create(title: str, server: int) -> None:
            async with (one, other)[server].library("ada") as ada:
                await ada.notes.create(NoteDraft(title=title))

        await asyncio.gather(*(create(f"note {number}", number % 2) for number in range(6)))
        async with one.library("ada") as ada:
            assert {note.title for note in (await ada.notes.list(10, 0)).rows} == {f"note {n}" for n in range(6)}
    [(name, version)] = await _fetch(database_url, "SELECT schema_name, schema_version FROM florilegium.libraries")
    assert re.fullmatch(r"u_[a-z2-7]{26}", str(name))
    assert version == FIRST_VERSION


async def test_tables_have_the_columns_of_sqlite(open_engine: OpenEngine, database_url: str, tmp_path: Path) -> None:
    async with open_engine() as (_, libraries), libraries.library("ada") as ada:
        await total_items(ada)
    async with open_sqlite(tmp_path / "sqlite") as libraries, libraries.library("ada") as ada:
        await total_items(ada)
        paths = libraries.data_root.paths_of(libraries.context("ada").user_id)
    rows = await _fetch(
        database_url,
        "SELECT table_name, column_name FROM information_schema.columns "
        # Each engine has its own full-text index.
        "WHERE table_schema = (SELECT schema_name FROM florilegium.libraries) AND table_name NOT LIKE 'index\\_%'",
    )
    in_sqlite: set[tuple[object, ...]] = set()
    for path in (paths.chacha, paths.media, paths.prompts):
        with sqlite3.connect(path) as connection:
            tables = {table for table, _ in rows}
            in_sqlite |= {
                (table, column)
                for table in tables
                for (column,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
            }
        connection.close()
    assert set(rows) == in_sqlite


async def test_a_library_is_migrated_on_first_use(open_engine: OpenEngine, database_url: str) -> None:
    async with open_engine() as (_, libraries), libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(title="kept"))
    added = (
        LibraryMigration(("CREATE TABLE extra (id BIGINT PRIMARY KEY)",), compatible_with=1),
        LibraryMigration(("ALTER TABLE notes ADD COLUMN extra TEXT", "SELECT 1 / 0"), compatible_with=1),
    )
    newer = LibrarySchemas(added)
    async with open_engine(schemas=newer) as (_, libraries), libraries.library("ada") as ada:
        with pytest.raises(StorageError):
            await ada.notes.list(1, 0)
    version = "SELECT schema_version FROM florilegium.libraries"
    assert await _fetch(database_url, version) == [(FIRST_VERSION + 1,)]
    # The migration that failed was rolled back, and the library continues from there.
    repaired = LibraryMigration(("ALTER TABLE notes ADD COLUMN extra TEXT",), compatible_with=1)
    newer = LibrarySchemas((added[0], repaired))
    async with (
        open_engine(schemas=newer) as (_, libraries),
        open_engine(schemas=newer) as (_, others),
        libraries.library("ada") as one,
        others.library("ada") as other,
    ):
        pages = await asyncio.gather(one.notes.list(1, 0), other.notes.list(1, 0))
    assert [page.rows[0].title for page in pages] == ["kept", "kept"]
    # A server of the release before can still use the library, unless it needs the newer one.
    async with open_engine() as (_, libraries), libraries.library("ada") as ada:
        assert (await ada.notes.list(1, 0)).total == 1
    incompatible = "UPDATE {}.state SET value = '99' WHERE name = 'compatible_with'"
    [(name,)] = await _fetch(database_url, "SELECT schema_name FROM florilegium.libraries")
    await _fetch(database_url, incompatible.format(name))
    async with open_engine() as (_, libraries), libraries.library("ada") as ada:
        with pytest.raises(StorageError, match="upgrade Florilegium"):
            await ada.notes.list(1, 0)


async def test_a_removed_library_is_empty_for_every_server(open_engine: OpenEngine, database_url: str) -> None:
    async with open_engine() as (engine, one), open_engine() as (_, other):
        for libraries in (one, other):
            async with libraries.library("ada") as ada, libraries.library("ben") as ben:
                await ada.notes.create(NoteDraft(title="secret"))
                await ben.notes.create(NoteDraft(title="kept"))
        await engine.remove(one.context("ada").user_id)
        assert len(await _fetch(database_url, "SELECT 1 FROM pg_namespace WHERE nspname LIKE 'u\\_%'")) == 1
        for libraries in (other, one):
            async with libraries.library("ada") as ada, libraries.library("ben") as ben:
                assert (await ada.notes.list(10, 0)).total == 0
                assert (await ben.notes.list(10, 0)).total == 2


async def test_data_of_an_older_version_is_used_as_it_is(open_engine: OpenEngine, database_url: str) -> None:
    """Its tables differ from new ones in nothing but the order of columns."""
    await _execute(database_url, postgres_script())
    users = {
        str(name): UserId(str(user_id))
        for name, user_id in await _fetch(database_url, "SELECT name, id FROM florilegium.users")
    }
    before = await _fetch(database_url, "SELECT schema_name, schema_version FROM florilegium.libraries ORDER BY 1")
    async with Registry.open(ConnectionOptions(url=database_url)) as registry:
        assert [user.name for user in await registry.list_users()] == ["ada", "ben"]
    for _ in range(2):
        async with open_engine() as (_, libraries):
            for name, user_id in users.items():
                await check_contents(libraries, user_id, name)
                await check_writing(libraries, user_id)
    assert before == await _fetch(
        database_url, "SELECT schema_name, schema_version FROM florilegium.libraries ORDER BY 1"
    )
    async with open_engine() as (_, libraries), libraries.library("new") as new:
        await total_items(new)
    older, newer = [
        str(name) for (name,) in await _fetch(database_url, f"{_SCHEMA_NAMES} ORDER BY created_at DESC LIMIT 2")
    ]
    assert await _describe(database_url, older) ^ await _describe(database_url, newer) == set()


async def test_new_control_data_has_the_schema_of_an_older_version(database_url: str) -> None:
    async with Registry.open(ConnectionOptions(url=database_url)):
        new = await _describe(database_url, "florilegium")
    await _execute(database_url, "DROP SCHEMA florilegium CASCADE")
    await _execute(database_url, postgres_script())
    different = await _describe(database_url, "florilegium") ^ new
    # One column had the collation of the database. It is compared for equality only, which is the same in all of them.
    assert different == {("follows", "deployment", "text", collation, "YES", "None") for collation in ("C", "None")}


async def test_library_from_before_the_first_schema_is_rejected(open_engine: OpenEngine, database_url: str) -> None:
    async with open_engine() as (_, libraries), libraries.library("ada") as ada:
        await total_items(ada)
    await _execute(database_url, "UPDATE florilegium.libraries SET schema_version = 1")
    async with open_engine() as (_, libraries), libraries.library("ada") as ada:
        with pytest.raises(StorageError, match="has schema 1, which no version of Florilegium since"):
            await ada.notes.list(1, 0)


_SCHEMA_NAMES = "SELECT schema_name FROM florilegium.libraries"


async def _execute(url: str, script: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(script)
    finally:
        await connection.close()


async def _describe(url: str, schema: str) -> set[tuple[str, ...]]:
    """Returns the columns, constraints and indexes of a schema, without the order of columns and the schema's name."""
    columns = """SELECT table_name, column_name, data_type, collation_name, is_nullable, column_default
        FROM information_schema.columns WHERE table_schema = '{}'"""
    constraints = """SELECT conrelid::regclass, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = '{}'::regnamespace"""
    indexes = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = '{}'"
    rows = [row for query in (columns, constraints, indexes) for row in await _fetch(url, query.format(schema))]
    return {tuple(str(value).replace(schema, "") for value in row) for row in rows}
