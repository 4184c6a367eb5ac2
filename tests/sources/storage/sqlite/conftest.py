"""Libraries without files, and a database file with a small schema."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from config.paths import DataRoot, UserId
from sources.storage.job_queue import JobQueue
from sources.storage.search.vocabulary import VocabularyMemory
from sources.storage.sqlite.connection.database import Database, LibraryReader
from sources.storage.sqlite.connection.open import DatabaseFile, SqliteOptions
from sources.storage.sqlite.index.text_index import fts_ddl, fts_triggers
from sources.storage.sqlite.schema.kinds import DatabaseSchema
from sources.storage.sqlite.schema.tables import SHARED_TABLES
from sources.storage.tables.sql import SegmentedTable, TextIndex
from tests.sources.storage.library_fixture import OpenLibraries, open_sqlite

INDEX = TextIndex("words_index", ("text",))
WORDS = DatabaseSchema(
    kind="prompts",
    first_version=1,
    statements=(
        *SHARED_TABLES,
        "CREATE TABLE words (id INTEGER PRIMARY KEY, text TEXT NOT NULL, text_seg TEXT) STRICT",
        "CREATE VIEW words_index_source AS SELECT id, coalesce(text_seg, text) AS text FROM words",
        *fts_ddl(INDEX),
        *fts_triggers(INDEX, "words", "text, text_seg"),
    ),
    segmented=(SegmentedTable("words", (("text_seg", "text"),), INDEX),),
)
MakeDatabase = Callable[..., Database]


def pytest_itemcollected(item: pytest.Item) -> None:
    """All tests in this folder are about SQLite."""
    item.add_marker(pytest.mark.sqlite)


class WordsFile(DatabaseFile, frozen=True):
    """A file outside a data directory."""

    own_path: Path

    @property
    def path(self) -> Path:
        return self.own_path

    @property
    def has_content(self) -> bool:
        return self.own_path.exists() and self.own_path.stat().st_size > 0

    def ensure_path(self) -> Path:
        return self.own_path


def make_options(**changes: Any) -> SqliteOptions:
    defaults: dict[str, Any] = {
        "jobs": JobQueue(2),
        "vocabularies": VocabularyMemory(2**20),
        "queue_max": 64,
        "deadline_ms": 10_000,
        "cache_kib": 256,
        "durability": "normal",
    }
    return SqliteOptions(**(defaults | changes))


@pytest.fixture
def open_libraries(tmp_path: Path) -> OpenLibraries:
    """Opens libraries whose files do not exist yet."""
    return partial(open_sqlite, tmp_path / "data")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "words.db"


@pytest.fixture
async def make_database(file: Path) -> AsyncIterator[MakeDatabase]:
    databases: list[Database] = []

    def make(schema: DatabaseSchema = WORDS, path: Path = file, **options: Any) -> Database:
        words_file = WordsFile(schema, DataRoot(path.parent), UserId("u_words"), path)
        made = make_options(**options)
        databases.append(Database(words_file, made, LibraryReader((words_file,), made)))
        return databases[-1]

    yield make
    for database in databases:
        await database.close()


@pytest.fixture
def database(make_database: MakeDatabase) -> Database:
    return make_database()
