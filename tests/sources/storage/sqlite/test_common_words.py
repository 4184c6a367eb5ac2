"""Matches of very common words are not ranked, to limit the cost of a search, but all are returned."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sources.drafts import MediaDraft, NoteDraft
from sources.records import Hit
from sources.storage.contract import Library
from sources.storage.search.text_search import BLOCK_ROWS
from tests.sources.storage.library_fixture import make_search, open_sqlite

# With this setting, 100 matches of several words are ranked, and 25 of a single word.
RANKED = 100


@pytest.fixture
async def ada(tmp_path: Path) -> AsyncIterator[Library]:
    async with open_sqlite(tmp_path, search_ranked_rows_max=RANKED) as libraries, libraries.library("ada") as library:
        yield library
        async with libraries.library("ben") as ben:
            assert (await ben.notes.search(make_search("tea"))).hits == ()


async def all_hits(search: Any, query: str, size: int) -> list[Hit]:
    hits: list[Hit] = []
    while True:
        page = await search(make_search(query, limit=size, offset=len(hits)))
        hits += page.hits
        assert len(hits) < 1_000
        if not page.has_more:
            return hits


async def create_notes(library: Library) -> None:
    drafts = [NoteDraft(title=f"Number {n}", content=f"tea {'milk' if n % 2 else 'sugar'} w{n}") for n in range(150)]
    await library.notes.create_many(drafts)


async def test_matches_of_a_common_word_are_newest_first(ada: Library) -> None:
    await create_notes(ada)
    hits = await all_hits(ada.notes.search, "tea", 20)
    assert {hit.title for hit in hits} == {f"Number {n}" for n in range(150)}
    assert len(hits) == 150
    assert {hit.title for hit in hits[:BLOCK_ROWS]} == {f"Number {n}" for n in range(150 - BLOCK_ROWS, 150)}


async def test_title_with_the_common_word_comes_first(ada: Library) -> None:
    title = await ada.notes.create(NoteDraft(title="Tea", content="everything about it"))
    await create_notes(ada)
    hits = await all_hits(ada.notes.search, "tea", 7)
    assert hits[0].id == title.id
    assert len({hit.id for hit in hits}) == len(hits) == 151


async def test_matches_of_the_rarer_words_come_first(ada: Library) -> None:
    await create_notes(ada)
    rare = await ada.notes.create(NoteDraft(title="Honey", content="honey"))
    hits = await all_hits(ada.notes.search, "tea milk honey", 30)
    assert len({hit.id for hit in hits}) == len(hits) == 151
    assert rare.id in {hit.id for hit in hits[:76]}
    assert all("milk" in hit.text for hit in hits[:76] if hit.id != rare.id)


async def test_matches_of_a_common_expression_are_newest_first(ada: Library) -> None:
    await create_notes(ada)
    hits = await all_hits(ada.notes.search, "tea OR milk", 40)
    assert len({hit.id for hit in hits}) == 150
    assert {hit.title for hit in hits[:BLOCK_ROWS]} == {f"Number {n}" for n in range(150 - BLOCK_ROWS, 150)}


async def test_matches_of_only_common_words_are_newest_first(ada: Library) -> None:
    await ada.notes.create_many([NoteDraft(title=f"Number {n}", content="tea milk") for n in range(150)])
    hits = await all_hits(ada.notes.search, "tea milk", 40)
    assert {hit.title for hit in hits[:BLOCK_ROWS]} == {f"Number {n}" for n in range(150 - BLOCK_ROWS, 150)}
    assert len({hit.id for hit in hits}) == 150


async def test_items_with_many_matching_passages_are_one_hit_each(ada: Library) -> None:
    await ada.media.create_many(
        [MediaDraft(title=f"Film {n}", content="tea and more of it. " * 200) for n in range(40)]
    )
    hits = await all_hits(ada.media.search, "tea", 9)
    assert len({hit.id for hit in hits}) == len(hits) == 40
    assert {hit.more_in_item for hit in hits} == {2}
