"""Which sources are asked what. A model that errs is told what would be right."""

from typing import Any

import pytest

from config.errors import InvalidParams
from tests.aggregator.shelves import FailingShelf, Shelf, hit, open_libraries, uris


def shelves() -> tuple[Shelf, Shelf]:
    return Shelf("notes", [hit("notes", 1)]), Shelf("media", [hit("media", 1)])


async def test_all_sources_are_asked_unless_some_are_named() -> None:
    notes, media = shelves()
    libraries = open_libraries(notes, media)

    assert (
        uris(await libraries.make_search())
        == uris(await libraries.make_search(sources=()))
        == ["media://1", "notes://1"]
    )
    assert uris(await libraries.make_search(sources=("media",))) == ["media://1"]


async def test_the_query_can_name_the_source() -> None:
    answer = await open_libraries(*shelves()).make_search("galleon source:notes")

    assert uris(answer) == ["notes://1"]
    assert list(answer.sources) == ["notes"]


async def test_a_query_and_arguments_that_exclude_one_another_find_nothing_and_say_why() -> None:
    answer = await open_libraries(*shelves()).make_search("galleon source:notes", sources=("media",))

    assert uris(answer) == []
    assert answer.read_as == "nothing: the query asks for source:notes, and searched are media"


async def test_a_filter_reaches_its_source_and_no_other() -> None:
    notes, media = shelves()

    await open_libraries(notes, media).make_search(filters={"media": {"colours": ["red"], "pages": "12"}})

    assert (media.asked[0].colours, media.asked[0].pages) == (("red",), 12)
    assert (notes.asked[0].colours, notes.asked[0].pages) == ((), None)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"sources": ("note",)}, "sources: got 'note', did you mean 'notes'? expected some of notes, media"),
        ({"sources": ("web",)}, "sources: got 'web', expected some of notes, media"),
        ({"filters": {"web": {}}}, "filters: got 'web', expected some of notes, media"),
        (
            {"filters": {"media": {"colour": ["red"]}}},
            "filters.media: got 'colour', did you mean 'colours'? expected some of colours, pages",
        ),
        ({"filters": {"media": {"limit": 5}}}, "filters.media: got 'limit', expected some of colours, pages"),
        (
            {"filters": {"media": {"pages": "many"}}},
            "filters.media.pages: expected `int | null`, got `str`",
        ),
        (
            {"filters": {"media": {"pages": 1}}, "sources": ("notes",)},
            "filters.media: got filters for a source that is not searched; expected 'media' in sources",
        ),
    ],
)
async def test_a_wrong_filter_is_refused_with_the_right_ones(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        await open_libraries(*shelves()).make_search(**arguments)

    assert refused.value.message == sentence


async def test_a_filter_that_its_source_refuses_is_the_callers_to_correct() -> None:
    media = FailingShelf("media", InvalidParams("pages: got -1, expected 1 or more"))

    with pytest.raises(InvalidParams, match=r"^filters\.media\.pages: got -1, expected 1 or more$"):
        await open_libraries(media).make_search(filters={"media": {"pages": -1}})


async def test_null_is_no_filter() -> None:
    _, media = shelves()

    await open_libraries(media).make_search(filters={"media": {"pages": None}})

    assert media.asked[0].pages is None
