"""A search that starts before the rate limits of its caller have answered: it shows and changes nothing until then."""

from typing import Any

import pytest

from aggregator.responses import KnowledgeResponse
from aggregator.search import KnowledgeSearch
from config.errors import RateLimited, SessionNotFound
from sessions.state import SessionHandle
from tests.aggregator.aggregator_fixture import AggregatorFixture, FakeSource, build_aggregator, result_item


class Limits:
    """Limits that answer when the search waits for them, and what the source had been asked until then."""

    def __init__(self, source: FakeSource, error: Exception | None = None) -> None:
        self._source = source
        self._error = error
        self.requests_before = 0

    async def wait(self) -> None:
        self.requests_before = len(self._source.requests)
        if self._error is not None:
            raise self._error


def make_source() -> FakeSource:
    dates = ("2026-01-01T00:00:00.000Z", "2026-01-03T00:00:00.000Z", "2026-01-02T00:00:00.000Z")
    items = [result_item("notes", n, 0.9 - n / 10, modified=date) for n, date in enumerate(dates)]
    return FakeSource("notes", items)


async def search_early(
    fixture: AggregatorFixture, limits: Limits, user: str = "ada", **arguments: Any
) -> KnowledgeResponse:
    request = KnowledgeSearch(query="galleon", **arguments)
    return await fixture.aggregator.search(fixture.contexts[user], request, wait_for_limits=limits.wait)


def uris(response: KnowledgeResponse) -> list[str]:
    return [item.uri for item in response.results]


async def test_the_sources_are_searched_before_the_limits_answer() -> None:
    source = make_source()
    fixture, limits = build_aggregator(source), Limits(source)
    early = await search_early(fixture, limits)

    assert (limits.requests_before, len(source.requests)) == (1, 1)
    assert uris(early) == uris(await fixture.search())


async def test_a_refused_search_leaves_no_trace_in_its_session() -> None:
    source = make_source()
    fixture = build_aggregator(source)
    session = (await fixture.search(limit=1)).session
    with pytest.raises(RateLimited):
        await search_early(fixture, Limits(source, RateLimited("calls", 1.0)), session=session)
    size, outcomes = fixture.session_states.size, dict(fixture.aggregator.outcomes)
    with pytest.raises(RateLimited):
        await search_early(fixture, Limits(source, RateLimited("calls", 1.0)))

    assert fixture.session_states.size == size
    assert fixture.aggregator.outcomes == outcomes == {"complete": 1}
    assert uris(await fixture.search(session=session)) == ["notes://1", "notes://2"]


async def test_an_early_search_hides_what_its_session_has_seen() -> None:
    source = make_source()
    fixture = build_aggregator(source)
    session = (await fixture.search(limit=1)).session
    limits = Limits(source)

    assert uris(await search_early(fixture, limits, session=session)) == ["notes://1", "notes://2"]
    assert limits.requests_before == 2
    assert uris(await fixture.search(session=session, dedupe="demote")) == ["notes://0", "notes://1", "notes://2"]


async def test_defaults_that_changed_meanwhile_are_applied() -> None:
    source = make_source()
    fixture = build_aggregator(source)
    session = SessionHandle((await fixture.search(limit=1, dedupe="off")).session)
    owner = fixture.contexts["ada"].principal.owner()

    class ChangedSession(Limits):
        async def wait(self) -> None:
            await super().wait()
            await fixture.session_states.set_defaults(session, owner, {"order_by": "recent", "dedupe": "off"})

    limits = ChangedSession(source)
    response = await search_early(fixture, limits, session=session)

    assert uris(response) == ["notes://1", "notes://2", "notes://0"]
    assert (limits.requests_before, len(source.requests)) == (2, 3)


async def test_a_session_of_another_user_is_not_searched_early() -> None:
    source = make_source()
    fixture = build_aggregator(source)
    session = (await fixture.search()).session
    limits = Limits(source)
    with pytest.raises(SessionNotFound):
        await search_early(fixture, limits, user="ben", session=session)

    assert (limits.requests_before, len(source.requests)) == (1, 1)
