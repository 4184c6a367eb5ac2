"""Pages of the merged ranking: together they contain every item exactly once."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aggregator.contract import KnowledgeResponse, without_repetition
from config.errors import InvalidParams, StorageError
from sources.items import Loc, ResultItem
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


def item_of(uri: str) -> str:
    """The URI of an item, given that of a part of it."""
    source, _, path = uri.partition("://")
    return f"{source}://{path.partition('/')[0]}"


def items_of(page: KnowledgeResponse) -> list[str]:
    """The items of a page, including copies listed with a result."""
    return [item_of(uri) for item in page.results for uri in (item.uri, *(item.also_in or ()))]


def assert_every_item_once(pages: list[KnowledgeResponse], sources: list[FakeSource]) -> None:
    """Every item is a result, or is listed as a copy of another one, once."""
    listed = [uri for page in pages for uri in items_of(page)]
    assert sorted(listed) == sorted({item_of(item.uri) for source in sources for item in source.items})


async def all_pages(fixture: AggregatorFixture, **arguments: Any) -> list[KnowledgeResponse]:
    pages: list[KnowledgeResponse] = []
    offset: int | None = 0
    while offset is not None:
        page = await fixture.search(offset=offset, dedupe="off", **arguments)
        assert page.results, "an announced page is empty"
        assert page.has_more == (page.next_offset is not None)
        pages.append(page)
        offset = page.next_offset
    return pages


@pytest.mark.parametrize("order_by", ["relevance", "recent"])
@given(sources=source_lists(), limit=st.integers(1, 9), depth=st.integers(1, 12))
async def test_all_pages_together_contain_every_item_once(
    sources: list[FakeSource], limit: int, depth: int, order_by: str
) -> None:
    fixture = build_aggregator(*sources, fanout_depth=depth)

    if any(source.items for source in sources):
        assert_every_item_once(await all_pages(fixture, limit=limit, order_by=order_by), sources)
    else:
        assert (await fixture.search()).results == ()


async def test_no_page_is_announced_if_only_parts_of_earlier_items_are_left() -> None:
    parts = [result_item("chats", number, 0.5, modified="2026-01-01", item="long") for number in range(12)]
    fixture = build_aggregator(FakeSource("chats", parts), fanout_depth=2)
    assert len(await all_pages(fixture, limit=1, order_by="recent")) == 1


@pytest.mark.parametrize("order_by", ["relevance", "recent"])
@given(sources=source_lists(), limit=st.integers(1, 9), depth=st.integers(1, 12))
async def test_client_that_adds_the_limit_to_its_offset_gets_every_item_once(
    sources: list[FakeSource], limit: int, depth: int, order_by: str
) -> None:
    fixture = build_aggregator(*sources, fanout_depth=depth)
    pages: list[KnowledgeResponse] = []

    while not pages or pages[-1].has_more:
        pages.append(await fixture.search(offset=len(pages) * limit, limit=limit, dedupe="off", order_by=order_by))

    assert not any(page.cut for page in pages)
    assert_every_item_once(pages, sources)


@given(sources=source_lists(), limit=st.integers(1, 9), depth=st.integers(1, 12), known=st.integers(0, 9))
async def test_paging_in_a_session_that_has_seen_results_returns_the_others(
    sources: list[FakeSource], limit: int, depth: int, known: int
) -> None:
    fixture = build_aggregator(*sources, fanout_depth=depth)
    first = await fixture.search(limit=known or 1)
    items = items_of(first)
    offset: int | None = 0 if first.has_more else None

    while offset is not None:
        page = await fixture.search(offset=offset, limit=limit, session=first.session)
        items += items_of(page) if not page.exhausted else []
        offset = page.next_offset

    assert set(items) == {item_of(item.uri) for source in sources for item in source.items}


@given(sources=source_lists(), limit=st.integers(1, 30), depth=st.integers(1, 12), per_source=st.integers(1, 10))
async def test_every_page_is_ordered_by_score(
    sources: list[FakeSource], limit: int, depth: int, per_source: int
) -> None:
    fixture = build_aggregator(*sources, fanout_depth=depth, fanout_source_max=per_source)
    offset: int | None = 0

    while offset is not None:
        page = await fixture.search(offset=offset, limit=limit, dedupe="off")
        scores = [item.score for item in page.results]
        assert scores == sorted(scores, reverse=True)
        offset = page.next_offset


async def test_conversation_is_one_result_with_its_best_passages_in_order() -> None:
    scores = {4: 0.9, 9: 0.8, 2: 0.7, 6: 0.6, 1: 0.1}
    chats = FakeSource("chats", [message(number, score) for number, score in scores.items()])
    notes = FakeSource("notes", [result_item("notes", number, 0.1) for number in range(5)])

    page = await build_aggregator(chats, notes).search()

    conversation = page.results[0]
    assert (conversation.uri, conversation.snippet, conversation.more_in_item) == ("chats://long/4", "Message 4", 2)
    assert [(passage.snippet, passage.loc) for passage in conversation.passages or ()] == [
        ("Message 2", Loc(message_index=2)),
        ("Message 9", Loc(message_index=9)),
    ]
    assert [item.source for item in page.results[1:]] == ["notes"] * 5
    assert page.total_estimated == 6


async def test_session_gets_the_passages_of_a_conversation_that_it_has_not_seen() -> None:
    chats = FakeSource("chats", [message(number, 0.9) for number in range(5)])
    fixture = build_aggregator(chats)

    first = await fixture.search()
    second = await fixture.search(session=first.session)
    third = await fixture.search(session=first.session)

    def shown(page: KnowledgeResponse) -> set[str | None]:
        (result,) = page.results
        return {result.snippet, *(passage.snippet for passage in result.passages or ())}

    assert shown(first) | shown(second) == {f"Message {number}" for number in range(5)}
    assert shown(first).isdisjoint(shown(second))
    assert third.exhausted


def message(number: int, score: float) -> ResultItem:
    item = result_item("chats", number, score, item="long", text=f"Message {number}")
    return replace(item, loc=Loc(conversation_id="long", message_id=str(number), message_index=number))


@given(
    count=st.integers(1, 30),
    text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300),
    max_bytes=st.integers(3_000, 9_000),
)
async def test_default_page_has_eight_results_with_all_their_text_or_says_that_fewer_fitted(
    count: int, text: str, max_bytes: int
) -> None:
    notes = FakeSource("notes", [result_item("notes", number, text=f"{number} {text}") for number in range(count)])

    response = await build_aggregator(notes, search_response_default_bytes=max_bytes).search()

    expected = min(8, count)
    assert 0 < len(response.results) <= expected
    assert [item.snippet for item in response.results] == [f"{item.id} {text}" for item in response.results]
    assert len(msgspec.json.encode(without_repetition(response))) <= max_bytes or len(response.results) == 1
    assert response.cut == (len(response.results) < expected)
    assert response.next_offset == (len(response.results) if len(response.results) < count else None)


async def test_requested_page_has_all_its_text_or_says_that_fewer_results_fitted() -> None:
    notes = FakeSource("notes", [result_item("notes", number, text=f"{LONG}{number}") for number in range(100)])

    response = await build_aggregator(notes, search_response_max_bytes=8_000).search(limit=100, snippet_length=1_000)

    assert all((item.snippet or "").startswith(LONG) for item in response.results)
    assert response.cut
    assert response.next_offset == len(response.results) < 100


async def test_result_larger_than_a_response_is_a_page_of_its_own() -> None:
    notes = [replace(result_item("notes", number), title="tea " * 5_000) for number in range(3)]

    pages = await all_pages(build_aggregator(FakeSource("notes", notes), search_response_default_bytes=4_000))

    assert [len(page.results) for page in pages] == [1, 1, 1]


async def test_result_without_a_passage_shows_its_title() -> None:
    untold = replace(result_item("notes", 1), snippet=None)

    (result,) = (await build_aggregator(FakeSource("notes", [untold])).search()).results

    assert result.snippet == "notes 1"


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


async def test_by_date_a_source_with_more_hits_is_read_before_older_hits_of_others() -> None:
    notes = FakeSource("notes", [result_item("notes", day, modified=f"2026-01-{day}") for day in range(28, 20, -1)])
    media = FakeSource("media", [result_item("media", day, modified=f"2026-01-{day}") for day in (20, 19)])

    pages = await all_pages(build_aggregator(notes, media, fanout_depth=2), limit=2, order_by="recent")

    assert [item.id for page in pages for item in page.results] == list(range(28, 18, -1))


@given(sources=source_lists())
async def test_page_within_one_round_is_ordered_by_score(sources: list[FakeSource]) -> None:
    fixture = build_aggregator(*sources, fanout_depth=30, fanout_source_max=10)

    scores = [item.score for item in (await fixture.search(limit=100)).results]

    assert scores == sorted(scores, reverse=True)


async def test_later_rounds_are_larger_so_that_a_deep_page_needs_few_of_them() -> None:
    sources = [FakeSource(name, [result_item(name, number) for number in range(1_000)]) for name in NAMES]
    fixture = build_aggregator(*sources, fanout_depth=10)

    page = await fixture.search(offset=900, limit=5)

    assert (len(page.results), page.next_offset) == (5, 905)
    assert [len(source.requests) for source in sources] == [7, 7, 7]


async def test_offset_beyond_the_results_that_can_be_paged_is_an_error() -> None:
    notes = FakeSource("notes", [result_item("notes", number) for number in range(300)])
    limited = build_aggregator(notes, fanout_scan_max=100)

    assert (await limited.search(offset=100, limit=5)).next_offset == 105
    with pytest.raises(InvalidParams, match="offset: expected at most 100, got 101; narrow the query"):
        await limited.search(offset=101)


async def test_page_after_the_last_hit_is_empty() -> None:
    fixture = build_aggregator(FakeSource("notes", [result_item("notes", 1)]))

    page = await fixture.search(offset=1_000_000)

    assert (page.results, page.has_more, page.next_offset, page.total_estimated) == ((), False, None, 1)


async def test_total_is_exact_or_null() -> None:
    copy = "A text that was saved twice."
    notes = FakeSource(
        "notes", [result_item("notes", number, text=copy if number < 2 else None) for number in range(19)]
    )
    many = FakeSource("media", [result_item("media", number) for number in range(50)])

    assert (await build_aggregator(notes).search()).total_estimated == 18
    assert (await build_aggregator(notes, many).search()).total_estimated is None
    assert (await build_aggregator(notes, many).search(offset=60)).total_estimated == 68
    failing = FailingSource("media", StorageError("unreadable"))
    assert (await build_aggregator(notes, failing).search()).total_estimated is None


async def test_source_whose_next_offset_does_not_advance_is_read_once() -> None:
    class LoopingSource(FakeSource):
        async def search(self, context: Any, library: Any, args: Any) -> Any:
            return replace(await super().search(context, library, args), has_more=True, next_offset=0)

    page = await build_aggregator(LoopingSource("notes", [result_item("notes", 1)])).search()

    assert uris(page) == ["notes://1"]
    assert not page.has_more


@given(error=st.text(max_size=400), query=st.text(max_size=400), max_bytes=st.integers(4_000, 9_000))
async def test_default_response_with_notes_never_exceeds_its_size_limit(error: str, query: str, max_bytes: int) -> None:
    """However long `read_as` and the error messages of the sources are."""
    notes = FakeSource("notes", [result_item("notes", number, text=f"{number} {LONG}") for number in range(20)])
    media = FailingSource("media", StorageError(error))

    response = await build_aggregator(notes, media, search_response_default_bytes=max_bytes).search(query)

    assert len(msgspec.json.encode(without_repetition(response))) <= max_bytes
