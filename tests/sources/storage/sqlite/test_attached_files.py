"""One reader attaches the files of a user as they are needed; a damaged or replaced one does not affect the others."""

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from config.errors import SourceTimeout, StorageError
from sources.drafts import NoteDraft, PromptDraft
from sources.query import parse
from sources.storage.contract import Library
from sources.storage.job_queue import CallGroup, JobGroup, job_group
from sources.storage.search.engine import OWN_ROWS_MIN
from sources.storage.sqlite.collections import SqliteLibrary
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.connection.database import Database, LibraryReader
from sources.storage.sqlite.connection.errors import Interrupted
from sources.storage.sqlite.connection.open import DatabaseFile
from sources.storage.sqlite.schema.tables import CHACHA, PROMPTS
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_sqlite
from tests.sources.storage.sqlite.conftest import make_options
from tests.sources.storage.sqlite.test_jobs import StuckJob, close_and_wait
from tests.sources.storage.sqlite.words import TIMEOUT_S


async def create_items(libraries: LibraryFixture) -> Path:
    async with libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(content="tea"))
        await ada.prompts.create_many([PromptDraft(name=f"Tea {n}") for n in range(50)])
    return libraries.data_root.paths_of(libraries.context("ada").user_id).prompts


async def count_rows(libraries: LibraryFixture) -> int:
    async with libraries.library("ada") as ada:
        assert (await ada.notes.search(make_search("tea"))).hits
        return (await ada.corpus(parse("tea"), 10_000)).rows


async def test_terms_are_counted_in_all_files_including_new_ones(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries:
        async with libraries.library("ada") as ada:
            assert (await ada.corpus(parse("tea"), 10_000)).rows == 0
        await create_items(libraries)
        assert await count_rows(libraries) == 51
        async with libraries.library("ben") as ben:
            assert (await ben.corpus(parse("tea"), 10_000)).rows == 0


def attached_kinds(library: Library) -> list[str]:
    assert isinstance(library, SqliteLibrary)
    connection = library._databases.reader.lazy.connection
    assert connection is not None
    return sorted(connection.attached)


async def test_file_is_attached_when_a_call_needs_it(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries:
        await create_items(libraries)
        async with libraries.library("ada") as ada:
            await ada.notes.create_many([NoteDraft(content="milk")] * OWN_ROWS_MIN)
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        assert (await ada.notes.search(make_search("milk"))).total == OWN_ROWS_MIN
        assert attached_kinds(ada) == ["chacha"]
        assert (await ada.corpus(parse("tea"), 10_000)).rows == OWN_ROWS_MIN + 51
        assert attached_kinds(ada) == ["chacha", "prompts"]


class StoppedOnce(DatabaseFile, frozen=True):
    """A file that is attached when the job is stopped, the first time."""

    stops: list[Interrupted]

    @property
    def path(self) -> Path:
        if self.stops:
            raise self.stops.pop()
        return super().path


async def test_file_can_be_read_after_a_search_was_stopped_while_attaching_it(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries:
        await create_items(libraries)
    user_id = libraries.context("ada").user_id
    notes = DatabaseFile(CHACHA, libraries.data_root, user_id)
    prompts = StoppedOnce(PROMPTS, libraries.data_root, user_id, [])
    options = make_options()
    reader = LibraryReader((notes, prompts), options)
    database = Database(notes, options, reader)
    stopped = Database(prompts, options, reader)
    prompts.stops.append(Interrupted())

    def count(connection: JobConnection) -> int:
        reader.statistics(None).refresh(connection)
        return reader.statistics(None).count_each_in_library(connection, ['"tea"'])[0]

    with pytest.raises(SourceTimeout):
        await database.read("notes", count)
    assert await stopped.read("prompts", count) == 51
    assert await database.read("notes", count) == 51
    await database.close()


async def test_bookmarks_are_read_from_their_file_if_another_was_used_first(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        await ada.prompts.create(PromptDraft(name="Tea"))
        assert (await ada.prompts.get_by_name("Tea")).name == "Tea"
        await ada.bookmarks.set("saved searches", "tea")
        assert await ada.bookmarks.get("saved searches") == "tea"


async def test_source_with_many_rows_uses_its_own_term_weights(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries:
        for user, others in (("ada", OWN_ROWS_MIN - 2), ("ben", OWN_ROWS_MIN - 3)):
            async with libraries.library(user) as library:
                notes = [NoteDraft(content="chai"), NoteDraft(content="milk"), *[NoteDraft(content="water")] * others]
                await library.notes.create_many(notes)
                await library.prompts.create_many([PromptDraft(name=f"Chai {n}") for n in range(20)])
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            equal_weights = (await ada.notes.search(make_search("chai milk"))).hits
            weighted = (await ben.notes.search(make_search("chai milk"))).hits
    assert len({hit.score for hit in equal_weights}) == 1
    assert [hit.text for hit in weighted if hit.score == weighted[0].score] == ["milk"]


@pytest.mark.parametrize("damage", [slice(0, 100), slice(4096, None)])
async def test_damaged_file_does_not_affect_searches_in_other_files(tmp_path: Path, damage: slice) -> None:
    async with open_sqlite(tmp_path) as libraries:
        file = await create_items(libraries)
    content = bytearray(file.read_bytes())
    content[damage] = b"\xff" * len(content[damage])
    file.write_bytes(content)
    async with open_sqlite(tmp_path) as libraries:
        assert await count_rows(libraries) == 1
        async with libraries.library("ada") as ada:
            with pytest.raises(StorageError, match=r"damaged|not an SQLite database"):
                await ada.prompts.search(make_search("tea"))


async def test_symbolic_link_in_place_of_a_file_is_not_attached(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        file = await create_items(libraries)
    file.rename(tmp_path / "outside.db")
    file.symlink_to(tmp_path / "outside.db")
    async with open_sqlite(tmp_path / "data") as libraries:
        assert await count_rows(libraries) == 1


async def test_damaged_file_of_notes_does_not_affect_searches_in_other_files(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries:
        prompts = await create_items(libraries)
    prompts.with_name("chacha.db").write_bytes(b"\xff" * 8192)
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        assert (await ada.prompts.search(make_search("tea"))).total == 50
        with pytest.raises(StorageError, match="not an SQLite database"):
            await ada.notes.search(make_search("tea"))


def replace_file(path: Path) -> None:
    copy = path.with_name("copy.db")
    shutil.copyfile(path, copy)
    copy.replace(path)


async def test_replaced_file_does_not_fail_a_read_of_another(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries:
        prompts = await create_items(libraries)
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        assert (await ada.prompts.search(make_search("tea"))).total == 50
        replace_file(prompts)

        assert (await ada.notes.search(make_search("tea"))).total == 1
        assert (await ada.prompts.search(make_search("tea"))).total == 50


async def test_replaced_file_does_not_fail_the_other_sources_of_a_search(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries:
        prompts = await create_items(libraries)
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        sources: dict[str, Any] = {"notes": ada.notes, "prompts": ada.prompts, "media": ada.media, "chats": ada.chats}

        async def search_all() -> dict[str, int | str]:
            call = CallGroup(limit_s=TIMEOUT_S)

            async def search(name: str) -> int | str:
                with job_group(JobGroup(call=call)):
                    try:
                        return int((await sources[name].search(make_search("tea"))).total)
                    except StorageError as error:
                        return error.message

            return dict(zip(sources, await asyncio.gather(*map(search, sources)), strict=True))

        expected: dict[str, int | str] = {"notes": 1, "prompts": 50, "media": 0, "chats": 0}
        assert await search_all() == expected
        replace_file(prompts)

        replaced = "the file of this library was deleted or replaced; try again"
        assert await search_all() == {**expected, "prompts": replaced}
        assert await search_all() == expected


async def test_concurrent_searches_survive_the_replacement_of_another_file(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries:
        prompts = await create_items(libraries)
        async with libraries.library("ada") as ada:
            sources: dict[str, Any] = {"notes": ada.notes, "prompts": ada.prompts, "media": ada.media}
            is_over = asyncio.Event()

            async def search(name: str, call: CallGroup) -> None:
                with job_group(JobGroup(call=call)), suppress(*[StorageError] if name == "prompts" else []):
                    await sources[name].search(make_search("tea"))

            async def search_repeatedly() -> None:
                while not is_over.is_set():
                    call = CallGroup(limit_s=TIMEOUT_S)
                    await asyncio.gather(*[search(name, call) for name in sources])

            searching = [asyncio.create_task(search_repeatedly()) for _ in range(6)]
            for _ in range(20):
                await asyncio.sleep(0.02)
                replace_file(prompts)
            is_over.set()
            await asyncio.gather(*searching)


async def test_file_can_be_attached_after_another_was_replaced(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries:
        await create_items(libraries)
        chacha = libraries.data_root.paths_of(libraries.context("ada").user_id).chacha
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        assert await ada.bookmarks.get("saved searches") is None
        assert attached_kinds(ada) == ["chacha"]
        replace_file(chacha)

        assert (await ada.prompts.search(make_search("tea"))).total == 50


async def test_file_can_be_attached_after_a_read_of_another_did_not_stop(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries:
        await create_items(libraries)
    user_id, options, stuck = libraries.context("ada").user_id, make_options(stop_ms=20), StuckJob()
    files = [DatabaseFile(schema, libraries.data_root, user_id) for schema in (CHACHA, PROMPTS)]
    reader = LibraryReader(files, options)
    notes, prompts = (Database(file, options, reader) for file in files)
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(SourceTimeout):
            await notes.read("notes", stuck, 30)
        sql = "SELECT count(*) FROM prompts.sqlite_schema"
        assert await prompts.read("prompts", lambda connection: connection.execute(sql).fetchone()[0])
        assert not stuck.released.is_set()
    await close_and_wait(notes, stuck)
