"""Maintenance: reindexing, schema status, migration, and copies before a migration."""

from collections.abc import Callable
from pathlib import Path

import pytest

from config.errors import StorageError
from config.settings import Settings
from sources.drafts import ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.storage.contract import ExactSearch
from sources.storage.sqlite.connection.pool import sqlite_options
from sources.storage.sqlite.maintenance.maintenance import SCHEMAS, reindex, schema_statuses, upgrade
from sources.storage.sqlite.schema.kinds import migrate
from sources.storage.sqlite.schema.tables import CHACHA
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_sqlite, titles
from tests.sources.storage.sqlite.file_checks import check_files, open_file

OPTIONS = sqlite_options(Settings())


def path_of(libraries: LibraryFixture, owner: str, kind: str = "chacha") -> Path:
    path: Path = getattr(libraries.data_root.paths_of(libraries.context(owner).user_id), kind)
    return path


def reindex_all(libraries: LibraryFixture, owner: str) -> dict[str, int]:
    user_id = libraries.context(owner).user_id
    return {kind: reindex(libraries.data_root, user_id, kind, OPTIONS) for kind in SCHEMAS}


async def create_items(libraries: LibraryFixture, owner: str) -> None:
    async with libraries.library(owner) as library:
        await library.notes.create(NoteDraft(title=f"Kettle of {owner}", content="東京 tea"))
        await library.media.create(MediaDraft(title="Long", content="kettle " * 1_000))
        await library.prompts.create(PromptDraft(name="Kettle"))
        await library.chats.create(ConversationDraft(title="Talk"), [MessageDraft(content="kettle")])
        await library.chats.match_messages(ExactSearch(expression="kettle", limit=1, deadline_ms=10_000))


def _delete_entries(path: Path) -> None:
    with open_file(path) as connection:
        for index in SCHEMAS[path.stem].counted_indexes:  # type: ignore[index] # files are named after their kind
            connection.execute(f"INSERT INTO {index.table} ({index.table}) VALUES ('delete-all')")


def _add_queued_change(path: Path) -> None:
    with open_file(path) as connection:
        for index in SCHEMAS[path.stem].counted_indexes:  # type: ignore[index] # files are named after their kind
            connection.execute(f"INSERT INTO {index.table}_queue ({index.columns[0]}) VALUES ('was never indexed')")


def _break_pages(path: Path) -> None:
    with open_file(path) as connection:
        for index in SCHEMAS[path.stem].counted_indexes:  # type: ignore[index] # files are named after their kind
            connection.execute(f"UPDATE {index.table}_data SET block = x'00' WHERE id > 10")


@pytest.mark.parametrize("damage", [_delete_entries, _add_queued_change, _break_pages])
async def test_reindex_rebuilds_damaged_indexes_from_the_rows(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        for owner in ("ada", "ben"):
            await create_items(libraries, owner)
    for kind in SCHEMAS:
        damage(path_of(libraries, "ada", kind))

    entries = reindex_all(libraries, "ada")

    assert entries["chacha"] == 3
    assert entries["media"] > 1
    check_files(tmp_path / "data")
    async with open_sqlite(tmp_path / "data") as libraries:
        for owner in ("ada", "ben"):
            async with libraries.library(owner) as library:
                assert titles(await library.notes.search(make_search("kettle"))) == [f"Kettle of {owner}"]
                assert titles(await library.notes.search(make_search("東京"))) == [f"Kettle of {owner}"]
                assert len((await library.media.search(make_search("kettle"))).hits) == 1
                assert len((await library.chats.search(make_search("kettle"))).hits) == 1


async def test_reindex_works_while_the_library_is_open(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        await create_items(libraries, "ada")
        async with libraries.library("ada") as ada:
            reindex_all(libraries, "ada")
            await ada.notes.create(NoteDraft(title="Second kettle"))
            assert len((await ada.notes.search(make_search("kettle"))).hits) == 2
    check_files(tmp_path / "data")


# -- schemas -----------------------------------------------------------------------------------------------------------


def create_outdated(libraries: LibraryFixture, owner: str) -> Path:
    """Creates a file with a schema from before release 0.1.0."""
    path = libraries.data_root.ensure_database(libraries.context(owner).user_id, "chacha")
    with open_file(path) as connection:
        migrate(CHACHA, connection)
        connection.execute("DROP TABLE note_images")
        connection.execute("PRAGMA user_version = 8")
    return path


def copies(path: Path) -> list[str]:
    return sorted(
        status.name for status in path.parent.iterdir() if ".schema-" in status.name or "unfinished" in status.name
    )


async def test_outdated_schema_is_reported_without_changing_the_file(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        path = create_outdated(libraries, "ada")
        await create_items(libraries, "ben")

        [ada] = schema_statuses(libraries.data_root, libraries.context("ada").user_id)
        ben = schema_statuses(libraries.data_root, libraries.context("ben").user_id)

    assert (ada.kind, ada.version, ada.newest, ada.is_current) == ("chacha", 8, CHACHA.newest_version, False)
    assert all(status.is_current for status in ben)
    with open_file(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (8,)


async def test_unused_file_is_not_reported_as_outdated(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            await ada.notes.create(NoteDraft(title="Kettle"))
            assert (await ada.notes.search(make_search("kettle"))).total == 1
            assert (await ben.notes.search(make_search("kettle"))).total == 0
        path_of(libraries, "ada", "prompts").touch()

        statuses = schema_statuses(libraries.data_root, libraries.context("ada").user_id)

    assert [(status.kind, status.is_current) for status in statuses] == [("chacha", True)]


async def test_file_is_copied_before_its_schema_is_migrated(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        path = create_outdated(libraries, "ada")
        async with libraries.library("ada") as ada:
            await ada.notes.create(NoteDraft(title="Kettle"))

    assert copies(path) == ["chacha.db.schema-8"]
    copy = path.with_name("chacha.db.schema-8")
    assert copy.stat().st_mode & 0o077 == 0
    with open_file(copy) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (8,)
        assert connection.execute("SELECT count(*) FROM notes").fetchone() == (0,)


async def test_only_the_newest_copies_are_kept(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        path = create_outdated(libraries, "ada")
        for number in (6, 7):
            path.with_name(f"chacha.db.schema-{number}").write_bytes(b"old")
        path.with_name("media.db.schema-1").write_bytes(b"of another file")
        path.with_name("chacha.db.schema-9").write_bytes(b"newer")
        upgrade(
            libraries.data_root,
            libraries.context("ada").user_id,
            "chacha",
            sqlite_options(Settings()),
        )

    assert copies(path) == ["chacha.db.schema-8", "chacha.db.schema-9", "media.db.schema-1"]


async def test_no_copy_is_made_of_a_new_file(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        await create_items(libraries, "ben")

    assert copies(path_of(libraries, "ben")) == []


async def test_library_that_cannot_be_copied_is_not_migrated(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        path = create_outdated(libraries, "ada")
        path.with_name("chacha.db.schema-8").mkdir()
        with pytest.raises(StorageError, match="could not be copied first"):
            upgrade(libraries.data_root, libraries.context("ada").user_id, "chacha", OPTIONS)

    assert copies(path) == ["chacha.db.schema-8"]
    with open_file(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (8,)


async def test_library_of_a_newer_version_is_reported_and_rejected(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        await create_items(libraries, "ada")
    with open_file(path_of(libraries, "ada")) as connection:
        connection.execute("PRAGMA user_version = 99")

    [chacha] = [
        status
        for status in schema_statuses(libraries.data_root, libraries.context("ada").user_id)
        if status.kind == "chacha"
    ]

    assert chacha.is_unsupported
    with pytest.raises(StorageError, match="written by a newer version of Florilegium"):
        upgrade(libraries.data_root, libraries.context("ada").user_id, "chacha", OPTIONS)
