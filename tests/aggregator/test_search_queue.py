"""Searches take turns: a limited number runs at the same time, users are served fairly, and long waits are refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aggregator.fanout import SearchQueue
from auth.context import RequestContext
from config.errors import Overloaded
from config.paths import UserId
from sources.source import SourceHits
from sources.storage.contract import Library
from tests.aggregator.aggregator_fixture import FakeSearch, FakeSource, build_aggregator, result_item
from tests.build_settings import build_settings

WAIT_S = 60
ADA = UserId("ada")


class GatedSource(FakeSource):
    """Answers when the test opens the gate. `users` lists who was searched for, in that order."""

    def __init__(self) -> None:
        super().__init__("notes", [result_item("notes", 1)])
        self.users: list[UserId] = []
        self.gate = asyncio.Semaphore(0)
        self.reached = asyncio.Semaphore(0)

    async def search(self, context: RequestContext, library: Library, args: FakeSearch) -> SourceHits:
        self.users.append(context.user_id)
        self.reached.release()
        await self.gate.acquire()
        return await super().search(context, library, args)


async def test_a_user_with_one_search_is_served_before_the_next_searches_of_another() -> None:
    source = GatedSource()
    fixture = build_aggregator(source, search_running_max=1)
    searches = [asyncio.create_task(fixture.search(user=user)) for user in ("ada", "ada", "ada", "ben")]
    async with asyncio.timeout(WAIT_S):
        for _ in searches:
            await source.reached.acquire()
            source.gate.release()
        await asyncio.gather(*searches)

    ada, ben = fixture.contexts["ada"].user_id, fixture.contexts["ben"].user_id
    assert source.users == [ada, ben, ada, ada]


async def test_a_search_that_is_cancelled_while_it_waits_gives_up_its_turn() -> None:
    source = GatedSource()
    fixture = build_aggregator(source, search_running_max=1)
    running, waiting = (asyncio.create_task(fixture.search(user=user)) for user in ("ada", "ada"))
    await asyncio.wait_for(source.reached.acquire(), WAIT_S)

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    source.gate.release()
    await asyncio.wait_for(running, WAIT_S)

    assert len(source.users) == 1
    assert fixture.aggregator.queue.waiting == fixture.aggregator.queue.running == 0


async def test_a_deadline_out_of_range_does_not_look_like_a_busy_server() -> None:
    queue = SearchQueue(build_settings())
    async with asyncio.timeout(WAIT_S), queue.turn(ADA, -1):
        assert queue.state().running == 1


async def hold_turn(queue: SearchQueue, started: asyncio.Event, released: asyncio.Event) -> None:
    async with queue.turn(ADA, None):
        started.set()
        await released.wait()


@asynccontextmanager
async def busy_queue(wait_max_ms: int) -> AsyncIterator[SearchQueue]:
    """Yields a queue in which Ada has a running search and a waiting one. Between the starts of the two before, more
    than 50 ms passed."""
    queue = SearchQueue(build_settings(search_running_max=1, library_wait_max_ms=wait_max_ms))
    started, released = ([asyncio.Event() for _ in range(4)] for _ in range(2))
    tasks = [asyncio.create_task(hold_turn(queue, *events)) for events in zip(started, released, strict=True)]
    async with asyncio.timeout(WAIT_S):
        while queue.state().waiting < 3:
            await asyncio.sleep(0)
        released[0].set()
        await started[1].wait()
        await asyncio.sleep(0.05)
        released[1].set()
        await started[2].wait()
        yield queue
        for event in released:
            event.set()
        await asyncio.gather(*tasks)


async def test_a_search_that_would_wait_too_long_is_refused_at_once() -> None:
    async with busy_queue(wait_max_ms=10) as queue:
        with pytest.raises(Overloaded, match=r"too many calls are waiting; try again in \d+ s") as raised:
            async with queue.turn(ADA, None):
                pass

    assert raised.value.retry_after_s >= 1
    assert raised.value.is_repeatable


async def test_a_search_that_would_wait_longer_than_its_own_deadline_is_refused_at_once() -> None:
    async with busy_queue(wait_max_ms=3_600_000) as queue:
        with pytest.raises(Overloaded) as raised:
            async with queue.turn(ADA, 10):
                pass

    assert not raised.value.is_repeatable


async def test_a_search_is_not_refused_while_nobody_waits() -> None:
    async with busy_queue(wait_max_ms=10) as queue:
        pass

    async with queue.turn(ADA, 1):
        assert queue.state().running == 1
