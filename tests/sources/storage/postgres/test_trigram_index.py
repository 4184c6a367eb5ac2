"""The index for substring searches: what it finds, when it is built, and by which server."""

import sys
from pathlib import Path

import asyncpg
import pytest

from config.postgres.connection import PostgresConnection
from sources.drafts import ConversationDraft, MessageDraft
from sources.storage.contract import MessageSearch
from sources.storage.postgres import PostgresLibraries
from sources.storage.postgres.database import PostgresDatabase
from sources.storage.postgres.index.trigram_index import folded, indexed_parts
from tests.sources.storage.library_fixture import LibraryFixture, open_postgres

_ENDING = "z" * 26


async def database_of(libraries: LibraryFixture) -> PostgresDatabase:
    assert isinstance(libraries.engine, PostgresLibraries)
    return await libraries.engine._database(libraries.context("ada").user_id)


async def find(libraries: LibraryFixture, text: str) -> list[str]:
    async with libraries.library("ada") as ada:
        hits = (await ada.chats.find_messages(MessageSearch(text=text, limit=20, deadline_ms=10_000))).hits
    await (await database_of(libraries)).trigram_index.wait_until_finished()
    return [hit.message.content for hit in hits]


def indexes(connection: PostgresConnection) -> list[str]:
    sql = "SELECT indexdef FROM pg_catalog.pg_indexes WHERE schemaname = ? AND indexname LIKE '%trigram'"
    return [definition for (definition,) in connection.execute(sql, (connection.schema,))]


def plan(connection: PostgresConnection) -> str:
    """Returns the plan of a search, without the indexes that would be faster for so few messages."""
    connection.execute("SELECT set_config('enable_seqscan', 'off', TRUE), set_config('enable_indexscan', 'off', TRUE)")
    sql = f"EXPLAIN SELECT id FROM messages m WHERE m.deleted = 0 AND {folded('m.content')} LIKE '%needle in%'"
    return "\n".join(line for (line,) in connection.execute(sql))


@pytest.mark.slow("makes a large library")
async def test_index_is_built_for_many_messages_only(database_url: str, tmp_path: Path) -> None:
    async with open_postgres(database_url, tmp_path, _ENDING, message_scan_max_rows=50) as libraries:
        database = await database_of(libraries)
        async with libraries.library("ada") as ada:
            await ada.chats.create(ConversationDraft(), [MessageDraft(content=f"straw {n}") for n in range(30)])
        assert await find(libraries, "needle") == []
        assert await database.read("test", indexes) == []
    async with open_postgres(database_url, tmp_path, _ENDING, message_scan_max_rows=50) as libraries:
        database = await database_of(libraries)
        async with libraries.library("ada") as ada:
            drafts = [MessageDraft(content=f"straw {n}") for n in range(2_000)]
            await ada.chats.create(ConversationDraft(title="A"), [*drafts, MessageDraft(content="A NEEDLE — groß")])
        assert await find(libraries, "needle") == ["A NEEDLE — groß"]
        assert len(await database.read("test", indexes)) == 1
        connection = await asyncpg.connect(database_url)
        await connection.execute(f"ANALYZE {await database.schema_name()}.messages")
        await connection.close()
        assert "messages_by_trigram" in await database.read("test", plan)
        for text in ("needle", "GROSS", "groß", "— GR", "e — g"):
            assert await find(libraries, text) == ["A NEEDLE — groß"], text


def test_indexed_parts_are_in_every_text_that_folds_to_them() -> None:
    """Of characters that others fold to, PostgreSQL does not know the others."""
    for number in range(128, sys.maxunicode + 1):
        character = chr(number)
        if character.isprintable() and character.casefold() != character:
            for part in character.casefold():
                assert part.isascii() or indexed_parts(part) == [], (character, part)
    assert indexed_parts("straße 東京!".casefold()) == ["strasse 東京!"]
    assert indexed_parts("une école".casefold()) == ["une ", "cole"]
    assert indexed_parts("день") == []


def test_folded_has_every_character_that_folds_to_ascii() -> None:
    expression = folded("content")
    for number in range(128, sys.maxunicode + 1):
        if any(part.isascii() for part in chr(number).casefold()):
            assert f"'{chr(number)}', '{chr(number).casefold()}'" in expression
