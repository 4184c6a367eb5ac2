"""The contract of a rate limit: exact waits, and agreement with a simple model."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from auth.rate_limits import LimitKey, LimitRule, MakeLimit, RateLimit, RateLimits, TokenBuckets, in_process_limits
from auth.redis import open_redis, redis_limits
from config.errors import RateLimited
from tests.auth.auth_fixture import FakeClock, make_settings
from tests.servers.aging import age_keys


class LimitsFixture(Struct, frozen=True):
    make: MakeLimit
    advance: Callable[[float], Awaitable[None]]


@pytest.fixture(params=["in this process", "in Redis"])
async def limits(request: pytest.FixtureRequest, clock: FakeClock) -> AsyncIterator[LimitsFixture]:
    """Every implementation; each must pass the tests below."""

    async def advance(seconds: float) -> None:
        clock.advance(seconds)

    if request.param == "in this process":
        yield LimitsFixture(in_process_limits(clock), advance)
        return
    settings = make_settings(**request.getfixturevalue("redis_settings"))
    async with open_redis(settings) as connection:
        yield LimitsFixture(redis_limits(connection), partial(age_keys, connection))


def rule(per_minute: float = 60, burst: int = 3) -> LimitRule:
    return LimitRule("user", "calls", per_minute, burst)


def buckets(clock: FakeClock, per_minute: float = 60, burst: int = 3, keys_max: int = 10) -> TokenBuckets:
    return TokenBuckets(rule(per_minute, burst), keys_max, clock)


async def is_allowed(limit: RateLimit, key: LimitKey, cost: float = 1) -> bool:
    try:
        await limit.take(key, cost)
    except RateLimited:
        return False
    return True


async def test_full_bucket_allows_exactly_its_burst(limits: LimitsFixture) -> None:
    limit = limits.make(rule())

    assert [await is_allowed(limit, "alice") for _ in range(5)] == [True, True, True, False, False]


async def test_a_rate_too_high_to_measure_refuses_nothing(limits: LimitsFixture) -> None:
    limit = limits.make(rule(per_minute=1e9, burst=1_000_000_000))

    assert all([await is_allowed(limit, "alice") for _ in range(5)])


async def test_two_users_have_separate_buckets(limits: LimitsFixture) -> None:
    limit = limits.make(rule(burst=1))
    await limit.take("alice")

    await limit.take("bob")
    assert not await is_allowed(limit, "alice")


@pytest.mark.parametrize(
    ("elapsed_s", "expected"), [(0.0, "2 s"), (0.5, "2 s"), (1.0, "1 s"), (1.999, "1 s"), (1.99999, "1 s")]
)
async def test_message_rounds_the_wait_up_to_whole_seconds(clock: FakeClock, elapsed_s: float, expected: str) -> None:
    limit = buckets(clock, per_minute=30, burst=1)
    await limit.take("alice")
    clock.advance(elapsed_s)

    with pytest.raises(RateLimited, match=f"retry after {expected}$"):
        await limit.take("alice")


async def test_retry_after_is_exact(clock: FakeClock) -> None:
    limit = buckets(clock, per_minute=30, burst=1)
    await limit.take("alice")
    clock.advance(0.5)

    with pytest.raises(RateLimited) as raised:
        await limit.take("alice")
    assert raised.value.retry_after_s == pytest.approx(1.5)

    clock.advance(raised.value.retry_after_s - 0.001)
    assert not await is_allowed(limit, "alice")
    clock.advance(0.001)
    assert await is_allowed(limit, "alice")


async def test_rejected_call_takes_no_tokens(limits: LimitsFixture) -> None:
    limit = limits.make(rule(burst=1))
    await limit.take("alice")
    for _ in range(100):
        assert not await is_allowed(limit, "alice")

    await limits.advance(1)
    assert await is_allowed(limit, "alice")


async def test_rate_of_zero_is_unlimited(limits: LimitsFixture) -> None:
    limit = limits.make(rule(per_minute=0, burst=1))

    assert all([await is_allowed(limit, "alice") for _ in range(1000)])


async def test_cost_above_capacity_empties_the_bucket(limits: LimitsFixture) -> None:
    limit = limits.make(rule(burst=3))

    assert await is_allowed(limit, "alice", cost=50)
    assert not await is_allowed(limit, "alice")


async def test_least_recently_used_key_is_dropped_at_the_limit(clock: FakeClock) -> None:
    limit = buckets(clock, burst=2, keys_max=2)
    await limit.take("alice", 2)
    await limit.take("bob", 1)
    assert not await is_allowed(limit, "alice")
    await limit.take("carol")

    assert await is_allowed(limit, "alice")
    assert not await is_allowed(limit, "alice", 2)


async def test_limits_are_configured_by_separate_settings(clock: FakeClock) -> None:
    limits = RateLimits.from_settings(
        make_settings(require_auth=True, rate_user_burst=2, rate_tool_burst=1, rate_tool_per_minute=6),
        in_process_limits(clock),
    )

    await limits.tool.take(("alice", "search"))
    with pytest.raises(RateLimited, match="this tool") as raised:
        await limits.tool.take(("alice", "search"))
    assert raised.value.retry_after_s == pytest.approx(10)
    await limits.tool.take(("alice", "read"))
    assert [await is_allowed(limits.user, "alice") for _ in range(3)] == [True, True, False]
    assert await is_allowed(limits.failures, "192.0.2.1")


async def test_single_user_mode_limits_only_failed_sign_ins(clock: FakeClock) -> None:
    bursts = {"rate_user_burst": 1, "rate_tool_burst": 1, "rate_failures_burst": 1}
    limits = RateLimits.from_settings(make_settings(rate_failures_per_minute=1, **bursts), in_process_limits(clock))

    assert all([await is_allowed(limits.user, "alice") for _ in range(1000)])
    assert all([await is_allowed(limits.tool, "alice search") for _ in range(1000)])
    assert [await is_allowed(limits.failures, "192.0.2.1") for _ in range(2)] == [True, False]


@given(
    burst=st.integers(1, 5),
    steps=st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 5)), max_size=40),
)
async def test_behaviour_matches_a_model_of_a_refilling_bucket(burst: int, steps: list[tuple[int, int]]) -> None:
    """The model uses integer milliseconds, which are exact where floating point is not."""
    clock = FakeClock(0.0)
    limit = buckets(clock, per_minute=60, burst=burst)
    level_ms = full_ms = burst * 1000
    for pause_ms, cost in steps:
        clock.advance(pause_ms / 1000)
        level_ms = min(full_ms, level_ms + pause_ms)
        allowed = level_ms >= min(cost, burst) * 1000
        if allowed:
            level_ms -= min(cost, burst) * 1000
        assert await is_allowed(limit, "alice", cost) is allowed


async def test_tokens_that_are_given_back_can_be_taken_again(limits: LimitsFixture) -> None:
    limit = limits.make(rule(burst=1))
    await limit.take("alice")
    await limit.give_back("alice")
    await limit.give_back("bob")

    assert [await is_allowed(limit, "alice") for _ in range(2)] == [True, False]


async def test_wait_is_that_until_the_next_token(limits: LimitsFixture) -> None:
    limit = limits.make(rule(per_minute=1, burst=1))
    await limit.take("alice")
    await limits.advance(20)

    with pytest.raises(RateLimited) as raised:
        await limit.take("alice")

    assert raised.value.retry_after_s == pytest.approx(40, abs=5)


async def test_calls_to_all_processes_are_counted_together(redis_settings: dict[str, Any]) -> None:
    settings = make_settings(**redis_settings)
    async with open_redis(settings) as one, open_redis(settings) as other:
        limits = [redis_limits(connection)(rule(per_minute=1, burst=5)) for connection in (one, other)]

        assert [await is_allowed(limits[number % 2], "alice") for number in range(7)] == [True] * 5 + [False] * 2
        assert await is_allowed(limits[1], "bob")


async def test_keys_with_separators_do_not_meet(limits: LimitsFixture) -> None:
    limit = limits.make(rule(per_minute=1, burst=1))
    keys: tuple[LimitKey, ...] = ("a:b", ("a", "b"), ("a:b", ""), "a\r\nb", "}a{", "\ud800")

    assert all([await is_allowed(limit, key) for key in keys])
