"""The contract of a session store: bounded, expiring, and visible to the owner only."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.context import ClientId, Owner
from auth.redis import open_redis
from config.errors import SessionNotFound, Unavailable
from config.paths import new_user_id
from sessions.redis import RedisSessionStore
from sessions.store import InProcessSessionStore, Session, SessionStore, new_session_id
from tests.build_settings import build_settings
from tests.cases import each_case
from tests.servers.aging import age_keys

ADA = Owner(new_user_id(), ClientId("client"), 0)
BEN = Owner(new_user_id(), ClientId("client"), 0)


class StoreFixture:
    """A store with small limits and a time that the test advances."""

    def __init__(self, store: SessionStore, advance: Callable[[float], Awaitable[None]]) -> None:
        self.store = store
        self.advance = advance

    async def create(self, owner: Owner) -> Session:
        session = Session(new_session_id(), owner, "2025-11-25", "specimen", "1", {"elicitation": {}})
        await self.store.create(session)
        return session

    async def finds(self, session: Session, owner: Owner) -> bool:
        try:
            return await self.store.get(session.id, owner) is session
        except SessionNotFound:
            return False


class ManualStoreClock:
    def __init__(self) -> None:
        self.now = 0.0

    async def advance(self, seconds: float) -> None:
        self.now += seconds


def in_process(ttl_s: float = 10.0, max_total: int = 4, max_per_user: int = 2) -> StoreFixture:
    clock = ManualStoreClock()
    return StoreFixture(InProcessSessionStore(ttl_s, max_total, max_per_user, lambda: clock.now), clock.advance)


@pytest.fixture(params=["in this process", "in Redis"])
async def fixture(request: pytest.FixtureRequest) -> AsyncIterator[StoreFixture]:
    """Every implementation, with room for four sessions and for two of a user; each must pass the tests below."""
    if request.param == "in this process":
        yield in_process()
        return
    async with redis_store(request.getfixturevalue("redis_settings")) as store:
        yield store


@asynccontextmanager
async def redis_store(redis_settings: dict[str, Any]) -> AsyncIterator[StoreFixture]:
    settings = build_settings(**redis_settings, session_ttl_s=10, session_max=4, session_max_per_user=2)
    async with open_redis(settings) as connection:
        yield StoreFixture(RedisSessionStore(connection, settings), partial(age_keys, connection))


async def test_session_is_found_by_its_owner_only(fixture: StoreFixture) -> None:
    ada, ben = await fixture.create(ADA), await fixture.create(BEN)

    assert await fixture.finds(ada, ADA)
    assert await fixture.finds(ben, BEN)
    assert not await fixture.finds(ada, BEN)
    assert not await fixture.finds(ben, ADA)


@each_case(
    "other",
    [ADA._replace(client_id=ClientId("another")), ADA._replace(epoch=1)],
)
async def test_another_client_or_epoch_of_the_same_user_is_another_owner(fixture: StoreFixture, other: Owner) -> None:
    assert not await fixture.finds(await fixture.create(ADA), other)


async def test_foreign_session_and_unknown_session_raise_the_same_error(fixture: StoreFixture) -> None:
    session = await fixture.create(ADA)

    with pytest.raises(SessionNotFound) as foreign:
        await fixture.store.get(session.id, BEN)
    with pytest.raises(SessionNotFound) as unknown:
        await fixture.store.get("unknown", BEN)

    assert (foreign.value.message, foreign.value.data) == (unknown.value.message, unknown.value.data)


async def test_access_by_another_owner_does_not_extend_the_idle_time(fixture: StoreFixture) -> None:
    session = await fixture.create(ADA)

    await fixture.advance(9)
    assert not await fixture.finds(session, BEN)
    await fixture.advance(1)

    assert not await fixture.finds(session, ADA)


async def test_session_expires_after_its_idle_time_and_not_before(fixture: StoreFixture) -> None:
    session = await fixture.create(ADA)

    await fixture.advance(9)
    assert await fixture.finds(session, ADA)
    await fixture.advance(9)
    assert await fixture.finds(session, ADA)
    await fixture.advance(10)

    assert not await fixture.store.holds(session)
    assert not await fixture.finds(session, ADA)
    assert len(fixture.store) == 0


async def test_ended_session_is_gone_and_ending_it_again_is_harmless(fixture: StoreFixture) -> None:
    session, other = await fixture.create(ADA), await fixture.create(BEN)

    await fixture.store.end(session)
    await fixture.store.end(session)

    assert not await fixture.finds(session, ADA)
    assert await fixture.finds(other, BEN)
    assert len(fixture.store) == 1


async def test_user_at_the_limit_loses_the_least_recently_used_session(fixture: StoreFixture) -> None:
    ben = await fixture.create(BEN)
    first, second = await fixture.create(ADA), await fixture.create(ADA)
    assert await fixture.finds(first, ADA)

    third = await fixture.create(ADA)

    assert not await fixture.finds(second, ADA)
    for session, owner in ((first, ADA), (third, ADA), (ben, BEN)):
        assert await fixture.finds(session, owner)


async def test_total_limit_rejects_new_sessions_until_one_expires(fixture: StoreFixture) -> None:
    carol = ADA._replace(user_id=new_user_id())
    for owner in (ADA, ADA):
        await fixture.create(owner)
    await fixture.advance(5)
    for owner in (BEN, BEN):
        await fixture.create(owner)

    with pytest.raises(Unavailable):
        await fixture.create(carol)
    await fixture.advance(5)

    assert await fixture.finds(await fixture.create(carol), carol)


async def test_user_can_replace_an_own_session_at_the_total_limit(fixture: StoreFixture) -> None:
    for owner in (ADA, ADA, BEN, BEN):
        await fixture.create(owner)

    assert await fixture.finds(await fixture.create(ADA), ADA)


@each_case("text", ["", "}:{", "a\r\nFLUSHALL", "x" * 5_000, "\ud800"])
async def test_any_text_as_a_session_id_is_not_found(fixture: StoreFixture, text: str) -> None:
    await fixture.create(ADA)

    with pytest.raises(SessionNotFound):
        await fixture.store.get(text, ADA)


async def test_session_opened_by_one_process_is_known_to_another(redis_settings: dict[str, Any]) -> None:
    async with redis_store(redis_settings) as one, redis_store(redis_settings) as other:
        session = await one.create(ADA)
        session.subscriptions.add("notes://1")
        session.log_level = "debug"
        await one.store.save(session)

        known = await other.store.get(session.id, ADA)
        with pytest.raises(SessionNotFound):
            await other.store.get(session.id, BEN)
        await other.store.end(known)

        assert (known.version, known.client_name, known.capabilities) == ("2025-11-25", "specimen", {"elicitation": {}})
        assert (known.log_level, known.subscriptions) == ("debug", {"notes://1"})
        assert not await one.finds(session, ADA)


async def test_limits_count_the_sessions_of_all_processes(redis_settings: dict[str, Any]) -> None:
    async with redis_store(redis_settings) as one, redis_store(redis_settings) as other:
        first = await one.create(ADA)
        for _ in range(2):
            await other.create(ADA)

        assert not await one.finds(first, ADA)


def test_session_id_is_long_random_and_visible_ascii() -> None:
    ids = {new_session_id() for _ in range(100)}

    assert len(ids) == 100
    assert all(len(i) >= 43 and all("!" <= c <= "~" for c in i) for i in ids)


STEPS = st.lists(
    st.tuples(st.sampled_from(("create", "get", "end", "wait")), st.sampled_from((ADA, BEN)), st.integers(0, 7)),
    max_size=40,
)


@given(STEPS)
async def test_limits_and_ownership_hold_for_any_sequence_of_calls(steps: list[tuple[str, Owner, int]]) -> None:
    fixture, created = in_process(ttl_s=10, max_total=3, max_per_user=2), list[Session]()

    for action, owner, number in steps:
        await _run_step(fixture, created, action, owner, number)
        alive = [session for session in created if await fixture.store.holds(session)]
        assert len(alive) == len(fixture.store) <= 3
        assert all(sum(s.owner == user for s in alive) <= 2 for user in (ADA, BEN))


async def _run_step(fixture: StoreFixture, created: list[Session], action: str, owner: Owner, number: int) -> None:
    session = created[number % len(created)] if created else None
    match action:
        case "create":
            try:
                created.append(await fixture.create(owner))
            except Unavailable:
                assert len(fixture.store) == 3
        case "get" if session is not None:
            assert await fixture.finds(session, owner) == (
                await fixture.store.holds(session) and session.owner == owner
            )
        case "end" if session is not None:
            await fixture.store.end(session)
        case "wait":
            await fixture.advance(number)
