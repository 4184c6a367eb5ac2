"""How much a user stores, and the quota for it.

The size of the files is compared before each write that adds something, which takes about 40 microseconds. Only a user
near the quota is measured exactly. A write can therefore exceed the quota by its own size.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec import Struct

from config.errors import QuotaExceeded
from config.paths import DatabaseKind, stored_bytes
from sources.storage.contract import LibraryUsage
from sources.storage.sqlite.connection.connection import JobConnection, Work

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
        self._limits = limits
        # How many items may be added before they are counted again.
        self._item_room = 0

    async def require_room(self, new_items: int, *, may_exist: bool = False) -> None:
        """Raises QuotaExceeded if the user has reached a quota, or would exceed that of items. If some of the items may
        exist already, one more must fit."""
        limits = self._limits
        if limits.max_bytes and stored_bytes([file.path for file in self._files]) >= limits.max_bytes:
            used = sum([await self._read(file, _used_bytes) for file in self._files])
            if used >= limits.max_bytes:
                raise QuotaExceeded("bytes", used, limits.max_bytes)
        if limits.max_items and new_items:
            if new_items > self._item_room:
                used = await self._count_items()
                if used + (1 if may_exist else new_items) > limits.max_items:
                    raise QuotaExceeded("items", used, limits.max_items)
                self._item_room = limits.max_items - used
            self._item_room -= new_items

    async def usage(self) -> LibraryUsage:
        used_bytes = sum([await self._read(file, _used_bytes) for file in self._files])
        return LibraryUsage(
            bytes=used_bytes,
            max_bytes=self._limits.max_bytes,
            items=await self._count_items(),
            max_items=self._limits.max_items,
        )

    async def _count_items(self) -> int:
        return sum([await self._read(file, partial(_count_items, file.kind)) for file in self._files])

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
