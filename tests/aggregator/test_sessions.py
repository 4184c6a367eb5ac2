"""Deduplication within a session: a hit is delivered once until all were seen; only delivered hits count as seen."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import InvalidParams, SessionNotFound
from sessions.state import SessionHandle
from tests.aggregator.aggregator_fixture import AggregatorFixture, FakeSource, build_aggregator, result_item, uris
from tests.cases import each_case


def fixture_with(count: int, **settings: Any) -> tuple[AggregatorFixture, FakeSource]:
    source = FakeSource("notes", [result_item("notes", number, 1 - number / 1000) for number in range(count)])
    return build_aggregator(source, **settings), source


def note_uris(*numbers: int) -> list[str]:
    return [f"notes://{number}" for number in numbers]


@given(st.integers(1, 30), st.integers(1, 7), st.integers(1, 10))
async def test_repeated_searches_deliver_every_hit_once_before_repeating_any(
    count: int, limit: int, depth: int
) -> None:
    fixture, _ = fixture_with(count, fanout_depth=depth)
    delivered: list[str] = []
    session = (await fixture.session_states.create(fixture.contexts["ada"].principal.owner())).handle

    while not (response := await fixture.search(limit=limit, session=session)).exhausted:
        delivered += uris(response)

    assert delivered == note_uris(*range(count))
    assert uris(response) == note_uris(*range(min(limit, count)))


async def test_searches_without_a_session_are_independent() -> None:
    fixture, _ = fixture_with(2)

    first, second = await fixture.search(), await fixture.search()

    assert uris(first) == uris(second) == note_uris(0, 1)
    assert first.session != second.session


async def test_suppressed_hits_are_counted() -> None:
    fixture, _ = fixture_with(5)
    session = (await fixture.search(limit=2)).session

    response = await fixture.search(session=session)

    assert (uris(response), response.suppressed, response.exhausted) == (note_uris(2, 3, 4), 2, False)


async def test_demoted_hits_come_last() -> None:
    fixture, _ = fixture_with(5)
    session = (await fixture.search(limit=2)).session

    response = await fixture.search(session=session, dedupe="demote", limit=4)

    assert (uris(response), response.suppressed) == (note_uris(2, 3, 4, 0), 1)


async def test_with_dedupe_off_all_hits_are_repeated() -> None:
    fixture, _ = fixture_with(3)
    session = (await fixture.search()).session

    response = await fixture.search(session=session, dedupe="off")

    assert (uris(response), response.suppressed, response.exhausted) == (note_uris(0, 1, 2), 0, False)


@pytest.mark.parametrize("dedupe", ["hide", "demote"])
async def test_if_all_hits_were_seen_the_best_are_repeated_and_exhausted_is_set(dedupe: str) -> None:
    fixture, _ = fixture_with(3)
    session = (await fixture.search()).session

    response = await fixture.search(session=session, dedupe=dedupe, limit=2)

    assert (uris(response), response.exhausted, response.next_offset) == (note_uris(0, 1), True, 2)


async def test_later_page_of_seen_hits_is_empty_and_exhausted() -> None:
    fixture, _ = fixture_with(4)
    session = (await fixture.search()).session

    response = await fixture.search(session=session, offset=2)

    assert (uris(response), response.suppressed, response.exhausted, response.has_more) == ([], 2, True, False)


async def test_paging_with_a_session_skips_no_hit() -> None:
    fixture, _ = fixture_with(6)
    first = await fixture.search(limit=2)

    second = await fixture.search(limit=2, session=first.session, offset=first.next_offset)
    third = await fixture.search(limit=2, session=first.session, offset=second.next_offset)

    assert [*uris(first), *uris(second), *uris(third)] == note_uris(*range(6))
    assert (second.suppressed, third.has_more) == (0, False)


async def test_only_delivered_hits_are_marked_as_seen() -> None:
    """Hits that did not fit on the page are delivered by the next one."""
    fixture, _ = fixture_with(20, search_response_max_bytes=2_000)

    first = await fixture.search(limit=20)
    second = await fixture.search(session=first.session)

    assert first.cut
    assert 0 < len(first.results) < 20
    assert uris(second)[0] == f"notes://{len(first.results)}" == note_uris(first.next_offset or 0)[0]


async def test_duplicate_listed_with_a_hit_counts_as_seen() -> None:
    same = "A text that was saved twice."
    items = [result_item("notes", 1, text=same), result_item("notes", 2, text=same), result_item("notes", 3, 0.1)]
    source = FakeSource("notes", items)
    fixture = build_aggregator(source)
    session = (await fixture.search(limit=1)).session
    del source.items[0]

    assert uris(await fixture.search(session=session)) == note_uris(3)


async def test_search_examines_no_more_hits_than_its_limit_and_returns_the_next_offset() -> None:
    fixture, _ = fixture_with(250, fanout_scan_max=100)
    session = (await fixture.search(limit=100)).session

    first = await fixture.search(session=session)
    second = await fixture.search(session=session, offset=first.next_offset, limit=1)

    assert (first.results, first.suppressed, first.next_offset, first.exhausted) == ((), 100, 100, False)
    assert uris(second) == note_uris(100)


async def test_session_of_a_connection_can_be_named_by_its_handle() -> None:
    fixture, _ = fixture_with(2)
    handle = (await fixture.search_with("connection", {})).session

    assert handle != "connection"
    assert (await fixture.search(session=handle)).exhausted
    with pytest.raises(SessionNotFound):
        await fixture.search(session="connection")


async def test_queries_of_a_session_are_recorded() -> None:
    fixture, _ = fixture_with(1)
    session = (await fixture.search("first")).session
    await fixture.search("second", session=session)

    state = await fixture.session_states.get(SessionHandle(session), fixture.contexts["ada"].principal.owner())
    assert state.queries == ("first", "second")


@each_case(
    ("setting", "expected"), [("hide", note_uris(1, 2)), ("demote", note_uris(1, 2, 0)), ("off", note_uris(0, 1, 2))]
)
async def test_setting_decides_about_seen_hits_if_nothing_else_does(setting: str, expected: list[str]) -> None:
    """What decides before it is in `tests/server/transports/test_precedence.py`."""
    fixture, _ = fixture_with(3, dedupe=setting)
    session = (await fixture.search(limit=1)).session

    assert uris(await fixture.search(session=session, limit=3)) == expected


async def test_invalid_default_in_the_config_is_rejected() -> None:
    fixture, _ = fixture_with(1)

    with pytest.raises(InvalidParams, match="config: Invalid enum value 'sometimes'"):
        await fixture.search_with(None, {"dedupe": "sometimes"})
