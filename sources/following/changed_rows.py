"""Copies from a database only the items with rows that changed since a position.

Changed are rows that were inserted (their rowid is larger than all before), that have a newer `last_modified`, or that
the database's own `sync_log` names. An item is copied with all of its rows, so that an importer reads the copy like the
original. Removed rows leave no trace but the number of rows: if that is not as expected, all must be read.
"""

# ruff: noqa: S608 - SQL is built from names that importers define as constants; values are parameters

import json
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from sources.importers.engine.table_reader import FollowedDatabase, FollowedTable, TableSpec

# A transaction may write times that were taken some seconds before it ended.
_OVERLAP_S = 5.0
# Of more items than this, a complete copy is not slower.
_ITEMS_MAX = 10_000
# Without an index, comparing times means reading the table.
_UNINDEXED_MAX_BYTES = 64 << 20
_UUID_CHARS = 36
# tldw's log of changes.
_SYNC_LOG = "sync_log"
# `YYYY-MM-DD HH:MM:SS` and `YYYY-MM-DDTHH:MM:SS.mmmZ` both occur, and are both UTC.
_COMPARABLE_TIME = "replace(substr({}, 1, 19), ' ', 'T')"
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S"


class TablePosition(Struct, frozen=True):
    rowid: int = 0  # the largest one
    count: int = 0
    modified: str = ""  # the newest time of a change


class DatabasePosition(Struct, frozen=True, kw_only=True):
    """How far a database was read."""

    identity: str  # tells whether it is still the same file
    copied_at: float
    tables: Mapping[str, TablePosition]
    change_id: int | None = None  # the last row of its `sync_log`


def measure(
    connection: sqlite3.Connection,
    schema: str,
    database: FollowedDatabase,
    identity: str,
    since: DatabasePosition | None = None,
) -> DatabasePosition:
    """Returns the position at the end of a database, which is attached as `schema`. An earlier one saves work."""
    shape = _Shape(connection, schema, database)
    known = {} if since is None else since.tables
    tables = {name: shape.position(name, known.get(name, TablePosition())) for name in shape.columns}
    return DatabasePosition(identity=identity, copied_at=time.time(), tables=tables, change_id=shape.last_change())


def has_tables(connection: sqlite3.Connection, schema: str, database: FollowedDatabase) -> bool:
    """Whether the database has the tables with the items. Their parts may be missing in older versions."""
    shape = _Shape(connection, schema, database)
    return all(shape.has(table, *table.required) for table in database.tables)


def copy_changes(
    connection: sqlite3.Connection, schema: str, database: FollowedDatabase, since: DatabasePosition
) -> int | None:
    """Copies changed items from the attached `schema` to the main database, which is empty. Returns their number, or
    None if the whole database must be read."""
    shape = _Shape(connection, schema, database)
    if not shape.is_continuation(since):
        return None
    items = _ChangedItems(shape, since).items
    count = sum(map(len, items.values()))
    if count > _ITEMS_MAX:
        return None
    shape.copy(items)
    return count


class _Shape:
    """The tables and columns that a database really has. Views and virtual tables are not read: their rows might never
    end."""

    def __init__(self, connection: sqlite3.Connection, schema: str, database: FollowedDatabase) -> None:
        self.connection = connection
        self.schema = schema
        self.database = database
        stored = {
            name.lower()
            for (name,) in connection.execute(
                f"SELECT name FROM {schema}.sqlite_master WHERE type = 'table' AND rootpage > 0"
            )
        }
        names = {table.name for table in database.all_tables()} | {lookup.name for lookup in database.lookups()}
        self.columns = {name: self._columns(name) for name in names if name.lower() in stored}
        self._log_columns = self._columns(_SYNC_LOG) if _SYNC_LOG in stored else frozenset()

    def has(self, table: TableSpec, *columns: str) -> bool:
        return table.name in self.columns and self.columns[table.name] >= set(columns)

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, parameters).fetchall()

    def position(self, name: str, old: TablePosition) -> TablePosition:
        modified = ""
        if self._compares_times(name):
            newest = f"SELECT max({_COMPARABLE_TIME.format('last_modified')}) FROM {self.schema}.{name}"
            [(found,)] = self.rows(f"{newest} WHERE last_modified >= ?", old.modified[:10])
            # A time in the future would hide all changes until then.
            modified = min(max(str(found or ""), old.modified), _format_time(time.time()))
        return TablePosition(self._largest_rowid(name), self._count(name), modified)

    def last_change(self) -> int | None:
        if "change_id" not in self._log_columns:
            return None
        return int(self.rows(f"SELECT coalesce(max(change_id), 0) FROM {self.schema}.{_SYNC_LOG}")[0][0])

    def is_continuation(self, since: DatabasePosition) -> bool:
        """Whether rows were only added and changed since the position, as far as their numbers tell."""
        if since.tables.keys() != self.columns.keys() or (since.change_id is None) != (self.last_change() is None):
            return False
        if since.change_id is not None:
            oldest = f"SELECT coalesce(min(change_id), 0), coalesce(max(change_id), 0) FROM {self.schema}.{_SYNC_LOG}"
            first, last = self.rows(oldest)[0]
            # Then the log was replaced, or rows that were not read yet were removed from it.
            if last < since.change_id or first > since.change_id + 1:
                return False
        uncounted = {table.name for table in self.database.all_tables() if not table.is_counted}
        for name, old in since.tables.items():
            if name in uncounted:
                continue
            # Fewer rows than the old and the added ones: some were removed, and nothing says which.
            [(added,)] = self.rows(f"SELECT count(*) FROM {self.schema}.{name} WHERE rowid > ?", old.rowid)
            if self._largest_rowid(name) < old.rowid or self._count(name) != old.count + int(added):
                return False
        return True

    def _count(self, name: str) -> int:
        return int(self.rows(f"SELECT count(*) FROM {self.schema}.{name}")[0][0])

    def _largest_rowid(self, name: str) -> int:
        return int(self.rows(f"SELECT coalesce(max(rowid), 0) FROM {self.schema}.{name}")[0][0])

    def changed_rowids(self, name: str, old: TablePosition, copied_at: float) -> set[int]:
        added = f"SELECT rowid FROM {self.schema}.{name} WHERE rowid > ?"
        rowids = {rowid for (rowid,) in self.rows(added, old.rowid)}
        if self._compares_times(name):
            # The newest rows were copied. If they were new then, others may have been written with the same times.
            newest = _parse_time(old.modified)
            is_recent = copied_at - newest < _OVERLAP_S
            since = _format_time(newest - _OVERLAP_S) if is_recent else old.modified
            modified = (
                f"SELECT rowid FROM {self.schema}.{name} "
                f"WHERE last_modified >= ? AND {_COMPARABLE_TIME.format('last_modified')} > ?"
            )
            rowids |= {rowid for (rowid,) in self.rows(modified, since[:10], since)}
        return rowids

    def logged_changes(self, since: int) -> set[tuple[str, str]]:
        """Returns names of tables and keys of rows."""
        # The databases of tldw name the key of a row differently.
        key = next((name for name in ("entity_id", "entity_uuid") if name in self._log_columns), None)
        if key is None or "entity" not in self._log_columns:
            return set()
        sql = f"SELECT DISTINCT entity, {key} FROM {self.schema}.{_SYNC_LOG} WHERE change_id > ?"
        return {(str(entity), str(value)) for entity, value in self.rows(sql, since)}

    def rowids_of_key(self, name: str, key: str) -> set[int]:
        """Looks for a row by its id or UUID."""
        found: set[int] = set()
        for column in {"id", "uuid"} & self.columns[name]:
            value = int(key) if column == "id" and key.isascii() and key.isdecimal() and len(key) < 18 else key
            sql = f"SELECT rowid FROM {self.schema}.{name} WHERE {column} = ?"
            found |= {rowid for (rowid,) in self.rows(sql, value)}
        return found

    def _columns(self, name: str) -> frozenset[str]:
        sql = "SELECT name FROM pragma_table_xinfo(?, ?) WHERE hidden = 0"
        return frozenset(column.lower() for (column,) in self.rows(sql, name, self.schema))

    def _compares_times(self, name: str) -> bool:
        if "last_modified" not in self.columns[name]:
            return False
        [(pages,)], [(page_bytes,)] = (self.rows(f"PRAGMA {self.schema}.page_{what}") for what in ("count", "size"))
        if pages * page_bytes <= _UNINDEXED_MAX_BYTES:
            return True
        indexes = self.rows("SELECT name FROM pragma_index_list(?, ?) WHERE partial = 0", name, self.schema)
        first = "SELECT name FROM pragma_index_info(?, ?) WHERE seqno = 0"
        return any(self.rows(first, index, self.schema) == [("last_modified",)] for (index,) in indexes)

    # -- copying -------------------------------------------------------------------------------------------------------

    def copy(self, items: Mapping[str, set[int]]) -> None:
        """Copies items with their parts and with the rows that they refer to."""
        for table in self.database.all_tables():
            self._create(table)
            for lookup in table.lookups:
                self._create(lookup)
        for table in self.database.tables:
            self._insert(table, "rowid", sorted(items[table.name]))
            self._copy_referenced(table)

    def _create(self, table: TableSpec) -> None:
        if table.name not in self.columns:
            return
        columns = self._copied_columns(table)
        self.connection.execute(f"CREATE TABLE IF NOT EXISTS main.{table.name} ({', '.join(columns)})")
        indexed = {"id", table.parent_column} if isinstance(table, FollowedTable) else {"id"}
        for column in indexed & set(columns):
            index = f"{table.name}_by_{column}"
            self.connection.execute(f"CREATE INDEX IF NOT EXISTS main.{index} ON {table.name} ({column})")

    def _copy_referenced(self, table: FollowedTable) -> None:
        for lookup in table.lookups:
            if self.has(table, lookup.column):
                self._insert(lookup, "id", self._copied_keys(table.name, lookup.column))
        for part in table.parts:
            self._insert(part, part.parent_column, self._copied_keys(table.name, "id"))
            self._copy_referenced(part)

    def _copied_keys(self, name: str, column: str) -> list[Any]:
        if column not in self.columns.get(name, ()):
            return []
        rows = self.rows(f"SELECT DISTINCT {column} FROM main.{name}")
        return [value for (value,) in rows if _is_key(value)]

    def _insert(self, table: TableSpec, column: str, keys: Sequence[Any]) -> None:
        if not keys or (column != "rowid" and not self.has(table, column)):
            return
        columns = ", ".join(self._copied_columns(table))
        self.connection.execute(
            f"INSERT OR IGNORE INTO main.{table.name} (rowid, {columns}) "
            f"SELECT rowid, {columns} FROM {self.schema}.{table.name} "
            f"WHERE {column} IN (SELECT value FROM json_each(?))",
            (json.dumps(keys),),
        )

    def _copied_columns(self, table: TableSpec) -> list[str]:
        """A table may be both one of items and one that others refer to, with the same columns."""
        return [name for name in (*table.required, *table.optional) if name in self.columns[table.name]]


class _ChangedItems:
    """Finds the rowids of changed items, by the table with the items."""

    def __init__(self, shape: _Shape, since: DatabasePosition) -> None:
        self.items: dict[str, set[int]] = {table.name: set() for table in shape.database.tables}
        self._shape = shape
        self._changed = {name: shape.changed_rowids(name, old, since.copied_at) for name, old in since.tables.items()}
        names = {name.lower(): name for name in shape.columns}
        # The log also names rows whose times do not show that they changed.
        logged = set() if since.change_id is None else shape.logged_changes(since.change_id)
        for entity, key in logged:
            name = names.get(entity.lower())
            if name is None:
                continue
            rowids = shape.rowids_of_key(name, key)
            self._changed[name] |= rowids
            if not rowids:
                # The key of a link starts with that of its item.
                for table in shape.database.tables:
                    self.items[table.name] |= shape.rowids_of_key(table.name, key[:_UUID_CHARS])
        for table in shape.database.tables:
            self.items[table.name] |= self._changed_with_parts(table)

    def _changed_with_parts(self, table: FollowedTable) -> set[int]:
        """Returns the rows of a table that changed, whose parts did, or that refer to a row that did."""
        changed = set(self._changed.get(table.name, ()))
        for lookup in table.lookups:
            if self._shape.has(table, lookup.column) and self._shape.has(lookup, "id"):
                keys = self._values(lookup.name, "id", self._changed[lookup.name])
                changed |= self._rowids(table.name, lookup.column, keys)
        for part in table.parts:
            if self._shape.has(part, part.parent_column):
                keys = self._values(part.name, part.parent_column, self._changed_with_parts(part))
                changed |= self._rowids(table.name, "id", keys)
        return changed

    def _values(self, name: str, column: str, rowids: Iterable[int]) -> list[Any]:
        sql = (
            f"SELECT DISTINCT {column} FROM {self._shape.schema}.{name} WHERE rowid IN (SELECT value FROM json_each(?))"
        )
        return [value for (value,) in self._shape.rows(sql, json.dumps(sorted(rowids))) if _is_key(value)]

    def _rowids(self, name: str, column: str, keys: Sequence[Any]) -> set[int]:
        if not keys:
            return set()
        sql = f"SELECT rowid FROM {self._shape.schema}.{name} WHERE {column} IN (SELECT value FROM json_each(?))"
        return {rowid for (rowid,) in self._shape.rows(sql, json.dumps(keys))}


def _is_key(value: object) -> bool:
    return isinstance(value, int | str)


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(_TIME_FORMAT)


def _parse_time(text: str) -> float:
    """Returns the start of 1970 for a text that is not a time."""
    try:
        return datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
