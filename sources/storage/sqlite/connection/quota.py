"""Measures what a user stores in files. Reading their sizes takes about 40 microseconds."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from config.paths import DatabaseKind, stored_bytes
from sources.storage.sqlite.connection.connection import JobConnection, Work
from sources.storage.sqlite.vectors.vector_tables import vector_tables

T = TypeVar("T")

# The tables whose rows are items, by file.
_ITEM_TABLES: dict[DatabaseKind, Sequence[str]] = {
    "chacha": ("notes", "conversations", "characters"),
    "media": ("media",),
    "prompts": ("prompts",),
}


class UserFile(Protocol):
    """One of the user's files that can be read."""

    @property
    def kind(self) -> DatabaseKind: ...
    @property
    def path(self) -> Path: ...

    async def read(self, source: str, work: Work[T], deadline_ms: int | None = None) -> T: ...


class FileMeter:
    """Implements `UsageMeter`."""

    def __init__(self, files: Sequence[UserFile]) -> None:
        self._files = files

    async def estimated_bytes(self) -> int:
        return stored_bytes([file.path for file in self._files])

    async def used_bytes(self) -> int:
        return sum([await self._read(file, _used_bytes) for file in self._files])

    async def count_items(self) -> int:
        return sum([await self._read(file, partial(_count_items, file.kind)) for file in self._files])

    async def count_passages(self) -> int:
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
