"""Token buckets, against a plain model of a bucket and by their exact waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.rate_limits import TokenBuckets, limits_of
from config.errors import RateLimited
from tests.auth.scene import FakeClock, make_settings


def buckets(clock: FakeClock, per_minute: float = 60, burst: int = 3, keys_max: int = 10) -> TokenBuckets:
    return TokenBuckets("calls", per_minute, burst, keys_max, clock)


def takes(limit: TokenBuckets, key: str, cost: float = 1) -> bool:
    try:
        limit.take(key, cost)
    except RateLimited:
        return False
    return True


def test_a_full_bucket_allows_its_burst_and_no_more(clock: FakeClock) -> None:
    limit = buckets(clock)

    assert [takes(limit, "alice") for _ in range(5)] == [True, True, True, False, False]


def test_two_users_have_two_buckets(clock: FakeClock) -> None:
    limit = buckets(clock, burst=1)
    limit.take("alice")

    limit.take("bob")
    assert not takes(limit, "alice")


@pytest.mark.parametrize(
    ("waited_s", "told"), [(0.0, "2 s"), (0.5, "2 s"), (1.0, "1 s"), (1.999, "1 s"), (1.99999, "1 s")]
)
def test_the_sentence_tells_whole_seconds_that_are_enough(clock: FakeClock, waited_s: float, told: str) -> None:
    limit = buckets(clock, per_minute=30, burst=1)
    limit.take("alice")
    clock.advance(waited_s)

    with pytest.raises(RateLimited, match=f"retry after {told}$"):
        limit.take("alice")


def test_the_wait_that_is_told_is_exact(clock: FakeClock) -> None:
    limit = buckets(clock, per_minute=30, burst=1)
    limit.take("alice")
    clock.advance(0.5)

    with pytest.raises(RateLimited) as refused:
        limit.take("alice")
    assert refused.value.retry_after_s == pytest.approx(1.5)

    clock.advance(refused.value.retry_after_s - 0.001)
    assert not takes(limit, "alice")
    clock.advance(0.001)
    assert takes(limit, "alice")


def test_a_refusal_takes_nothing(clock: FakeClock) -> None:
    limit = buckets(clock, burst=1)
    limit.take("alice")
    for _ in range(100):
        assert not takes(limit, "alice")

    clock.advance(1)
    assert takes(limit, "alice")


def test_a_rate_of_zero_is_no_limit(clock: FakeClock) -> None:
    limit = buckets(clock, per_minute=0, burst=1)

    assert all(takes(limit, "alice") for _ in range(1000))


def test_what_costs_more_than_the_bucket_holds_takes_all_of_it(clock: FakeClock) -> None:
    limit = buckets(clock, burst=3)

    assert takes(limit, "alice", cost=50)
    assert not takes(limit, "alice")


def test_the_key_unseen_longest_is_forgotten_at_the_limit(clock: FakeClock) -> None:
    limit = buckets(clock, burst=2, keys_max=2)
    limit.take("alice", 2)
    limit.take("bob", 1)
    assert not takes(limit, "alice")
    limit.take("carol")

    assert takes(limit, "alice")
    assert not takes(limit, "alice", 2)


def test_the_three_limits_come_from_their_own_settings(clock: FakeClock) -> None:
    limits = limits_of(make_settings(rate_user_burst=2, rate_tool_burst=1, rate_tool_per_minute=6), clock)

    limits.tool.take(("alice", "search"))
    with pytest.raises(RateLimited, match="this tool") as refused:
        limits.tool.take(("alice", "search"))
    assert refused.value.retry_after_s == pytest.approx(10)
    limits.tool.take(("alice", "read"))
    assert [takes(limits.user, "alice") for _ in range(3)] == [True, True, False]
    assert takes(limits.failures, "192.0.2.1")


@given(
    burst=st.integers(1, 5),
    steps=st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 5)), max_size=40),
)
def test_it_behaves_as_a_bucket_that_refills(burst: int, steps: list[tuple[int, int]]) -> None:
    """The model counts in milliseconds, so that it is exact where floating point is not."""
    clock = FakeClock(0.0)
    limit = buckets(clock, per_minute=60, burst=burst)
    level_ms = full_ms = burst * 1000
    for pause_ms, cost in steps:
        clock.advance(pause_ms / 1000)
        level_ms = min(full_ms, level_ms + pause_ms)
        allowed = level_ms >= min(cost, burst) * 1000
        if allowed:
            level_ms -= min(cost, burst) * 1000
        assert takes(limit, "alice", cost) is allowed
