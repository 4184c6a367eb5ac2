"""Pages of the merged ranking: together they are all hits, each once, on whatever page they are asked for."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from config.errors import StorageError
from sources.items import ResultItem
from tests.aggregator.shelves import FailingShelf, LibraryFixture, Shelf, hit, open_libraries, uris

NAMES = ("notes", "media", "chats")


@st.composite
def libraries(draw: st.DrawFn) -> list[Shelf]:
    """Some sources, in which scores need not fall with the rank and texts may be the same."""
    shelves: list[Shelf] = []
    for name in NAMES[: draw(st.integers(1, 3))]:
        hits: list[ResultItem] = []
        for number in range(draw(st.integers(0, 25))):
            score = draw(st.sampled_from([0.1, 0.2, 0.3, 0.4, 0.5]))
            day = draw(st.integers(1, 28))
            text = draw(st.sampled_from([None, None, None, "the same passage"]))
            item = "long" if name == "chats" and draw(st.booleans()) else None
            hits.append(hit(name, number, score, modified=f"2026-01-{day:02}", text=text, item=item))
        shelves.append(Shelf(name, hits, knows_total=draw(st.booleans())))
    return shelves


async def all_pages(libraries: LibraryFixture, **arguments: Any) -> list[str]:
    """URIs in the order in which they were told."""
    told: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = await libraries.make_search(offset=offset, dedupe="off", **arguments)
        assert page.results, "a page that was announced is not empty"
        assert page.has_more == (page.next_offset is not None)
        told += [uri for item in page.results for uri in (item.uri, *(item.also_in or ()))]
        offset = page.next_offset
    return told


@pytest.mark.parametrize("order_by", ["relevance", "recent"])
@given(shelves=libraries(), limit=st.integers(1, 9), depth=st.integers(1, 12))
async def test_the_union_of_all_pages_is_the_set_of_hits_each_once(
    shelves: list[Shelf], limit: int, depth: int, order_by: str
) -> None:
    libraries = open_libraries(*shelves, fanout_depth=depth)
    expected = sorted(item.uri for shelf in shelves for item in shelf.hits)

    if expected:
        assert sorted(await all_pages(libraries, limit=limit, order_by=order_by)) == expected
    else:
        assert (await libraries.make_search()).results == ()


@pytest.mark.parametrize("order_by", ["relevance", "recent"])
@given(shelves=libraries(), limit=st.integers(1, 9), offset=st.integers(0, 80), depth=st.integers(1, 12))
async def test_a_position_is_the_same_hit_on_whatever_page(
    shelves: list[Shelf], limit: int, offset: int, depth: int, order_by: str
) -> None:
    libraries = open_libraries(*shelves, fanout_depth=depth)
    at: dict[str, int] = {}
    for page_size in (100, limit):
        page = await libraries.make_search(
            offset=0 if page_size == 100 else offset, limit=page_size, order_by=order_by, dedupe="off", explain=True
        )
        for item in page.results:
            assert item.explain
            assert at.setdefault(item.uri, item.explain.position) == item.explain.position


@given(shelves=libraries(), depth=st.integers(1, 12))
async def test_by_date_no_hit_comes_before_a_newer_one(shelves: list[Shelf], depth: int) -> None:
    libraries = open_libraries(*shelves, fanout_depth=depth)

    dates = [item.last_modified or "" for item in (await libraries.make_search(limit=100, order_by="recent")).results]

    assert dates == sorted(dates, reverse=True)


@given(shelves=libraries())
async def test_a_page_within_one_round_is_ordered_by_score(shelves: list[Shelf]) -> None:
    libraries = open_libraries(*shelves, fanout_depth=30, fanout_document_max=100, fanout_source_max=10)

    scores = [item.score for item in (await libraries.make_search(limit=100)).results]

    assert scores == sorted(scores, reverse=True)


async def test_a_deep_page_is_reached_without_reading_those_before_it() -> None:
    shelves = [Shelf(name, [hit(name, number) for number in range(1_000)]) for name in NAMES]
    libraries = open_libraries(*shelves, fanout_depth=10)

    page = await libraries.make_search(offset=2_500, limit=5)

    assert len(page.results) == 5
    assert page.next_offset == 2_505
    assert [len(shelf.asked) for shelf in shelves] == [2, 2, 2]


async def test_behind_the_last_hit_there_is_an_empty_page_that_says_so() -> None:
    libraries = open_libraries(Shelf("notes", [hit("notes", 1)]))

    page = await libraries.make_search(offset=1_000_000)

    assert (page.results, page.has_more, page.next_offset, page.total_estimated) == ((), False, None, 1)


async def test_the_total_is_told_only_if_every_source_knows_it() -> None:
    notes, media = Shelf("notes", [hit("notes", 1)]), Shelf("media", [hit("media", 1), hit("media", 2)])

    assert (await open_libraries(notes, media).make_search()).total_estimated == 3
    media.knows_total = False
    assert (await open_libraries(notes, media).make_search()).total_estimated is None


async def test_a_source_whose_next_page_does_not_move_on_does_not_hold_the_search_up() -> None:
    class Circling(Shelf):
        async def search(self, context: Any, library: Any, asked: Any) -> Any:
            return replace(await super().search(context, library, asked), has_more=True, next_offset=0)

    page = await open_libraries(Circling("notes", [hit("notes", 1)])).make_search()

    assert uris(page) == ["notes://1"]
    assert not page.has_more


@given(
    count=st.integers(1, 30),
    error=st.text(max_size=400),
    query=st.text(max_size=400),
    room=st.integers(4_000, 9_000),
    text=st.text(min_size=1, max_size=300),
)
async def test_a_default_answer_is_never_larger_than_its_setting(
    count: int, error: str, query: str, room: int, text: str
) -> None:
    """Whatever else it has to tell: how the query was read, which sources failed and why."""
    hits = [hit("notes", number, text=f"{number} {text}") for number in range(count)]
    libraries = open_libraries(
        Shelf("notes", hits), FailingShelf("media", StorageError(error)), search_response_default_bytes=room
    )

    answer = await libraries.make_search(query)

    assert len(msgspec.json.encode(answer)) <= room
    assert answer.cut == (0 < len(answer.results) < min(20, count))
