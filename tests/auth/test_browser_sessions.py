"""Browser sessions: how they start, when they end, and that they belong to one user."""

from pathlib import Path

import pytest

from auth.browser_sessions import BrowserSessions
from auth.registry import Registry
from tests.auth.auth_fixture import FakeClock, make_settings

IDLE_S, LIFETIME_S = 3600.0, 86400.0


@pytest.fixture
def sessions(registry: Registry, clock: FakeClock) -> BrowserSessions:
    settings = make_settings(browser_session_idle_s=IDLE_S, browser_session_lifetime_s=LIFETIME_S)
    return BrowserSessions(registry.database, settings, clock)


async def test_session_leads_to_its_user(registry: Registry, sessions: BrowserSessions) -> None:
    ada, ben = await registry.add_user("ada"), await registry.add_user("ben")
    secrets = [await sessions.create(user, "192.0.2.1", "Firefox") for user in (ada, ben)]

    found = [await sessions.find(secret) for secret in secrets]

    assert [session.user for session in found if session] == [ada, ben]
    assert len({session.csrf_token for session in found if session}) == 2


async def test_secret_is_not_stored(registry: Registry, sessions: BrowserSessions) -> None:
    secret = await sessions.create(await registry.add_user("ada"))

    rows = await registry.database.read(lambda db: db.execute("SELECT * FROM browser_sessions").fetchall())

    assert secret not in repr(rows)
    assert await sessions.find(rows[0][0].hex()) is None


async def test_session_ends_when_idle(registry: Registry, sessions: BrowserSessions, clock: FakeClock) -> None:
    secret = await sessions.create(await registry.add_user("ada"))
    clock.advance(IDLE_S - 1)
    assert await sessions.find(secret) is not None
    clock.advance(IDLE_S - 1)
    assert await sessions.find(secret) is not None
    clock.advance(IDLE_S)

    assert await sessions.find(secret) is None


@pytest.mark.sqlite
async def test_session_is_found_if_its_use_cannot_be_stored(tmp_path: Path, clock: FakeClock) -> None:
    """On a full disk, people who are signed in can still read, and withdraw access."""
    async with Registry.open(tmp_path / "control.db", clock=clock) as registry:
        sessions = BrowserSessions(registry.database, make_settings(), clock)
        secret = await sessions.create(await registry.add_user("ada"))
        clock.advance(61)
        # Every write fails from now on.
        await registry.database.read(lambda db: db.execute("PRAGMA query_only = ON").fetchall())

        session = await sessions.find(secret)

    assert session is not None
    assert session.user.name == "ada"


async def test_session_ends_however_often_it_is_used(
    registry: Registry, sessions: BrowserSessions, clock: FakeClock
) -> None:
    secret = await sessions.create(await registry.add_user("ada"))
    for _ in range(48):
        assert await sessions.find(secret) is not None
        clock.advance(LIFETIME_S / 48)

    assert await sessions.find(secret) is None


async def test_session_of_a_disabled_user_ends_for_good(registry: Registry, sessions: BrowserSessions) -> None:
    ada = await registry.add_user("ada")
    secret = await sessions.create(ada)
    await registry.disable_user(ada.id)
    await registry.enable_user(ada.id)

    assert await sessions.find(secret) is None


async def test_revoking_a_session_needs_its_owner(registry: Registry, sessions: BrowserSessions) -> None:
    ada, ben = await registry.add_user("ada"), await registry.add_user("ben")
    secret = await sessions.create(ada)
    (session,) = await sessions.list(ada.id)

    await sessions.revoke(ben.id, session.id)
    assert await sessions.find(secret) is not None
    await sessions.revoke(ada.id, session.id)

    assert await sessions.find(secret) is None


async def test_signing_out_everywhere_ends_all_sessions_of_one_user(
    registry: Registry, sessions: BrowserSessions
) -> None:
    ada, ben = await registry.add_user("ada"), await registry.add_user("ben")
    secrets = [await sessions.create(user) for user in (ada, ada, ben)]

    await sessions.revoke_all(ada.id)

    assert [await sessions.find(secret) is None for secret in secrets] == [True, True, False]
    assert await sessions.list(ada.id) == []


async def test_at_the_limit_the_session_that_was_used_least_recently_ends(registry: Registry, clock: FakeClock) -> None:
    sessions = BrowserSessions(registry.database, make_settings(), clock, sessions_max=2)
    ada, ben = await registry.add_user("ada"), await registry.add_user("ben")
    of_ben, first, second = await sessions.create(ben), await sessions.create(ada), await sessions.create(ada)
    clock.advance(100)
    assert await sessions.find(first) is not None
    third = await sessions.create(ada)

    assert [await sessions.find(secret) is not None for secret in (first, second, third)] == [True, False, True]
    assert await sessions.find(of_ben) is not None
