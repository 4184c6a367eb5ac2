"""Agents and reply tokens of two users, in bounded memory and with a clock of the test's own."""

import pytest

from config.errors import Unavailable
from config.paths import UserId
from config.settings import Settings
from server.compat.agentchatbus.agents import Agents, ReplyTokens

ADA, BEN = UserId("ada"), UserId("ben")


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


# -- agents


def test_an_agent_is_known_by_its_own_token_to_its_own_user(clock: Clock) -> None:
    agents = Agents(Settings(), clock)

    agent, token = agents.register(ADA, "Cursor (gpt)")
    other, other_token = agents.register(ADA, "Claude (opus)")

    assert agents.verify(ADA, agent.id, token) == agent
    assert agents.verify(ADA, agent.id, other_token) is None
    assert agents.verify(BEN, agent.id, token) is None
    assert agents.find(BEN, agent.id) is None
    assert token not in repr(agent)
    assert other.id != agent.id


def test_agents_of_one_user_have_names_of_their_own(clock: Clock) -> None:
    agents = Agents(Settings(), clock)

    names = [agents.register(user, "Cursor (gpt)")[0].name for user in (ADA, ADA, ADA, BEN)]

    assert names == ["Cursor (gpt)", "Cursor (gpt) 2", "Cursor (gpt) 3", "Cursor (gpt)"]


def test_of_too_many_agents_the_one_unseen_longest_is_forgotten(clock: Clock) -> None:
    agents = Agents(Settings(bus_agent_max_per_user=2), clock)
    (first, token), (second, _) = agents.register(ADA, "one"), agents.register(ADA, "two")
    agents.verify(ADA, first.id, token)

    agents.register(ADA, "three")

    assert agents.find(ADA, second.id) is None
    assert agents.find(ADA, first.id) == first


def test_no_user_can_push_out_anothers_agents(clock: Clock) -> None:
    agents = Agents(Settings(bus_agent_max=3, bus_agent_max_per_user=2), clock)
    kept, _ = agents.register(ADA, "one")
    for name in ("two", "three", "four"):
        agents.register(BEN, name)

    with pytest.raises(Unavailable, match="as many agents as there may be"):
        agents.register(ADA, "five")

    assert agents.find(ADA, kept.id) == kept


def test_an_agent_that_was_long_silent_is_forgotten_and_makes_room(clock: Clock) -> None:
    agents = Agents(Settings(bus_agent_max=2, bus_agent_ttl_s=60), clock)
    busy, token = agents.register(BEN, "busy")
    silent, _ = agents.register(ADA, "silent")
    clock.now += 59
    agents.verify(BEN, busy.id, token)
    clock.now += 1

    assert agents.find(ADA, silent.id) is None
    assert agents.find(BEN, busy.id) == busy
    assert agents.register(ADA, "new")[0].name == "new"


def test_one_agent_at_a_time_can_be_all_that_is_allowed(clock: Clock) -> None:
    agents = Agents(Settings(bus_agent_max_per_user=1, bus_agent_max=1), clock)
    first, _ = agents.register(ADA, "one")
    second, _ = agents.register(ADA, "two")

    assert (agents.find(ADA, first.id), agents.find(ADA, second.id)) == (None, second)


# -- reply tokens


def test_a_reply_token_is_good_once(clock: Clock) -> None:
    tokens = ReplyTokens(Settings(), clock)
    token, _ = tokens.issue(ADA, "thread")

    assert tokens.spend(ADA, "thread", token) is None
    clock.now += 5
    assert tokens.spend(ADA, "thread", token) == ("TOKEN_REPLAY", 1_000.0)


def test_a_reply_token_is_good_for_its_user_and_thread_alone(clock: Clock) -> None:
    tokens = ReplyTokens(Settings(), clock)
    token, _ = tokens.issue(ADA, "thread")

    for user, thread, shown in ((BEN, "thread", token), (ADA, "another", token), (ADA, "thread", "made up")):
        assert tokens.spend(user, thread, shown) == ("TOKEN_INVALID", None)
    assert tokens.spend(ADA, "thread", token) is None


def test_a_reply_token_expires_and_is_told_from_one_that_never_was(clock: Clock) -> None:
    tokens = ReplyTokens(Settings(bus_reply_token_ttl_s=60), clock)
    token, expires_at = tokens.issue(ADA, "thread")
    clock.now += 60

    assert expires_at == 1_060.0
    assert tokens.spend(ADA, "thread", token) == ("TOKEN_EXPIRED", 1_060.0)
    clock.now += 60
    assert tokens.spend(ADA, "thread", token) == ("TOKEN_INVALID", None)


def test_a_reply_token_that_was_given_back_is_good_again(clock: Clock) -> None:
    tokens = ReplyTokens(Settings(), clock)
    token, _ = tokens.issue(ADA, "thread")
    tokens.spend(ADA, "thread", token)

    tokens.give_back(BEN, token)
    assert tokens.spend(ADA, "thread", token) == ("TOKEN_REPLAY", 1_000.0)
    tokens.give_back(ADA, token)
    assert tokens.spend(ADA, "thread", token) is None


def test_of_too_many_reply_tokens_the_oldest_is_forgotten(clock: Clock) -> None:
    tokens = ReplyTokens(Settings(bus_reply_token_max_per_user=2), clock)
    issued = [tokens.issue(ADA, "thread")[0] for _ in range(3)]

    assert [tokens.spend(ADA, "thread", token) for token in issued] == [("TOKEN_INVALID", None), None, None]
