"""Counts and words of an index are shared by the readers of a library, belong to one version of the index, and are
limited, whatever is searched."""

from functools import partial
from pathlib import Path

from sources.drafts import NoteDraft, PromptDraft
from sources.query import parse
from sources.storage.contract import Search
from sources.storage.search.text_search import TextSearch
from sources.storage.search.vocabulary import VocabularyMemory
from sources.storage.sqlite.collections import UserDatabases
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.connection.database import Database
from sources.storage.sqlite.index.statistics import COUNTS_MAX
from sources.storage.sqlite.search.fts5_engine import TARGETS
from sources.storage.tables.kind_tables import PROMPTS
from sources.storage.tables.sql import NOTES_INDEX, TextIndex
from tests.sources.storage.library_fixture import open_sqlite
from tests.sources.storage.sqlite.conftest import INDEX, WORDS, make_options

JOBS = 60
COUNTS_PER_JOB = 50


async def test_counts_of_ever_new_words_take_limited_memory(database: Database) -> None:
    """A file without writes would otherwise keep a count of every word that was ever searched."""
    statistics = database._reader.statistics(None)

    def count(job: int, connection: JobConnection) -> int:
        statistics.refresh(connection)
        for number in range(COUNTS_PER_JOB):
            assert statistics.count_each(connection, INDEX, [f'"word{job}x{number}"']) == [0]
        return len(statistics._files[WORDS.kind].contents[INDEX.table].counts)

    kept = [await database.read("words", partial(count, job)) for job in range(JOBS)]

    assert max(kept) <= COUNTS_MAX + COUNTS_PER_JOB


class CountingMemory(VocabularyMemory):
    """Counts the vocabularies that were read from files."""

    reads = 0

    def put(self, key: tuple[int | str, str, str], version: bytes, words: str) -> None:
        self.reads += 1
        super().put(key, version, words)


async def test_words_of_a_library_are_read_once_for_all_of_its_readers(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(content="The lighthouse"))
        memory = CountingMemory(10**6)
        user_id = libraries.context("ada").user_id
        databases = UserDatabases(libraries.data_root, user_id, make_options(vocabularies=memory))

        def find(database: Database, index: TextIndex, connection: JobConnection) -> list[str]:
            database._reader.statistics(None).refresh(connection)
            return database._reader.statistics(None).vocabulary(connection, index, 1_000).near_words(["lighthuos"])[0]

        async def find_in_all() -> list[list[str]]:
            chacha, prompts = databases.chacha, databases.prompts
            return [
                await chacha.read("notes", partial(find, chacha, NOTES_INDEX)),
                await prompts.read("prompts", partial(find, prompts, PROMPTS.index)),
            ]

        assert await find_in_all() == [["lighthouse"], ["lighthouse"]]
        first_reads = memory.reads
        await ada.notes.create(NoteDraft(content="The lighthouses"))
        assert await find_in_all() == [["lighthouse"], ["lighthouse"]]
        await databases.close()

    # One for each index of the two files that are in use, and then one for the index that changed.
    assert (first_reads, memory.reads) == (4, 5)


async def test_other_files_are_read_only_for_words_that_the_own_file_lacks(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(content="tea"))
        await ada.prompts.create(PromptDraft(name="coffee"))
        databases = UserDatabases(libraries.data_root, libraries.context("ada").user_id, make_options())

        def count(word: str, connection: JobConnection) -> tuple[int, bool]:
            """Returns how many rows have the word, and whether a statement names the other file."""
            statements: list[str] = []
            statistics = databases.reader.statistics(None)
            statistics.refresh(connection)
            connection.set_trace_callback(statements.append)
            [rows] = statistics.count_each_in_library(connection, [f'"{word}"'], enough=1)
            connection.set_trace_callback(None)
            return rows, any("prompts." in sql for sql in statements)

        counts = [await databases.chacha.read("notes", partial(count, word)) for word in ("tea", "coffee", "milk")]
        await databases.close()

    assert counts == [(1, False), (1, True), (0, True)]


async def test_an_index_without_rows_is_not_asked_for_words(tmp_path: Path) -> None:
    """Most users have nothing in some of their sources."""
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(content="tea"))
        databases = UserDatabases(libraries.data_root, libraries.context("ada").user_id, make_options())

        def count(connection: JobConnection) -> tuple[list[int], list[str]]:
            statements: list[str] = []
            statistics = databases.reader.statistics(None)
            statistics.refresh(connection)
            connection.set_trace_callback(statements.append)
            rows = statistics.count_each_in_library(connection, ['"tea"', '"coffee"'])
            connection.set_trace_callback(None)
            return rows, [sql for sql in statements if "MATCH" in sql]

        rows, statements = await databases.chacha.read("notes", count)
        await databases.close()

    assert rows == [1, 0]
    assert [sql.count("notes_index MATCH") for sql in statements] == [2]


async def test_entries_with_all_words_are_looked_for_only_if_each_word_occurs(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(content="tea"))
        await ada.notes.create(NoteDraft(content="tea and milk"))
        databases = UserDatabases(libraries.data_root, libraries.context("ada").user_id, make_options())

        def search(query: str, connection: JobConnection) -> tuple[list[str], bool]:
            """Returns the texts of the hits, and whether entries with all words were looked for."""
            statements: list[str] = []
            statistics = databases.reader.statistics(None)
            connection.set_trace_callback(statements.append)
            page = TextSearch(
                connection,
                TARGETS["notes"],
                Search(query=parse(query), limit=10, deadline_ms=10_000),
                statistics,
                1_000,
            ).run()
            connection.set_trace_callback(None)
            texts = [match.hit().text for match in page.matches]
            return texts, any(" AND " in sql and "rowid IN (SELECT rowid" in sql for sql in statements)

        found = [await databases.chacha.read("notes", partial(search, text)) for text in ("tea milk", "tea coffee")]
        await databases.close()

    # Both notes match "tea coffee" alike, and the newer one is first.
    assert found == [(["tea and milk", "tea"], True), (["tea", "tea and milk"], False)]


async def test_row_count_of_an_index_follows_writes_and_deletions(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        databases = UserDatabases(libraries.data_root, libraries.context("ada").user_id, make_options())

        def count(connection: JobConnection) -> tuple[int, int]:
            statistics = databases.reader.statistics(None)
            statistics.refresh(connection)
            [rows] = connection.execute("SELECT count(*) FROM notes_index_docsize").fetchone()
            return statistics.count_rows(connection, NOTES_INDEX), rows

        counts = [await databases.chacha.read("notes", count)]
        notes = await ada.notes.create_many([NoteDraft(content=f"tea {number}") for number in range(130)])
        counts.append(await databases.chacha.read("notes", count))
        for note in notes[:9]:
            await ada.notes.delete(note.uuid)
        counts.append(await databases.chacha.read("notes", count))
        await databases.close()

    # More than 127 rows take two bytes in the totals of the index.
    assert counts == [(0, 0), (130, 130), (121, 121)]


async def test_pairs_of_letters_are_scored_without_reading_index_forms(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(content="แม่น้ำโขง", tags=("東京",)))
        databases = UserDatabases(libraries.data_root, libraries.context("ada").user_id, make_options())

        def search(query: str, connection: JobConnection) -> tuple[bool, bool]:
            """Returns whether the hit has a score, and whether its index form was read."""
            statements: list[str] = []
            connection.set_trace_callback(statements.append)
            request = Search(query=parse(query), limit=10, deadline_ms=10_000)
            statistics = databases.reader.statistics(None)
            [match] = TextSearch(connection, TARGETS["notes"], request, statistics, 1_000).run().matches
            connection.set_trace_callback(None)
            return match.score > 0, any("content_seg" in sql for sql in statements)

        queries = ("แม่น้ำโขง", "東京", "แม่น้ำโขง mekong")
        found = [await databases.chacha.read("notes", partial(search, query)) for query in queries]
        await databases.close()

    assert found == [(True, False), (True, False), (True, True)]
