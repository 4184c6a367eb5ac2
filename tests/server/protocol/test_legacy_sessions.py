"""A legacy session and its memory: they begin, expire and end together, and belong to one principal."""

from typing import Any

import pytest
from msgspec.structs import replace

from auth.principal import Principal
from config.errors import InvalidParams, SessionNotFound
from server.protocol.legacy_sessions import LegacySessions
from server.protocol.profiles import EVERYTHING, Profile, Profiles
from sessions.session import Session
from sessions.state import InProcessSessionStates, SessionStateLimits, handle_for
from sessions.store import InProcessSessionStore
from tests.server.clients import handshake
from tests.server.protocol.dispatcher_fixture import make_principal

TTL_S = 10.0
PROFILES = Profiles((EVERYTHING, Profile(name="narrow"), Profile(name="other")), {"known": "narrow"})


class House:
    """Sessions and their states by one clock, which the test turns."""

    def __init__(self) -> None:
        self.now = 0.0
        limits = SessionStateLimits(ttl_s=TTL_S, seen_max=10, queries_max=10, total_max=1_000, user_max=500)
        self.session_states = InProcessSessionStates(limits, self._clock)
        self.sessions = LegacySessions(InProcessSessionStore(TTL_S, 10, 10, self._clock), self.session_states, PROFILES)

    def _clock(self) -> float:
        return self.now

    async def open(self, principal: Principal, named: str | None = None, **config: Any) -> Session:
        params = handshake()["params"]
        return await self.sessions.open(principal, {**params, "config": config} if config else params, named)

    async def defaults(self, session: Session) -> dict[str, Any] | None:
        try:
            return dict((await self.session_states.get(handle_for(session.id), session.owner)).defaults)
        except SessionNotFound:
            return None


@pytest.fixture
def house() -> House:
    return House()


ADA, BEN = make_principal("ada"), make_principal("ben")


async def test_a_config_in_the_handshake_is_remembered_for_that_session_alone(house: House) -> None:
    ada, ben = await house.open(ADA, max_tokens=700), await house.open(BEN, max_tokens=300)

    assert [await house.defaults(session) for session in (ada, ben)] == [{"max_tokens": 700}, {"max_tokens": 300}]


async def test_a_handshake_without_config_makes_no_memory(house: House) -> None:
    assert await house.defaults(await house.open(ADA)) is None
    assert house.session_states.size == 0


async def test_a_handshake_whose_config_is_refused_opens_no_session(house: House) -> None:
    with pytest.raises(InvalidParams):
        await house.open(ADA, token="hunter2")

    assert (len(house.sessions), house.session_states.size) == (0, 0)


async def test_ending_a_session_ends_its_memory_and_no_others(house: House) -> None:
    ada, other, ben = [await house.open(principal, max_tokens=700) for principal in (ADA, ADA, BEN)]

    await house.sessions.end(ada)

    assert await house.defaults(ada) is None
    assert await house.defaults(other)
    assert await house.defaults(ben)
    with pytest.raises(SessionNotFound):
        house.sessions.find(ada.id, ADA)


async def test_when_a_session_expires_nothing_is_left_to_remember(house: House) -> None:
    session = await house.open(ADA, max_tokens=700)
    house.now = TTL_S - 1
    assert house.sessions.find(session.id, ADA) is session

    house.now += TTL_S

    assert not house.sessions.holds(session)
    assert await house.defaults(session) is None


@pytest.mark.parametrize("named", [None, "narrow", "other", "default"])
async def test_a_session_is_found_at_its_profile_and_where_none_is_named(house: House, named: str | None) -> None:
    session = await house.open(ADA, "narrow")

    if named in (None, "narrow"):
        assert house.sessions.find(session.id, ADA, named) is session
    else:
        with pytest.raises(SessionNotFound):
            house.sessions.find(session.id, ADA, named)


@pytest.mark.parametrize("named", [None, "narrow", "other"])
async def test_a_bound_caller_finds_its_session_everywhere_and_nobody_elses(house: House, named: str | None) -> None:
    bound = replace(ADA, profile="narrow")
    session = await house.open(bound, "other")

    assert session.profile == "narrow"
    assert house.sessions.find(session.id, bound, named) is session
    with pytest.raises(SessionNotFound):
        house.sessions.find(session.id, BEN, named)
