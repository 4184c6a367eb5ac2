"""Schemas of users: random names, first use by several servers at once, migrations, removal."""

import asyncio
import re
import sqlite3
from pathlib import Path

import asyncpg
import pytest

from config.errors import StorageError
from sources.drafts import NoteDraft
from sources.storage.postgres.schema import LIBRARY_MIGRATIONS, LibraryMigration, LibrarySchemas
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
    assert version == len(LIBRARY_MIGRATIONS)


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
    newer = LibrarySchemas((*LIBRARY_MIGRATIONS, *added))
    async with open_engine(schemas=newer) as (_, libraries), libraries.library("ada") as ada:
        with pytest.raises(StorageError):
            await ada.notes.list(1, 0)
    version = "SELECT schema_version FROM florilegium.libraries"
    assert await _fetch(database_url, version) == [(len(LIBRARY_MIGRATIONS) + 1,)]
    # The migration that failed was rolled back, and the library continues from there.
    repaired = LibraryMigration(("ALTER TABLE notes ADD COLUMN extra TEXT",), compatible_with=1)
    newer = LibrarySchemas((*LIBRARY_MIGRATIONS, added[0], repaired))
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
