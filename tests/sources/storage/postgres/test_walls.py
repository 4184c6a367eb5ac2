"""Two walls between libraries: every statement names the tenant, and row-level security shows only the rows of the
tenant of the transaction. Each of them is removed in turn."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from config.postgres.connection import ConnectionOptions, Parameters
from sources.drafts import (
    CharacterDraft,
    ConversationDraft,
    MediaDraft,
    MessageDraft,
    NoteDraft,
    ObservationDraft,
    PromptDraft,
)
from sources.storage.contract import ExactSearch, Library, MessageSearch
from sources.storage.postgres.connection import LibraryConnection, LibraryTransaction
from sources.storage.postgres.tables import LIBRARY_SCHEMA, TENANT_SETTING, TENANT_TABLES
from sources.storage.tables.sql import Delete, Insert, Update
from tests.attack.walls import statements_without_tenant
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_postgres
from tests.sources.storage.test_vectors import SEMANTIC

pytestmark = pytest.mark.slow("makes a database for each test")

_ENDING = "z" * 26


@pytest.fixture
async def libraries(database_url: str, tmp_path: Path) -> AsyncIterator[LibraryFixture]:
    async with open_postgres(database_url, tmp_path, _ENDING) as opened:
        for owner in ("ada", "ben"):
            async with opened.library(owner) as library:
                await use_everything(library, owner)
        yield opened


async def use_everything(library: Library, owner: str) -> None:
    """Writes, reads, searches, changes and deletes items of every kind."""
    note = await library.notes.create(NoteDraft(title=f"Kettle of {owner}", content="water for tea", tags=("home",)))
    await library.characters.create(CharacterDraft(name=f"Guide of {owner}", description="a guide for tea"))
    await library.prompts.create(PromptDraft(name=f"Prompt of {owner}", system_prompt="tea, briefly"))
    await library.observations.create(ObservationDraft(title=f"Learned by {owner}", project="tea", type="discovery"))
    await library.media.create(MediaDraft(title=f"Lecture of {owner}", content="tea " * 50))
    messages = [MessageDraft(role="user", sender=owner, content=f"tea of {owner}, {n}") for n in range(3)]
    talk = await library.chats.create(ConversationDraft(title=f"Talk of {owner}", namespace="home"), messages)
    for search in (
        make_search("tea"),
        make_search("teaa"),
        make_search("tea", tags=("home",)),
        make_search("kettle OR talk", ranking="meaning"),
        make_search("", limit=3),
        make_search("tea", contains="tea", projects=("home",)),
    ):
        for source in ("notes", "characters", "prompts", "observations", "media", "chats"):
            await library.collection(source).search(search)
    await library.chats.find_messages(MessageSearch(text="TEA", limit=5, deadline_ms=10_000))
    await library.chats.match_messages(ExactSearch(expression="tea", limit=5, deadline_ms=10_000))
    for collection in (library.notes, library.media, library.chats, library.prompts, library.characters):
        await collection.list(10, 0)
        await collection.tags(10)
        await collection.created_counts("month")
        await collection.created_counts("day", "2026-")
    await library.chats.namespace_counts([talk.id])
    await library.bookmarks.set("tea", owner)
    await library.notes.update(note.id, NoteDraft(content="water for tea and coffee"))
    await library.notes.delete(note.id)
    await library.notes.restore(note.id)
    await library.chats.append(talk.id, [MessageDraft(role="user", content="the last tea")])
    await library.usage()


async def titles_seen(libraries: LibraryFixture, owner: str) -> set[str]:
    async with libraries.library(owner) as library:
        listed = (await library.notes.list(10, 0)).rows
        found = (await library.notes.search(make_search("tea"))).hits
        talks = (await library.chats.search(make_search("tea"))).hits
        messages = (await library.chats.find_messages(MessageSearch(text="tea", limit=9, deadline_ms=10_000))).hits
    titles = {note.title for note in listed} | {hit.title for hit in (*found, *talks)}
    return {title.rpartition(" ")[2] for title in titles} | {hit.title.rpartition(" ")[2] for hit in messages}


async def disable_row_security(url: str) -> None:
    """The second wall is gone."""
    connection = await asyncpg.connect(url)
    for table in await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", LIBRARY_SCHEMA):
        await connection.execute(f"ALTER TABLE {LIBRARY_SCHEMA}.{table[0]} DISABLE ROW LEVEL SECURITY")
    await connection.close()


async def test_each_wall_is_enough_and_without_both_data_leaks(libraries: LibraryFixture, database_url: str) -> None:
    assert await titles_seen(libraries, "ada") == {"ada"}
    with statements_without_tenant():
        assert await titles_seen(libraries, "ada") == {"ada"}
    await disable_row_security(database_url)
    assert await titles_seen(libraries, "ada") == {"ada"}
    one, _ = await tenants(database_url)

    def read_all(connection: LibraryConnection) -> None:
        rows = connection.execute("SELECT title FROM notes").fetchall()
        assert sorted(title for (title,) in rows) == ["Kettle of ada", "Kettle of ben"]

    with statements_without_tenant():
        await in_transaction(database_url, LibraryTransaction(tenant=one), read_all)


async def test_a_statement_of_another_tenant_finds_and_changes_nothing(
    libraries: LibraryFixture, database_url: str
) -> None:
    one, other = await tenants(database_url)

    def work(connection: LibraryConnection) -> None:
        assert connection.execute("SELECT count(*) FROM notes").fetchone() == (1,)
        connection.tenant = other
        for table in ("notes", "messages", "state", "index_words"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
        match = "tsv @@ CAST(replace(?, chr(1), current_setting('florilegium.tenant')) AS TSQUERY)"
        assert connection.execute(f"SELECT count(*) FROM index_entries WHERE {match}", ("'\x01Ntea'",)).fetchone() == (
            0,
        )
        assert connection.execute(Update("notes", "title = 'x'", "id > 0")).rowcount == 0
        assert connection.execute(Delete("index_entries", "id > 0")).rowcount == 0
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            connection.execute(Insert("state", "name, value"), ("x", "y"))

    await in_transaction(database_url, LibraryTransaction(tenant=one), work)


async def test_a_transaction_without_a_tenant_sees_no_rows(libraries: LibraryFixture, database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL ROLE florilegium_tenant")
            for table in set(TENANT_TABLES) - {"index_entries", "message_trigrams", "vectors"}:
                assert await connection.fetchval(f"SELECT count(*) FROM {LIBRARY_SCHEMA}.{table}") == 0, table
        for table in ("users", "keys", "tenants", "libraries"):
            allowed = "SELECT has_table_privilege('florilegium_tenant', $1, 'SELECT')"
            assert not await connection.fetchval(allowed, f"florilegium.{table}")
        role = await connection.fetchrow("SELECT * FROM pg_roles WHERE rolname = 'florilegium_tenant'")
        assert role is not None
        assert not any(role[name] for name in ("rolsuper", "rolbypassrls", "rolcanlogin", "rolcreaterole"))
        owned = "SELECT count(*) FROM pg_class WHERE relowner = (SELECT oid FROM pg_roles WHERE rolname = $1)"
        assert await connection.fetchval(owned, "florilegium_tenant") == 0
    finally:
        await connection.close()


async def test_every_plan_finds_the_rows_of_the_tenant_by_an_index(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plans of all statements, without row-level security, so that only the tenant that a statement names is in
    them. Citus can run each of them on the machine of the tenant for the same reason."""
    recorded: dict[str, None] = {}
    original = LibraryConnection._statement

    def record(self: LibraryConnection, sql: str, parameters: Parameters) -> Any:
        statement, arguments = original(self, sql, parameters)
        if self.tenant is not None:
            recorded[statement.text] = None
        return statement, arguments

    monkeypatch.setattr(LibraryConnection, "_statement", record)
    async with open_postgres(database_url, tmp_path, _ENDING, **SEMANTIC) as libraries:
        for owner in ("ada", "ben"):
            async with libraries.library(owner) as library:
                await use_everything(library, owner)
            await libraries.embed(owner)
            async with libraries.library(owner) as library:
                await library.notes.search(make_search("a hot drink", ranking="meaning"))
        await libraries.engine.remove(libraries.context("ben").user_id)
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute(
            f"SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET {TENANT_SETTING} = 'aaaaaaa'"
        )
        checked = 0
        for text in recorded:
            if LIBRARY_SCHEMA not in text:
                continue
            for node in _nodes(await _plan(connection, text)):
                if node.get("Relation Name") in TENANT_TABLES:
                    checked += 1
                    conditions = " ".join(str(node.get(name, "")) for name in ("Index Cond", "Recheck Cond"))
                    is_found_by_lexeme = "tsv @@" in conditions and "tenant_id" in str(node.get("Filter", ""))
                    is_change = node["Node Type"] == "ModifyTable"
                    assert "tenant_id" in conditions or is_found_by_lexeme or is_change, (text, node)
        assert checked > 200
    finally:
        await connection.close()


async def _plan(connection: "asyncpg.Connection[Any]", text: str) -> dict[str, Any]:
    await connection.execute(f"PREPARE checked AS {text}")
    try:
        count = await connection.fetchval(
            "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'checked'"
        )
        values = f"({', '.join(['NULL'] * count)})" if count else ""
        [(plan,)] = await connection.fetch(f"EXPLAIN (FORMAT JSON) EXECUTE checked{values}")
        root: dict[str, Any] = json.loads(plan)[0]["Plan"]
        return root
    finally:
        await connection.execute("DEALLOCATE checked")


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


async def tenants(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch("SELECT tenant_id FROM florilegium.tenants ORDER BY created_at")
        return [tenant for (tenant,) in rows if re.fullmatch("[a-z2-7]{7}", tenant)]
    finally:
        await connection.close()


async def in_transaction(url: str, transaction: LibraryTransaction, work: Any) -> None:
    def run() -> None:
        connection = LibraryConnection.connect(ConnectionOptions(url=url))
        try:
            connection.begin(transaction)
            work(connection)
        finally:
            connection.close()

    await asyncio.to_thread(run)
