"""A million sessions: the oldest are forgotten, the newest are kept, and memory stays where its limit puts it."""

import resource

from auth.principal import ClientId
from config.errors import SessionNotFound
from config.paths import UserId
from sessions.memory import Handle, Limits, ProcessMemories
from sessions.session import Owner

SESSIONS = 1_000_000
USERS = 1_000
LIMITS = Limits(ttl_s=1_800, seen_max=100, queries_max=10, total_max=200_000, user_max=2_000)
# The store is full after a quarter of them; what comes after replaces what was there.
GROWTH_MAX = 1.1


def owner(number: int) -> Owner:
    return UserId(f"user-{number % USERS}"), ClientId("client"), 0


def peak_memory() -> int:
    """In kilobytes or bytes, as the system counts."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def is_known(memories: ProcessMemories, handle: Handle, number: int) -> bool:
    try:
        await memories.recall(handle, owner(number))
    except SessionNotFound:
        return False
    return True


async def test_a_million_sessions_leave_the_newest_and_take_bounded_memory() -> None:
    memories = ProcessMemories(LIMITS, clock=lambda: 0.0)
    handles: dict[int, Handle] = {}
    early = 0
    for number in range(SESSIONS):
        opened = await memories.open(owner(number))
        if number in (0, SESSIONS - 1):
            handles[number] = opened.handle
        if number == SESSIONS // 4:
            early = peak_memory()

    assert memories.weight <= LIMITS.total_max
    assert peak_memory() <= early * GROWTH_MAX
    assert await is_known(memories, handles[SESSIONS - 1], SESSIONS - 1)
    assert not await is_known(memories, handles[0], 0)


async def test_one_user_with_many_sessions_pushes_out_its_own() -> None:
    memories = ProcessMemories(LIMITS, clock=lambda: 0.0)
    quiet = await memories.open(owner(1))
    first = await memories.open(owner(0))

    for _ in range(10_000):
        await memories.open(owner(0))

    assert await is_known(memories, quiet.handle, 1)
    assert not await is_known(memories, first.handle, 0)
