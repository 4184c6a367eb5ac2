"""One file with a small schema of its own, for what is about files and not about libraries."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from sources.storage.sqlite.connection.database import Database
from sources.storage.sqlite.connection.open import DatabaseFile, SqliteOptions
from sources.storage.sqlite.index.text_index import SegmentedTable, TextIndex
from sources.storage.sqlite.schema.migrations import DatabaseSchema
from sources.storage.sqlite.schema.shared import SHARED_TABLES

INDEX = TextIndex("words_index", ("text",))
WORDS = DatabaseSchema(
    kind="prompts",
    migrations=(
        (
            *SHARED_TABLES,
            "CREATE TABLE words (id INTEGER PRIMARY KEY, text TEXT NOT NULL, text_seg TEXT) STRICT",
            "CREATE VIEW words_index_source AS SELECT id, coalesce(text_seg, text) AS text FROM words",
            *INDEX.ddl(),
            *INDEX.triggers("words", "text, text_seg"),
        ),
    ),
    segmented=(SegmentedTable("words", (("text_seg", "text"),), INDEX),),
)
MakeDatabase = Callable[..., Database]


def engine(**changes: Any) -> SqliteOptions:
    given: dict[str, Any] = {
        "slots": asyncio.Semaphore(2),
        "queue_max": 64,
        "deadline_ms": 10_000,
        "cache_kib": 256,
        "durability": "normal",
    }
    return SqliteOptions(**(given | changes))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "words.db"


@pytest.fixture
async def make_database(file: Path) -> AsyncIterator[MakeDatabase]:
    made: list[Database] = []

    def make(blueprint: DatabaseSchema = WORDS, path: Path = file, **changes: Any) -> Database:
        made.append(Database(DatabaseFile(blueprint, lambda: path), engine(**changes)))
        return made[-1]

    yield make
    for database in made:
        await database.close()


@pytest.fixture
def database(make_database: MakeDatabase) -> Database:
    return make_database()
