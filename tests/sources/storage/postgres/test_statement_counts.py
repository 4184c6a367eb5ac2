"""How many statements searches need, because each waits for the server, and how many rows are read for a write."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import asyncpg
import pytest

from config.postgres.connection import ConnectionOptions, Transaction
from sources.drafts import ConversationDraft, MessageDraft, NoteDraft
from sources.query import parse
from sources.search.term_matching import term_counter
from sources.storage.contract import Library
from sources.storage.postgres.connection import LibraryConnection, LibraryTransaction
from sources.storage.postgres.search.statistics import EntryStatistics, EntryVocabulary, IndexCounts
from sources.storage.postgres.search.tsquery import compile_tsquery
from sources.storage.postgres.search.tsquery_engine import TARGETS
from sources.storage.search.engine import FieldChoice
from sources.storage.search.vocabulary import VocabularyMemory
from tests.sources.storage.library_fixture import open_postgres

pytestmark = pytest.mark.slow("makes a database for each test")

Work = Callable[[LibraryConnection], None]


@pytest.fixture
async def ada(database_url: str, tmp_path: Path) -> AsyncIterator[Library]:
    open_libraries = partial(open_postgres, database_url, tmp_path, "z" * 26)
    async with open_libraries() as libraries, libraries.library("ada") as library, libraries.library("ben") as other:
        await other.notes.create(NoteDraft(title="Lisbon", content="Lisbon"))
        yield library


@pytest.fixture
def count_statements(database_url: str) -> Callable[[Work], int]:
    """Returns how many statements some work runs in a transaction on the larger library, which is that of ada."""

    def count(work: Work) -> int:
        connection = LibraryConnection.connect(ConnectionOptions(url=database_url))
        try:
            tenants = connection.run(
                Transaction(schema="florilegium"),
                lambda one: one.execute("SELECT tenant_id FROM tenants").fetchall(),
            )
            sizes = {tenant: _count_messages(connection, tenant) for (tenant,) in tenants}
            largest = max(sizes, key=lambda tenant: sizes[tenant])
            connection.begin(LibraryTransaction(tenant=largest, is_read_only=True))
            before = connection.statements
            work(connection)
            return connection.statements - before
        finally:
            connection.close()

    return count


def _count_messages(connection: LibraryConnection, tenant: str) -> int:
    def work(one: LibraryConnection) -> int:
        [count] = one.execute("SELECT count(*) FROM messages").fetchone() or (0,)
        return int(count)

    return connection.run(LibraryTransaction(tenant=tenant, is_read_only=True), work)


@pytest.mark.parametrize(("question", "expected_statements"), [("Lisbon?", 0), ("Lisbon? " * 1_000, 1)])
async def test_contexts_are_read_with_the_messages_or_all_in_one_statement(
    ada: Library, count_statements: Callable[[Work], int], question: str, expected_statements: int
) -> None:
    for number in range(3):
        texts = (f"{number} {question}", "Gladly. When?")
        messages = [MessageDraft(role="user", sender="Ana", content=text) for text in texts]
        await ada.chats.create(ConversationDraft(title="Talk"), messages)
    contexts: list[str] = []
    statements: list[int] = []

    def work(connection: LibraryConnection) -> None:
        rowids = [rowid for (rowid,) in connection.execute("SELECT id FROM messages WHERE position = 1")]
        candidates = TARGETS["chats"].candidates(connection, rowids)
        for candidate in candidates:
            candidate.is_matched_in_other, candidate.is_matched_aside = True, True
        before = connection.statements
        TARGETS["chats"].complete(connection, candidates, FieldChoice((), term_counter(())))
        statements.append(connection.statements - before)
        contexts.extend(candidate.hit().context for candidate in candidates)

    await asyncio.to_thread(count_statements, work)
    assert statements == [expected_statements]
    assert sorted(contexts) == [f"Ana: {number} {question}" for number in range(3)]


async def test_terms_of_a_small_library_are_counted_in_one_statement(
    ada: Library, count_statements: Callable[[Work], int]
) -> None:
    await ada.chats.create(ConversationDraft(title="Talk"), [MessageDraft(role="user", content="Lisbon")])
    await ada.notes.create(NoteDraft(title="Trip", content="Lisbon in May"))
    lisbon, may = (compile_tsquery(term.word) for term in parse("Lisbon May").terms)
    counts: list[int] = []

    def work(connection: LibraryConnection) -> None:
        statistics = EntryStatistics(IndexCounts(VocabularyMemory(1_000)))
        for _ in range(2):
            statistics.refresh(connection)
            counts.extend(statistics.count_each(connection, TARGETS["notes"].index, (lisbon, may)))
            counts.extend(statistics.count_each(connection, TARGETS["media"].index, (lisbon,)))
            counts.extend(statistics.count_each_in_library(connection, (lisbon,)))

    # It reads the state of the index, too.
    assert await asyncio.to_thread(count_statements, work) == 1
    assert counts == [1, 1, 0, 2] * 2


def read_words(
    count_statements: Callable[[Work], int], read: Callable[[EntryVocabulary], list[str]]
) -> tuple[list[str], int]:
    """Returns words of the vocabulary, and how many statements it took to read them."""
    words: list[str] = []
    statements = 0

    def work(connection: LibraryConnection) -> None:
        nonlocal statements
        statistics = EntryStatistics(IndexCounts(VocabularyMemory(100_000)))
        vocabulary = statistics.vocabulary(connection, TARGETS["notes"].index, 1_000)
        before = connection.statements
        words.extend(read(vocabulary))
        statements = connection.statements - before

    count_statements(work)
    return words, statements


async def test_words_of_all_sources_are_compared_in_two_statements(
    ada: Library, count_statements: Callable[[Work], int]
) -> None:
    await ada.chats.create(ConversationDraft(title="Talk"), [MessageDraft(role="user", content="lisbon")])
    await ada.notes.create(NoteDraft(title="Trip", content="lisbon in May"))
    near, statements = await asyncio.to_thread(
        read_words, count_statements, lambda vocabulary: vocabulary._near_stems(["lisbom"])[0]
    )
    assert near == ["lisbon"]
    assert statements == 2


async def test_near_words_need_three_statements(ada: Library, count_statements: Callable[[Work], int]) -> None:
    await ada.chats.create(ConversationDraft(title="Talk"), [MessageDraft(role="user", content="Is a hotter far?")])
    await ada.notes.create(NoteDraft(title="Trip", content="The hotlers in May"))
    near, statements = await asyncio.to_thread(
        read_words, count_statements, lambda vocabulary: sorted(vocabulary.near_words(["hotker"])[0])
    )
    assert near == ["hotlers", "hotter"]
    # The words, their counts with a row of each, and the texts of these rows, of notes and of chats.
    assert statements == 3


async def test_rows_read_for_a_conversation_grow_with_its_messages(database_url: str, tmp_path: Path) -> None:
    """A new table has no statistics, and PostgreSQL must not sort all earlier messages for each message."""
    messages = [MessageDraft(role="user", sender="Ana", content="Shall we go to Lisbon? " * 10) for _ in range(2_000)]
    async with open_postgres(database_url, tmp_path, "z" * 26) as libraries, libraries.library("ada") as ada:
        conversation = await ada.chats.create(ConversationDraft(title="Talk"), messages)
        await ada.chats.delete(conversation.id)
    # A connection adds what it has read when it is closed.
    rows_read = 0
    async with asyncio.timeout(30):
        while not rows_read:
            rows_read = await _read_messages(database_url)

    assert rows_read < 20 * len(messages)


async def _read_messages(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        sql = "SELECT sum(idx_tup_fetch) FROM pg_catalog.pg_stat_all_tables WHERE relname = 'messages'"
        return int(await connection.fetchval(sql) or 0)
    finally:
        await connection.close()
