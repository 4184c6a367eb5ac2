"""What a session's memory does to a search: hits come once, until there are no others. Only what was delivered
counts."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from config.errors import InvalidParams, SessionNotFound
from sessions.state import SessionHandle
from tests.aggregator.shelves import LibraryFixture, Shelf, hit, open_libraries, uris


def desk_of(count: int, **changes: Any) -> tuple[LibraryFixture, Shelf]:
    shelf = Shelf("notes", [hit("notes", number, 1 - number / 1000) for number in range(count)])
    return open_libraries(shelf, **changes), shelf


def names(*numbers: int) -> list[str]:
    return [f"notes://{number}" for number in numbers]


@given(st.integers(1, 30), st.integers(1, 7), st.integers(1, 10))
async def test_repeated_searches_walk_through_all_hits_and_repeat_none_until_all_were_seen(
    count: int, limit: int, depth: int
) -> None:
    libraries, _ = desk_of(count, fanout_depth=depth)
    told: list[str] = []
    session = (await libraries.session_states.create(libraries.contexts["ada"].principal.owner())).handle

    while not (answer := await libraries.make_search(limit=limit, session=session)).exhausted:
        told += uris(answer)

    assert told == names(*range(count))
    assert uris(answer) == names(*range(min(limit, count)))


async def test_a_search_without_a_session_remembers_nothing_of_others() -> None:
    libraries, _ = desk_of(2)

    first, second = await libraries.make_search(), await libraries.make_search()

    assert uris(first) == uris(second) == names(0, 1)
    assert first.session != second.session


async def test_what_is_held_back_is_counted() -> None:
    libraries, _ = desk_of(5)
    session = (await libraries.make_search(limit=2)).session

    answer = await libraries.make_search(session=session)

    assert (uris(answer), answer.suppressed, answer.exhausted) == (names(2, 3, 4), 2, False)


async def test_demoted_hits_come_after_the_others() -> None:
    libraries, _ = desk_of(5)
    session = (await libraries.make_search(limit=2)).session

    answer = await libraries.make_search(session=session, dedupe="demote", limit=4)

    assert (uris(answer), answer.suppressed) == (names(2, 3, 4, 0), 1)


async def test_with_dedupe_off_everything_comes_again() -> None:
    libraries, _ = desk_of(3)
    session = (await libraries.make_search()).session

    answer = await libraries.make_search(session=session, dedupe="off")

    assert (uris(answer), answer.suppressed, answer.exhausted) == (names(0, 1, 2), 0, False)


@pytest.mark.parametrize("dedupe", ["hide", "demote"])
async def test_when_all_was_seen_the_best_come_again_and_the_answer_says_so(dedupe: str) -> None:
    libraries, _ = desk_of(3)
    session = (await libraries.make_search()).session

    answer = await libraries.make_search(session=session, dedupe=dedupe, limit=2)

    assert (uris(answer), answer.exhausted, answer.next_offset) == (names(0, 1), True, 2)


async def test_who_pages_on_into_what_was_seen_is_told_and_gets_no_hit_twice() -> None:
    libraries, _ = desk_of(4)
    session = (await libraries.make_search()).session

    answer = await libraries.make_search(session=session, offset=2)

    assert (uris(answer), answer.suppressed, answer.exhausted, answer.has_more) == ([], 2, True, False)


async def test_a_hit_that_changed_since_comes_back() -> None:
    libraries, shelf = desk_of(3)
    session = (await libraries.make_search()).session
    shelf.hits[1] = replace(shelf.hits[1], version=2)

    assert uris(await libraries.make_search(session=session)) == names(1)


async def test_paging_and_memory_do_not_get_in_each_others_way() -> None:
    libraries, _ = desk_of(6)
    first = await libraries.make_search(limit=2)

    second = await libraries.make_search(limit=2, session=first.session, offset=first.next_offset)
    third = await libraries.make_search(limit=2, session=first.session, offset=second.next_offset)

    assert [*uris(first), *uris(second), *uris(third)] == names(*range(6))
    assert (second.suppressed, third.has_more) == (0, False)


async def test_only_what_was_delivered_is_marked() -> None:
    """Hits that were found and did not fit on the page are still to come."""
    libraries, _ = desk_of(20, search_response_max_bytes=2_000, search_response_default_bytes=2_000)

    first = await libraries.make_search()
    second = await libraries.make_search(session=first.session)

    assert first.cut
    assert 0 < len(first.results) < 20
    assert uris(second)[0] == f"notes://{len(first.results)}" == names(first.next_offset or 0)[0]


async def test_a_copy_that_was_told_counts_as_seen() -> None:
    same = "A text that was saved twice."
    shelf = Shelf("notes", [hit("notes", 1, text=same), hit("notes", 2, text=same), hit("notes", 3, 0.1)])
    libraries = open_libraries(shelf)
    session = (await libraries.make_search(limit=1)).session
    del shelf.hits[0]

    assert uris(await libraries.make_search(session=session)) == names(3)


async def test_a_search_looks_through_no_more_than_its_limit_and_says_where_it_stopped() -> None:
    libraries, _ = desk_of(250, fanout_scan_max=100)
    session = (await libraries.make_search(limit=100)).session

    held = await libraries.make_search(session=session)
    further = await libraries.make_search(session=session, offset=held.next_offset, limit=1)

    assert (held.results, held.suppressed, held.next_offset, held.exhausted) == ((), 100, 100, False)
    assert uris(further) == names(100)


async def test_two_users_with_the_same_session_id_see_their_own_hits() -> None:
    libraries, _ = desk_of(2)
    await libraries.ask_in("the same", {}, user="ada")

    assert (await libraries.ask_in("the same", {}, user="ben")).exhausted is False
    assert (await libraries.ask_in("the same", {}, user="ada")).exhausted is True


async def test_the_session_of_a_connection_can_be_named_by_its_handle_too() -> None:
    libraries, _ = desk_of(2)
    handle = (await libraries.ask_in("connection", {})).session

    assert handle != "connection"
    assert (await libraries.make_search(session=handle)).exhausted
    with pytest.raises(SessionNotFound):
        await libraries.make_search(session="connection")


async def test_a_foreign_session_and_an_unknown_one_are_not_found() -> None:
    libraries, _ = desk_of(1)
    bens = (await libraries.make_search(user="ben")).session

    for named in (bens, "unknown"):
        with pytest.raises(SessionNotFound):
            await libraries.make_search(user="ada", session=named)


async def test_a_session_that_was_not_used_for_its_time_is_not_found() -> None:
    libraries, _ = desk_of(1)
    session = (await libraries.make_search()).session
    libraries.clock.now = 100

    with pytest.raises(SessionNotFound):
        await libraries.make_search(session=session)


async def test_the_queries_of_a_session_are_remembered() -> None:
    libraries, _ = desk_of(1)
    session = (await libraries.make_search("first")).session
    await libraries.make_search("second", session=session)

    told = await libraries.session_states.get(SessionHandle(session), libraries.contexts["ada"].principal.owner())
    assert told.queries == ("first", "second")


# -- precedence: argument over session over request over setting ---------------------------------------------------

TABLE = list(itertools.product([None, "hide", "demote", "off"], repeat=3))


@pytest.mark.parametrize(("argument", "session", "request_config"), TABLE)
@pytest.mark.parametrize("setting", ["hide", "off"])
async def test_the_nearest_word_decides(
    argument: str | None, session: str | None, request_config: str | None, setting: str
) -> None:
    libraries, _ = desk_of(3, dedupe=setting)
    owner = libraries.contexts["ada"].principal.owner()
    handle = (await libraries.make_search(limit=1)).session
    if session is not None:
        await libraries.session_states.set_defaults(SessionHandle(handle), owner, {"dedupe": session})
    config = {"dedupe": request_config} if request_config is not None else {}

    answer = await libraries.ask_in(
        None, config, session=handle, limit=3, **({"dedupe": argument} if argument is not None else {})
    )

    decided = argument or session or request_config or setting
    assert uris(answer) == {"hide": names(1, 2), "demote": names(1, 2, 0), "off": names(0, 1, 2)}[decided]


@pytest.mark.parametrize("argument", [None, "relevance", "recent"])
@pytest.mark.parametrize("session", [None, "relevance", "recent"])
@pytest.mark.parametrize("request_config", [None, "relevance", "recent"])
async def test_the_nearest_word_decides_the_order(
    argument: str | None, session: str | None, request_config: str | None
) -> None:
    best = hit("notes", 1, 0.9, modified="2024-01-01")
    newest = hit("notes", 2, 0.1, modified="2026-01-01")
    libraries = open_libraries(Shelf("notes", [best, newest]))
    handle = (await libraries.make_search(dedupe="off")).session
    owner = libraries.contexts["ada"].principal.owner()
    if session is not None:
        await libraries.session_states.set_defaults(SessionHandle(handle), owner, {"order_by": session})
    config = {"order_by": request_config} if request_config is not None else {}

    answer = await libraries.ask_in(
        None, config, session=handle, dedupe="off", **({"order_by": argument} if argument else {})
    )

    decided = argument or session or request_config or "relevance"
    assert uris(answer) == (names(1, 2) if decided == "relevance" else names(2, 1))


async def test_a_preference_that_is_none_is_refused() -> None:
    libraries, _ = desk_of(1)

    with pytest.raises(InvalidParams, match="config: Invalid enum value 'sometimes'"):
        await libraries.ask_in(None, {"dedupe": "sometimes"})
