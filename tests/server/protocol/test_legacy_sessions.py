"""A legacy session and its state are created, expire and end together, and belong to one principal."""

from typing import Any

import pytest

from auth.context import Principal
from config.errors import InvalidParams, SessionNotFound
from server.protocol.catalog import EVERYTHING, Profile, Profiles
from server.protocol.legacy_sessions import LegacySessions
from sessions.state import InProcessSessionStates, SessionStateLimits, handle_for
from sessions.store import InProcessSessionStore, Session
from tests.server.clients import handshake
from tests.server.protocol.dispatcher_fixture import make_principal

TTL_S = 10.0
PROFILES = Profiles((EVERYTHING, Profile(name="narrow"), Profile(name="other")), {"known": "narrow"})


class SessionFixture:
    """Sessions and their states, with a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        limits = SessionStateLimits(ttl_s=TTL_S, seen_max=10, queries_max=10, total_max=1_000, user_max=500)
        self.session_states = InProcessSessionStates(limits, self._clock)
        self.sessions = LegacySessions(InProcessSessionStore(TTL_S, 10, 10, self._clock), self.session_states, PROFILES)

    def _clock(self) -> float:
        return self.now

    async def open(self, principal: Principal, address_profile: str | None = None, **config: Any) -> Session:
        params = handshake()["params"]
        return await self.sessions.open(principal, {**params, "config": config} if config else params, address_profile)

    async def defaults(self, session: Session) -> dict[str, Any] | None:
        try:
            return dict((await self.session_states.get(handle_for(session.id), session.owner)).defaults)
        except SessionNotFound:
            return None


@pytest.fixture
def fixture() -> SessionFixture:
    return SessionFixture()


ADA, BEN = make_principal("ada"), make_principal("ben")


async def test_a_config_in_the_handshake_applies_to_that_session_only(fixture: SessionFixture) -> None:
    ada, ben = await fixture.open(ADA, max_tokens=700), await fixture.open(BEN, max_tokens=300)

    assert [await fixture.defaults(session) for session in (ada, ben)] == [{"max_tokens": 700}, {"max_tokens": 300}]


async def test_a_handshake_without_config_creates_no_state(fixture: SessionFixture) -> None:
    assert await fixture.defaults(await fixture.open(ADA)) is None
    assert fixture.session_states.size == 0


async def test_a_handshake_with_an_invalid_config_opens_no_session(fixture: SessionFixture) -> None:
    with pytest.raises(InvalidParams):
        await fixture.open(ADA, token="hunter2")

    assert (len(fixture.sessions), fixture.session_states.size) == (0, 0)


async def test_an_expired_session_leaves_no_state(fixture: SessionFixture) -> None:
    session = await fixture.open(ADA, max_tokens=700)
    fixture.now = TTL_S - 1
    assert await fixture.sessions.find(session.id, ADA) is session

    fixture.now += TTL_S

    assert not await fixture.sessions.holds(session)
    assert await fixture.defaults(session) is None
