"""The index for substring searches: what it finds, and when it is built."""

import sys
from pathlib import Path

import asyncpg
import pytest

from sources.drafts import ConversationDraft, MessageDraft
from sources.storage.contract import MessageSearch
from sources.storage.postgres import PostgresLibraries
from sources.storage.postgres.connection import LibraryConnection
from sources.storage.postgres.database import PostgresDatabase
from sources.storage.postgres.search import substring
from sources.storage.postgres.search.substring import has_trigrams, trigram_query
from tests.sources.storage.library_fixture import LibraryFixture, open_postgres
from tests.sources.storage.postgres.plans import explain

_ENDING = "z" * 26


async def database_of(libraries: LibraryFixture) -> PostgresDatabase:
    assert isinstance(libraries.engine, PostgresLibraries)
    return await libraries.engine._database(libraries.context("ada").user_id)


async def find(libraries: LibraryFixture, text: str) -> list[str]:
    async with libraries.library("ada") as ada:
        hits = (await ada.chats.find_messages(MessageSearch(text=text, limit=20, deadline_ms=10_000))).hits
    await (await database_of(libraries)).trigram_index.wait_until_finished()
    return [hit.message.content for hit in hits]


def plan(connection: LibraryConnection) -> str:
    """Returns the plan of a search. Comparing the trigrams of a message is as expensive as it is for long messages."""
    connection.execute("SELECT set_config('cpu_operator_cost', '1', TRUE), set_config('enable_seqscan', 'off', TRUE)")
    sql = substring._LOOK_UP_SQL.format(where="")
    match = trigram_query("needle")
    assert match is not None
    return "\n".join(explain(connection, sql, match, [], 10))


@pytest.mark.slow("makes a large library")
async def test_index_is_built_for_many_messages_only(database_url: str, tmp_path: Path) -> None:
    async with open_postgres(database_url, tmp_path, _ENDING, message_scan_max_rows=50) as libraries:
        database = await database_of(libraries)
        async with libraries.library("ada") as ada:
            await ada.chats.create(ConversationDraft(), [MessageDraft(content=f"straw {n}") for n in range(30)])
        assert await find(libraries, "needle") == []
        assert not await database.read("test", has_trigrams)
    async with open_postgres(database_url, tmp_path, _ENDING, message_scan_max_rows=50) as libraries:
        database = await database_of(libraries)
        async with libraries.library("ada") as ada:
            found = [MessageDraft(content="A NEEDLE — groß")]
            drafts = [MessageDraft(content=f"straw {n}") for n in range(2_500)]
            # Older than the messages that every search scans.
            await ada.chats.create(ConversationDraft(title="A"), [*found, *drafts])
        assert await find(libraries, "needle") == ["A NEEDLE — groß"]
        assert await database.read("test", has_trigrams)
        connection = await asyncpg.connect(database_url)
        await connection.execute("ANALYZE florilegium_library.message_trigrams")
        await connection.close()
        assert "message_trigrams_by_lexeme" in await database.read("test", plan)
        for text in ("needle", "GROSS", "groß", "— GR", "e — g"):
            assert await find(libraries, text) == ["A NEEDLE — groß"], text
        async with libraries.library("ada") as ada:
            [hit] = (await ada.chats.find_messages(MessageSearch(text="needle", limit=1, deadline_ms=10_000))).hits
            await ada.chats.delete_message(hit.message.id)
        assert await find(libraries, "needle") == []


def test_a_text_without_trigrams_is_not_looked_up() -> None:
    assert trigram_query("ab") is None
    assert trigram_query("abcd") == "('\x01abc' & '\x01bcd') | '\x01*'"


def test_compared_parts_are_in_every_text_that_folds_to_them() -> None:
    """Of characters that others fold to, PostgreSQL does not know the others."""
    for number in range(128, sys.maxunicode + 1):
        character = chr(number)
        if character.isprintable() and character.casefold() != character:
            for part in character.casefold():
                assert part.isascii() or substring._compared_parts(part) == [], (character, part)
    assert substring._compared_parts("straße 東京!".casefold()) == ["strasse 東京!"]
    assert substring._compared_parts("une école".casefold()) == ["une ", "cole"]
    assert substring._compared_parts("день") == []


def test_folded_has_every_character_that_folds_to_ascii() -> None:
    expression = substring._folded("content")
    for number in range(128, sys.maxunicode + 1):
        if any(part.isascii() for part in chr(number).casefold()):
            assert f"'{chr(number)}', '{chr(number).casefold()}'" in expression
