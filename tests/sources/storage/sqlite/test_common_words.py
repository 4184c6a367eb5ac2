"""Matches of the common words of a query come last, and those of very common words are not ranked, to limit the cost of
a search, but all are returned.
"""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sources.drafts import ConversationDraft, MediaDraft, MessageDraft, NoteDraft
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


async def all_hits(search: Any, query: str, size: int, **filters: Any) -> list[Hit]:
    hits: list[Hit] = []
    while True:
        page = await search(make_search(query, limit=size, offset=len(hits), **filters))
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


# How many of 400 texts have each word.
_OCCURRENCES = {"quince": 8, "honey": 45, "lemon": 60, "milk": 200, "tea": 280}


def _texts() -> list[str]:
    choice = random.Random(1)
    texts: list[list[str]] = [["cup"] * choice.randint(1, 20) for _ in range(400)]
    for word, count in _OCCURRENCES.items():
        for text in choice.sample(texts, count):
            text[:0] = [word] * choice.randint(1, 5)
    return [" ".join(text) for text in texts]


async def _create(library: Library, source: str) -> None:
    if source == "notes":
        await library.notes.create_many([NoteDraft(title=f"Number {n}", content=t) for n, t in enumerate(_texts())])
    elif source == "media":
        await library.media.create_many([MediaDraft(title=f"Number {n}", content=t) for n, t in enumerate(_texts())])
    else:
        for text in _texts():  # in a chat of its own, because a message is also found by those before it
            await library.chats.create(ConversationDraft(title="Kitchen"), [MessageDraft(content=text)])


# Queries, and which of their words are rare enough to come first.
_RARE = {
    "honey tea milk": {"honey"},
    "tea lemon milk honey": {"lemon", "honey"},
    "quince honey tea": {"quince", "honey"},
    "quince tea": set(),  # too few texts have the rarer word
    "milk tea": {"milk"},
    "tea nosuchword honey": {"honey"},
}


@pytest.mark.parametrize("source", ["notes", "media", "chats"])
async def test_what_has_only_the_common_words_comes_last(tmp_path: Path, source: str) -> None:
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as library:
        await _create(library, source)
        search = getattr(library, source).search
        for query, rare in _RARE.items():
            hits = await all_hits(search, query, 200)
            words = set(query.split())
            assert sorted(hit.text for hit in hits) == sorted(text for text in _texts() if words & set(text.split()))
            has_rare = [bool(rare & set(hit.text.split())) for hit in hits]
            assert has_rare == sorted(has_rare, reverse=True), query
            page_by_page = [(hit.id, hit.score) for hit in await all_hits(search, query, 17)]
            assert page_by_page == [(hit.id, hit.score) for hit in hits]
            first = await search(make_search(query, limit=5, counts_hits=True))
            assert first.total == len(hits)


async def test_common_words_count_in_the_order_of_the_others(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as library:
        await _create(library, "notes")
        page = await library.notes.search(make_search("honey tea milk", limit=3))
        assert all({"honey", "tea", "milk"} <= set(hit.text.split()) for hit in page.hits)


async def test_filters_apply_to_both_parts(tmp_path: Path) -> None:
    texts = _texts()
    tagged = [text for number, text in enumerate(texts) if number % 3]
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as library:
        await library.notes.create_many(
            [NoteDraft(title=f"{n}", content=text, tags=("x",) if n % 3 else ()) for n, text in enumerate(texts)]
        )
        hits = await all_hits(library.notes.search, "honey milk", 30, tags=("x",))
    assert sorted(hit.text for hit in hits) == sorted(text for text in tagged if {"honey", "milk"} & set(text.split()))
