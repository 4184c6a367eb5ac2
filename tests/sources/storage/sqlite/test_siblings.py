"""A reader looks into the user's other files to weigh words; what is wrong with one of them stays there."""

from pathlib import Path

import pytest

from config.errors import StorageError
from sources.drafts import NoteDraft, PromptDraft
from sources.query import parse
from sources.storage.sqlite.index.statistics import OWN_ROWS_MIN
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_sqlite


async def write_some(libraries: LibraryFixture) -> Path:
    async with libraries.library("ada") as ada:
        await ada.notes.create(NoteDraft(content="tea"))
        await ada.prompts.create_many([PromptDraft(name=f"Tea {n}") for n in range(50)])
    return libraries.data_root.paths_of(libraries.context("ada").user_id).prompts


async def rows_counted(libraries: LibraryFixture) -> int:
    async with libraries.library("ada") as ada:
        assert (await ada.notes.search(make_search("tea"))).hits
        return (await ada.corpus(parse("tea"), 10_000)).rows


async def test_words_are_counted_in_all_files_and_in_those_that_come_later(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries:
        async with libraries.library("ada") as ada:
            assert (await ada.corpus(parse("tea"), 10_000)).rows == 0
        await write_some(libraries)
        assert await rows_counted(libraries) == 51
        async with libraries.library("ben") as ben:
            assert (await ben.corpus(parse("tea"), 10_000)).rows == 0


async def test_a_source_with_many_rows_weighs_words_by_its_own(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries:
        for user, others in (("ada", OWN_ROWS_MIN - 2), ("ben", OWN_ROWS_MIN - 3)):
            async with libraries.library(user) as library:
                notes = [NoteDraft(content="chai"), NoteDraft(content="milk"), *[NoteDraft(content="water")] * others]
                await library.notes.create_many(notes)
                await library.prompts.create_many([PromptDraft(name=f"Chai {n}") for n in range(20)])
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            alike = (await ada.notes.search(make_search("chai milk"))).hits
            weighed = (await ben.notes.search(make_search("chai milk"))).hits
    assert len({hit.score for hit in alike}) == 1
    assert [hit.text for hit in weighed if hit.score == weighed[0].score] == ["milk"]


@pytest.mark.parametrize("damage", [slice(0, 100), slice(4096, None)])
async def test_a_damaged_file_does_not_keep_the_others_from_being_searched(tmp_path: Path, damage: slice) -> None:
    async with open_sqlite(tmp_path) as libraries:
        file = await write_some(libraries)
    content = bytearray(file.read_bytes())
    content[damage] = b"\xff" * len(content[damage])
    file.write_bytes(content)
    async with open_sqlite(tmp_path) as libraries:
        assert await rows_counted(libraries) == 1
        async with libraries.library("ada") as ada:
            with pytest.raises(StorageError, match=r"damaged|not an SQLite database"):
                await ada.prompts.search(make_search("tea"))


async def test_a_link_in_place_of_another_file_is_not_looked_into(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as libraries:
        file = await write_some(libraries)
    file.rename(tmp_path / "outside.db")
    file.symlink_to(tmp_path / "outside.db")
    async with open_sqlite(tmp_path / "data") as libraries:
        assert await rows_counted(libraries) == 1
