"""What an operator does with libraries: indexes made anew, schemas looked at and brought up to date, copies kept."""

from collections.abc import Callable
from pathlib import Path

import pytest

from config.errors import StorageError
from config.settings import Settings
from sources.drafts import ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.storage.contract import ExactSearch
from sources.storage.sqlite.connection.pool import sqlite_options
from sources.storage.sqlite.maintenance.maintenance import SCHEMAS, reindex, schema_statuses, upgrade
from sources.storage.sqlite.schema.chacha import CHACHA
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_sqlite, titles
from tests.sources.storage.sqlite.files import check_files, opened

ENGINE = sqlite_options(Settings())


def path_of(libraries: LibraryFixture, owner: str, kind: str = "chacha") -> Path:
    path: Path = getattr(libraries.data_root.paths_of(libraries.context(owner).user_id), kind)
    return path


def reindex_all(libraries: LibraryFixture, owner: str) -> dict[str, int]:
    user_id = libraries.context(owner).user_id
    return {kind: reindex(libraries.data_root, user_id, kind, ENGINE) for kind in SCHEMAS}


async def fill(libraries: LibraryFixture, owner: str) -> None:
    async with libraries.library(owner) as library:
        await library.notes.create(NoteDraft(title=f"Kettle of {owner}", content="東京 tea"))
        await library.media.create(MediaDraft(title="Long", content="kettle " * 1_000))
        await library.prompts.create(PromptDraft(name="Kettle"))
        await library.chats.create(ConversationDraft(title="Talk"), [MessageDraft(content="kettle")])
        await library.chats.match_messages(ExactSearch(expression="kettle", limit=1, deadline_ms=10_000))


def _lose_entries(path: Path) -> None:
    with opened(path) as connection:
        for index in SCHEMAS[path.stem].counted_indexes:  # type: ignore[index] # files are named after their kinds
            connection.execute(f"INSERT INTO {index.table} ({index.table}) VALUES ('delete-all')")


def _leave_a_queue(path: Path) -> None:
    with opened(path) as connection:
        for index in SCHEMAS[path.stem].counted_indexes:  # type: ignore[index] # files are named after their kinds
            connection.execute(f"INSERT INTO {index.table}_queue ({index.columns[0]}) VALUES ('was never there')")


def _break_pages(path: Path) -> None:
    with opened(path) as connection:
        for index in SCHEMAS[path.stem].counted_indexes:  # type: ignore[index] # files are named after their kinds
            connection.execute(f"UPDATE {index.table}_data SET block = x'00' WHERE id > 10")


@pytest.mark.parametrize("harm", [_lose_entries, _leave_a_queue, _break_pages])
async def test_indexes_are_made_anew_from_the_rows(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        for owner in ("ada", "ben"):
            await fill(libraries, owner)
    for kind in SCHEMAS:
        harm(path_of(libraries, "ada", kind))

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


async def test_indexes_are_made_anew_beside_an_open_library(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        await fill(libraries, "ada")
        async with libraries.library("ada") as ada:
            reindex_all(libraries, "ada")
            await ada.notes.create(NoteDraft(title="Second kettle"))
            assert len((await ada.notes.search(make_search("kettle"))).hits) == 2
    check_files(tmp_path / "data")


# -- schemas -----------------------------------------------------------------------------------------------------------


def make_old(libraries: LibraryFixture, owner: str) -> Path:
    """A file as the first version of the program has made it."""
    path = libraries.data_root.ensure_database(libraries.context(owner).user_id, "chacha")
    with opened(path) as connection:
        for statement in CHACHA.migrations[0]:
            connection.execute(statement)
        connection.execute("PRAGMA user_version = 1")
        connection.execute("INSERT INTO state VALUES ('segment_version', '0')")
    return path


def copies(path: Path) -> list[str]:
    return sorted(one.name for one in path.parent.iterdir() if ".schema-" in one.name or "unfinished" in one.name)


async def test_a_library_that_is_behind_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        path = make_old(libraries, "ada")
        await fill(libraries, "ben")

        [ada] = schema_statuses(libraries.data_root, libraries.context("ada").user_id)
        ben = schema_statuses(libraries.data_root, libraries.context("ben").user_id)

    assert (ada.kind, ada.version, ada.newest, ada.is_current) == ("chacha", 1, len(CHACHA.migrations), False)
    assert all(one.is_current for one in ben)
    with opened(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)


async def test_a_file_that_nobody_has_used_yet_is_not_behind(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            await ada.notes.create(NoteDraft(title="Kettle"))
            assert (await ada.notes.search(make_search("kettle"))).total == 1
            assert (await ben.notes.search(make_search("kettle"))).total == 0
        assert path_of(libraries, "ada", "prompts").exists()

        found = schema_statuses(libraries.data_root, libraries.context("ada").user_id)

    assert [(one.kind, one.is_current) for one in found] == [("chacha", True)]


async def test_a_copy_is_kept_of_a_file_before_its_schema_is_changed(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        path = make_old(libraries, "ada")
        async with libraries.library("ada") as ada:
            await ada.notes.create(NoteDraft(title="Kettle"))

    assert copies(path) == ["chacha.db.schema-1"]
    kept = path.with_name("chacha.db.schema-1")
    assert kept.stat().st_mode & 0o077 == 0
    with opened(kept) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM notes").fetchone() == (0,)


async def test_only_the_newest_copies_are_kept(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data", migration_copies_max=2) as libraries:
        path = make_old(libraries, "ada")
        for number in (-1, 0):
            path.with_name(f"chacha.db.schema-{number + 1}").write_bytes(b"old")
        path.with_name("media.db.schema-1").write_bytes(b"of another file")
        path.with_name("chacha.db.schema-7").write_bytes(b"newer")
        upgrade(
            libraries.data_root,
            libraries.context("ada").user_id,
            "chacha",
            sqlite_options(Settings(migration_copies_max=2)),
        )

    assert copies(path) == ["chacha.db.schema-1", "chacha.db.schema-7", "media.db.schema-1"]


async def test_no_copy_is_made_where_none_is_wanted_and_of_a_new_file_never(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data", migration_copies_max=0) as libraries:
        path = make_old(libraries, "ada")
        async with libraries.library("ada") as ada:
            await ada.notes.create(NoteDraft(title="Kettle"))
        await fill(libraries, "ben")

    assert copies(path) == copies(path_of(libraries, "ben")) == []


async def test_a_library_of_which_no_copy_can_be_made_is_left_as_it_is(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        path = make_old(libraries, "ada")
        path.with_name("chacha.db.schema-1").mkdir()
        with pytest.raises(StorageError, match="could not be copied first"):
            upgrade(libraries.data_root, libraries.context("ada").user_id, "chacha", ENGINE)

    assert copies(path) == ["chacha.db.schema-1"]
    with opened(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)


async def test_a_library_of_a_newer_program_is_told_and_refused(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        await fill(libraries, "ada")
    with opened(path_of(libraries, "ada")) as connection:
        connection.execute("PRAGMA user_version = 99")

    [chacha] = [
        one for one in schema_statuses(libraries.data_root, libraries.context("ada").user_id) if one.kind == "chacha"
    ]

    assert chacha.is_unsupported
    with pytest.raises(StorageError, match="written by a newer version of Florilegium"):
        upgrade(libraries.data_root, libraries.context("ada").user_id, "chacha", ENGINE)
