"""Which sources are searched with which filters, and the errors for wrong ones."""

import asyncio
import gc
from typing import Any

import pytest

from config.errors import InvalidParams
from tests.aggregator.aggregator_fixture import FailingSource, FakeSource, build_aggregator, result_item, uris
from tests.cases import each_case


def notes_and_media() -> tuple[FakeSource, FakeSource]:
    return FakeSource("notes", [result_item("notes", 1)]), FakeSource("media", [result_item("media", 1)])


async def test_all_sources_are_searched_unless_some_are_named() -> None:
    fixture = build_aggregator(*notes_and_media())

    assert uris(await fixture.search()) == uris(await fixture.search(sources=())) == ["media://1", "notes://1"]
    assert uris(await fixture.search(sources=("media",))) == ["media://1"]


async def test_query_can_select_the_source() -> None:
    response = await build_aggregator(*notes_and_media()).search("galleon source:notes")

    assert uris(response) == ["notes://1"]
    assert list(response.sources) == ["notes"]


async def test_contradicting_query_and_arguments_match_nothing_and_say_why() -> None:
    response = await build_aggregator(*notes_and_media()).search("galleon source:notes", sources=("media",))

    assert uris(response) == []
    assert response.read_as == "searched for nothing; source:notes cannot match: this searches media"


@each_case(
    ("arguments", "message"),
    [
        ({"sources": ("note",)}, "sources: expected any of notes, media, got 'note'; did you mean 'notes'?"),
        ({"sources": ("web",)}, "sources: expected any of notes, media, got 'web'"),
        ({"filters": {"web": {}}}, "filters: expected any of notes, media, got 'web'"),
        (
            {"filters": {"media": {"colour": ["red"]}}},
            "filters.media: expected any of colours, pages, got 'colour'; did you mean 'colours'?",
        ),
        ({"filters": {"media": {"limit": 5}}}, "filters.media: expected any of colours, pages, got 'limit'"),
        ({"filters": {"media": {"pages": "many"}}}, "filters.media.pages: expected `int | null`, got `str`"),
        (
            {"filters": {"media": {"pages": 1}}, "sources": ("notes",)},
            "filters.media: expected only filters of searched sources; 'media' is not one",
        ),
    ],
)
async def test_wrong_filter_is_rejected_with_the_valid_ones(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParams) as raised:
        await build_aggregator(*notes_and_media()).search(**arguments)

    assert raised.value.message == message


async def test_filter_rejected_by_its_source_is_the_callers_error() -> None:
    media = FailingSource("media", InvalidParams("pages: expected 1 or more, got -1"))

    with pytest.raises(InvalidParams, match=r"^filters\.media\.pages: expected 1 or more, got -1$"):
        await build_aggregator(media).search(filters={"media": {"pages": -1}})


async def test_filters_rejected_by_several_sources_leave_no_exception_behind(caplog: pytest.LogCaptureFixture) -> None:
    rejected = InvalidParams("pages: expected 1 or more, got -1")
    fixture = build_aggregator(FailingSource("notes", rejected), FailingSource("media", rejected))

    with pytest.raises(InvalidParams, match=r"^filters\.notes\.pages"):
        await fixture.search(filters={"notes": {"pages": -1}, "media": {"pages": -1}})
    await asyncio.sleep(0)
    del fixture
    gc.collect()

    assert "never retrieved" not in caplog.text


async def test_null_filter_is_ignored() -> None:
    _, media = notes_and_media()

    await build_aggregator(media).search(filters={"media": {"pages": None}})

    assert media.requests[0].pages is None
