"""Reply tokens of two users, with bounded stores and a manual clock."""

import pytest

from config.errors import Unavailable
from config.paths import UserId
from config.settings import Settings
from server.compat.agentchatbus.reply_tokens import ReplyTokens
from tests.server.compat.agentchatbus.manual_clock import ManualClock

ADA, BEN = UserId("ada"), UserId("ben")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_reply_token_can_be_consumed_once(clock: ManualClock) -> None:
    tokens = ReplyTokens(Settings(), clock)
    token, _ = tokens.issue(ADA, "thread")

    assert tokens.consume(ADA, "thread", token) is None
    clock.now += 5
    assert tokens.consume(ADA, "thread", token) == ("TOKEN_REPLAY", 1_000.0)


def test_reply_token_is_invalid_for_another_user_or_thread(clock: ManualClock) -> None:
    tokens = ReplyTokens(Settings(), clock)
    token, _ = tokens.issue(ADA, "thread")

    for user, thread, presented in ((BEN, "thread", token), (ADA, "another", token), (ADA, "thread", "made up")):
        assert tokens.consume(user, thread, presented) == ("TOKEN_INVALID", None)
    assert tokens.consume(ADA, "thread", token) is None


def test_expired_reply_token_is_distinguished_from_an_unknown_one(clock: ManualClock) -> None:
    tokens = ReplyTokens(Settings(bus_reply_token_ttl_s=60), clock)
    token, expires_at = tokens.issue(ADA, "thread")
    clock.now += 60

    assert expires_at == 1_060.0
    assert tokens.consume(ADA, "thread", token) == ("TOKEN_EXPIRED", 1_060.0)
    clock.now += 60
    assert tokens.consume(ADA, "thread", token) == ("TOKEN_INVALID", None)


def test_restored_reply_token_can_be_consumed_again(clock: ManualClock) -> None:
    tokens = ReplyTokens(Settings(), clock)
    token, _ = tokens.issue(ADA, "thread")
    tokens.consume(ADA, "thread", token)

    tokens.restore(BEN, token)
    assert tokens.consume(ADA, "thread", token) == ("TOKEN_REPLAY", 1_000.0)
    tokens.restore(ADA, token)
    assert tokens.consume(ADA, "thread", token) is None


def test_oldest_reply_token_is_dropped_at_the_user_limit(clock: ManualClock) -> None:
    tokens = ReplyTokens(Settings(bus_reply_token_max_per_user=2), clock)
    issued = [tokens.issue(ADA, "thread")[0] for _ in range(3)]

    assert [tokens.consume(ADA, "thread", token) for token in issued] == [("TOKEN_INVALID", None), None, None]


def test_reply_token_remembers_the_agent_that_it_was_issued_to(clock: ManualClock) -> None:
    tokens = ReplyTokens(Settings(), clock)
    token, _ = tokens.issue(ADA, "thread", "agent")
    unbound, _ = tokens.issue(ADA, "thread")

    assert tokens.is_issued_to(ADA, token, "agent")
    assert not tokens.is_issued_to(ADA, token, "another")
    assert not tokens.is_issued_to(BEN, token, "agent")
    assert not tokens.is_issued_to(ADA, unbound, "agent")


def test_one_user_cannot_evict_reply_tokens_of_another(clock: ManualClock) -> None:
    tokens = ReplyTokens(Settings(bus_reply_token_max=3, bus_reply_token_max_per_user=2), clock)
    hers, _ = tokens.issue(ADA, "thread")
    for _ in range(3):
        tokens.issue(BEN, "thread")

    with pytest.raises(Unavailable, match="the limit of 3 reply tokens is reached"):
        tokens.issue(ADA, "thread")

    assert tokens.consume(ADA, "thread", hers) is None
