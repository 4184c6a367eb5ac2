"""Agents of two users, with limits and a manual clock."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server.compat.agentchatbus.agents import AgentRegistry
from sources.storage.collections.items import Agents
from tests.cases import each_case
from tests.server.compat.agentchatbus.manual_clock import ManualClock
from tests.sources.source_fixture import open_source_fixture

DAY_S = 86_400


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000.0)


@pytest.fixture
async def libraries(tmp_path: Path) -> AsyncIterator[tuple[Agents, Agents]]:
    """The stored agents of Ada and of Ben."""
    async with (
        open_source_fixture(tmp_path) as fixture,
        fixture.libraries.library(fixture.ada.context) as ada,
        fixture.libraries.library(fixture.ben.context) as ben,
    ):
        yield ada.agents, ben.agents


async def test_agent_token_verifies_only_its_agent_of_its_user(
    libraries: tuple[Agents, Agents], clock: ManualClock
) -> None:
    (ada, ben), registry = libraries, AgentRegistry(clock)

    agent, token = await registry.register(ada, "Cursor (gpt)")
    other, other_token = await registry.register(ada, "Claude (opus)")

    assert await registry.verify(ada, agent.id, token) == agent
    assert await registry.verify(ada, agent.id, other_token) is None
    assert await registry.verify(ben, agent.id, token) is None
    assert await registry.find(ben, agent.id) is None
    assert token not in repr(agent)
    assert other.id != agent.id


async def test_agent_names_are_unique_per_user(libraries: tuple[Agents, Agents], clock: ManualClock) -> None:
    (ada, ben), registry = libraries, AgentRegistry(clock)

    names = [(await registry.register(agents, "Cursor (gpt)"))[0].name for agents in (ada, ada, ada, ben)]

    assert names == ["Cursor (gpt)", "Cursor (gpt) 2", "Cursor (gpt) 3", "Cursor (gpt)"]


async def test_least_recently_used_agent_is_dropped_at_the_limit(
    libraries: tuple[Agents, Agents], clock: ManualClock
) -> None:
    (ada, ben), registry = libraries, AgentRegistry(clock, agents_max=2)
    (first, token), (second, _) = await registry.register(ada, "one"), await registry.register(ada, "two")
    clock.now += DAY_S
    await registry.verify(ada, first.id, token)

    await registry.register(ada, "three")
    for name in ("one", "two", "three"):
        await registry.register(ben, name)

    assert await registry.find(ada, second.id) is None
    remaining = await registry.find(ada, first.id)
    assert remaining is not None
    assert remaining.name == "one"


async def test_idle_agent_expires_and_frees_its_name(libraries: tuple[Agents, Agents], clock: ManualClock) -> None:
    (ada, _), registry = libraries, AgentRegistry(clock, ttl_s=10 * DAY_S)
    busy, token = await registry.register(ada, "busy")
    idle, idle_token = await registry.register(ada, "idle")
    clock.now += 9 * DAY_S
    await registry.verify(ada, busy.id, token)
    clock.now += 2 * DAY_S

    assert await registry.find(ada, idle.id) is None
    assert await registry.verify(ada, idle.id, idle_token) is None
    assert await registry.verify(ada, busy.id, token) is not None
    assert (await registry.register(ada, "idle"))[0].name == "idle"


async def test_limit_of_one_agent_keeps_the_latest(libraries: tuple[Agents, Agents], clock: ManualClock) -> None:
    (ada, _), registry = libraries, AgentRegistry(clock, agents_max=1)
    first, _ = await registry.register(ada, "one")
    second, _ = await registry.register(ada, "two")

    assert (await registry.find(ada, first.id), await registry.find(ada, second.id)) == (None, second)


@each_case("agent_id", ["", "nobody", "\x00", "\ud800"])
async def test_unknown_agent_is_not_found(libraries: tuple[Agents, Agents], clock: ManualClock, agent_id: str) -> None:
    (ada, _), registry = libraries, AgentRegistry(clock)

    assert await registry.find(ada, agent_id) is None
    assert await registry.verify(ada, agent_id, "\ud800") is None
