"""On-demand message indexes: when they are built, how a build continues, and that they stay consistent."""

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
from sources.storage.contract import ExactSearch, Library, MessageSearch
from sources.storage.search.targets import ChatCandidate
from sources.storage.sqlite.collections import SqliteLibrary
from sources.storage.sqlite.index.message_index import IndexProgress, MessageIndex
from sources.storage.sqlite.index.text_index import apply_queue
from sources.storage.sqlite.schema.kinds import migrate
from sources.storage.sqlite.schema.tables import CHACHA
from sources.storage.sqlite.search.exact import EXACT_INDEX, HUMAN_ONLY_EXACT_INDEX
from sources.storage.sqlite.search.fts5_engine import TARGETS
from sources.storage.sqlite.search.substring import SUBSTRING_INDEX, find
from sources.storage.tables.sql import CHATS_INDEX, HUMAN_ONLY_INDEX
from sources.text.segmentation import separate_letters
from tests.cases import each_case
from tests.sources.storage.library_fixture import LibraryFixture, open_sqlite
from tests.sources.storage.sqlite.file_checks import check_files, check_message_indexes, open_file
from tests.tiers import examples

DEADLINE_MS = 10_000


def make_message_search(text: str, limit: int = 50) -> MessageSearch:
    return MessageSearch(text=text, limit=limit, deadline_ms=DEADLINE_MS)


async def create_messages(library: Library, count: int, text: str = "tea {}") -> str:
    drafts = [MessageDraft(content=text.format(n)) for n in range(count)]
    return (await library.chats.create(ConversationDraft(title="Talk"), drafts)).id


def progress(libraries: LibraryFixture, index: MessageIndex, owner: str = "ada") -> IndexProgress | None:
    with open_file(libraries.data_root.paths_of(libraries.context(owner).user_id).chacha) as connection:
        return index.progress(connection)


async def wait_until_built(library: Library, index: MessageIndex) -> None:
    assert isinstance(library, SqliteLibrary)
    await library._databases.index_builder.wait_until_finished(index)


# -- when an index is built --------------------------------------------------------------------------------------------


async def test_small_library_never_builds_a_substring_index(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        await create_messages(ada, 100)
        assert (await ada.chats.find_messages(make_message_search("nowhere"))).is_complete
        assert progress(libraries, SUBSTRING_INDEX) is progress(libraries, EXACT_INDEX) is None


async def test_large_library_builds_a_substring_index_when_scanning_is_not_enough(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, message_scan_max_rows=50) as libraries, libraries.library("ada") as ada:
        async with libraries.library("ben") as ben:
            await create_messages(ben, 100)
        await create_messages(ada, 1, "the oldest")
        await create_messages(ada, 100)
        assert len((await ada.chats.find_messages(make_message_search("tea", limit=20))).hits) == 20
        assert progress(libraries, SUBSTRING_INDEX) is None
        without_index = await ada.chats.find_messages(make_message_search("oldest"))
        await wait_until_built(ada, SUBSTRING_INDEX)
        with_index = await ada.chats.find_messages(make_message_search("oldest"))
        assert [hit.message.content for hit in without_index.hits] == ["the oldest"]
        assert without_index.is_complete
        assert with_index == without_index
        assert progress(libraries, SUBSTRING_INDEX) == IndexProgress(SUBSTRING_INDEX.version, 0, 0)
        assert progress(libraries, SUBSTRING_INDEX, "ben") is None


async def test_first_exact_search_finds_words_or_in_a_large_library_the_newest_messages(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, message_scan_max_rows=200) as libraries:
        async with libraries.library("ada") as ada:
            await create_messages(ada, 1, "tea of old")
            await create_messages(ada, 600)
            page = await ada.chats.match_messages(ExactSearch(expression="tea 599", limit=5, deadline_ms=DEADLINE_MS))
            assert [hit.message.content for hit in page.hits] == ["tea 599"]
            await wait_until_built(ada, EXACT_INDEX)
            page = await ada.chats.match_messages(ExactSearch(expression="old", limit=5, deadline_ms=DEADLINE_MS))
            assert ([hit.message.content for hit in page.hits], page.is_complete) == (["tea of old"], True)
        async with libraries.library("ben") as ben:
            page = await ben.chats.match_messages(ExactSearch(expression="tea", limit=5, deadline_ms=DEADLINE_MS))
            assert (page.hits, page.is_complete) == ((), True)
    check_files(tmp_path)


async def test_concurrent_first_searches_share_one_index_build(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        await create_messages(ada, 1_500)
        search = ExactSearch(expression="tea", limit=2_000, deadline_ms=DEADLINE_MS)
        pages = await asyncio.gather(*(ada.chats.match_messages(search) for _ in range(5)))
        assert [(len(page.hits), page.is_complete) for page in pages] == [(1_500, True)] * 5


async def test_index_that_cannot_be_built_makes_results_incomplete(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, message_scan_max_rows=10) as libraries, libraries.library("ada") as ada:
        await create_messages(ada, 30)
        file = libraries.data_root.paths_of(libraries.context("ada").user_id).chacha
        with open_file(file) as connection:
            # A table of this name prevents the index from being created.
            connection.execute("CREATE TABLE exact_index_docsize (id)")
        page = await ada.chats.match_messages(ExactSearch(expression="tea", limit=5, deadline_ms=DEADLINE_MS))
        assert (page.hits, page.is_complete) == ((), False)
        with open_file(file) as connection:
            connection.execute("DROP TABLE exact_index_docsize")
        page = await ada.chats.match_messages(ExactSearch(expression="tea", limit=5, deadline_ms=DEADLINE_MS))
        assert len(page.hits) == 5


# -- how it is built ---------------------------------------------------------------------------------------------------


async def test_interrupted_index_build_continues_after_reopening(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, message_scan_max_rows=10) as libraries, libraries.library("ada") as ada:
        conversation = await create_messages(ada, 40)
        assert isinstance(ada, SqliteLibrary)
        for index in (SUBSTRING_INDEX, EXACT_INDEX):
            for _ in range(3):
                small = replace(index, batch_rows=5)
                await ada._databases.chacha.write("chats", CHATS_INDEX, small.fill)
        halfway = progress(libraries, EXACT_INDEX)
        assert halfway is not None
        assert 0 < halfway.messages < 40
        page = await ada.chats.find_messages(make_message_search("tea 39"))
        assert [hit.message.content for hit in page.hits] == ["tea 39"]
    async with open_sqlite(tmp_path, message_scan_max_rows=10) as libraries, libraries.library("ada") as ada:
        await ada.chats.append(conversation, [MessageDraft(content="new")])
        first = (await ada.chats.messages(conversation, 1, 0)).rows[0]
        await ada.chats.update_message(first.id, MessageDraft(content="changed"))
        await ada.chats.find_messages(make_message_search("tea 0"))
        await ada.chats.match_messages(ExactSearch(expression="tea", limit=5, deadline_ms=DEADLINE_MS))
        for index in (SUBSTRING_INDEX, EXACT_INDEX):
            await wait_until_built(ada, index)
            assert progress(libraries, index) == IndexProgress(index.version, 0, 0)
        assert (await ada.chats.find_messages(make_message_search("tea 0"))).hits == ()
        assert len((await ada.chats.find_messages(make_message_search("change"))).hits) == 1
    check_files(tmp_path)


async def test_index_of_another_version_is_rebuilt(tmp_path: Path) -> None:
    old = replace(SUBSTRING_INDEX, version="0", text_expression="upper({})")
    async with open_sqlite(tmp_path, message_scan_max_rows=10) as libraries, libraries.library("ada") as ada:
        await create_messages(ada, 40)
        assert isinstance(ada, SqliteLibrary)
        await ada._databases.chacha.write("chats", CHATS_INDEX, old.fill)
        assert progress(libraries, SUBSTRING_INDEX) is None
        await ada.chats.find_messages(make_message_search("tea 0"))
        await wait_until_built(ada, SUBSTRING_INDEX)
        assert len((await ada.chats.find_messages(make_message_search("tea 0"))).hits) == 1
    check_files(tmp_path)


async def test_closing_a_library_stops_its_index_build(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, message_scan_max_rows=10) as libraries:
        async with libraries.library("ada") as ada:
            await create_messages(ada, 40)
            await ada.chats.find_messages(make_message_search("nowhere"))
        await asyncio.wait_for(libraries.engine.close(), 10)
    check_files(tmp_path)


async def test_long_texts_make_smaller_batches(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        await create_messages(ada, 3, "x" * 400_000)
        assert isinstance(ada, SqliteLibrary)
        first = await ada._databases.chacha.write("chats", CHATS_INDEX, EXACT_INDEX.fill)
        second = await ada._databases.chacha.write("chats", CHATS_INDEX, EXACT_INDEX.fill)
        assert (first.messages, second.messages) == (0, 0)
        await create_messages(ada, 4, "x" * 400_000)
        again = replace(EXACT_INDEX, version="0")
        assert (await ada._databases.chacha.write("chats", CHATS_INDEX, again.fill)).messages == 4


# -- consistency -------------------------------------------------------------------------------------------------------


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield prepare(connection)


def prepare(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.create_function("casefold", 1, str.casefold, deterministic=True)
    connection.create_function("separate_letters", 1, separate_letters, deterministic=True)
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
    "delete": "UPDATE messages SET deleted = 1 WHERE id = :message",
    "mark": "UPDATE messages SET human_only = 1 - human_only WHERE id = :message",
    "purge": "DELETE FROM messages WHERE id = :message",
    "rename": "UPDATE conversations SET title = :text WHERE id = :conversation",
    "delete conversation": "UPDATE conversations SET deleted = 1 WHERE id = :conversation",
    "purge conversation": "DELETE FROM conversations WHERE id = :conversation",
}
steps = st.lists(
    st.tuples(
        st.sampled_from(["conversation", "message", "message", "fill", "fill", "leave queued", *CHANGES]),
        st.integers(1, 12),
        st.integers(1, 4),
        st.text("aAbß é会议", max_size=6),
    ),
    max_size=30,
)


@settings(max_examples=examples(50))
@given(before=steps, after=steps)
def test_index_equals_its_rows_after_any_changes_between_batches(
    before: list[tuple[str, int, int, str]], after: list[tuple[str, int, int, str]]
) -> None:
    indexes = [replace(index, batch_rows=2) for index in (SUBSTRING_INDEX, EXACT_INDEX, HUMAN_ONLY_EXACT_INDEX)]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        prepare(connection)
        for number in range(1, 9):
            _apply_step(connection, ("conversation", number, number % 4 + 1, "ab"), [])
            _apply_step(connection, ("message", number, number % 4 + 1, "abc"), [])
        for step in before:
            _apply_step(connection, step, [])
        for index in indexes:
            index.create(connection)
        for step in after:
            _apply_step(connection, step, indexes)
        for index in indexes:
            index.apply_changes(connection)
        check_message_indexes(connection)
        for index in indexes:
            while not index.fill(connection).is_complete:
                check_message_indexes(connection)
        check_message_indexes(connection)
        apply_queue(connection, CHATS_INDEX)
        for table in (CHATS_INDEX.table, HUMAN_ONLY_INDEX.table):
            connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)")


def _apply_step(connection: sqlite3.Connection, step: tuple[str, int, int, str], indexes: list[MessageIndex]) -> None:
    kind, message, conversation, text = step
    values = {"message": message, "conversation": conversation, "text": text}
    match kind:
        case "conversation":
            connection.execute(ADD_CONVERSATION.replace("INSERT", "INSERT OR IGNORE"), (conversation, text))
        case "message":
            has_conversation = connection.execute(
                "SELECT 1 FROM conversations WHERE id = ?", (conversation,)
            ).fetchone()
            has_message = connection.execute("SELECT 1 FROM messages WHERE id = ?", (message,)).fetchone()
            if has_conversation and not has_message:
                connection.execute(ADD_MESSAGE, (message, conversation, text))
        case "fill":
            for index in indexes:
                index.fill(connection)
        case "leave queued":
            # As another program that does not know the indexes would.
            connection.execute(CHANGES["edit"], values)
            return
        case _:
            connection.execute(CHANGES[kind], values)
    for index in indexes:
        index.apply_changes(connection)


def test_queued_change_is_applied_once(connection: sqlite3.Connection) -> None:
    connection.execute(ADD_CONVERSATION, (1, "talk"))
    connection.execute(ADD_MESSAGE, (1, 1, "one"))
    EXACT_INDEX.create(connection)
    connection.execute(CHANGES["edit"], {"message": 1, "text": "one and two"})
    assert EXACT_INDEX.fill(connection).is_complete
    EXACT_INDEX.apply_changes(connection)
    check_message_indexes(connection)


@settings(max_examples=examples(50))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["user", "assistant", "tool"]),
            st.sampled_from([0, 1, 30, 399, 400, 401, 900]),
            st.sampled_from([None, None, 5, 401]),
            st.sampled_from(["deleted = 0", "deleted = 0", "deleted = 0", "deleted = 1", "human_only = 1"]),
        ),
        max_size=8,
    )
)
def test_candidate_and_index_entry_have_the_context_of_the_view(
    messages: list[tuple[str, int, int | None, str]],
) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        prepare(connection)
        connection.execute(ADD_CONVERSATION, (1, "talk"))
        for number, (role, chars, segmented_chars, state) in enumerate(messages, 1):
            connection.execute(ADD_MESSAGE, (number, 1, ("to be " * chars)[:chars]))
            segmented = None if segmented_chars is None else ("or not " * segmented_chars)[:segmented_chars]
            values = (role, segmented, number)
            connection.execute(f"UPDATE messages SET role = ?, text_seg = ?, {state} WHERE id = ?", values)
        apply_queue(connection, CHATS_INDEX)
        connection.execute("INSERT INTO chats_index (chats_index, rank) VALUES ('integrity-check', 1)")
        indexed = connection.execute("SELECT id, own, context FROM message_source ORDER BY id").fetchall()
        candidates = TARGETS["chats"].candidates(connection, [row[0] for row in indexed])
        assert [(one.entry, one.own, one.context) for one in candidates if isinstance(one, ChatCandidate)] == indexed


# -- query plans -------------------------------------------------------------------------------------------------------


def query_plans(connection: sqlite3.Connection, search: MessageSearch) -> dict[str, list[str]]:
    """Returns the query plan of each statement on messages that a search executes."""
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    find(connection, search, 10)
    connection.set_trace_callback(None)
    return {
        sql: [detail for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
        for sql in statements
        if "messages m" in sql and not sql.startswith("--")
    }


@pytest.fixture
def large_library(connection: sqlite3.Connection) -> sqlite3.Connection:
    """More messages than are scanned, with a complete index."""
    for conversation in range(1, 4):
        connection.execute(ADD_CONVERSATION, (conversation, f"talk {conversation}"))
        for number in range(30):
            connection.execute(
                ADD_MESSAGE, (conversation * 100 + number, conversation, f"tea {number} of {conversation}")
            )
    while not SUBSTRING_INDEX.fill(connection).is_complete:
        pass
    return connection


@each_case(
    "search",
    [
        make_message_search("tea 7 of"),
        make_message_search("tea"),
        make_message_search("of 2", limit=2),
        make_message_search("te"),
        make_message_search("zq"),
        MessageSearch(limit=5, deadline_ms=1),
        MessageSearch(roles=("tool",), date_from="2026", date_to="2027", limit=5, deadline_ms=1),
        MessageSearch(text="tea 2", roles=("user", "tool"), date_from="2026", limit=5, deadline_ms=1),
        MessageSearch(text="tea 2", conversation_id="c2", limit=5, deadline_ms=1),
    ],
)
def test_no_search_scans_or_sorts_all_messages(large_library: sqlite3.Connection, search: MessageSearch) -> None:
    plans = query_plans(large_library, search)
    assert plans
    for sql, lines in plans.items():
        table_steps = [line for line in lines if line.startswith(("SCAN m", "SEARCH m", "SCAN c", "SEARCH c"))]
        assert table_steps[0].partition(" USING ")[0] in {"SCAN m", "SEARCH m"}
        assert "INDEX messages_by_time" in table_steps[0] or "json_each" in sql
        assert not any(line.startswith("SCAN") for line in table_steps[1:])
        # Only the few rows that were selected before may be sorted.
        assert "json_each" in sql or not any("TEMP B-TREE" in line for line in lines)


def test_transaction_adds_one_segment_to_the_index(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")
    connection.execute(ADD_CONVERSATION, (1, "talk"))
    connection.execute(ADD_MESSAGE, (1, 1, "tea"))
    apply_queue(connection, CHATS_INDEX)
    connection.execute("COMMIT")
    assert connection.execute("SELECT count(DISTINCT segid) FROM chats_index_idx").fetchone() == (1,)
