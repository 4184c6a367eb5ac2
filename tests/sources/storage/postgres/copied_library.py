"""Copies a library of SQLite to PostgreSQL and indexes it, to compare the searches of both engines."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from msgspec.structs import replace

from auth.postgres_control import migrate_control
from config.paths import UserId
from config.postgres.connection import ConnectionOptions, ConnectionThreads, Transaction
from sources.records import HitPage
from sources.storage.contract import Search
from sources.storage.postgres.connection import LibraryConnection, LibraryTransaction
from sources.storage.postgres.index.entries import ENTRY_KINDS, index_rows
from sources.storage.postgres.schema import LibrarySchemas
from sources.storage.postgres.search.statistics import EntryStatistics, IndexCounts
from sources.storage.search.engine import SearchTarget
from sources.storage.search.text_search import TextSearch, search_relaxed
from sources.storage.search.vocabulary import Spelling, VocabularyMemory
from sources.storage.tables.sql import Insert

T = TypeVar("T")

_RANKED_ROWS_MAX = 20_000
_NEAR_WORDS_MAX = 20_000
_TABLES = (
    "notes", "notes_tags", "conversations", "conversations_tags", "messages", "messages_tags", "characters",
    "characters_tags", "observations", "observations_tags", "observations_values", "media", "media_tags", "texts",
    "chunks", "prompts", "prompts_tags",
)  # fmt: skip
_ROWIDS = {
    "notes_index": "SELECT id FROM notes",
    "chats_index": "SELECT id FROM messages UNION SELECT -id FROM conversations",
    "human_only_index": "SELECT id FROM messages",
    "characters_index": "SELECT id FROM characters",
    "observations_index": "SELECT id FROM observations",
    "media_index": "SELECT id FROM chunks",
    "prompts_index": "SELECT id FROM prompts",
}


class CopiedLibrary:
    """A connection to the copy, which runs on a thread of its own."""

    def __init__(self, url: str) -> None:
        self._thread = ThreadPoolExecutor(1)
        options = ConnectionOptions(url=url)
        self._connection = self._thread.submit(LibraryConnection.connect, options).result()
        self._thread.submit(lambda: asyncio.run(_migrate_control(options))).result()
        self._tenant = self._thread.submit(self._connection.run, Transaction(schema="florilegium"), _create).result()
        self.counts = IndexCounts(VocabularyMemory(1_000_000))

    def close(self) -> None:
        self._thread.submit(self._connection.close).result()
        self._thread.shutdown()

    def run(self, work: Callable[[LibraryConnection], T], *, is_read_only: bool = False) -> T:
        transaction = LibraryTransaction(tenant=self._tenant, is_read_only=is_read_only)
        return self._thread.submit(self._connection.run, transaction, work).result()

    def copy(self, folder: Path) -> None:
        self.run(lambda connection: _copy(connection, folder))

    def search(self, target: SearchTarget, search: Search) -> HitPage:
        return self.run(lambda connection: self._search(connection, target, search), is_read_only=True)

    def _search(self, connection: LibraryConnection, target: SearchTarget, search: Search) -> HitPage:
        statistics = EntryStatistics(self.counts)

        def run(reading: Search) -> HitPage:
            typed, corrected = TextSearch(connection, target, reading, statistics, _RANKED_ROWS_MAX), None
            if typed.lacks_words():
                corrected = Spelling(connection, typed, statistics, _NEAR_WORDS_MAX).correct()
            if corrected is None:
                return typed.run()
            query = replace(reading, query=corrected, corpus=None)
            page = TextSearch(connection, target, query, statistics, _RANKED_ROWS_MAX).run()
            return page if page.total == 0 else replace(page, query=corrected)

        def has_match(reading: Search) -> bool:
            return TextSearch(connection, target, reading, statistics, _RANKED_ROWS_MAX).has_match()

        return search_relaxed(search, has_match, run)


async def _migrate_control(options: ConnectionOptions) -> None:
    threads = ConnectionThreads(options, 1, "control")
    await migrate_control(threads)
    await threads.close()


def _create(connection: LibraryConnection) -> str:
    schemas = LibrarySchemas()
    schemas.prepare(connection)
    return schemas.open(UserId(uuid4().hex), connection)[0]


def _copy(connection: LibraryConnection, folder: Path) -> None:
    copied: set[str] = set()
    for path in sorted(folder.rglob("*.db")):
        with closing(sqlite3.connect(path)) as file:
            definitions = dict(file.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall())
            for table in [name for name in _TABLES if name in definitions and name not in copied]:
                columns = [f'"{name}"' for _, name, *_ in file.execute(f"PRAGMA table_info({table})")]
                connection.executemany(
                    Insert(table, ", ".join(columns)),
                    file.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall(),
                )
                copied.add(table)
    for index, sql in _ROWIDS.items():
        index_rows(connection, ENTRY_KINDS[index], [rowid for (rowid,) in connection.execute(sql)])
