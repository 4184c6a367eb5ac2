"""Hostile queries in every source: none fails, none times out, none returns unrelated items."""

import itertools
import re
import unicodedata

import pytest

from tests.cases import each_case
from tests.sources.hostile_queries import LIBRARY, SCRIPTS, hostile_queries
from tests.sources.source_fixture import SOURCES, LibraryUser

# Each query goes to one source, and in the second tier to all of them.
each_share = pytest.mark.parametrize(
    "sources_per_query", [1, pytest.param(len(SOURCES), marks=pytest.mark.slow("sends every query to every source"))]
)


def queries_for(source: str, sources_per_query: int) -> list[str]:
    step = len(SOURCES) // sources_per_query
    return hostile_queries()[SOURCES.index(source) % step :: step]


def test_table_is_large_and_covers_sixteen_scripts() -> None:
    assert len(hostile_queries()) >= 300
    assert len(SCRIPTS) >= 16


def shares_a_word(query: str, text: str) -> bool:
    """Whether the text contains three consecutive letters of a word of the query, or two in non-ASCII queries."""
    query, text = (unicodedata.normalize("NFKC", part).casefold() for part in (query[:5000], text))
    words = re.findall(r"\w[\w\u0300-\u036f\u0900-\u0dff\u0e00-\u0eff\u1780-\u17ff]*", query)
    size = 3 if query.isascii() else 2
    return any(word[at : at + size] in text for word in words for at in range(max(1, len(word) - size + 1)))


@pytest.mark.slow("runs a hostile corpus")
@each_share
@each_case("source", SOURCES)
async def test_hostile_queries_neither_fail_nor_return_unrelated_items(
    ada: LibraryUser, ben: LibraryUser, source: str, sources_per_query: int
) -> None:
    for text in LIBRARY:
        await ada.add_item(source, "Item", text)
        await ben.add_item(source, "Item", f"{text} vvv www xxx yyy")

    for query in queries_for(source, sources_per_query):
        response = await ada.call(f"{source}_search", query=query, limit=100)
        # Messages also match by sender and date.
        texts = [
            f"{hit['title']} {hit['snippet']} {hit.get('sender')} {hit['created_at']}" for hit in response["results"]
        ]
        unrelated = [text for text in texts if not shares_a_word(query, text)]
        assert unrelated == [], f"{query[:80]!r} found {unrelated}"


@pytest.mark.slow("runs a hostile corpus")
@each_share
@each_case("source", SOURCES)
async def test_hostile_queries_do_not_break_get(ada: LibraryUser, source: str, sources_per_query: int) -> None:
    item_id = await ada.add_item(source, "Item", "A quiet harbour. " * 200)

    for query in queries_for(source, sources_per_query):
        response = await ada.read(source, item_id, query=query, retrieval={"mode": "chunk", "max_tokens": 400})
        assert len(response["content"]) <= 1600


@each_case(("source", "script"), itertools.product(SOURCES, SCRIPTS))
async def test_words_of_every_script_are_found(ada: LibraryUser, source: str, script: str) -> None:
    text, word = SCRIPTS[script]
    item_id = await ada.add_item(source, "Item", text)

    assert [hit["id"] for hit in await ada.search(f"{source}_search", word)] == [item_id]
