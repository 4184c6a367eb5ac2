"""What sessions remember, as any store of it must: bounded, forgetful after a while, closed to all but the owner."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from auth.context import SessionId
from auth.principal import ClientId
from config.errors import SessionNotFound
from config.paths import new_user_id
from sessions.memory import Handle, Limits, Memories, ProcessMemories, Remembered, handle_of
from sessions.session import Owner, new_session_id

ADA: Owner = (new_user_id(), ClientId("client"), 0)
BEN: Owner = (new_user_id(), ClientId("client"), 0)
LIMITS = Limits(ttl_s=10, seen_max=4, queries_max=3, total_max=10_000, user_max=1_000)


class Clock:
    """Time as the test tells it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=[ProcessMemories])
def memories(request: pytest.FixtureRequest, clock: Clock) -> Memories:
    """Every store there is; each must keep the contract below."""
    store: Memories = request.param(LIMITS, clock)
    return store


async def known(memories: Memories, handle: Handle, owner: Owner) -> Remembered | None:
    try:
        return await memories.recall(handle, owner)
    except SessionNotFound:
        return None


async def test_a_session_remembers_what_was_delivered_asked_and_set(memories: Memories) -> None:
    handle = (await memories.open(ADA)).handle

    await memories.remember(handle, ADA, "galleon", {"notes://1": 3})
    await memories.configure(handle, ADA, {"order_by": "recent"})
    told = await memories.recall(handle, ADA)

    assert (dict(told.seen), told.queries, dict(told.defaults)) == (
        {"notes://1": 3},
        ("galleon",),
        {"order_by": "recent"},
    )


async def test_a_memory_is_its_owners_alone(memories: Memories) -> None:
    ada, ben = (await memories.open(ADA)).handle, (await memories.open(BEN)).handle

    assert await known(memories, ada, ADA)
    assert await known(memories, ben, BEN)
    assert await known(memories, ada, BEN) is None
    assert await known(memories, ben, ADA) is None


@pytest.mark.parametrize("other", [(ADA[0], ClientId("another"), 0), (ADA[0], ADA[1], 1)], ids=["client", "epoch"])
async def test_the_same_user_is_another_owner_by_another_client_or_epoch(memories: Memories, other: Owner) -> None:
    assert await known(memories, (await memories.open(ADA)).handle, other) is None


@pytest.mark.parametrize("handle", ["", "unknown", "x" * 5_000])
async def test_an_unknown_handle_and_a_foreign_one_are_the_same_error(memories: Memories, handle: str) -> None:
    foreign = (await memories.open(BEN)).handle

    for name in (Handle(handle), foreign):
        for call in (
            memories.recall(name, ADA),
            memories.remember(name, ADA, "query", {}),
            memories.configure(name, ADA, {}),
            memories.reset(name, ADA),
        ):
            with pytest.raises(SessionNotFound, match=r"^session not found$"):
                await call


async def test_two_users_with_the_same_session_id_share_nothing(memories: Memories) -> None:
    handle = handle_of(SessionId("the same"))
    await memories.adopt(handle, ADA)
    await memories.adopt(handle, BEN)

    await memories.remember(handle, ADA, "galleon", {"notes://1": 1})

    assert (await memories.recall(handle, ADA)).seen == {"notes://1": 1}
    assert (await memories.recall(handle, BEN)).seen == {}


async def test_an_adopted_memory_is_found_again_under_its_handle(memories: Memories) -> None:
    handle = handle_of(new_session_id())
    await memories.adopt(handle, ADA)
    await memories.remember(handle, ADA, "galleon", {"notes://1": 1})

    assert (await memories.adopt(handle, ADA)).seen == {"notes://1": 1}
    assert (await memories.recall(handle, ADA)).queries == ("galleon",)


def test_a_handle_does_not_tell_the_session_id_it_stands_for() -> None:
    session = new_session_id()

    assert handle_of(session) == handle_of(session)
    assert handle_of(session) != handle_of(new_session_id())
    assert session[:8] not in handle_of(session)


async def test_a_memory_ends_when_it_was_not_used_for_its_time(memories: Memories, clock: Clock) -> None:
    handle = (await memories.open(ADA)).handle

    clock.now = 9
    assert await known(memories, handle, ADA)
    clock.now += 9
    assert await known(memories, handle, ADA)
    clock.now += 10

    assert await known(memories, handle, ADA) is None


async def test_a_stranger_who_asks_does_not_keep_a_memory_alive(memories: Memories, clock: Clock) -> None:
    handle = (await memories.open(ADA)).handle

    clock.now = 9
    assert await known(memories, handle, BEN) is None
    clock.now = 10

    assert await known(memories, handle, ADA) is None


async def test_the_oldest_delivered_items_are_forgotten_first(memories: Memories) -> None:
    handle = (await memories.open(ADA)).handle

    for number in range(6):
        await memories.remember(handle, ADA, "", {f"notes://{number}": 1})

    assert set((await memories.recall(handle, ADA)).seen) == {f"notes://{number}" for number in range(2, 6)}


async def test_a_query_is_remembered_once_at_its_latest_place(memories: Memories) -> None:
    handle = (await memories.open(ADA)).handle

    for query in ("a", "b", "c", "d", "b", ""):
        await memories.remember(handle, ADA, query, {})

    assert (await memories.recall(handle, ADA)).queries == ("c", "d", "b")


async def test_a_reset_forgets_everything_but_the_handle(memories: Memories) -> None:
    handle = (await memories.open(ADA)).handle
    await memories.remember(handle, ADA, "galleon", {"notes://1": 1})
    await memories.configure(handle, ADA, {"order_by": "recent"})

    forgotten = await memories.reset(handle, ADA)

    assert (len(forgotten.seen), forgotten.queries) == (1, ("galleon",))
    empty = await memories.recall(handle, ADA)
    assert (dict(empty.seen), empty.queries, dict(empty.defaults)) == ({}, (), {})


async def test_a_forgotten_memory_is_gone_and_its_owners_others_are_not(memories: Memories) -> None:
    handle, other, ben = [(await memories.open(owner)).handle for owner in (ADA, ADA, BEN)]

    await memories.forget(handle, ADA)

    assert await known(memories, handle, ADA) is None
    assert await known(memories, other, ADA)
    assert await known(memories, ben, BEN)


async def test_what_is_not_there_or_anothers_is_forgotten_by_nobody(memories: Memories) -> None:
    ben = (await memories.open(BEN)).handle

    for handle in (Handle("unknown"), ben):
        await memories.forget(handle, ADA)

    assert await known(memories, ben, BEN)


async def test_a_memory_that_was_forgotten_weighs_nothing() -> None:
    memories = ProcessMemories(LIMITS)
    handles = [(await memories.open(ADA)).handle for _ in range(2)]
    both = memories.weight

    await memories.forget(handles[0], ADA)
    assert 0 < memories.weight < both
    await memories.forget(handles[1], ADA)
    assert memories.weight == 0


async def test_twenty_thousand_sessions_of_one_user_push_out_their_own_and_no_others() -> None:
    memories = ProcessMemories(LIMITS)
    ben = (await memories.open(BEN)).handle

    handles = [(await memories.open(ADA)).handle for _ in range(20_000)]

    assert memories.weight <= LIMITS.user_max + 10
    assert await known(memories, ben, BEN)
    assert await known(memories, handles[-1], ADA)
    assert await known(memories, handles[0], ADA) is None


async def test_many_users_push_out_the_one_unused_longest() -> None:
    memories = ProcessMemories(replace(LIMITS, total_max=100, user_max=50))
    owners: list[Owner] = [(new_user_id(), ClientId("client"), 0) for _ in range(100)]

    handles = [(await memories.open(owner)).handle for owner in owners]

    assert memories.weight <= 100
    assert await known(memories, handles[-1], owners[-1])
    assert await known(memories, handles[0], owners[0]) is None


STEPS = st.lists(
    st.tuples(st.sampled_from(("open", "remember", "configure", "forget", "wait")), st.booleans(), st.integers(0, 30)),
    max_size=60,
)


@given(STEPS, st.integers(1_000, 1_200))
async def test_the_limits_hold_whatever_happens(steps: list[tuple[str, bool, int]], total: int) -> None:
    clock = Clock()
    memories = ProcessMemories(replace(LIMITS, total_max=total // 20, user_max=30), clock)
    made: list[tuple[Handle, Owner]] = []

    for action, is_ada, number in steps:
        await _act(memories, clock, made, action, ADA if is_ada else BEN, number)
        assert memories.weight <= total // 20


async def _act(
    memories: ProcessMemories, clock: Clock, made: list[tuple[Handle, Owner]], action: str, owner: Owner, number: int
) -> None:
    if action == "wait":
        clock.now += number
    elif action == "open" or not made:
        made.append(((await memories.open(owner)).handle, owner))
    else:
        handle, maker = made[number % len(made)]
        if await known(memories, handle, maker) is None:
            return
        items: Mapping[str, Any] = {f"notes://{n}": 1 for n in range(number)}
        if action == "remember":
            await memories.remember(handle, maker, str(number), items)
            assert len((await memories.recall(handle, maker)).seen) <= LIMITS.seen_max
        elif action == "forget":
            await memories.forget(handle, maker)
        else:
            await memories.configure(handle, maker, {"max_tokens": number})
