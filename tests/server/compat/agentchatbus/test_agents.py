"""Agents and reply tokens of two users, with bounded stores and a manual clock."""

import pytest

from config.errors import Unavailable
from config.paths import UserId
from config.settings import Settings
from server.compat.agentchatbus.agents import AgentRegistry, ReplyTokens

ADA, BEN = UserId("ada"), UserId("ben")


class ManualClock:
    """Moves only when a test changes `now`."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


# Agents


def test_agent_token_verifies_only_its_agent_of_its_user(clock: ManualClock) -> None:
    agents = AgentRegistry(Settings(), clock)

    agent, token = agents.register(ADA, "Cursor (gpt)")
    other, other_token = agents.register(ADA, "Claude (opus)")

    assert agents.verify(ADA, agent.id, token) == agent
    assert agents.verify(ADA, agent.id, other_token) is None
    assert agents.verify(BEN, agent.id, token) is None
    assert agents.find(BEN, agent.id) is None
    assert token not in repr(agent)
    assert other.id != agent.id


def test_agent_names_are_unique_per_user(clock: ManualClock) -> None:
    agents = AgentRegistry(Settings(), clock)

    names = [agents.register(user, "Cursor (gpt)")[0].name for user in (ADA, ADA, ADA, BEN)]

    assert names == ["Cursor (gpt)", "Cursor (gpt) 2", "Cursor (gpt) 3", "Cursor (gpt)"]


def test_least_recently_used_agent_is_dropped_at_the_user_limit(clock: ManualClock) -> None:
    agents = AgentRegistry(Settings(bus_agent_max_per_user=2), clock)
    (first, token), (second, _) = agents.register(ADA, "one"), agents.register(ADA, "two")
    agents.verify(ADA, first.id, token)

    agents.register(ADA, "three")

    assert agents.find(ADA, second.id) is None
    assert agents.find(ADA, first.id) == first


def test_one_user_cannot_evict_agents_of_another(clock: ManualClock) -> None:
    agents = AgentRegistry(Settings(bus_agent_max=3, bus_agent_max_per_user=2), clock)
    hers, _ = agents.register(ADA, "one")
    for name in ("two", "three", "four"):
        agents.register(BEN, name)

    with pytest.raises(Unavailable, match="the limit of 3 agents is reached"):
        agents.register(ADA, "five")

    assert agents.find(ADA, hers.id) == hers


def test_unused_agent_expires_and_frees_its_place(clock: ManualClock) -> None:
    agents = AgentRegistry(Settings(bus_agent_max=2, bus_agent_ttl_s=60), clock)
    busy, token = agents.register(BEN, "busy")
    idle, _ = agents.register(ADA, "idle")
    clock.now += 59
    agents.verify(BEN, busy.id, token)
    clock.now += 1

    assert agents.find(ADA, idle.id) is None
    assert agents.find(BEN, busy.id) == busy
    assert agents.register(ADA, "new")[0].name == "new"


def test_limit_of_one_agent_keeps_the_latest(clock: ManualClock) -> None:
    agents = AgentRegistry(Settings(bus_agent_max_per_user=1, bus_agent_max=1), clock)
    first, _ = agents.register(ADA, "one")
    second, _ = agents.register(ADA, "two")

    assert (agents.find(ADA, first.id), agents.find(ADA, second.id)) == (None, second)


# Reply tokens


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
