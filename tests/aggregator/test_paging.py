"""Pages of the merged ranking: together they contain every hit exactly once."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aggregator.responses import KnowledgeResponse, without_repetition
from config.errors import StorageError
from sources.items import ResultItem
from tests.aggregator.aggregator_fixture import (
    AggregatorFixture,
    FailingSource,
    FakeSource,
    build_aggregator,
    result_item,
    uris,
)

NAMES = ("notes", "media", "chats")


LONG = "A long passage about tea, of which as much is shown as fits on the page. " * 4


@st.composite
def source_lists(draw: st.DrawFn) -> list[FakeSource]:
    """Sources whose scores need not decrease with the rank, and whose texts may be the same."""
    sources: list[FakeSource] = []
    for name in NAMES[: draw(st.integers(1, 3))]:
        items: list[ResultItem] = []
        for number in range(draw(st.integers(0, 25))):
            score = draw(st.sampled_from([0.1, 0.2, 0.3, 0.4, 0.5]))
            day = draw(st.integers(1, 28))
            text = draw(st.sampled_from([None, None, f"{name} {number}: {LONG}", "the same passage"]))
            item = "long" if name == "chats" and draw(st.booleans()) else None
            items.append(result_item(name, number, score, modified=f"2026-01-{day:02}", text=text, item=item))
        sources.append(FakeSource(name, items, knows_total=draw(st.booleans())))
    return sources


async def all_pages(fixture: AggregatorFixture, **arguments: Any) -> list[str]:
    """The URIs of all pages, including duplicates listed with a hit, in order."""
    delivered: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = await fixture.search(offset=offset, dedupe="off", **arguments)
        assert page.results, "an announced page is empty"
        assert page.has_more == (page.next_offset is not None)
        delivered += [uri for item in page.results for uri in (item.uri, *(item.also_in or ()))]
        offset = page.next_offset
    return delivered


@pytest.mark.parametrize("order_by", ["relevance", "recent"])
@given(sources=source_lists(), limit=st.integers(1, 9), depth=st.integers(1, 12))
async def test_all_pages_together_contain_every_hit_once(
    sources: list[FakeSource], limit: int, depth: int, order_by: str
) -> None:
    fixture = build_aggregator(*sources, fanout_depth=depth)
    expected = sorted(item.uri for source in sources for item in source.items)

    if expected:
        assert sorted(await all_pages(fixture, limit=limit, order_by=order_by)) == expected
    else:
        assert (await fixture.search()).results == ()


def delivered_uris(page: KnowledgeResponse) -> list[str]:
    return [uri for item in page.results for uri in (item.uri, *(item.also_in or ()))]


@pytest.mark.parametrize("order_by", ["relevance", "recent"])
@given(
    sources=source_lists(),
    limit=st.integers(1, 9),
    depth=st.integers(1, 12),
    max_bytes=st.sampled_from([4_000, 6_000, 64_000]),
)
async def test_client_that_adds_the_limit_to_its_offset_gets_every_hit_once(
    sources: list[FakeSource], limit: int, depth: int, max_bytes: int, order_by: str
) -> None:
    fixture = build_aggregator(*sources, fanout_depth=depth, search_response_max_bytes=max_bytes)
    delivered: list[str] = []
    offset, has_more = 0, True

    while has_more:
        page = await fixture.search(offset=offset, limit=limit, dedupe="off", order_by=order_by)
        assert not page.cut
        delivered += delivered_uris(page)
        offset, has_more = offset + limit, page.has_more

    assert sorted(delivered) == sorted(item.uri for source in sources for item in source.items)


@given(sources=source_lists(), limit=st.integers(1, 9), depth=st.integers(1, 12), known=st.integers(0, 9))
async def test_paging_in_a_session_that_has_seen_hits_returns_the_others_once(
    sources: list[FakeSource], limit: int, depth: int, known: int
) -> None:
    fixture = build_aggregator(*sources, fanout_depth=depth)
    first = await fixture.search(limit=known or 1)
    delivered = delivered_uris(first)
    offset, has_more = 0, first.has_more

    while has_more:
        page = await fixture.search(offset=offset, limit=limit, session=first.session)
        delivered += delivered_uris(page) if not page.exhausted else []
        offset, has_more = offset + limit, page.has_more

    assert sorted(delivered) == sorted(item.uri for source in sources for item in source.items)


@given(sources=source_lists(), limit=st.integers(1, 30), depth=st.integers(1, 12), per_source=st.integers(1, 10))
async def test_every_page_is_ordered_by_score(
    sources: list[FakeSource], limit: int, depth: int, per_source: int
) -> None:
    fixture = build_aggregator(*sources, fanout_depth=depth, fanout_source_max=per_source, fanout_document_max=1)
    offset: int | None = 0

    while offset is not None:
        page = await fixture.search(offset=offset, limit=limit, dedupe="off")
        scores = [item.score for item in page.results]
        assert scores == sorted(scores, reverse=True)
        offset = page.next_offset


async def test_diversity_decides_which_hits_make_a_page() -> None:
    chats = FakeSource("chats", [result_item("chats", number, 0.9, item="long") for number in range(20)])
    notes = FakeSource("notes", [result_item("notes", number, 0.1) for number in range(20)])

    page = await build_aggregator(chats, notes).search(limit=10)

    assert [item.source for item in page.results] == ["chats"] * 4 + ["notes"] * 6


@given(
    count=st.integers(20, 40),
    text=st.text(min_size=1, max_size=1_000),
    max_bytes=st.integers(6_000, 9_000),
)
async def test_default_page_has_twenty_hits_within_its_size(count: int, text: str, max_bytes: int) -> None:
    notes = FakeSource("notes", [result_item("notes", number, text=f"{number} {text}") for number in range(count)])

    response = await build_aggregator(notes, search_response_default_bytes=max_bytes).search()

    assert len(response.results) == 20
    assert len(msgspec.json.encode(without_repetition(response))) <= max_bytes
    assert (response.cut, response.next_offset) == (False, 20 if count > 20 else None)


async def test_shorter_snippet_shows_the_matches() -> None:
    class HighlightingSource(FakeSource):
        def render_hit(self, hit: Any, query: Any, topic: Any) -> ResultItem:
            item = super().render_hit(hit, query, topic)
            start = (item.snippet or "").index("samovar")
            return replace(item, highlights=((start, start + 7),))

    items = [result_item("notes", number, text=f"{number} {LONG} samovar {LONG}") for number in range(20)]

    page = await build_aggregator(HighlightingSource("notes", items), search_response_default_bytes=7_000).search()

    assert len(page.results) == 20
    assert all("samovar" in (item.snippet or "") for item in page.results)
    assert {len(item.snippet or "") for item in page.results} <= set(range(100, 300))


@pytest.mark.parametrize("order_by", ["relevance", "recent"])
@given(sources=source_lists(), limit=st.integers(1, 9), offset=st.integers(0, 80), depth=st.integers(1, 12))
async def test_position_denotes_the_same_hit_on_every_page(
    sources: list[FakeSource], limit: int, offset: int, depth: int, order_by: str
) -> None:
    fixture = build_aggregator(*sources, fanout_depth=depth)
    positions: dict[str, int] = {}
    for page_size in (100, limit):
        page = await fixture.search(
            offset=0 if page_size == 100 else offset, limit=page_size, order_by=order_by, dedupe="off", explain=True
        )
        for item in page.results:
            assert item.explain
            assert positions.setdefault(item.uri, item.explain.position) == item.explain.position


@given(sources=source_lists(), depth=st.integers(1, 12))
async def test_by_date_newer_hits_come_first(sources: list[FakeSource], depth: int) -> None:
    fixture = build_aggregator(*sources, fanout_depth=depth)

    dates = [item.last_modified or "" for item in (await fixture.search(limit=100, order_by="recent")).results]

    assert dates == sorted(dates, reverse=True)


@given(sources=source_lists())
async def test_page_within_one_round_is_ordered_by_score(sources: list[FakeSource]) -> None:
    fixture = build_aggregator(*sources, fanout_depth=30, fanout_document_max=100, fanout_source_max=10)

    scores = [item.score for item in (await fixture.search(limit=100)).results]

    assert scores == sorted(scores, reverse=True)


async def test_deep_page_is_read_without_the_pages_before_it() -> None:
    sources = [FakeSource(name, [result_item(name, number) for number in range(1_000)]) for name in NAMES]
    fixture = build_aggregator(*sources, fanout_depth=10)

    page = await fixture.search(offset=2_500, limit=5)

    assert len(page.results) == 5
    assert page.next_offset == 2_505
    assert [len(source.requests) for source in sources] == [2, 2, 2]


async def test_page_after_the_last_hit_is_empty() -> None:
    fixture = build_aggregator(FakeSource("notes", [result_item("notes", 1)]))

    page = await fixture.search(offset=1_000_000)

    assert (page.results, page.has_more, page.next_offset, page.total_estimated) == ((), False, None, 1)


async def test_total_is_null_unless_every_source_knows_its_own() -> None:
    notes = FakeSource("notes", [result_item("notes", 1)])
    media = FakeSource("media", [result_item("media", 1), result_item("media", 2)])

    assert (await build_aggregator(notes, media).search()).total_estimated == 3
    media.knows_total = False
    assert (await build_aggregator(notes, media).search()).total_estimated is None


async def test_source_whose_next_offset_does_not_advance_is_read_once() -> None:
    class LoopingSource(FakeSource):
        async def search(self, context: Any, library: Any, args: Any) -> Any:
            return replace(await super().search(context, library, args), has_more=True, next_offset=0)

    page = await build_aggregator(LoopingSource("notes", [result_item("notes", 1)])).search()

    assert uris(page) == ["notes://1"]
    assert not page.has_more


@given(
    count=st.integers(1, 30),
    error=st.text(max_size=400),
    query=st.text(max_size=400),
    max_bytes=st.integers(4_000, 9_000),
    text=st.text(min_size=1, max_size=300),
)
async def test_default_response_never_exceeds_its_size_limit(
    count: int, error: str, query: str, max_bytes: int, text: str
) -> None:
    """However long `read_as` and the error messages of the sources are."""
    notes = FakeSource("notes", [result_item("notes", number, text=f"{number} {text}") for number in range(count)])
    media = FailingSource("media", StorageError(error))

    response = await build_aggregator(notes, media, search_response_default_bytes=max_bytes).search(query)

    assert len(msgspec.json.encode(without_repetition(response))) <= max_bytes
    assert response.cut == (0 < len(response.results) < min(20, count))
