"""The vectors in a user's files: their tables and triggers, checks, and processes that are killed."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from config.paths import DATABASE_KINDS
from sources.drafts import NoteDraft
from sources.semantic.model import ModelInfo
from sources.storage.sqlite import SqliteLibraries
from sources.storage.sqlite.connection.pool import sqlite_options
from sources.storage.sqlite.maintenance.library_check import check_library, find_foreign_object
from sources.storage.sqlite.maintenance.maintenance import SCHEMAS, reindex
from sources.storage.sqlite.vectors.file_vectors import FileVectors
from sources.storage.sqlite.vectors.vector_tables import vector_tables
from tests.live import make_settings
from tests.sources.storage.library_fixture import make_search, open_sqlite, titles
from tests.sources.storage.sqlite.crashing_writer import OWNERS
from tests.sources.storage.test_vectors import BREAD, CAR, SEMANTIC, add_one_of_each


async def test_vectors_of_the_previous_model_are_searched_until_there_are_new_ones(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, **SEMANTIC) as libraries:
        async with libraries.library("ada") as ada:
            await ada.notes.create_many([NoteDraft(title="Car", content=CAR), NoteDraft(title="Loaf", content=BREAD)])
            await libraries.embed("ada")
        path = libraries.data_root.paths_of(libraries.context("ada").user_id).chacha
    # As after some time with another model, of which nothing is embedded yet.
    tables = vector_tables("chacha")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        fast = tables.state(connection)
        assert fast is not None
        tables.create(connection, "other")
        assert tables.searched_model(connection, ["other", "third"]) == fast.model
        assert tables.next_batch(connection, "other", has_context=False) is not None

    async with open_sqlite(tmp_path, **SEMANTIC) as libraries, libraries.library("ada") as ada:
        await libraries.embed("ada")
        page = await ada.notes.search(make_search("vehicle"))
    assert titles(page)[0] == "Car"
    assert page.semantic.status == "on"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM vector_models").fetchall() == [(fast.model,)]


async def test_check_finds_a_vector_without_its_row_and_reindex_removes_it(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, **SEMANTIC) as libraries:
        async with libraries.library("ada") as ada:
            await ada.notes.create(NoteDraft(title="Car", content=CAR))
        await libraries.embed("ada")
        root, user_id = libraries.data_root, libraries.context("ada").user_id
    path = root.paths_of(user_id).chacha
    assert {check.state for check in check_library(root, user_id)} == {"ok"}
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE notes_vectors SET item = 99")
    [damaged] = [check for check in check_library(root, user_id) if check.state != "ok"]
    assert (damaged.kind, damaged.state) == ("chacha", "index damaged")

    reindex(root, user_id, "chacha", sqlite_options(make_settings(tmp_path)))

    assert {check.state for check in check_library(root, user_id)} == {"ok"}
    async with open_sqlite(tmp_path, **SEMANTIC) as libraries, libraries.library("ada") as ada:
        await libraries.embed("ada")
        assert titles(await ada.notes.search(make_search("vehicle"))) == ["Car"]


async def test_triggers_of_vectors_are_known_and_others_are_foreign(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, **SEMANTIC) as libraries:
        async with libraries.library("ada") as ada:
            await add_one_of_each(ada, CAR)
        await libraries.embed("ada")
        paths = libraries.data_root.paths_of(libraries.context("ada").user_id)
    for kind, schema in SCHEMAS.items():
        with closing(sqlite3.connect(getattr(paths, kind), isolation_level=None)) as connection:
            assert find_foreign_object(connection, kind, schema.newest_version) is None
            table = vector_tables(kind).kinds[0].vectors
            connection.execute(f"CREATE TRIGGER {table}_spy AFTER INSERT ON {table} BEGIN SELECT 1; END")
            assert find_foreign_object(connection, kind, schema.newest_version) == f"trigger {table}_spy"


@pytest.mark.slow("kills processes")
async def test_killed_process_continues_to_embed_where_it_stopped(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sources.storage.sqlite.crashing_embedder", str(tmp_path), "20"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    covered = [float(line) for line in process.stdout.splitlines()]
    assert len(covered) == 20, process.stderr
    assert any(covered)
    async with open_sqlite(tmp_path, **SEMANTIC) as libraries:
        for owner in OWNERS:
            await libraries.embed(owner)
            async with libraries.library(owner) as library:
                page = await library.chats.search(make_search("vehicle", limit=1))
                assert page.semantic.status == "on"
                assert CAR in page.hits[0].text
        for owner in OWNERS:
            checks = check_library(libraries.data_root, libraries.context(owner).user_id)
            assert {check.state for check in checks} == {"ok"}


async def test_embedding_does_not_create_a_library_that_was_removed_meanwhile(tmp_path: Path) -> None:
    model = ModelInfo("test", "test", dimension=4, has_context=False, weight=1.0)
    async with open_sqlite(tmp_path) as libraries:
        async with libraries.library("ada") as ada:
            await ada.notes.create(NoteDraft(title="Car", content=CAR))
        engine, user_id = libraries.engine, libraries.context("ada").user_id
        assert isinstance(engine, SqliteLibraries)
        files = [FileVectors(partial(engine._open_file, user_id, number)) for number in range(len(DATABASE_KINDS))]
        for vectors in files:
            await vectors.create(model)
        [(vectors, batch)] = [(one, batch) for one in files if (batch := (await one.find_work(model)).batch)]
        home = libraries.data_root.paths_of(user_id).chacha.parent
        await engine.remove(user_id)

        assert await vectors.save(model, batch, [bytes(4)] * len(batch.texts)) == 0
        await vectors.create(model)
        assert not await vectors.clean()
        assert not home.exists()
