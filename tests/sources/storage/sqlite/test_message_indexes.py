"""Indexes that are made on demand: when they are, how they come to hold every message, and that they stay true."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sources.drafts import ConversationDraft, MessageDraft
from sources.records import MessageHits
from sources.storage.contract import ExactSearch, Library, MessageSearch
from sources.storage.sqlite.connection.library import SqliteLibrary
from sources.storage.sqlite.index.message_index import IndexProgress, MessageIndex
from sources.storage.sqlite.schema.chacha import CHACHA, CHATS_INDEX
from sources.storage.sqlite.schema.migrations import migrate
from sources.storage.sqlite.search.exact import EXACT_INDEX
from sources.storage.sqlite.search.substring import SUBSTRING_INDEX, find
from tests.sources.storage.library_fixture import LibraryFixture, open_sqlite
from tests.sources.storage.sqlite.files import check_files, check_message_indexes, opened

DEADLINE_MS = 10_000


def seeking(text: str, limit: int = 50) -> MessageSearch:
    return MessageSearch(text=text, limit=limit, deadline_ms=DEADLINE_MS)


async def say(library: Library, count: int, text: str = "tea {}") -> str:
    drafts = [MessageDraft(content=text.format(n)) for n in range(count)]
    return (await library.chats.create(ConversationDraft(title="Talk"), drafts)).id


def progress(libraries: LibraryFixture, index: MessageIndex, owner: str = "ada") -> IndexProgress | None:
    with opened(libraries.data_root.paths_of(libraries.context(owner).user_id).chacha) as connection:
        return index.progress(connection)


async def finish(library: Library, index: MessageIndex) -> None:
    assert isinstance(library, SqliteLibrary)
    await library._databases.index_builder.wait_until_finished(index)


# When


async def test_a_small_library_never_gets_an_index_for_parts_of_words(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        await say(ada, 100)
        assert (await ada.chats.find_messages(seeking("nowhere"))).is_complete
        assert progress(libraries, SUBSTRING_INDEX) is progress(libraries, EXACT_INDEX) is None


async def test_a_large_library_gets_one_when_looking_through_it_was_not_enough(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, message_scan_max_rows=50) as libraries, libraries.library("ada") as ada:
        async with libraries.library("ben") as ben:
            await say(ben, 100)
        await say(ada, 1, "the oldest")
        await say(ada, 100)
        assert len((await ada.chats.find_messages(seeking("tea", limit=20))).hits) == 20
        assert progress(libraries, SUBSTRING_INDEX) is None
        assert await ada.chats.find_messages(seeking("oldest")) == MessageHits((), is_complete=False)
        await finish(ada, SUBSTRING_INDEX)
        found = await ada.chats.find_messages(seeking("oldest"))
        assert ([hit.message.content for hit in found.hits], found.is_complete) == (["the oldest"], True)
        assert progress(libraries, SUBSTRING_INDEX) == IndexProgress(SUBSTRING_INDEX.version, 0, 0)
        assert progress(libraries, SUBSTRING_INDEX, "ben") is None


async def test_words_are_found_by_the_first_call_and_in_a_large_library_the_newest(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, message_scan_max_rows=1_000) as libraries:
        async with libraries.library("ada") as ada:
            await say(ada, 1, "tea of old")
            await say(ada, 3_000)
            found = await ada.chats.match_messages(ExactSearch(expression="tea 2999", limit=5, deadline_ms=DEADLINE_MS))
            assert [hit.message.content for hit in found.hits] == ["tea 2999"]
            await finish(ada, EXACT_INDEX)
            found = await ada.chats.match_messages(ExactSearch(expression="old", limit=5, deadline_ms=DEADLINE_MS))
            assert ([hit.message.content for hit in found.hits], found.is_complete) == (["tea of old"], True)
        async with libraries.library("ben") as ben:
            found = await ben.chats.match_messages(ExactSearch(expression="tea", limit=5, deadline_ms=DEADLINE_MS))
            assert (found.hits, found.is_complete) == ((), True)
    check_files(tmp_path)


async def test_all_who_ask_first_wait_for_the_same_index(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        await say(ada, 1_500)
        search = ExactSearch(expression="tea", limit=2_000, deadline_ms=DEADLINE_MS)
        answers = await asyncio.gather(*(ada.chats.match_messages(search) for _ in range(5)))
        assert [(len(answer.hits), answer.is_complete) for answer in answers] == [(1_500, True)] * 5


async def test_an_index_that_cannot_be_written_is_told_and_nothing_else_suffers(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, message_scan_max_rows=10) as libraries, libraries.library("ada") as ada:
        await say(ada, 30)
        file = libraries.data_root.paths_of(libraries.context("ada").user_id).chacha
        with opened(file) as connection:
            # Somebody else's table of that name: the index cannot be made beside it.
            connection.execute("CREATE TABLE exact_index_docsize (id)")
        found = await ada.chats.match_messages(ExactSearch(expression="tea", limit=5, deadline_ms=DEADLINE_MS))
        assert (found.hits, found.is_complete) == ((), False)
        with opened(file) as connection:
            connection.execute("DROP TABLE exact_index_docsize")
        found = await ada.chats.match_messages(ExactSearch(expression="tea", limit=5, deadline_ms=DEADLINE_MS))
        assert len(found.hits) == 5


# How


async def test_an_unfinished_index_is_gone_on_with_after_the_library_was_closed(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, message_scan_max_rows=10) as libraries, libraries.library("ada") as ada:
        talk = await say(ada, 40)
        assert isinstance(ada, SqliteLibrary)
        for index in (SUBSTRING_INDEX, EXACT_INDEX):
            for _ in range(3):
                small = replace(index, batch_rows=5)
                await ada._databases.chacha.write("chats", CHATS_INDEX, small.fill)
        middle = progress(libraries, EXACT_INDEX)
        assert middle is not None
        assert 0 < middle.messages < 40
        found = await ada.chats.find_messages(seeking("tea 39"))
        assert [hit.message.content for hit in found.hits] == ["tea 39"]
    async with open_sqlite(tmp_path, message_scan_max_rows=10) as libraries, libraries.library("ada") as ada:
        await ada.chats.append(talk, [MessageDraft(content="new")])
        first = (await ada.chats.messages(talk, 1, 0)).rows[0]
        await ada.chats.update_message(first.id, MessageDraft(content="changed"))
        await ada.chats.find_messages(seeking("tea 0"))
        await ada.chats.match_messages(ExactSearch(expression="tea", limit=5, deadline_ms=DEADLINE_MS))
        for index in (SUBSTRING_INDEX, EXACT_INDEX):
            await finish(ada, index)
            assert progress(libraries, index) == IndexProgress(index.version, 0, 0)
        assert (await ada.chats.find_messages(seeking("tea 0"))).hits == ()
        assert len((await ada.chats.find_messages(seeking("change"))).hits) == 1
    check_files(tmp_path)


async def test_an_index_of_another_version_is_made_anew(tmp_path: Path) -> None:
    old = replace(SUBSTRING_INDEX, version="0", text_expression="upper({})")
    async with open_sqlite(tmp_path, message_scan_max_rows=10) as libraries, libraries.library("ada") as ada:
        await say(ada, 40)
        assert isinstance(ada, SqliteLibrary)
        await ada._databases.chacha.write("chats", CHATS_INDEX, old.fill)
        assert progress(libraries, SUBSTRING_INDEX) is None
        await ada.chats.find_messages(seeking("tea 0"))
        await finish(ada, SUBSTRING_INDEX)
        assert len((await ada.chats.find_messages(seeking("tea 0"))).hits) == 1
    check_files(tmp_path)


async def test_closing_a_library_stops_the_making_of_its_index(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, message_scan_max_rows=10) as libraries:
        async with libraries.library("ada") as ada:
            await say(ada, 40)
            await ada.chats.find_messages(seeking("nowhere"))
        await asyncio.wait_for(libraries.engine.close(), 10)
    check_files(tmp_path)


async def test_a_long_text_makes_a_batch_of_its_own(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        await say(ada, 3, "x" * 400_000)
        assert isinstance(ada, SqliteLibrary)
        first = await ada._databases.chacha.write("chats", CHATS_INDEX, EXACT_INDEX.fill)
        second = await ada._databases.chacha.write("chats", CHATS_INDEX, EXACT_INDEX.fill)
        assert (first.messages, second.messages) == (0, 0)
        await say(ada, 4, "x" * 400_000)
        again = replace(EXACT_INDEX, version="2")
        assert (await ada._databases.chacha.write("chats", CHATS_INDEX, again.fill)).messages == 4


# That it stays true


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield prepared(connection)


def prepared(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.create_function("casefold", 1, str.casefold, deterministic=True)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA foreign_keys = ON")
    migrate(CHACHA, connection)
    return connection


COMMON = "created_at, last_modified, client_id, content_hash"
ADD_CONVERSATION = (
    f"INSERT INTO conversations (id, uuid, title, namespace, session_id, {COMMON}) "
    "VALUES (?1, 'c' || ?1, ?2, '', '', '', '', '', '')"
)
ADD_MESSAGE = (
    f"INSERT INTO messages (id, uuid, conversation_id, position, role, sender, content, attachments, citations, "
    f"is_canonical, {COMMON}) VALUES (?1, 'm' || ?1, ?2, ?1, 'user', 'user', ?3, '[]', '[]', 1, "
    "'2026-01-01T00:00:' || (10 + ?1 % 50), '', '', '')"
)
CHANGES = {
    "edit": "UPDATE messages SET content = :text WHERE id = :message",
    "take back": "UPDATE messages SET deleted = 1 WHERE id = :message",
    "remove": "DELETE FROM messages WHERE id = :message",
    "rename": "UPDATE conversations SET title = :text WHERE id = :conversation",
    "hide": "UPDATE conversations SET deleted = 1 WHERE id = :conversation",
    "end": "DELETE FROM conversations WHERE id = :conversation",
}
steps = st.lists(
    st.tuples(
        st.sampled_from(["talk", "say", "say", "fill", "fill", "leave queued", *CHANGES]),
        st.integers(1, 12),
        st.integers(1, 4),
        st.text("aAbß é", max_size=6),
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(before=steps, after=steps)
def test_after_any_changes_between_any_batches_an_index_equals_its_rows(
    before: list[tuple[str, int, int, str]], after: list[tuple[str, int, int, str]]
) -> None:
    indexes = [replace(index, batch_rows=2) for index in (SUBSTRING_INDEX, EXACT_INDEX)]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        prepared(connection)
        for number in range(1, 9):
            _take(connection, ("talk", number, number % 4 + 1, "ab"), [])
            _take(connection, ("say", number, number % 4 + 1, "abc"), [])
        for step in before:
            _take(connection, step, [])
        for index in indexes:
            index.create(connection)
        for step in after:
            _take(connection, step, indexes)
        for index in indexes:
            index.apply_changes(connection)
        check_message_indexes(connection)
        for index in indexes:
            while not index.fill(connection).is_complete:
                check_message_indexes(connection)
        check_message_indexes(connection)


def _take(connection: sqlite3.Connection, step: tuple[str, int, int, str], indexes: list[MessageIndex]) -> None:
    kind, message, conversation, text = step
    values = {"message": message, "conversation": conversation, "text": text}
    match kind:
        case "talk":
            connection.execute(ADD_CONVERSATION.replace("INSERT", "INSERT OR IGNORE"), (conversation, text))
        case "say":
            held = connection.execute("SELECT 1 FROM conversations WHERE id = ?", (conversation,)).fetchone()
            taken = connection.execute("SELECT 1 FROM messages WHERE id = ?", (message,)).fetchone()
            if held and not taken:
                connection.execute(ADD_MESSAGE, (message, conversation, text))
        case "fill":
            for index in indexes:
                index.fill(connection)
        case "leave queued":
            # As a program that knows nothing of the indexes does.
            connection.execute(CHANGES["edit"], values)
            return
        case _:
            connection.execute(CHANGES[kind], values)
    for index in indexes:
        index.apply_changes(connection)


def test_a_change_that_nobody_carried_over_is_taken_in_once(connection: sqlite3.Connection) -> None:
    connection.execute(ADD_CONVERSATION, (1, "talk"))
    connection.execute(ADD_MESSAGE, (1, 1, "one"))
    EXACT_INDEX.create(connection)
    connection.execute(CHANGES["edit"], {"message": 1, "text": "one and two"})
    assert EXACT_INDEX.fill(connection).is_complete
    EXACT_INDEX.apply_changes(connection)
    check_message_indexes(connection)


# That it is used


def plans(connection: sqlite3.Connection, search: MessageSearch) -> dict[str, list[str]]:
    """The statements over messages that a search makes, and how SQLite does each."""
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    find(connection, search, 10)
    connection.set_trace_callback(None)
    return {
        sql: [detail for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
        for sql in asked
        if "messages m" in sql and not sql.startswith("--")
    }


@pytest.fixture
def large(connection: sqlite3.Connection) -> sqlite3.Connection:
    """More messages than are looked at one by one, with a complete index."""
    for talk in range(1, 4):
        connection.execute(ADD_CONVERSATION, (talk, f"talk {talk}"))
        for number in range(30):
            connection.execute(ADD_MESSAGE, (talk * 100 + number, talk, f"tea {number} of {talk}"))
    while not SUBSTRING_INDEX.fill(connection).is_complete:
        pass
    return connection


@pytest.mark.parametrize(
    "search",
    [
        seeking("tea 7 of"),
        seeking("tea"),
        seeking("of 2", limit=2),
        seeking("te"),
        seeking("zq"),
        MessageSearch(limit=5, deadline_ms=1),
        MessageSearch(roles=("tool",), date_from="2026", date_to="2027", limit=5, deadline_ms=1),
        MessageSearch(text="tea 2", roles=("user", "tool"), date_from="2026", limit=5, deadline_ms=1),
        MessageSearch(text="tea 2", conversation_id="c2", limit=5, deadline_ms=1),
    ],
)
def test_no_search_looks_through_all_messages_or_sorts_them(large: sqlite3.Connection, search: MessageSearch) -> None:
    made = plans(large, search)
    assert made
    for sql, lines in made.items():
        reading = [line for line in lines if line.startswith(("SCAN m", "SEARCH m", "SCAN c", "SEARCH c"))]
        assert reading[0].partition(" USING ")[0] in {"SCAN m", "SEARCH m"}
        assert "INDEX messages_by_time" in reading[0] or "json_each" in sql
        assert not any(line.startswith("SCAN") for line in reading[1:])
        # What was picked out beforehand is sorted; it is little.
        assert "json_each" in sql or not any("TEMP B-TREE" in line for line in lines)
