"""Token buckets: exact waits, and agreement with a simple model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.rate_limits import RateLimits, TokenBuckets
from config.errors import RateLimited
from tests.auth.auth_fixture import FakeClock, make_settings


def buckets(clock: FakeClock, per_minute: float = 60, burst: int = 3, keys_max: int = 10) -> TokenBuckets:
    return TokenBuckets("calls", per_minute, burst, keys_max, clock)


def is_allowed(limit: TokenBuckets, key: str, cost: float = 1) -> bool:
    try:
        limit.take(key, cost)
    except RateLimited:
        return False
    return True


def test_full_bucket_allows_exactly_its_burst(clock: FakeClock) -> None:
    limit = buckets(clock)

    assert [is_allowed(limit, "alice") for _ in range(5)] == [True, True, True, False, False]


def test_two_users_have_separate_buckets(clock: FakeClock) -> None:
    limit = buckets(clock, burst=1)
    limit.take("alice")

    limit.take("bob")
    assert not is_allowed(limit, "alice")


@pytest.mark.parametrize(
    ("elapsed_s", "expected"), [(0.0, "2 s"), (0.5, "2 s"), (1.0, "1 s"), (1.999, "1 s"), (1.99999, "1 s")]
)
def test_message_rounds_the_wait_up_to_whole_seconds(clock: FakeClock, elapsed_s: float, expected: str) -> None:
    limit = buckets(clock, per_minute=30, burst=1)
    limit.take("alice")
    clock.advance(elapsed_s)

    with pytest.raises(RateLimited, match=f"retry after {expected}$"):
        limit.take("alice")


def test_retry_after_is_exact(clock: FakeClock) -> None:
    limit = buckets(clock, per_minute=30, burst=1)
    limit.take("alice")
    clock.advance(0.5)

    with pytest.raises(RateLimited) as raised:
        limit.take("alice")
    assert raised.value.retry_after_s == pytest.approx(1.5)

    clock.advance(raised.value.retry_after_s - 0.001)
    assert not is_allowed(limit, "alice")
    clock.advance(0.001)
    assert is_allowed(limit, "alice")


def test_rejected_call_takes_no_tokens(clock: FakeClock) -> None:
    limit = buckets(clock, burst=1)
    limit.take("alice")
    for _ in range(100):
        assert not is_allowed(limit, "alice")

    clock.advance(1)
    assert is_allowed(limit, "alice")


def test_rate_of_zero_is_unlimited(clock: FakeClock) -> None:
    limit = buckets(clock, per_minute=0, burst=1)

    assert all(is_allowed(limit, "alice") for _ in range(1000))


def test_cost_above_capacity_empties_the_bucket(clock: FakeClock) -> None:
    limit = buckets(clock, burst=3)

    assert is_allowed(limit, "alice", cost=50)
    assert not is_allowed(limit, "alice")


def test_least_recently_used_key_is_dropped_at_the_limit(clock: FakeClock) -> None:
    limit = buckets(clock, burst=2, keys_max=2)
    limit.take("alice", 2)
    limit.take("bob", 1)
    assert not is_allowed(limit, "alice")
    limit.take("carol")

    assert is_allowed(limit, "alice")
    assert not is_allowed(limit, "alice", 2)


def test_limits_are_configured_by_separate_settings(clock: FakeClock) -> None:
    limits = RateLimits.from_settings(
        make_settings(require_auth=True, rate_user_burst=2, rate_tool_burst=1, rate_tool_per_minute=6), clock
    )

    limits.tool.take(("alice", "search"))
    with pytest.raises(RateLimited, match="this tool") as raised:
        limits.tool.take(("alice", "search"))
    assert raised.value.retry_after_s == pytest.approx(10)
    limits.tool.take(("alice", "read"))
    assert [is_allowed(limits.user, "alice") for _ in range(3)] == [True, True, False]
    assert is_allowed(limits.failures, "192.0.2.1")


def test_single_user_mode_limits_only_failed_sign_ins(clock: FakeClock) -> None:
    bursts = {"rate_user_burst": 1, "rate_tool_burst": 1, "rate_failures_burst": 1}
    limits = RateLimits.from_settings(make_settings(rate_failures_per_minute=1, **bursts), clock)

    assert all(is_allowed(limits.user, "alice") for _ in range(1000))
    assert all(is_allowed(limits.tool, "alice search") for _ in range(1000))
    assert [is_allowed(limits.failures, "192.0.2.1") for _ in range(2)] == [True, False]


@given(
    burst=st.integers(1, 5),
    steps=st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 5)), max_size=40),
)
def test_behaviour_matches_a_model_of_a_refilling_bucket(burst: int, steps: list[tuple[int, int]]) -> None:
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
        assert is_allowed(limit, "alice", cost) is allowed
