"""A reader looks into the user's other files to weigh words; what is wrong with one of them stays there."""

from pathlib import Path

import pytest

from config.errors import StorageError
from sources.drafts import NoteDraft, PromptDraft
from sources.query import parse
from sources.storage.sqlite.index.statistics import OWN_ROWS_MIN
from tests.sources.storage.desk import Desk, ask, open_sqlite


async def write_some(desk: Desk) -> Path:
    async with desk.library("ada") as ada:
        await ada.notes.create(NoteDraft(content="tea"))
        await ada.prompts.create_many([PromptDraft(name=f"Tea {n}") for n in range(50)])
    return desk.data_root.paths_of(desk.context("ada").user_id).prompts


async def rows_counted(desk: Desk) -> int:
    async with desk.library("ada") as ada:
        assert (await ada.notes.search(ask("tea"))).hits
        return (await ada.corpus(parse("tea"), 10_000)).rows


async def test_words_are_counted_in_all_files_and_in_those_that_come_later(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as desk:
        async with desk.library("ada") as ada:
            assert (await ada.corpus(parse("tea"), 10_000)).rows == 0
        await write_some(desk)
        assert await rows_counted(desk) == 51
        async with desk.library("ben") as ben:
            assert (await ben.corpus(parse("tea"), 10_000)).rows == 0


async def test_a_source_with_many_rows_weighs_words_by_its_own(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as desk:
        for user, others in (("ada", OWN_ROWS_MIN - 2), ("ben", OWN_ROWS_MIN - 3)):
            async with desk.library(user) as library:
                notes = [NoteDraft(content="chai"), NoteDraft(content="milk"), *[NoteDraft(content="water")] * others]
                await library.notes.create_many(notes)
                await library.prompts.create_many([PromptDraft(name=f"Chai {n}") for n in range(20)])
        async with desk.library("ada") as ada, desk.library("ben") as ben:
            alike = (await ada.notes.search(ask("chai milk"))).hits
            weighed = (await ben.notes.search(ask("chai milk"))).hits
    assert len({hit.score for hit in alike}) == 1
    assert [hit.text for hit in weighed if hit.score == weighed[0].score] == ["milk"]


@pytest.mark.parametrize("damage", [slice(0, 100), slice(4096, None)])
async def test_a_damaged_file_does_not_keep_the_others_from_being_searched(tmp_path: Path, damage: slice) -> None:
    async with open_sqlite(tmp_path) as desk:
        file = await write_some(desk)
    content = bytearray(file.read_bytes())
    content[damage] = b"\xff" * len(content[damage])
    file.write_bytes(content)
    async with open_sqlite(tmp_path) as desk:
        assert await rows_counted(desk) == 1
        async with desk.library("ada") as ada:
            with pytest.raises(StorageError, match=r"damaged|not an SQLite database"):
                await ada.prompts.search(ask("tea"))


async def test_a_link_in_place_of_another_file_is_not_looked_into(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data") as desk:
        file = await write_some(desk)
    file.rename(tmp_path / "outside.db")
    file.symlink_to(tmp_path / "outside.db")
    async with open_sqlite(tmp_path / "data") as desk:
        assert await rows_counted(desk) == 1
