"""Schemas: created on first use, migrated completely or not at all, and rejected if newer."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from config.errors import SourceTimeout, StorageError
from config.paths import DataRoot
from sources.drafts import ConversationDraft, MediaDraft, MessageDraft, NoteDraft, ObservationDraft
from sources.storage.sqlite.connection.database import Database
from sources.storage.sqlite.index.text_index import apply_queue, weigh_batch
from sources.storage.sqlite.schema.chacha import CHACHA
from sources.storage.sqlite.schema.migrations import MEDIA, migrate
from sources.storage.tables.sql import CHATS_INDEX
from sources.text.segmentation import SEGMENT_VERSION
from sources.text.token_estimates import TokenScale
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_sqlite
from tests.sources.storage.sqlite.conftest import WORDS, MakeDatabase
from tests.sources.storage.sqlite.file_checks import check_files, open_file
from tests.sources.storage.sqlite.words import add_word, all_words

NEWER = replace(
    WORDS, migrations=(*WORDS.migrations, ("CREATE TABLE more (id INTEGER)", "INSERT INTO more VALUES (1)"))
)
BROKEN = replace(WORDS, migrations=(*WORDS.migrations, ("CREATE TABLE more (id INTEGER)", "no such statement")))

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


async def test_chacha_file_of_schema_1_is_migrated_to_the_newest(tmp_path: Path) -> None:
    first = replace(CHACHA, migrations=CHACHA.migrations[:1])
    async with open_sqlite(tmp_path) as libraries:
        file = DataRoot(tmp_path).prepare_user(libraries.context("ada").user_id).chacha
        with open_file(file) as connection:
            migrate(first, connection)
            for number, session in enumerate(("s", "s", "", "", "t"), start=1):
                connection.execute(
                    "INSERT INTO conversations (uuid, title, namespace, session_id, created_at, last_modified, "
                    "client_id, content_hash) VALUES (?, 'old', ?, ?, ?2, ?, '', '')",
                    (f"c{number}", "" if number < 5 else "work", session, f"2026-01-0{number}T00:00:00.000Z"),
                )
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            page = await ada.chats.list(10, 0)
            assert [(row.id, row.namespace, row.session_id) for row in page.rows] == [
                ("c5", "work", "t"),
                ("c4", "default", ""),
                ("c3", "default", ""),
                ("c2", "default", "s"),
                ("c1", "default", ""),
            ]
            observation = await ada.observations.create(ObservationDraft(title="learned"))
            assert await ada.observations.get(observation.id) == observation
            assert (await ben.chats.list(0, 0)).total == 0
        assert version(file) == len(CHACHA.migrations)


async def test_human_only_messages_of_schema_3_are_separated_from_the_others(tmp_path: Path) -> None:
    """Schema 3 has them in the index, also as the context of other messages, and has titles made from them."""
    third = replace(CHACHA, migrations=CHACHA.migrations[:3])
    secret, long_secret = "the password is mango", f"{'a pomelo ' * 10}!"
    async with open_sqlite(tmp_path) as libraries:
        file = DataRoot(tmp_path).prepare_user(libraries.context("ada").user_id).chacha
        with open_file(file) as connection:
            migrate(third, connection)
            for number, title in enumerate((secret, f"{long_secret[:50]}...", "Plans"), start=1):
                connection.execute(
                    "INSERT INTO conversations (id, uuid, title, namespace, session_id, created_at, last_modified, "
                    "client_id, content_hash) VALUES (?1, 'c' || ?1, ?2, 'default', '', ?3, ?3, '', '')",
                    (number, title, "2026-01-01T00:00:00.000Z"),
                )
            for number, (conversation, text, metadata) in enumerate(
                (
                    (1, secret, '{"audience":"Human"}'),
                    (1, "a ripe fruit", "{}"),
                    (2, long_secret, '{"human_only":true}'),
                    (3, secret, '{"visibility":"human_only"}'),
                    (3, "a human fruit", '{"note":"human"}'),
                )
            ):
                connection.execute(
                    "INSERT INTO messages (uuid, conversation_id, position, role, sender, content, attachments, "
                    "citations, is_canonical, metadata, created_at, last_modified, client_id, content_hash) "
                    "VALUES ('m' || ?1, ?2, ?1, 'user', 'Ana', ?3, '[]', '[]', 1, ?4, ?5, ?5, '', '')",
                    (number, conversation, text, metadata, "2026-01-01T00:00:00.000Z"),
                )
            apply_queue(connection, replace(CHATS_INDEX, companions=()))
        agent = libraries.context("ada", is_agent=True)
        async with libraries.library("ada") as ada, libraries.engine.library(agent) as library:
            titles = {row.id: row.title for row in (await ada.chats.list(10, 0)).rows}
            assert titles == {"c1": "", "c2": "", "c3": "Plans"}
            assert {hit.message_id for hit in (await ada.chats.search(make_search("mango"))).hits} == {"m0", "m3"}
            for query in ("mango", "password", "pomelo", "title:password"):
                page = await library.chats.search(make_search(query))
                assert (page.hits, page.total) == ((), 0)
            found = (await library.chats.search(make_search("fruit"))).hits
            assert {hit.message_id for hit in found} == {"m1", "m4"}
    check_files(tmp_path)


async def test_contexts_of_schema_7_are_bounded(tmp_path: Path) -> None:
    """Schema 7 has the whole text of the two messages before a message in its index entry."""
    long = f"{'Steam rises from the kettle. ' * 30} mango"
    seventh = replace(CHACHA, migrations=CHACHA.migrations[:7])
    async with open_sqlite(tmp_path) as libraries:
        file = DataRoot(tmp_path).prepare_user(libraries.context("ada").user_id).chacha
        with open_file(file) as connection:
            migrate(seventh, connection)
            connection.execute(
                "INSERT INTO conversations (id, uuid, title, namespace, session_id, created_at, last_modified, "
                "client_id, content_hash) VALUES (1, 'c1', 'Tea', 'default', '', ?1, ?1, '', '')",
                ("2026-01-01T00:00:00.000Z",),
            )
            for number, text in enumerate(("fig", "quince", long, "yes", "no")):
                connection.execute(
                    "INSERT INTO messages (uuid, conversation_id, position, role, sender, content, attachments, "
                    "citations, is_canonical, created_at, last_modified, client_id, content_hash) "
                    "VALUES ('m' || ?1, 1, ?1, 'user', 'Ana', ?2, '[]', '[]', 1, ?3, ?3, '', '')",
                    (number, text, "2026-01-01T00:00:00.000Z"),
                )
            apply_queue(connection, CHATS_INDEX)
            before = connection.execute("SELECT count(*) FROM chats_index WHERE chats_index MATCH 'mango'").fetchone()
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            found = {
                word: sorted(hit.message_id or "" for hit in (await ada.chats.search(make_search(word))).hits)
                for word in ("mango", "fig", "quince")
            }
            assert (await ben.chats.search(make_search("mango"))).hits == ()
    assert before == (3,)
    assert found == {"mango": ["m2"], "fig": ["m0", "m1", "m2"], "quince": ["m1", "m2"]}
    check_files(tmp_path)


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
    slow = replace(WORDS, migrations=(*WORDS.migrations, ("CREATE TABLE more AS " + SLOW_SELECT,)))
    new = make_database(slow, deadline_ms=50)
    with pytest.raises(SourceTimeout):
        await all_words(new)
    async with asyncio.timeout(20):
        while version(file) == 1:
            await asyncio.sleep(0.01)
    await new.close()
    assert await all_words(make_database(slow)) == ["tea"]
