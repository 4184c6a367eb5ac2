"""Schemas: created on first use, migrated completely or not at all, and rejected if newer."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from config.errors import SourceTimeout, StorageError
from config.paths import DataRoot
from sources.drafts import ConversationDraft, MediaDraft, MessageDraft, NoteDraft
from sources.query import parse
from sources.storage.sqlite.connection.database import Database
from sources.storage.sqlite.index.text_index import weigh_batch
from sources.storage.sqlite.schema.kinds import migrate
from sources.storage.sqlite.schema.tables import MEDIA
from sources.text.segmentation import SEGMENT_VERSION
from sources.text.token_estimates import TokenScale
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_sqlite
from tests.sources.storage.sqlite.conftest import WORDS, MakeDatabase
from tests.sources.storage.sqlite.file_checks import check_files, open_file
from tests.sources.storage.sqlite.words import add_word, all_words

NEWER = replace(WORDS, migrations=(("CREATE TABLE more (id INTEGER)", "INSERT INTO more VALUES (1)"),))
BROKEN = replace(WORDS, migrations=(("CREATE TABLE more (id INTEGER)", "no such statement"),))

# Takes about a second.
SLOW_SELECT = (
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000) SELECT count(*) AS n FROM n"
)


def version(file: Path) -> int:
    with open_file(file) as connection:
        version_number: int = connection.execute("PRAGMA user_version").fetchone()[0]
        return version_number


async def test_read_creates_the_schema(database: Database, file: Path) -> None:
    assert await all_words(database) == []
    assert version(file) == 1


async def test_older_file_is_migrated_with_its_rows(make_database: MakeDatabase, file: Path) -> None:
    old = make_database()
    await add_word(old, "tea")
    await old.close()
    new = make_database(NEWER)
    assert await all_words(new) == ["tea"]
    assert version(file) == 2


async def test_failed_migration_leaves_the_file_unchanged(make_database: MakeDatabase, file: Path) -> None:
    old = make_database()
    await add_word(old, "tea")
    await old.close()
    with pytest.raises(StorageError):
        await all_words(make_database(BROKEN))
    assert version(file) == 1
    with open_file(file) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema WHERE name = 'more'").fetchall() == []
    assert await all_words(make_database()) == ["tea"]


async def test_newer_schema_is_rejected_with_advice_to_upgrade(make_database: MakeDatabase) -> None:
    new = make_database(NEWER)
    await add_word(new, "tea")
    await new.close()
    old = make_database()
    for call in (all_words(old), add_word(old, "milk")):
        with pytest.raises(StorageError, match=r"has schema 2, written by a newer version .* up to 1: upgrade"):
            await call


async def test_file_that_is_not_a_database_is_rejected(make_database: MakeDatabase, file: Path) -> None:
    file.write_bytes(b"this is not a database" * 100)
    for call in (all_words(make_database()), add_word(make_database(), "tea")):
        with pytest.raises(StorageError, match="not an SQLite database"):
            await call


async def test_several_processes_can_create_the_schema_at_once(make_database: MakeDatabase) -> None:
    databases = [make_database() for _ in range(6)]
    await asyncio.gather(*(add_word(database, str(n)) for n, database in enumerate(databases)))
    assert sorted(await all_words(databases[0])) == ["0", "1", "2", "3", "4", "5"]


async def test_text_segmented_by_an_older_version_is_segmented_again(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries:
        await _create_items(libraries)
    _make_outdated(DataRoot(tmp_path), libraries)
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        await ada.notes.list(1, 0)
        await ada.media.list(1, 0)
        await _wait_for_update(ada, "chacha", "media")
        for collection, query in ((ada.notes, "東京"), (ada.chats, "京都"), (ada.chats, "C++"), (ada.media, "naïve")):
            assert (await collection.search(make_search(query))).hits
            assert (await collection.search(make_search("outdated"))).hits == ()
    check_files(tmp_path)
    with open_file(DataRoot(tmp_path).paths_of(libraries.context("ada").user_id).chacha) as connection:
        rows = connection.execute("SELECT value FROM state WHERE name = 'segment_version'").fetchall()
    assert rows == [(str(SEGMENT_VERSION),)]


async def _create_items(libraries: LibraryFixture) -> None:
    async with libraries.library("ada") as ada:
        await ada.notes.create_many([NoteDraft(title=f"Trip {n}", content="東京") for n in range(450)])
        await ada.chats.create(ConversationDraft(title="京都"), [MessageDraft(content="C++ and C#")])
        await ada.media.create(MediaDraft(title="naïve", content="x"))


def _make_outdated(root: DataRoot, libraries: LibraryFixture) -> None:
    """Changes index forms as if an older version had written them."""
    paths = root.paths_of(libraries.context("ada").user_id)
    for file, statements in {
        paths.chacha: ("UPDATE notes SET content_seg = 'outdated'", "UPDATE messages SET text_seg = 'outdated'"),
        paths.media: ("UPDATE media SET title_seg = 'outdated'",),
    }.items():
        with open_file(file) as connection:
            for statement in (*statements, "UPDATE state SET value = '0' WHERE name = 'segment_version'"):
                connection.execute(statement)


async def _wait_for_update(library: object, *kinds: str) -> None:
    databases = library._databases  # type: ignore[attr-defined]  # the background task is private
    for database in (getattr(databases, kind) for kind in kinds):
        assert database._updating is not None
        await database._updating


async def test_texts_of_a_media_file_of_schema_2_are_weighed_in_batches(tmp_path: Path) -> None:
    texts = {f"Ship {n}": f"The galleon {n} left. " * (n % 5 + 1) for n in range(250)}
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada, libraries.library("ben") as ben:
        await ada.media.create_many([MediaDraft(title=title, content=text) for title, text in texts.items()])
        await ben.media.create(MediaDraft(title="Ben's", content="The galleon of Ben."))
    file = DataRoot(tmp_path).paths_of(libraries.context("ada").user_id).media
    _restore_schema_2(file)
    with open_file(file) as connection:
        migrate(MEDIA, connection)
        assert weigh_batch(connection), "a part is weighed, as if the process had ended then"

    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        await ada.media.list(1, 0)
        await _wait_for_update(ada, "media")
        items = (await ada.media.list(300, 0)).rows
        assert {item.title: item.text_weight for item in items} == {
            title: TokenScale().weigh(text) for title, text in texts.items()
        }
        (hit,) = (await ada.media.search(make_search('"galleon 7"'))).hits
        assert hit.text_weight == TokenScale().weigh(texts["Ship 7"])


async def test_older_file_is_migrated_by_a_search_that_counts_its_terms(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        await ada.media.create(MediaDraft(title="Ship", content="The galleon left."))
        await ada.notes.create(NoteDraft(content="galleon"))
    file = DataRoot(tmp_path).paths_of(libraries.context("ada").user_id).media
    _restore_schema_2(file)

    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        assert (await ada.notes.search(make_search("galleon"))).total == 1
        assert (await ada.corpus(parse("galleon"), 10_000)).frequencies == (2,)
    assert version(file) == MEDIA.newest_version


def _restore_schema_2(file: Path) -> None:
    with open_file(file) as connection:
        for statement in (
            "DROP INDEX media_without_weight",
            "ALTER TABLE media DROP COLUMN text_weight",
            "PRAGMA user_version = 2",
        ):
            connection.execute(statement)


@pytest.mark.slow("waits for a time limit")
async def test_migration_continues_after_its_caller_timed_out(make_database: MakeDatabase, file: Path) -> None:
    old = make_database()
    await add_word(old, "tea")
    await old.close()
    slow = replace(WORDS, migrations=(("CREATE TABLE more AS " + SLOW_SELECT,),))
    new = make_database(slow, deadline_ms=50)
    with pytest.raises(SourceTimeout):
        await all_words(new)
    async with asyncio.timeout(20):
        while version(file) == 1:
            await asyncio.sleep(0.01)
    await new.close()
    assert await all_words(make_database(slow)) == ["tea"]
