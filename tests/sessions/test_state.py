"""The contract of a session state store: bounded, expiring, and visible to its owner only."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from auth.context import ClientId, Owner, SessionId
from auth.redis import open_redis
from config.errors import SessionNotFound
from config.paths import new_user_id
from sessions.redis import RedisSessionStates
from sessions.state import (
    InProcessSessionStates,
    SessionHandle,
    SessionState,
    SessionStateLimits,
    SessionStates,
    handle_for,
)
from sessions.store import new_session_id
from tests.build_settings import build_settings
from tests.cases import each_case
from tests.servers.aging import age_keys, list_keys

ADA = Owner(new_user_id(), ClientId("client"), 0)
BEN = Owner(new_user_id(), ClientId("client"), 0)
LIMITS = SessionStateLimits(ttl_s=10, seen_max=4, queries_max=3, total_max=10_000, user_max=1_000)


class ManualClock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def advance(self, seconds: float) -> None:
        self.now += seconds


class StatesFixture(Struct, frozen=True):
    states: SessionStates
    advance: Callable[[float], Awaitable[None]]


@pytest.fixture(params=["in this process", "in Redis"])
async def fixture(request: pytest.FixtureRequest) -> AsyncIterator[StatesFixture]:
    """Every implementation of the store; each must pass the tests below."""
    if request.param == "in this process":
        clock = ManualClock()
        yield StatesFixture(InProcessSessionStates(LIMITS, clock), clock.advance)
        return
    async with open_redis(build_settings(**request.getfixturevalue("redis_settings"))) as connection:
        yield StatesFixture(RedisSessionStates(connection, LIMITS), partial(age_keys, connection))


@pytest.fixture
def states(fixture: StatesFixture) -> SessionStates:
    return fixture.states


def has_seen(state: SessionState, *uris: str, version: int = 1) -> bool:
    """Whether these items were seen and no others."""
    return len(state.seen) == len(uris) and all(state.seen.has(uri, version) for uri in uris)


async def find(states: SessionStates, handle: SessionHandle, owner: Owner) -> SessionState | None:
    try:
        return await states.get(handle, owner)
    except SessionNotFound:
        return None


async def test_state_contains_delivered_items_queries_and_defaults(states: SessionStates) -> None:
    handle = (await states.create(ADA)).handle

    await states.record(handle, ADA, "galleon", {"notes://1": 3})
    await states.set_defaults(handle, ADA, {"order_by": "recent"})
    state = await states.get(handle, ADA)

    assert has_seen(state, "notes://1", version=3)
    assert (state.queries, dict(state.defaults)) == (("galleon",), {"order_by": "recent"})


async def test_another_version_of_a_delivered_item_is_not_seen(states: SessionStates) -> None:
    handle = (await states.create(ADA)).handle

    await states.record(handle, ADA, "galleon", {"notes://1": 3})
    seen = (await states.get(handle, ADA)).seen

    assert (seen.has("notes://1", 3), seen.has("notes://1", 4), seen.has("notes://2", 3)) == (True, False, False)


async def test_state_is_visible_to_its_owner_only(states: SessionStates) -> None:
    ada, ben = (await states.create(ADA)).handle, (await states.create(BEN)).handle

    assert await find(states, ada, ADA)
    assert await find(states, ben, BEN)
    assert await find(states, ada, BEN) is None
    assert await find(states, ben, ADA) is None


@each_case("other", [ADA._replace(client_id=ClientId("another")), ADA._replace(epoch=1)])
async def test_another_client_or_epoch_of_the_same_user_is_another_owner(states: SessionStates, other: Owner) -> None:
    assert await find(states, (await states.create(ADA)).handle, other) is None


@each_case("text", ["", "unknown", "x" * 5_000])
async def test_unknown_handle_and_foreign_handle_raise_the_same_error(states: SessionStates, text: str) -> None:
    foreign = (await states.create(BEN)).handle

    for handle in (SessionHandle(text), foreign):
        for call in (
            states.get(handle, ADA),
            states.set_defaults(handle, ADA, {}),
            states.reset(handle, ADA),
        ):
            with pytest.raises(SessionNotFound, match=r"^session not found$"):
                await call
        await states.record(handle, ADA, "query", {"notes://1": 1})

    assert (await states.get(foreign, BEN)).queries == ()


async def test_two_users_with_the_same_session_id_have_separate_states(states: SessionStates) -> None:
    handle = handle_for(SessionId("the same"))
    await states.get_or_create(handle, ADA)
    await states.get_or_create(handle, BEN)

    await states.record(handle, ADA, "galleon", {"notes://1": 1})

    assert has_seen(await states.get(handle, ADA), "notes://1")
    assert has_seen(await states.get(handle, BEN))


async def test_get_or_create_returns_the_existing_state(states: SessionStates) -> None:
    handle = handle_for(new_session_id())
    await states.get_or_create(handle, ADA)
    await states.record(handle, ADA, "galleon", {"notes://1": 1})

    assert has_seen(await states.get_or_create(handle, ADA), "notes://1")
    assert (await states.get(handle, ADA)).queries == ("galleon",)


def test_handle_does_not_reveal_the_session_id() -> None:
    session = new_session_id()

    assert handle_for(session) == handle_for(session)
    assert handle_for(session) != handle_for(new_session_id())
    assert session[:8] not in handle_for(session)


async def test_state_expires_after_its_idle_time(fixture: StatesFixture) -> None:
    states = fixture.states
    handle = (await states.create(ADA)).handle

    await fixture.advance(9)
    assert await find(states, handle, ADA)
    await fixture.advance(9)
    assert await find(states, handle, ADA)
    await fixture.advance(10)

    assert await find(states, handle, ADA) is None


async def test_access_by_another_owner_does_not_extend_the_idle_time(fixture: StatesFixture) -> None:
    states = fixture.states
    handle = (await states.create(ADA)).handle

    await fixture.advance(9)
    assert await find(states, handle, BEN) is None
    await fixture.advance(1)

    assert await find(states, handle, ADA) is None


async def test_oldest_delivered_items_are_dropped_first(states: SessionStates) -> None:
    handle = (await states.create(ADA)).handle

    for number in range(6):
        await states.record(handle, ADA, "", {f"notes://{number}": 1})

    assert has_seen(await states.get(handle, ADA), *(f"notes://{number}" for number in range(2, 6)))


async def test_a_session_keeps_as_few_items_as_it_asks_for_and_never_more_than_the_limit(
    states: SessionStates,
) -> None:
    few, many = (await states.create(ADA)).handle, (await states.create(ADA)).handle
    delivered = {f"notes://{number}": 1 for number in range(6)}

    await states.record(few, ADA, "galleon", delivered, 2)
    await states.record(many, ADA, "galleon", delivered, 1_000)

    assert has_seen(await states.get(few, ADA), "notes://4", "notes://5")
    assert len((await states.get(many, ADA)).seen) == LIMITS.seen_max


async def test_item_delivered_again_is_not_the_oldest(states: SessionStates) -> None:
    handle = (await states.create(ADA)).handle

    for number in (0, 1, 2, 3, 0, 4):
        await states.record(handle, ADA, "", {f"notes://{number}": 1})

    assert has_seen(await states.get(handle, ADA), *(f"notes://{number}" for number in (2, 3, 0, 4)))


async def test_repeated_query_is_listed_once_at_its_latest_position(states: SessionStates) -> None:
    handle = (await states.create(ADA)).handle

    for query in ("a", "b", "c", "d", "b", ""):
        await states.record(handle, ADA, query, {})

    assert (await states.get(handle, ADA)).queries == ("c", "d", "b")


async def test_reset_clears_everything_but_the_handle(states: SessionStates) -> None:
    handle = (await states.create(ADA)).handle
    await states.record(handle, ADA, "galleon", {"notes://1": 1})
    await states.set_defaults(handle, ADA, {"order_by": "recent"})

    before = await states.reset(handle, ADA)

    assert (len(before.seen), before.queries) == (1, ("galleon",))
    empty = await states.get(handle, ADA)
    assert has_seen(empty)
    assert (empty.queries, dict(empty.defaults)) == ((), {})


async def test_a_user_at_the_limit_loses_the_least_recently_used_states(states: SessionStates) -> None:
    ben = (await states.create(BEN)).handle
    first = (await states.create(ADA)).handle
    handles = [(await states.create(ADA)).handle for _ in range(LIMITS.user_max // 4)]

    assert await find(states, first, ADA) is None
    assert await find(states, handles[-1], ADA)
    assert await find(states, ben, BEN)


@each_case("text", ["", "}:{", "a:b\r\nDEL x", "\0", "*" * 300, "é\ud800"])
async def test_any_text_as_a_handle_leads_to_a_state_of_its_own(states: SessionStates, text: str) -> None:
    handle, other = SessionHandle(text), SessionHandle(f"{text}:seen")
    for one in (handle, other):
        await states.get_or_create(one, ADA)
    await states.record(handle, ADA, text, {text: 1})
    await states.set_defaults(handle, ADA, {"order_by": text.replace("\ud800", "")})

    state = await states.get(handle, ADA)
    assert (state.seen.has(text, 1), state.queries) == (True, (text,) if text else ())
    assert has_seen(await states.get(other, ADA))
    assert await find(states, handle, BEN) is None


async def test_delete_removes_one_state_and_keeps_the_others(states: SessionStates) -> None:
    handle, other, ben = [(await states.create(owner)).handle for owner in (ADA, ADA, BEN)]

    await states.delete(handle, ADA)

    assert await find(states, handle, ADA) is None
    assert await find(states, other, ADA)
    assert await find(states, ben, BEN)


async def test_delete_ignores_unknown_and_foreign_handles(states: SessionStates) -> None:
    ben = (await states.create(BEN)).handle

    for handle in (SessionHandle("unknown"), ben):
        await states.delete(handle, ADA)

    assert await find(states, ben, BEN)


async def test_every_key_of_a_state_in_redis_expires(redis_settings: Mapping[str, Any]) -> None:
    async with open_redis(build_settings(**redis_settings)) as connection:
        states = RedisSessionStates(connection, LIMITS)
        handle = (await states.create(ADA)).handle
        await states.record(handle, ADA, "galleon", {"notes://1": 1})
        await states.delete(SessionHandle("unknown"), BEN)
        await states.get(handle, ADA)

        keys = await list_keys(connection)
        lifetimes = [await connection.call("PTTL", key) for key in keys]
        assert len(keys) == 3
        assert all(0 < lifetime <= LIMITS.ttl_s * 1000 for lifetime in lifetimes)


async def test_names_that_callers_send_are_not_kept_if_they_are_long(redis_settings: Mapping[str, Any]) -> None:
    async with open_redis(build_settings(**redis_settings)) as connection:
        states, long = RedisSessionStates(connection, LIMITS), SessionHandle("x" * 1_000_000)
        references = sys.getrefcount(long)
        assert await find(states, long, ADA) is None

        assert sys.getrefcount(long) == references


async def test_deleted_state_no_longer_counts_towards_the_size() -> None:
    states = InProcessSessionStates(LIMITS)
    handles = [(await states.create(ADA)).handle for _ in range(2)]
    both = states.size

    await states.delete(handles[0], ADA)
    assert 0 < states.size < both
    await states.delete(handles[1], ADA)
    assert states.size == 0


async def test_twenty_thousand_sessions_of_one_user_evict_only_that_users_sessions() -> None:
    states = InProcessSessionStates(LIMITS)
    ben = (await states.create(BEN)).handle

    handles = [(await states.create(ADA)).handle for _ in range(20_000)]

    assert states.size <= LIMITS.user_max + 10
    assert await find(states, ben, BEN)
    assert await find(states, handles[-1], ADA)
    assert await find(states, handles[0], ADA) is None


async def test_at_the_total_limit_the_least_recently_active_user_is_evicted() -> None:
    states = InProcessSessionStates(replace(LIMITS, total_max=100, user_max=50))
    owners = [Owner(new_user_id(), ClientId("client"), 0) for _ in range(100)]

    handles = [(await states.create(owner)).handle for owner in owners]

    assert states.size <= 100
    assert await find(states, handles[-1], owners[-1])
    assert await find(states, handles[0], owners[0]) is None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("create", "record", "set_defaults", "delete", "wait")), st.booleans(), st.integers(0, 30)
    ),
    max_size=60,
)


@given(STEPS, st.integers(1_000, 1_200))
async def test_limits_hold_for_any_sequence_of_calls(steps: list[tuple[str, bool, int]], total: int) -> None:
    clock = ManualClock()
    states = InProcessSessionStates(replace(LIMITS, total_max=total // 20, user_max=30), clock)
    created: list[tuple[SessionHandle, Owner]] = []

    for action, is_ada, number in steps:
        await _run_step(states, clock, created, action, ADA if is_ada else BEN, number)
        assert states.size <= total // 20


async def _run_step(
    states: InProcessSessionStates,
    clock: ManualClock,
    created: list[tuple[SessionHandle, Owner]],
    action: str,
    owner: Owner,
    number: int,
) -> None:
    if action == "wait":
        clock.now += number
    elif action == "create" or not created:
        created.append(((await states.create(owner)).handle, owner))
    else:
        handle, creator = created[number % len(created)]
        if await find(states, handle, creator) is None:
            return
        items: Mapping[str, Any] = {f"notes://{n}": 1 for n in range(number)}
        if action == "record":
            await states.record(handle, creator, str(number), items)
            assert len((await states.get(handle, creator)).seen) <= LIMITS.seen_max
        elif action == "delete":
            await states.delete(handle, creator)
        else:
            await states.set_defaults(handle, creator, {"max_tokens": number})
