"""Vectors in PostgreSQL: servers that share a library, the HNSW index, and servers without pgvector."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from config.errors import NotFound
from config.postgres.connection import PostgresConnection
from sources.drafts import ConversationDraft, MessageDraft, NoteDraft, PromptDraft
from sources.records import HitPage
from sources.semantic.model import ModelInfo
from sources.storage import job_queue
from sources.storage.job_queue import CallGroup, JobGroup, job_group
from sources.storage.postgres import PostgresLibraries
from sources.storage.postgres.connection import LibraryConnection, claim
from sources.storage.postgres.vectors.library_vectors import EMBEDDING_LEASE, LibraryVectors
from sources.storage.postgres.vectors.vector_tables import _TABLE_LOCK, read_state
from sources.storage.tables.sql import Update
from tests.servers.postgres import with_database
from tests.servers.shared import SharedServer
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_postgres, titles
from tests.sources.storage.postgres.plans import explain
from tests.sources.storage.test_vectors import BREAD, CAR, SEMANTIC, WEATHER

pytestmark = pytest.mark.slow("makes a database for each test")

_ENDING = "z" * 26
_TOPICS = ("car", "tyre", "bread", "oven", "rain", "storm", "guitar", "tax", "garden", "winter")


@pytest.fixture
async def libraries(database_url: str, tmp_path: Path) -> AsyncIterator[LibraryFixture]:
    async with open_postgres(database_url, tmp_path, _ENDING, **SEMANTIC) as fixture:
        yield fixture


async def read(libraries: LibraryFixture, work: Any) -> Any:
    assert isinstance(libraries.engine, PostgresLibraries)
    database = await libraries.engine._database(libraries.context("ada").user_id)
    return await database.read("test", work)


def count(table: str) -> Any:
    return lambda connection: connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]


async def test_two_servers_embed_each_text_once(libraries: LibraryFixture, database_url: str, tmp_path: Path) -> None:
    async with open_postgres(database_url, tmp_path, _ENDING, **SEMANTIC) as other:
        async with libraries.library("ada") as ada:
            await ada.notes.create_many([NoteDraft(title=f"{number}", content=CAR) for number in range(700)])
        await asyncio.gather(libraries.embed("ada"), other.embed("ada"))
        states = [fixture.engine.state().embedding for fixture in (libraries, other)]

        assert sum(state.passages_total for state in states) == 700
        assert await read(libraries, count("vectors")) == 700
        assert await read(libraries, count("vector_queue")) == 0
        async with other.library("ada") as ada:
            assert (await ada.notes.search(make_search("vehicle"))).semantic.status == "on"


async def test_a_search_reads_the_state_of_the_vectors_once(
    libraries: LibraryFixture, monkeypatch: pytest.MonkeyPatch, statements_run: list[LibraryConnection]
) -> None:
    # On a busy machine too, no source runs alone.
    monkeypatch.setattr(job_queue, "_HELD_UP_MAX_S", 60.0)
    monkeypatch.setattr(job_queue, "_HELD_UP_SHARE", 60.0)
    async with libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(title="Car", content=CAR))
        await ada.prompts.create(PromptDraft(name="Bread", user_prompt=BREAD))
    await libraries.embed("ada")

    async def search(query: str) -> list[HitPage]:
        async with libraries.library("ada") as ada:
            with job_group(JobGroup(call=CallGroup(60.0))):
                return list(await asyncio.gather(*(one.search(make_search(query)) for one in (ada.notes, ada.prompts))))

    await search("vehicle")
    before = len(statements_run)
    notes, prompts = await search("engine")

    assert (notes.semantic.status, prompts.semantic.status) == ("on", "on")
    assert titles(notes) == ["Car"]
    # The beginning, words and entries, the state, the nearest of both, and the ends of this search and the one before.
    assert len(statements_run) - before <= 9


async def test_writes_succeed_while_the_table_of_vectors_is_created(
    libraries: LibraryFixture, database_url: str
) -> None:
    async with libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(title="Car", content=CAR))
    connection = await asyncpg.connect(database_url)
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _TABLE_LOCK)
        embedding = asyncio.create_task(libraries.embed("ada"))
        waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"
        while not await connection.fetchval(waiting):
            await asyncio.sleep(0.01)
        async with libraries.library("ben") as ben:
            await ben.notes.create(NoteDraft(title="Bread", content=BREAD))
    await connection.close()
    await embedding

    assert await read(libraries, count("vectors")) == 1


async def test_server_waits_while_another_one_embeds_the_library(libraries: LibraryFixture) -> None:
    async with libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(title="Car", content=CAR))
    assert isinstance(libraries.engine, PostgresLibraries)
    database = await libraries.engine._database(libraries.context("ada").user_id)
    assert await database.write_vectors("test", lambda connection: claim(connection, EMBEDDING_LEASE, "another", 1))

    await libraries.embed("ada")

    async with libraries.library("ada") as ada:
        page = await ada.notes.search(make_search("vehicle"))
    assert (titles(page), page.semantic.status) == (["Car"], "on")


async def test_text_that_changes_while_it_is_embedded_gets_no_vector_of_the_old_text(
    libraries: LibraryFixture,
) -> None:
    assert isinstance(libraries.engine, PostgresLibraries)
    database = await libraries.engine._database(libraries.context("ada").user_id)
    store = LibraryVectors(database, index_min_passages=0)
    model = ModelInfo("fast", "wordllama-256-2", 256, has_context=True, weight=0.2)
    async with libraries.library("ada") as ada:
        changed = await ada.notes.create(NoteDraft(title="Car", content=CAR))
        deleted = await ada.notes.create(NoteDraft(title="Rain", content=WEATHER))
        await ada.notes.create(NoteDraft(title="Loaf", content=BREAD))
        await store.create(model)
        batch = (await store.find_work(model)).batch
        assert batch is not None
        assert len(batch.texts) == 3
        await ada.notes.update(changed.id, NoteDraft(content=BREAD))
        await ada.notes.purge(deleted.id)

        assert await store.save(model, batch, [bytes([1] * 256)] * 3) == 1

    assert await read(libraries, count("vectors")) == 1
    assert await read(libraries, count("vector_queue")) == 1


async def test_failed_write_keeps_the_vectors(libraries: LibraryFixture) -> None:
    async with libraries.library("ada") as ada:
        note = await ada.notes.create(NoteDraft(title="Car", content=CAR))
        await libraries.embed("ada")
        with pytest.raises(NotFound):
            await ada.notes.update("absent", NoteDraft(content=BREAD))
        with pytest.raises(Exception, match="version"):
            await ada.notes.update(note.id, NoteDraft(content=BREAD), 99)
        page = await ada.notes.search(make_search("vehicle"))
    assert (titles(page), page.semantic.status) == (["Car"], "on")


async def test_human_only_message_is_found_by_people_only(libraries: LibraryFixture) -> None:
    async with libraries.library("ada") as ada:
        hidden = MessageDraft(content=CAR, metadata={"human_only": True})
        await ada.chats.create(ConversationDraft(title="Talk"), [MessageDraft(content="Yes"), hidden])
        await libraries.embed("ada")
        for ranking in ("fused", "meaning"):
            search = make_search("vehicle maintenance", ranking=ranking)
            assert CAR in [hit.text for hit in (await ada.chats.search(search)).hits]
            async with libraries.engine.library(libraries.context("ada", is_agent=True)) as agent:
                assert CAR not in [hit.text for hit in (await agent.chats.search(search)).hits]


async def test_many_passages_are_found_with_an_index(database_url: str, tmp_path: Path) -> None:
    settings = {**SEMANTIC, "postgres_hnsw_min_passages": 300}
    texts = [f"{one} {two} {three}" for one in _TOPICS for two in _TOPICS for three in _TOPICS[:4]]
    async with open_postgres(database_url, tmp_path, _ENDING, **settings) as libraries:
        async with libraries.library("ada") as ada:
            await ada.notes.create_many(
                [NoteDraft(title=f"Note {number}", content=t) for number, t in enumerate(texts)]
            )
            await libraries.embed("ada")
        state = await read(libraries, read_state)
        [(model, _)] = state.indexes
        assert model == state.number
        by_index = await _rank(libraries)
        assert {plan for plan in await read(libraries, _plan) if "vectors_hnsw" in plan}
        # Text that is written later is indexed too, and what is deleted is not found any more.
        async with libraries.library("ada") as ada:
            note = await ada.notes.create(NoteDraft(title="New", content=CAR))
            await libraries.embed("ada")
            assert "New" in titles(await ada.notes.search(make_search("vehicle maintenance", ranking="meaning")))
            await ada.notes.delete(note.id)
            assert "New" not in titles(await ada.notes.search(make_search("vehicle maintenance", ranking="meaning")))
    async with open_postgres(database_url, tmp_path, _ENDING, **SEMANTIC) as libraries:
        await _forget_indexes(libraries)
        exact = await _rank(libraries)
        assert exact == by_index
        await libraries.engine.remove(libraries.context("ada").user_id)
    connection = await asyncpg.connect(database_url)
    assert not await connection.fetch("SELECT indexname FROM pg_indexes WHERE indexname LIKE '%hnsw%'")
    await connection.close()


async def _rank(libraries: LibraryFixture) -> list[tuple[str, float]]:
    async with libraries.library("ada") as ada:
        page = await ada.notes.search(make_search("vehicle in bad weather", ranking="meaning"))
    return [(hit.title, hit.score) for hit in page.hits]


def _plan(connection: LibraryConnection) -> list[str]:
    """Returns the plan of a search by the index."""
    state = read_state(connection)
    assert state is not None
    vector = connection.execute("SELECT CAST(vector AS TEXT) FROM vectors LIMIT 1").fetchall()[0][0]
    value = f"(SELECT CAST('{vector}' AS public.halfvec))"
    order = f"CAST(v.vector AS public.halfvec(256)) OPERATOR(public.<#>) {value}"
    rows = f"v.tenant_id = '{connection.tenant}' AND v.kind = 1 AND v.model = {state.number}"
    connection.execute("SELECT set_config('enable_seqscan', 'off', TRUE), set_config('enable_sort', 'off', TRUE)")
    return explain(connection, f"SELECT v.id FROM vectors v WHERE {rows} ORDER BY {order} LIMIT 40")


async def _forget_indexes(libraries: LibraryFixture) -> None:
    def work(connection: PostgresConnection) -> None:
        connection.execute(Update("state", "value = replace(value, '[[1,1]]', '[]')", "name = 'vectors'"))

    assert isinstance(libraries.engine, PostgresLibraries)
    database = await libraries.engine._database(libraries.context("ada").user_id)
    await database.write_vectors("test", work)
    assert (await read(libraries, read_state)).indexes == ()


@pytest.fixture
def plain_database_url(postgres_server: SharedServer) -> Iterator[str]:
    """A database without extensions, and a role that may not install them."""
    name, role = "test_without_pgvector", "florilegium_plain"

    async def execute(*statements: str) -> None:
        connection = await asyncpg.connect(postgres_server.url)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    drop = (f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)', f"DROP ROLE IF EXISTS {role}")
    create = (
        f"CREATE ROLE {role} LOGIN PASSWORD 'plain'",
        f"CREATE DATABASE \"{name}\" OWNER {role} TEMPLATE template0 ENCODING 'UTF8'",
    )
    asyncio.run(execute(*drop, *create))
    url = urlsplit(with_database(postgres_server.url, name))
    yield urlunsplit(url._replace(netloc=f"{role}:plain@{url.hostname}:{url.port}"))
    asyncio.run(execute(*drop))


async def test_server_without_pgvector_finds_words_and_says_why(plain_database_url: str, tmp_path: Path) -> None:
    async with open_postgres(plain_database_url, tmp_path, _ENDING, **SEMANTIC) as libraries:
        async with libraries.library("ada") as ada:
            await ada.notes.create_many([NoteDraft(title=text[:9], content=text) for text in (CAR, BREAD, WEATHER)])
        await libraries.embed("ada")
        async with libraries.library("ada") as ada:
            page = await ada.notes.search(make_search("automobile"))
            by_meaning = await ada.notes.search(make_search("automobile", ranking="meaning"))
        problem = libraries.engine.state().embedding.problem

    assert titles(page) == [CAR[:9]]
    assert by_meaning.hits == ()
    for status in (page.semantic, by_meaning.semantic):
        assert status.status == "unavailable"
        assert "CREATE EXTENSION vector" in (status.reason or "")
    assert problem is not None
    assert "pgvector" in problem
