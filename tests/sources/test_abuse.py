"""The abuse table on every source: nothing raises, nothing is cut off by its deadline, nothing unrelated is found."""

import re
import unicodedata

import pytest

from tests.sources.abuse import LIBRARY, SCRIPTS, abuse
from tests.sources.source_fixture import SOURCES, LibraryUser

every_source = pytest.mark.parametrize("source", SOURCES)


def test_the_table_is_large_and_holds_sixteen_scripts() -> None:
    assert len(abuse()) >= 300
    assert len(SCRIPTS) >= 16


def shares_a_word(query: str, text: str) -> bool:
    """Whether any three letters in a row of the query, or any two of a script without spaces, stand in the text."""
    query, text = (unicodedata.normalize("NFKC", part).casefold() for part in (query[:5000], text))
    words = re.findall(r"\w[\w\u0300-\u036f\u0900-\u0dff\u0e00-\u0eff\u1780-\u17ff]*", query)
    size = 3 if query.isascii() else 2
    return any(word[at : at + size] in text for word in words for at in range(max(1, len(word) - size + 1)))


@every_source
async def test_no_abuse_fails_or_finds_what_is_unrelated(ada: LibraryUser, ben: LibraryUser, source: str) -> None:
    for text in LIBRARY:
        await ada.add_item(source, "Item", text)
        await ben.add_item(source, "Item", f"{text} vvv www xxx yyy")

    for query in abuse():
        answer = await ada.call(f"{source}_search", query=query, limit=100)
        # A message is also found by its sender and its day.
        texts = [f"{hit['title']} {hit['snippet']} {hit['sender']} {hit['created_at']}" for hit in answer["results"]]
        unrelated = [text for text in texts if not shares_a_word(query, text)]
        assert unrelated == [], f"{query[:80]!r} found {unrelated}"


@every_source
async def test_no_abuse_breaks_a_get(ada: LibraryUser, source: str) -> None:
    identity = await ada.add_item(source, "Item", "A quiet harbour. " * 200)

    for query in abuse():
        answer = await ada.read(source, identity, query=query, retrieval={"mode": "chunk", "max_tokens": 400})
        assert len(answer["content"]) <= 1600


@every_source
@pytest.mark.parametrize("script", SCRIPTS)
async def test_every_script_is_found_by_its_own_word(ada: LibraryUser, source: str, script: str) -> None:
    text, word = SCRIPTS[script]
    identity = await ada.add_item(source, "Item", text)

    assert [hit["id"] for hit in await ada.search(f"{source}_search", word)] == [identity]
