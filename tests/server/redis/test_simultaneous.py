"""Two processes that change the same keys at the same time: what may happen once happens once, and nothing is lost."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any

import pytest

from auth.context import READ, ClientId, Principal
from auth.rate_limits import LimitRule
from auth.redis import RedisConnection, RedisTickets, RedisUsedTokens, open_redis, redis_limits
from config.errors import FlorilegiumError, RateLimited, Unauthenticated
from config.paths import new_user_id
from config.settings import Settings
from server.compat.agentchatbus.agents import ReplyToken
from server.redis_stores import RedisReplyTokenStore
from server.stores import session_state_limits
from sessions.redis import RedisSessionStates
from tests.build_settings import build_settings

Processes = Sequence[RedisConnection]
ADA = Principal(new_user_id(), "ada", ClientId("browser"), frozenset({READ}), "jwt", "token")
CALLS = 40


@pytest.fixture
def settings(redis_settings: Mapping[str, Any]) -> Settings:
    return build_settings(**redis_settings)


@pytest.fixture
async def processes(settings: Settings) -> AsyncIterator[Processes]:
    async with open_redis(settings) as one, open_redis(settings) as other:
        yield one, other


async def outcomes(calls: Sequence[Awaitable[Any]]) -> list[Any]:
    """Returns the results, or the types of the errors."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    return [type(result) if isinstance(result, FlorilegiumError) else result for result in results]


async def test_a_ticket_is_redeemed_once(processes: Processes, settings: Settings) -> None:
    tickets = [RedisTickets(process, settings) for process in processes]
    ticket, _ = await tickets[0].issue(ADA)
    redeemed = await outcomes([tickets[number % 2].redeem(ticket) for number in range(CALLS)])

    assert (redeemed.count(ADA), redeemed.count(Unauthenticated)) == (1, CALLS - 1)


async def test_a_token_for_one_use_is_used_once(processes: Processes) -> None:
    tokens = [RedisUsedTokens(process) for process in processes]
    used = await outcomes([tokens[number % 2].use(b"token", 60) for number in range(CALLS)])

    assert (used.count(True), used.count(False)) == (1, CALLS - 1)


async def test_a_reply_token_is_consumed_once(processes: Processes, settings: Settings) -> None:
    stores = [RedisReplyTokenStore(process) for process in processes]
    token = ReplyToken(thread_id="t", agent_id=None, expires_at=2e9)
    await stores[0].put(ADA.user_id, "key", token)
    consumed = await outcomes([stores[n % 2].consume(ADA.user_id, "key", token, 1.0) for n in range(CALLS)])

    assert (consumed.count(True), consumed.count(False)) == (1, CALLS - 1)


async def test_a_limit_allows_its_burst(processes: Processes) -> None:
    limits = [redis_limits(process)(LimitRule("user", "calls", 0.001, 7)) for process in processes]
    taken = await outcomes([limits[number % 2].take(ADA.user_id) for number in range(CALLS)])

    assert (taken.count(None), taken.count(RateLimited)) == (7, CALLS - 7)


async def test_searches_of_one_session_lose_no_items_or_queries(processes: Processes, settings: Settings) -> None:
    states = [RedisSessionStates(process, session_state_limits(settings)) for process in processes]
    owner = ADA.owner()
    handle = (await states[0].create(owner)).handle
    for store in states:  # what is recorded without a connection is lost
        await store.get(handle, owner)
    delivered = [{f"notes://{n}": 1, f"notes://{n + 1}": 1} for n in range(CALLS)]
    await asyncio.gather(*(states[n % 2].record(handle, owner, f"query {n % 5}", delivered[n]) for n in range(CALLS)))
    for process in processes:
        await process.call("PING")
    state = await states[0].get(handle, owner)

    assert len(state.seen) == CALLS + 1
    assert all(state.seen.has(f"notes://{number}", 1) for number in range(CALLS + 1))
    assert sorted(state.queries) == [f"query {number}" for number in range(5)]
