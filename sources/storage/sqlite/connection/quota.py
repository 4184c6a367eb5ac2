"""How much a user stores, and the quota for it.

The size of the files is compared before each write that adds something, which takes about 40 microseconds. Only a user
near the quota is measured exactly. A write can therefore exceed the quota by its own size.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec import Struct

from config.errors import QuotaExceeded
from config.paths import DatabaseKind, stored_bytes
from sources.storage.contract import LibraryUsage
from sources.storage.sqlite.connection.connection import JobConnection, Work
from sources.storage.sqlite.vectors.vector_tables import vector_tables

T = TypeVar("T")

# The tables whose rows are items, by file.
_ITEM_TABLES: dict[DatabaseKind, Sequence[str]] = {
    "chacha": ("notes", "conversations", "characters"),
    "media": ("media",),
    "prompts": ("prompts",),
}


class QuotaLimits(Struct, frozen=True):
    """0 means no limit."""

    max_bytes: int = 0
    max_items: int = 0
    max_passages: int = 0


class UserFile(Protocol):
    """One of the user's files that can be read."""

    @property
    def kind(self) -> DatabaseKind: ...
    @property
    def path(self) -> Path: ...

    async def read(self, source: str, work: Work[T], deadline_ms: int | None = None) -> T: ...


class UserQuota:
    """The quota of one user."""

    def __init__(self, files: Sequence[UserFile], limits: QuotaLimits) -> None:
        self._files = files
        # Replaced when the quotas of the user change.
        self._limits = limits
        # How many items may be added before they are counted again, and how many are being added.
        self._item_room = 0
        self._new_items = 0
        self._counting = asyncio.Lock()
        # How many passages may be embedded before they are counted again.
        self._passage_room = 0
        # Why text of the user is not embedded, if a quota is reached.
        self.embedding_stop: str | None = None

    def set_limits(self, limits: QuotaLimits) -> bool:
        """Returns whether they changed."""
        if limits == self._limits:
            return False
        self._limits = limits
        # Counted again when room is needed.
        self._item_room = self._passage_room = 0
        return True

    @asynccontextmanager
    async def room(self, new_items: int, *, may_exist: bool = False) -> AsyncIterator[None]:
        """Sets room for the items aside until they are written, so that simultaneous writes cannot share it. Raises
        QuotaExceeded if there is none. If some of the items may exist already, one more must fit."""
        await self.require_bytes()
        if self._limits.max_items and new_items:
            async with self._counting:
                await self._take_item_room(new_items, 1 if may_exist else new_items)
        self._new_items += new_items
        try:
            yield
        finally:
            self._new_items -= new_items

    async def require_bytes(self) -> None:
        """Raises QuotaExceeded if the user's files have reached their size."""
        quota = self._limits.max_bytes
        if quota and stored_bytes([file.path for file in self._files]) >= quota:
            used = await self._used_bytes()
            if used >= quota:
                raise QuotaExceeded("bytes", used, quota)

    async def require_embedding_room(self) -> int | None:
        """Returns how many more passages may be embedded, or None without a quota of them. Raises QuotaExceeded if
        there is no room for any."""
        await self.require_bytes()
        quota = self._limits.max_passages
        if not quota:
            return None
        if self._passage_room <= 0:
            used = await self._count_passages()
            self._passage_room = quota - used
            if used >= quota:
                raise QuotaExceeded("embedded passages", used, quota)
        return self._passage_room

    def add_passages(self, count: int) -> None:
        """Counts passages that were embedded."""
        self._passage_room -= count

    async def _take_item_room(self, new_items: int, required: int) -> None:
        if new_items > self._item_room:
            # Counted before the items that others are writing, which may then be counted twice, but never missed.
            being_added = self._new_items
            used = await self._count_items()
            self._item_room = self._limits.max_items - used - being_added
            if required > self._item_room:
                raise QuotaExceeded("items", used, self._limits.max_items)
        self._item_room -= new_items

    async def usage(self) -> LibraryUsage:
        return LibraryUsage(
            bytes=await self._used_bytes(),
            max_bytes=self._limits.max_bytes,
            items=await self._count_items(),
            max_items=self._limits.max_items,
            passages=await self._count_passages(),
            max_passages=self._limits.max_passages,
        )

    async def _used_bytes(self) -> int:
        return sum([await self._read(file, _used_bytes) for file in self._files])

    async def _count_items(self) -> int:
        return sum([await self._read(file, partial(_count_items, file.kind)) for file in self._files])

    async def _count_passages(self) -> int:
        return sum([await self._read(file, vector_tables(file.kind).count_passages) for file in self._files])

    async def _read(self, file: UserFile, work: Work[int]) -> int:
        """A file that does not exist yet is not created."""
        return await file.read(file.kind, work) if file.path.exists() else 0


def _used_bytes(connection: JobConnection) -> int:
    """Free pages do not count, because the next writes use them."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _count_items(kind: DatabaseKind, connection: JobConnection) -> int:
    queries = (f"SELECT count(*) FROM {table} WHERE deleted = 0" for table in _ITEM_TABLES[kind])  # noqa: S608 - constants
    return sum(connection.execute(query).fetchone()[0] for query in queries)
