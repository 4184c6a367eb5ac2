"""The tables of all libraries: first use by several servers at once, migrations, removal, and libraries of an earlier
layout, which had a schema for each user."""

import asyncio
import random
import re
import sqlite3
from pathlib import Path

import asyncpg
import pytest

from auth.registry import Registry
from config.errors import QuotaExceeded, StorageError
from config.paths import UserId
from config.postgres.connection import ConnectionOptions
from server.store_copy.migration import move_schemas
from sources.drafts import NoteDraft
from sources.storage.job_queue import background_jobs
from sources.storage.postgres.connection import NoLibrary
from sources.storage.postgres.database import PostgresDatabase
from sources.storage.postgres.index import index_update
from sources.storage.postgres.schema import FIRST_VERSION, LibraryMigration, LibrarySchemas
from sources.storage.postgres.vectors.library_vectors import LibraryVectors
from sources.storage.tables.sql import NOTES_INDEX, Delete
from tests.older_versions import postgres_script
from tests.older_versions.contents import check_contents, check_writing
from tests.sources.storage.library_fixture import make_search, open_sqlite, titles, total_items
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
    [(tenant,)] = await _fetch(database_url, "SELECT tenant_id FROM florilegium.tenants")
    assert re.fullmatch(r"[a-z2-7]{7}", str(tenant))


async def test_a_quota_of_bytes_is_exceeded_by_about_one_write(open_engine: OpenEngine) -> None:
    """Measuring the size only after every 20 writes would let these writes exceed the quota by 200 KB."""
    quota, choice = 300_000, random.Random(1)
    async with open_engine(user_max_bytes=quota) as (_, libraries), libraries.library("ada") as ada:

        async def create(count: int) -> None:
            for _ in range(count):
                await ada.notes.create(NoteDraft(title="Logs", content=choice.randbytes(10_000).hex()))

        await create(3)
        used = [(await ada.usage()).bytes]
        with pytest.raises(QuotaExceeded):
            await create(100)
        used.append((await ada.usage()).bytes)

    assert used[0] < 90_000
    assert quota <= used[1] < quota + 30_000


async def test_a_user_is_some_rows_and_no_relation(open_engine: OpenEngine, database_url: str) -> None:
    relations = "SELECT count(*) FROM pg_catalog.pg_class"
    rows = "SELECT sum(pg_column_size(s.*)) FROM florilegium_library.state s GROUP BY tenant_id"
    async with open_engine() as (_, libraries):
        async with libraries.library("ada") as ada:
            await total_items(ada)
        before = await _fetch(database_url, relations)
        for owner in ("ben", "cyd", "dan"):
            async with libraries.library(owner) as library:
                await total_items(library)
        assert await _fetch(database_url, relations) == before
        sizes = [int(str(size)) for (size,) in await _fetch(database_url, rows)]
    assert len(sizes) == 4
    assert max(sizes) < 1_000


async def test_every_key_and_index_begins_with_the_tenant(open_engine: OpenEngine, database_url: str) -> None:
    """The lexemes of the full-text indexes do."""
    async with open_engine() as (_, libraries), libraries.library("ada") as ada:
        await total_items(ada)
    rows = await _fetch(
        database_url, "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'florilegium_library'"
    )
    others = {str(name) for name, definition in rows if "(tenant_id" not in str(definition)}
    assert len(rows) > 40
    assert others == {"index_entries_by_lexeme", "message_trigrams_by_lexeme"}


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
        "WHERE table_schema = 'florilegium_library' AND column_name <> 'tenant_id' "
        "AND table_name NOT IN ('index_entries', 'index_words', 'message_trigrams', 'vector_queue', 'vectors')",
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


async def test_tables_are_migrated_on_first_use(open_engine: OpenEngine, database_url: str) -> None:
    async with open_engine() as (_, libraries), libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(title="kept"))
    table = "ALTER TABLE florilegium_library.notes ADD COLUMN extra TEXT"
    failing = LibrarySchemas((LibraryMigration((table, "SELECT 1 / 0"), compatible_with=1),))
    async with open_engine(schemas=failing) as (_, libraries), libraries.library("ada") as ada:
        with pytest.raises(StorageError):
            await ada.notes.list(1, 0)
    version = "SELECT value FROM florilegium.library_schema WHERE name = 'version'"
    # The migration that failed was rolled back.
    assert await _fetch(database_url, version) == [(str(FIRST_VERSION),)]
    newer = LibrarySchemas((LibraryMigration((table,), compatible_with=1),))
    async with (
        open_engine(schemas=newer) as (_, libraries),
        open_engine(schemas=newer) as (_, others),
        libraries.library("ada") as one,
        others.library("ada") as other,
    ):
        pages = await asyncio.gather(one.notes.list(1, 0), other.notes.list(1, 0))
    assert [page.rows[0].title for page in pages] == ["kept", "kept"]
    assert await _fetch(database_url, version) == [(str(FIRST_VERSION + 1),)]
    # A server of the release before can still use the tables, unless it needs the newer one.
    async with open_engine() as (_, libraries), libraries.library("ada") as ada:
        assert (await ada.notes.list(1, 0)).total == 1
    await _execute(database_url, "UPDATE florilegium.library_schema SET value = '99' WHERE name = 'compatible_with'")
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
        assert await _fetch(database_url, _TENANTS_WITH_TEXT) == [(1,)]
        for libraries in (other, one):
            async with libraries.library("ada") as ada, libraries.library("ben") as ben:
                assert (await ada.notes.list(10, 0)).total == 0
                assert (await ben.notes.list(10, 0)).total == 2


async def test_items_of_a_kind_that_is_no_longer_installed_are_removed_with_the_library(
    open_engine: OpenEngine, database_url: str
) -> None:
    table = "florilegium_library.recipes"
    async with open_engine() as (engine, libraries):
        for owner in ("ada", "ben"):
            async with libraries.library(owner) as library:
                await library.bookmarks.set("a", "b")
        await _execute(
            database_url,
            f"CREATE TABLE {table} AS SELECT tenant_id, 'secret' AS title FROM florilegium.tenants; "
            f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; "
            f"CREATE POLICY tenant ON {table} USING (tenant_id = current_setting('florilegium.tenant', TRUE))",
        )
        await engine.remove(libraries.context("ada").user_id)
    owners = f"SELECT t.user_id FROM {table} JOIN florilegium.tenants t USING (tenant_id)"
    assert await _fetch(database_url, owners) == [(libraries.context("ben").user_id,)]
    assert await _fetch(database_url, f"SELECT count(*) FROM {table}") == [(1,)]


async def test_measuring_libraries_does_not_update_their_indexes(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that lists users would end before, and keep servers from it with its lease."""
    async with open_engine() as (_, libraries), libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(title="tea"))
    monkeypatch.setattr(index_update.IndexUpdate, "start", lambda *_, **__: pytest.fail("the index is updated"))
    async with open_engine() as (engine, libraries):
        one, other = (libraries.context(name).user_id for name in ("ada", "ben"))
        used = await engine.stored_bytes([one, other])
    assert used[one] > used[other] == 0


async def test_an_update_of_an_index_that_is_stopped_ends_its_lease(
    open_engine: OpenEngine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_engine() as (_, libraries), libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(title="tea"))
    state = "florilegium_library.state"
    await _execute(database_url, f"UPDATE {state} SET value = 'older' WHERE name = 'segment_version'")
    began = asyncio.Event()

    async def update_forever(_database: PostgresDatabase) -> None:
        began.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(index_update, "reindex_library", update_forever)
    leases = f"SELECT name FROM {state} WHERE name LIKE '%lease'"
    async with open_engine() as (_, libraries), libraries.library("ada") as ada:
        await ada.notes.list(1, 0)
        await began.wait()
        assert await _fetch(database_url, leases) == [("reindex_lease",)]
    assert await _fetch(database_url, leases) == []


async def test_a_library_that_was_removed_and_created_again_is_read_by_every_server(open_engine: OpenEngine) -> None:
    async with open_engine() as (engine, one), open_engine() as (_, other):
        async with one.library("ada") as ada, other.library("ada") as same:
            await ada.notes.create(NoteDraft(title="harbour"))
            assert titles(await same.notes.search(make_search("harbour"))) == ["harbour"]
            assert not titles(await same.notes.search(make_search("glacier")))
        await engine.remove(one.context("ada").user_id)
        async with one.library("ada") as ada, other.library("ada") as same:
            await ada.notes.create(NoteDraft(title="glacier"))
            for library in (same, ada):
                assert [note.title for note in (await library.notes.list(10, 0)).rows] == ["glacier"]
                assert titles(await library.notes.search(make_search("glacier"))) == ["glacier"]


async def test_what_was_counted_before_a_library_was_removed_is_forgotten(open_engine: OpenEngine) -> None:
    """Both libraries have the same number of writes, by which counts are known to be current."""
    async with open_engine() as (engine, libraries):
        for title, other in (("harbour", "glacier"), ("glacier", "harbour")):
            async with libraries.library("ada") as ada:
                await ada.notes.create(NoteDraft(title=title))
                assert titles(await ada.notes.search(make_search(title))) == [title]
                assert not titles(await ada.notes.search(make_search(other)))
            await engine.remove(libraries.context("ada").user_id)


async def test_background_work_does_not_create_a_library_again(
    open_engine: OpenEngine, database_url: str, tmp_path: Path
) -> None:
    async with open_engine() as (engine, one), open_engine() as (other_engine, other):
        for libraries in (one, other):
            async with libraries.library("ada") as ada:
                await ada.notes.create(NoteDraft(title="secret"))
        user_id = one.context("ada").user_id
        database = await other_engine._database(user_id)
        await database.index_update.wait_until_finished()
        # A library that the other server has open, and one that it does not know.
        for known in (database, PostgresDatabase(user_id, other_engine._options)):
            await engine.remove(user_id)
            vectors = LibraryVectors(known, index_min_passages=0)
            known.index_update.start()
            known.trigram_index.start(0)
            await known.index_update.wait_until_finished()
            await known.trigram_index.wait_until_finished()
            await vectors.end_lease("a process that has ended")
            with pytest.raises(NoLibrary):
                await known.write_vectors("test", lambda connection: connection.execute(Delete("vector_queue")))
            with background_jobs(is_maintenance=known is not database), pytest.raises(NoLibrary):
                await known.write("test", NOTES_INDEX, lambda connection: None)
        assert await _fetch(database_url, "SELECT tenant_id FROM florilegium.tenants") == []
        async with other.library("ada") as ada:
            await ada.notes.create(NoteDraft(title="new"))
            assert [note.title for note in (await ada.notes.list(10, 0)).rows] == ["new"]


async def test_background_work_that_a_user_asked_for_creates_the_library(
    open_engine: OpenEngine, database_url: str
) -> None:
    async with open_engine() as (_, libraries):
        with background_jobs():
            async with libraries.library("ada") as ada, libraries.library("ben") as ben:
                assert await ada.notes.list_after("", 10) == []
                await ben.notes.create(NoteDraft(title="imported"))
        assert len(await _fetch(database_url, "SELECT tenant_id FROM florilegium.tenants")) == 2


@pytest.mark.slow("creates the schemas of an earlier version")
async def test_libraries_with_schemas_are_moved_to_the_shared_tables(
    open_engine: OpenEngine, database_url: str
) -> None:
    await _execute(database_url, postgres_script())
    users = {
        str(name): UserId(str(user_id))
        for name, user_id in await _fetch(database_url, "SELECT name, id FROM florilegium.users")
    }
    async with Registry.open(ConnectionOptions(url=database_url)) as registry:
        assert [user.name for user in await registry.list_users()] == ["ada", "ben"]
    for _ in range(2):
        # Two servers move a library at the same time.
        async with open_engine() as (_, libraries), open_engine() as (_, others):
            for name, user_id in users.items():
                await asyncio.gather(*(check_contents(one, user_id, name) for one in (libraries, others)))
                await check_writing(libraries, user_id)
    assert await _fetch(database_url, "SELECT 1 FROM pg_namespace WHERE nspname LIKE 'u\\_%'") == []
    # A server of the earlier layout refuses to use a library that was moved.
    assert {version for (version,) in await _fetch(database_url, _OLD_VERSIONS)} == {1_000}
    assert await _fetch(database_url, _TENANTS_WITH_ROWS) == [(2,)]


@pytest.mark.slow("creates the schemas of an earlier version")
async def test_a_library_whose_move_is_interrupted_stays_where_it_is(
    open_engine: OpenEngine, database_url: str
) -> None:
    """The connection is lost at the last statement. A writer of the earlier layout, which holds up the move, loses
    nothing."""
    await _execute(database_url, postgres_script())
    [(name, user_id, schema)] = await _fetch(
        database_url,
        "SELECT u.name, u.id, schema_name FROM florilegium.libraries l JOIN florilegium.users u ON u.id = l.user_id "
        "WHERE u.name = 'ada'",
    )
    await _execute(database_url, f"CREATE FUNCTION public.fail() RETURNS TRIGGER LANGUAGE plpgsql AS '{_END}'")
    writer = await asyncpg.connect(database_url)
    async with Registry.open(ConnectionOptions(url=database_url)):
        pass
    await _execute(
        database_url,
        "CREATE TRIGGER fail BEFORE UPDATE ON florilegium.libraries FOR EACH ROW EXECUTE FUNCTION public.fail()",
    )
    before = await _fetch(database_url, f'SELECT count(*) FROM "{schema}".notes')
    owner = str(user_id).removeprefix("u_")
    try:
        async with open_engine() as (_, libraries), libraries.library(owner) as ada:
            with pytest.raises(StorageError):
                await ada.notes.list(1, 0)
        assert await _fetch(database_url, f'SELECT count(*) FROM "{schema}".notes') == before
        assert await _fetch(database_url, "SELECT 1 FROM florilegium.tenants") == []
        assert await _fetch(database_url, _TENANTS_WITH_ROWS) == [(0,)]
        await _execute(database_url, "DROP TRIGGER fail ON florilegium.libraries")
        # The writer has begun, and commits while the library is about to be moved.
        transaction = writer.transaction()
        await transaction.start()
        await writer.execute(f"UPDATE \"{schema}\".state SET value = '99' WHERE name = 'writes'")
        async with open_engine() as (_, libraries):
            async with libraries.library(owner) as ada:
                moving = asyncio.create_task(ada.notes.list(1, 0))
                await asyncio.sleep(0.2)
                assert not moving.done()
                await transaction.commit()
                await moving
            await check_contents(libraries, UserId(str(user_id)), str(name))
        assert await _fetch(database_url, "SELECT value FROM florilegium_library.state WHERE name = 'writes'") == [
            ("99",)
        ]
    finally:
        await writer.close()


@pytest.mark.slow("makes a database for each test")
async def test_schemas_are_moved_by_a_command_while_users_write(open_engine: OpenEngine, database_url: str) -> None:
    """A library that a server has moved already is left alone."""
    await _execute(database_url, postgres_script())
    users = {
        str(name): str(user) for name, user in await _fetch(database_url, "SELECT name, id FROM florilegium.users")
    }
    options = ConnectionOptions(url=database_url)
    async with open_engine() as (_, libraries):

        async def write() -> None:
            for number in range(10):
                async with libraries.library(users["ada"].removeprefix("u_")) as ada:
                    await ada.notes.create(NoteDraft(title=f"note {number}"))

        (moved, count), _ = await asyncio.gather(move_schemas(options), write())
        async with libraries.library(users["ada"].removeprefix("u_")) as ada:
            assert (await ada.notes.list(20, 0)).total == 11
        await check_contents(libraries, UserId(users["ben"]), "ben")
    assert moved in (1, 2)
    assert count == 2
    assert await move_schemas(options) == (0, 2)


async def test_new_control_data_has_the_schema_of_an_older_version(database_url: str) -> None:
    async with Registry.open(ConnectionOptions(url=database_url)):
        new = await _describe(database_url, "florilegium")
    await _execute(database_url, "DROP SCHEMA florilegium CASCADE")
    await _execute(database_url, postgres_script())
    async with Registry.open(ConnectionOptions(url=database_url)):
        different = await _describe(database_url, "florilegium") ^ new
    # One column had the collation of the database. It is compared for equality only, which is the same in all of them.
    assert different == {("follows", "deployment", "text", collation, "YES", "None") for collation in ("C", "None")}


# Ends the connection in the middle of a transaction.
_END = "BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END"
_OLD_VERSIONS = "SELECT schema_version FROM florilegium.libraries"
_TENANTS_WITH_TEXT = """SELECT count(DISTINCT tenant_id) FROM (SELECT tenant_id FROM florilegium_library.notes
    UNION ALL SELECT tenant_id FROM florilegium_library.index_words
    UNION ALL SELECT tenant_id FROM florilegium_library.index_entries) AS rows"""
_TENANTS_WITH_ROWS = """SELECT count(DISTINCT tenant_id) FROM (SELECT tenant_id FROM florilegium_library.state
    UNION ALL SELECT tenant_id FROM florilegium_library.notes
    UNION ALL SELECT tenant_id FROM florilegium_library.index_entries) AS rows"""


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
