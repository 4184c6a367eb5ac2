"""Slots for imports. An import that has had its turn passes its slot on while others wait, so that none waits for the
end of another user's import."""

import asyncio
import time
from collections import Counter
from types import TracebackType

from config.paths import UserId


class ImportSlots:
    """A limited number of imports that run at the same time. The next slot goes to the user with the fewest running
    imports; among those, to the import that has waited longest."""

    def __init__(self, slots_max: int, turn_s: float) -> None:
        self._slots_max = slots_max
        self._turn_s = turn_s
        self._running: Counter[UserId] = Counter()
        self._waiting: list[tuple[UserId, asyncio.Future[None]]] = []

    @property
    def has_free_slot(self) -> bool:
        return self._running.total() < self._slots_max

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def turn(self, user_id: UserId) -> "ImportTurn":
        return ImportTurn(self, user_id, self._turn_s)

    async def acquire(self, user_id: UserId) -> None:
        if self.has_free_slot:
            self._running[user_id] += 1
            return
        waiter = (user_id, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        try:
            await waiter[1]
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            else:  # the slot was assigned at the moment of the cancellation
                self.release(user_id)
            raise

    def release(self, user_id: UserId) -> None:
        self._running[user_id] -= 1
        if self._waiting:
            waiter = min(self._waiting, key=lambda waiting: self._running[waiting[0]])
            self._waiting.remove(waiter)
            self._running[waiter[0]] += 1
            waiter[1].set_result(None)
        self._running += Counter()  # drops users without a running import


class ImportTurn:
    """One import. In the block it has a slot, except while `pass_on` waits for the next one."""

    def __init__(self, slots: ImportSlots, user_id: UserId, turn_s: float) -> None:
        self._slots = slots
        self._user_id = user_id
        self._turn_s = turn_s
        self._since = 0.0
        self.has_slot = False

    async def __aenter__(self) -> "ImportTurn":
        await self._acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.has_slot:
            self._release()

    async def pass_on(self) -> None:
        """Lets another import go on if this one has had its turn. Called between two batches."""
        if self._slots.waiting and time.monotonic() - self._since >= self._turn_s:
            self._release()
            await self._acquire()

    async def _acquire(self) -> None:
        await self._slots.acquire(self._user_id)
        self._since = time.monotonic()
        self.has_slot = True

    def _release(self) -> None:
        self.has_slot = False
        self._slots.release(self._user_id)
