"""Writes the rows of item tables. Triggers add what changed to the queues of the full-text indexes."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import sqlite3
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from sources.storage.tables.indexes import CHUNK_BITS
from sources.storage.tables.sql import SqlValue

# Write the parts of an item again while it is still hidden: the triggers then add them to the queues without removing
# entries, which the indexes do not have. The triggers of a table with one entry per row do so themselves.
_ENQUEUE_PARTS = {
    "conversations": (
        "UPDATE conversations SET title = title WHERE id = ?",
        "UPDATE messages SET content = content WHERE conversation_id = ? AND deleted = 0",
    ),
    "media": (f"UPDATE chunks SET text = text WHERE id >= ?1 << {CHUNK_BITS} AND id < (?1 + 1) << {CHUNK_BITS}",),
}


class RowConnection(sqlite3.Connection):
    """Implements `executemany_later` and the row methods of `SqlConnection`."""

    def executemany_later(self, sql: str, parameters: Iterable[Any], /) -> object:
        """Runs the statement at once: no other process has to be waited for."""
        return self.executemany(sql, parameters)

    def insert_row(self, table: str, values: Mapping[str, SqlValue]) -> int | None:
        try:
            return self.execute(_insert_sql(table, tuple(values)), tuple(values.values())).lastrowid
        except sqlite3.IntegrityError:
            return None

    def update_row(self, table: str, rowid: int, values: Mapping[str, SqlValue]) -> None:
        assignments = ", ".join(f"{name} = ?" for name in values)
        self.execute(f"UPDATE {table} SET {assignments} WHERE id = ?", (*values.values(), rowid))

    def restore_row(self, table: str, rowid: int, values: Mapping[str, SqlValue]) -> None:
        for statement in _ENQUEUE_PARTS.get(table, ()):
            self.execute(statement, (rowid,))
        self.update_row(table, rowid, values)

    def delete_row(self, table: str, rowid: int) -> None:
        self.execute(f"DELETE FROM {table} WHERE id = ?", (rowid,))


@lru_cache
def _insert_sql(table: str, columns: tuple[str, ...]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
