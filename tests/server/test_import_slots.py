"""Which import gets the next slot."""

import asyncio

from config.paths import new_user_id
from server.import_jobs import ImportSlots

ADA, BEN, CAY = new_user_id(), new_user_id(), new_user_id()


async def test_a_slot_is_not_given_to_an_import_that_was_just_cancelled() -> None:
    slots = ImportSlots(1, turn_s=60)
    await slots.acquire(ADA)
    first, second = asyncio.create_task(slots.acquire(BEN)), asyncio.create_task(slots.acquire(CAY))
    await asyncio.sleep(0)  # both wait

    first.cancel()
    slots.release(ADA)  # before the task of the first has noticed

    assert [type(result) for result in await asyncio.gather(first, second, return_exceptions=True)] == [
        asyncio.CancelledError,
        type(None),
    ]
    assert slots.waiting == 0
