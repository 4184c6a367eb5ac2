"""The merged order: by score, then date, then URI; one result per item; limits per source; duplicates."""

from hypothesis import given
from hypothesis import strategies as st

from aggregator.ranking import (
    ALSO_IN_MAX,
    group_by_item,
    merge_duplicates,
    sort_by_date,
    sort_by_score,
    take_block,
)
from sources.items import ResultItem, SearchResponse
from sources.source import RankedHit, hits_from_response
from tests.aggregator.aggregator_fixture import result_item

DATES = st.sampled_from([None, "2024-05-01T00:00:00.000Z", "2025-05-01T00:00:00.000Z", "2026-05-01T00:00:00.000Z"])
SCORES = st.floats(0, 1)


def ranked(*items: ResultItem) -> list[RankedHit]:
    response = SearchResponse(results=items, has_more=False, next_offset=None, total_estimated=None)
    return list(hits_from_response(response).hits)


@st.composite
def hit_lists(draw: st.DrawFn) -> list[RankedHit]:
    """Hits of two sources, some in the same conversation, some with the same text."""
    items: list[ResultItem] = []
    for number in range(draw(st.integers(0, 30))):
        source = draw(st.sampled_from(["notes", "chats"]))
        text = draw(st.sampled_from([None, "the same passage"]))
        item = draw(st.sampled_from(["a", "b"])) if source == "chats" else None
        items.append(result_item(source, number, draw(SCORES), modified=draw(DATES), text=text, item=item))
    return ranked(*items)


def limit_per_source(results: list[RankedHit], limit: int) -> list[RankedHit]:
    """All blocks of ten, one after the other."""
    limited: list[RankedHit] = []
    while results:
        block, results = take_block(results, limit)
        limited += block
    return limited


def item_of(hit: RankedHit) -> tuple[str, str | int]:
    return hit.source, hit.id


def uris(hits: list[RankedHit]) -> list[str]:
    return [hit.uri for hit in hits]


def test_higher_score_comes_first_in_any_source() -> None:
    hits = sort_by_score(
        ranked(result_item("notes", 1, 0.2), result_item("media", 1, 0.9), result_item("notes", 2, 0.5))
    )

    assert uris(hits) == ["media://1", "notes://2", "notes://1"]


def test_tiny_score_differences_are_ties_and_the_newer_hit_wins() -> None:
    older = result_item("notes", 1, 0.500_04, modified="2024-01-01T00:00:00.000Z")
    newer = result_item("media", 1, 0.500_01, modified="2025-01-01T00:00:00.000Z")

    assert uris(sort_by_score(ranked(older, newer))) == ["media://1", "notes://1"]


def test_ties_in_score_and_date_are_ordered_by_uri() -> None:
    hits = ranked(result_item("notes", 2), result_item("notes", 1), result_item("media", 3))

    assert uris(sort_by_score(hits)) == ["media://3", "notes://1", "notes://2"]


def test_by_date_hits_without_a_date_come_last() -> None:
    undated, dated = result_item("notes", 1, modified=None), result_item("notes", 2)
    newest = result_item("notes", 3, modified="2026-06-01")

    assert uris(sort_by_date(ranked(undated, dated, newest))) == ["notes://3", "notes://2", "notes://1"]


@given(hit_lists())
def test_order_does_not_depend_on_the_order_of_the_input(hits: list[RankedHit]) -> None:
    assert uris(sort_by_score(hits)) == uris(sort_by_score(hits[::-1]))


@given(hit_lists())
def test_every_hit_is_part_of_the_one_result_of_its_item_in_order(hits: list[RankedHit]) -> None:
    results = group_by_item(hits)

    assert [item_of(result) for result in results] == list(dict.fromkeys(map(item_of, hits)))
    for result in results:
        assert uris([result, *result.parts]) == [hit.uri for hit in hits if item_of(hit) == item_of(result)]


def test_conversation_is_one_result_with_its_messages_as_parts() -> None:
    chat = [result_item("chats", number, 0.9 - number / 100, item="long") for number in range(10)]

    first, second = group_by_item(sort_by_score(ranked(*chat, result_item("notes", 1, 0.1))))

    assert (first.uri, second.uri) == ("chats://long/0", "notes://1")
    assert uris(list(first.parts)) == [f"chats://long/{number}" for number in range(1, 10)]


@given(hit_lists(), st.integers(1, 10))
def test_limit_per_source_loses_no_hit_and_keeps_the_order_within_a_source(hits: list[RankedHit], limit: int) -> None:
    limited = limit_per_source(hits, limit)

    assert sorted(uris(limited)) == sorted(uris(hits))
    for source in ("notes", "chats"):
        assert [hit for hit in limited if hit.source == source] == [hit for hit in hits if hit.source == source]


@given(hit_lists(), st.integers(1, 10))
def test_no_source_exceeds_its_share_of_ten_while_another_has_hits_left(hits: list[RankedHit], limit: int) -> None:
    limited = limit_per_source(hits, limit)

    for start in range(0, len(limited), 10):
        block = [hit.source for hit in limited[start : start + 10]]
        later = {hit.source for hit in limited[start + 10 :]}
        for source in set(block):
            below_limit = {other for other in later - {source} if block.count(other) < limit}
            assert block.count(source) <= limit or not below_limit


def test_source_with_all_the_best_hits_leaves_four_of_ten_positions_to_others() -> None:
    chats = [result_item("chats", number, 0.9, item=number) for number in range(12)]
    notes = [result_item("notes", number, 0.1) for number in range(5)]

    hits = limit_per_source(ranked(*chats, *notes), 6)

    assert [hit.source for hit in hits][:10] == ["chats"] * 6 + ["notes"] * 4


def test_hit_with_the_same_content_is_listed_with_the_better_one() -> None:
    same = "A text that was saved twice."
    items = (result_item("notes", 1, text=same), result_item("notes", 2), result_item("media", 3, text=same))

    assert [(hit.uri, tuple(hit.duplicates)) for hit in merge_duplicates(ranked(*items))] == [
        ("notes://1", ("media://3",)),
        ("notes://2", ()),
    ]


@given(hit_lists())
def test_every_hit_remains_or_is_listed_with_another_one(hits: list[RankedHit]) -> None:
    merged = merge_duplicates(hits)

    listed = [uri for hit in merged for uri in hit.duplicates]
    assert sorted([*uris(merged), *listed]) == sorted(uris(hits))
    assert all(len(hit.duplicates) <= ALSO_IN_MAX for hit in merged)
