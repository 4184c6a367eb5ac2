"""Many sessions: the oldest are evicted, the newest are kept, and the process stays within its memory limit."""

import tracemalloc

import pytest

from auth.context import ClientId, Owner
from config.errors import SessionNotFound
from config.paths import UserId
from sessions.state import InProcessSessionStates, SessionHandle, SessionStateLimits

SESSIONS = 100_000
USERS = 250
LIMITS = SessionStateLimits(ttl_s=1_800, seen_max=100, queries_max=10, total_max=50_000, user_max=2_000)
# The store is full after a quarter of the sessions; later ones replace earlier ones.
GROWTH_MAX = 1.1


def owner(number: int) -> Owner:
    return Owner(UserId(f"user-{number % USERS}"), ClientId("client"), 0)


async def exists(states: InProcessSessionStates, handle: SessionHandle, number: int) -> bool:
    try:
        await states.get(handle, owner(number))
    except SessionNotFound:
        return False
    return True


@pytest.mark.slow("fills the memory with many sessions")
async def test_many_sessions_keep_the_newest_within_bounded_memory() -> None:
    states = InProcessSessionStates(LIMITS, clock=lambda: 0.0)
    handles: dict[int, SessionHandle] = {}
    peak_when_full = 0
    # Not the size of the process, in which other tests may have used more before.
    tracemalloc.start()
    for number in range(SESSIONS):
        state = await states.create(owner(number))
        if number in (0, SESSIONS - 1):
            handles[number] = state.handle
        if number == SESSIONS // 4:
            _, peak_when_full = tracemalloc.get_traced_memory()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert states.size <= LIMITS.total_max
    assert peak <= peak_when_full * GROWTH_MAX
    assert await exists(states, handles[SESSIONS - 1], SESSIONS - 1)
    assert not await exists(states, handles[0], 0)


async def test_one_user_with_many_sessions_evicts_only_its_own() -> None:
    states = InProcessSessionStates(LIMITS, clock=lambda: 0.0)
    other_user = await states.create(owner(1))
    first = await states.create(owner(0))

    for _ in range(10_000):
        await states.create(owner(0))

    assert await exists(states, other_user.handle, 1)
    assert not await exists(states, first.handle, 0)
