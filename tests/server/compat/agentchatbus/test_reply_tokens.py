"""Reply tokens of two users, with bounded stores and a manual clock."""

from typing import Any

import pytest

from auth.redis import open_redis
from config.errors import Unavailable
from config.paths import UserId
from config.settings import Settings
from server.compat.agentchatbus.agents import ReplyTokenLimits, ReplyTokens
from server.redis_stores import RedisReplyTokenStore
from tests.server.compat.agentchatbus.manual_clock import ManualClock

ADA, BEN = UserId("ada"), UserId("ben")
FEW = ReplyTokenLimits(user_max=2, total_max=3)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_reply_token_can_be_consumed_once(clock: ManualClock) -> None:
    tokens = ReplyTokens(clock)
    token, _ = await tokens.issue(ADA, "thread")

    assert await tokens.consume(ADA, "thread", token) is None
    clock.now += 5
    assert await tokens.consume(ADA, "thread", token) == ("TOKEN_REPLAY", 1_000.0)


async def test_reply_token_is_invalid_for_another_user_or_thread(clock: ManualClock) -> None:
    tokens = ReplyTokens(clock)
    token, _ = await tokens.issue(ADA, "thread")

    for user, thread, presented in ((BEN, "thread", token), (ADA, "another", token), (ADA, "thread", "made up")):
        assert await tokens.consume(user, thread, presented) == ("TOKEN_INVALID", None)
    assert await tokens.consume(ADA, "thread", token) is None


async def test_expired_reply_token_is_distinguished_from_an_unknown_one(clock: ManualClock) -> None:
    tokens = ReplyTokens(clock, limits=ReplyTokenLimits(ttl_s=60))
    token, expires_at = await tokens.issue(ADA, "thread")
    clock.now += 60

    assert expires_at == 1_060.0
    assert await tokens.consume(ADA, "thread", token) == ("TOKEN_EXPIRED", 1_060.0)
    clock.now += 60
    assert await tokens.consume(ADA, "thread", token) == ("TOKEN_INVALID", None)


async def test_restored_reply_token_can_be_consumed_again(clock: ManualClock) -> None:
    tokens = ReplyTokens(clock)
    token, _ = await tokens.issue(ADA, "thread")
    await tokens.consume(ADA, "thread", token)

    await tokens.restore(BEN, token)
    assert await tokens.consume(ADA, "thread", token) == ("TOKEN_REPLAY", 1_000.0)
    await tokens.restore(ADA, token)
    assert await tokens.consume(ADA, "thread", token) is None


async def test_oldest_reply_token_is_dropped_at_the_user_limit(clock: ManualClock) -> None:
    tokens = ReplyTokens(clock, limits=ReplyTokenLimits(user_max=2))
    issued = [(await tokens.issue(ADA, "thread"))[0] for _ in range(3)]

    assert [await tokens.consume(ADA, "thread", token) for token in issued] == [("TOKEN_INVALID", None), None, None]


async def test_reply_token_remembers_the_agent_that_it_was_issued_to(clock: ManualClock) -> None:
    tokens = ReplyTokens(clock)
    token, _ = await tokens.issue(ADA, "thread", "agent")
    unbound, _ = await tokens.issue(ADA, "thread")

    assert await tokens.is_issued_to(ADA, token, "agent")
    assert not await tokens.is_issued_to(ADA, token, "another")
    assert not await tokens.is_issued_to(BEN, token, "agent")
    assert not await tokens.is_issued_to(ADA, unbound, "agent")


async def test_one_user_cannot_evict_reply_tokens_of_another(clock: ManualClock) -> None:
    tokens = ReplyTokens(clock, limits=FEW)
    hers, _ = await tokens.issue(ADA, "thread")
    for _ in range(3):
        await tokens.issue(BEN, "thread")

    with pytest.raises(Unavailable, match="the limit of 3 reply tokens is reached"):
        await tokens.issue(ADA, "thread")

    assert await tokens.consume(ADA, "thread", hers) is None


async def test_token_of_one_process_is_consumed_once_by_all_together(
    redis_settings: dict[str, Any], clock: ManualClock
) -> None:
    settings = Settings(**redis_settings)
    async with open_redis(settings) as first, open_redis(settings) as second:
        one = ReplyTokens(clock, RedisReplyTokenStore(first, FEW), FEW)
        other = ReplyTokens(clock, RedisReplyTokenStore(second, FEW), FEW)
        token, _ = await one.issue(ADA, "thread", "agent")

        assert await other.is_issued_to(ADA, token, "agent")
        for user, thread in ((BEN, "thread"), (ADA, "another")):
            assert await other.consume(user, thread, token) == ("TOKEN_INVALID", None)
        assert await other.consume(ADA, "thread", token) is None
        assert await one.consume(ADA, "thread", token) == ("TOKEN_REPLAY", 1_000.0)
        await one.restore(ADA, token)
        assert await other.consume(ADA, "thread", token) is None


async def test_limits_of_reply_tokens_count_those_of_all_processes(
    redis_settings: dict[str, Any], clock: ManualClock
) -> None:
    settings = Settings(**redis_settings)
    async with open_redis(settings) as first, open_redis(settings) as second:
        stores = [RedisReplyTokenStore(connection, FEW) for connection in (first, second)]
        tokens = [ReplyTokens(clock, store, FEW) for store in stores]
        issued = [(await tokens[number % 2].issue(ADA, "thread"))[0] for number in range(3)]
        await tokens[0].issue(BEN, "thread")

        with pytest.raises(Unavailable, match="the limit of 3 reply tokens is reached"):
            await tokens[1].issue(BEN, "thread")
        consumed = [await tokens[0].consume(ADA, "thread", token) for token in issued]
        assert consumed == [("TOKEN_INVALID", None), None, None]
