"""How much a user stores, and the quota for it.

An estimate of the size is compared before each write that adds something. Only a user near the quota is measured
exactly. A write can therefore exceed the quota by its own size.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from auth.quotas import UserLimits
from config.errors import QuotaExceeded
from sources.storage.contract import LibraryUsage

# 0 means no limit.
NO_LIMITS = UserLimits(max_bytes=0, max_items=0, import_max_bytes=0, max_passages=0)


class UsageMeter(Protocol):
    """Measures what one user stores."""

    async def estimated_bytes(self) -> int:
        """Returns at least the used bytes, at little cost."""
        ...

    async def used_bytes(self) -> int: ...
    async def count_items(self) -> int: ...
    async def count_passages(self) -> int: ...


class UserQuota:
    """The quota of one user."""

    def __init__(self, meter: UsageMeter, limits: UserLimits) -> None:
        self._meter = meter
        # Replaced when the quotas of the user change.
        self.limits = limits
        # How many items may be added before they are counted again, and how many are being added.
        self._item_room = 0
        self._new_items = 0
        self._counting = asyncio.Lock()
        # How many passages may be embedded before they are counted again.
        self._passage_room = 0
        # Why text of the user is not embedded, if a quota is reached.
        self.embedding_stop: str | None = None

    def change_limits(self, limits: UserLimits) -> None:
        self.limits = limits
        # Counted again when room is needed.
        self._item_room = self._passage_room = 0

    @asynccontextmanager
    async def room(self, new_items: int, *, may_exist: bool = False) -> AsyncIterator[None]:
        """Sets room for the items aside until they are written, so that simultaneous writes cannot share it. Raises
        QuotaExceeded if there is none. If some of the items may exist already, one more must fit."""
        await self.require_bytes()
        if self.limits.max_items and new_items:
            async with self._counting:
                if new_items > self._item_room:
                    # Read before the count: items that others are writing may then be counted twice, but never missed.
                    being_added = self._new_items
                    used = await self._meter.count_items()
                    self._item_room = self.limits.max_items - used - being_added
                    if (1 if may_exist else new_items) > self._item_room:
                        raise QuotaExceeded("items", used, self.limits.max_items)
                self._item_room -= new_items
        self._new_items += new_items
        try:
            yield
        finally:
            self._new_items -= new_items

    async def require_bytes(self) -> None:
        """Raises QuotaExceeded if the library has reached its size."""
        quota = self.limits.max_bytes
        if quota and await self._meter.estimated_bytes() >= quota:
            used = await self._meter.used_bytes()
            if used >= quota:
                raise QuotaExceeded("bytes", used, quota)

    async def require_embedding_room(self) -> int | None:
        """Returns how many more passages may be embedded, or None without a quota of them. Raises QuotaExceeded if
        there is no room for any."""
        await self.require_bytes()
        quota = self.limits.max_passages
        if not quota:
            return None
        if self._passage_room <= 0:
            used = await self._meter.count_passages()
            self._passage_room = quota - used
            if used >= quota:
                raise QuotaExceeded("embedded passages", used, quota)
        return self._passage_room

    def add_passages(self, count: int) -> None:
        """Counts passages that were embedded."""
        self._passage_room -= count

    async def usage(self) -> LibraryUsage:
        return LibraryUsage(
            bytes=await self._meter.used_bytes(),
            max_bytes=self.limits.max_bytes,
            items=await self._meter.count_items(),
            max_items=self.limits.max_items,
            passages=await self._meter.count_passages(),
            max_passages=self.limits.max_passages,
        )
