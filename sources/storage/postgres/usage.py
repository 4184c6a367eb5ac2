"""Measures what a user stores in a schema."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from config.paths import UserId
from sources.storage.postgres.connection import LibraryConnection
from sources.storage.postgres.vectors.vector_tables import count_passages

if TYPE_CHECKING:
    from sources.storage.postgres.database import PostgresDatabase

_SOURCE = "library"
_ITEM_TABLES = ("notes", "conversations", "characters", "media", "prompts")
# With indexes and the tables for long texts, which count as relations of their own.
_USED_BYTES = """
    SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = ? AND c.relkind = 'r'
"""
_USED_BYTES_OF_USERS = """
    SELECT l.user_id, CAST(sum(pg_total_relation_size(c.oid)) AS BIGINT)
    FROM libraries l JOIN pg_catalog.pg_namespace n ON n.nspname = l.schema_name
    JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relkind = 'r'
    WHERE l.user_id = ANY (CAST(? AS TEXT[])) GROUP BY l.user_id
"""
# Measuring takes some milliseconds. Between two measurements a library grows by what is written meanwhile, also by
# other processes.
_MEASURED_FOR_S = 10.0
_MEASURED_FOR_WRITES = 20


class SchemaMeter:
    """Implements `UsageMeter`."""

    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database
        self._bytes = 0
        self._measured_at = float("-inf")
        self._writes = 0

    def add_write(self) -> None:
        self._writes += 1

    async def estimated_bytes(self) -> int:
        is_recent = time.monotonic() - self._measured_at < _MEASURED_FOR_S
        return self._bytes if is_recent and self._writes < _MEASURED_FOR_WRITES else await self.used_bytes()

    async def used_bytes(self) -> int:
        self._bytes = await self._database.read(_SOURCE, _used_bytes)
        self._measured_at, self._writes = time.monotonic(), 0
        return self._bytes

    async def count_items(self) -> int:
        return await self._database.read(_SOURCE, _count_items)

    async def count_passages(self) -> int:
        return await self._database.read(_SOURCE, count_passages)


def stored_bytes(user_ids: Sequence[UserId], connection: LibraryConnection) -> dict[UserId, int]:
    """Runs in a transaction of the control data."""
    rows = connection.execute(_USED_BYTES_OF_USERS, (list(user_ids),)).fetchall()
    return dict.fromkeys(user_ids, 0) | dict(rows)


def _used_bytes(connection: LibraryConnection) -> int:
    [used] = connection.execute(_USED_BYTES, (connection.schema,)).fetchall()[0]
    return int(used)


def _count_items(connection: LibraryConnection) -> int:
    counts = " UNION ALL ".join(f"SELECT count(*) AS items FROM {table} WHERE deleted = 0" for table in _ITEM_TABLES)
    [items] = connection.execute(f"SELECT CAST(sum(items) AS BIGINT) FROM ({counts}) counts").fetchall()[0]
    return int(items)
