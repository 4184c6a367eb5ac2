"""Reads tables of another program's SQLite database, row by row and by column name.

Only the columns that an importer names are read. Columns that an older file lacks read as None. A row that is too large
fails on its own; the others are still read.
"""

# ruff: noqa: S608 - SQL here consists of names that importers define as constants; values are parameters

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Struct

from config.errors import InvalidParams
from sources.importers.engine.databases import columns_of, is_database, table_columns
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.progress import ProgressCallback
from sources.importers.engine.values import clean_line, clean_tags

TableRow = Mapping[str, Any]
# An item whose metadata exceeds the storage limit would be rejected, so larger values are dropped.
_METADATA_VALUE_MAX_BYTES = 50_000


class TableSpec(Struct, frozen=True):
    """A table by which a file is recognized. Every version has the `required` columns; `optional` ones were added
    later."""

    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


def has_tables(probe: FileProbe, tables: Sequence[TableSpec]) -> bool:
    """Returns whether a file is a database with all of these tables and their required columns."""
    if not is_database(probe):
        return False
    columns = table_columns(probe.path, *(table.name for table in tables))
    return all(columns[table.name] >= frozenset(table.required) for table in tables)


class KeywordLinks(Struct, frozen=True):
    """How keywords are attached to items: a link table with the column that holds the item's id, and the table of
    keywords."""

    link_table: str
    item_column: str
    keyword_table: str = "keywords"


class TableReader:
    """Reads the tables of one database."""

    def __init__(self, connection: sqlite3.Connection, limits: ImportLimits) -> None:
        self._connection = connection
        self._columns: dict[str, frozenset[str]] = {}
        self._statements: dict[tuple[TableSpec, str], tuple[str, Sequence[str]]] = {}
        self.limits = limits

    def has(self, table: TableSpec) -> bool:
        return self.columns(table.name) >= frozenset(table.required)

    def columns(self, table: str) -> frozenset[str]:
        if table not in self._columns:
            self._columns[table] = columns_of(self._connection, table)
        return self._columns[table]

    def count(self, table: TableSpec) -> int:
        return int(self._connection.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0])

    def rowids(self, table: TableSpec) -> Iterator[int]:
        for (rowid,) in self._connection.execute(f"SELECT rowid FROM {table.name} ORDER BY rowid"):
            yield rowid

    def rowids_where(self, table: TableSpec, column: str, value: Any) -> Sequence[int]:
        rows = self._connection.execute(f"SELECT rowid FROM {table.name} WHERE {column} = ?", (value,))
        return [rowid for (rowid,) in rows]

    def grouped_rowids(self, table: TableSpec, key: str, order_column: str) -> Iterator[tuple[Any, Iterator[int]]]:
        """Groups rows by `key` and yields the rowids of each group, sorted by `order_column`."""
        rows = self._connection.execute(f"SELECT {key}, rowid FROM {table.name} ORDER BY {key}, {order_column}, rowid")
        for value, group in groupby(rows, key=lambda row: row[0]):
            yield value, (rowid for _, rowid in group)

    def ranges(self, table: TableSpec, keys: Sequence[str], first: str, last: str) -> Sequence[TableRow]:
        """Groups rows by `keys` and returns the keys, the smallest `first` and the largest `last` of each group.
        Returns nothing if a value is too large to compare; that row is reported when it is read."""
        names = ", ".join(keys)
        sql = f"SELECT {names}, min({first}), max({last}) FROM {table.name} GROUP BY {names} ORDER BY {names}"
        try:
            rows = self._connection.execute(sql).fetchall()
        except sqlite3.DataError:
            return ()
        return [dict(zip((*keys, first, last), row, strict=True)) for row in rows]

    def orphan_count(self, table: TableSpec, column: str, owner: TableSpec) -> int:
        """Counts rows whose owner does not exist."""
        sql = f"SELECT count(*) FROM {table.name} WHERE {column} NOT IN (SELECT id FROM {owner.name})"
        return int(self._connection.execute(sql).fetchone()[0])

    def row(self, table: TableSpec, rowid: int) -> TableRow:
        rows = self._select(table, "rowid = ?", rowid)
        if not rows:
            raise InvalidParams("row not found")
        return rows[0]

    def rows_where(self, table: TableSpec, column: str, value: Any) -> Sequence[TableRow]:
        """Returns the matching rows; none if the file lacks the table."""
        return self._select(table, f"{column} = ? ORDER BY rowid", value) if self.has(table) else ()

    def keywords(self, links: KeywordLinks, item_id: Any) -> tuple[str, ...]:
        """Returns the item's keywords that are not deleted, sorted."""
        has_links = self.columns(links.link_table) >= {links.item_column, "keyword_id"}
        if not has_links or "keyword" not in self.columns(links.keyword_table):
            return ()
        # Older versions deleted keywords instead of marking them.
        is_live = "AND k.deleted = 0" if "deleted" in self.columns(links.keyword_table) else ""
        rows = self._connection.execute(
            f"SELECT k.keyword FROM {links.link_table} l CROSS JOIN {links.keyword_table} k ON k.id = l.keyword_id "
            f"WHERE l.{links.item_column} = ? {is_live} ORDER BY k.keyword",
            (item_id,),
        )
        return clean_tags([clean_line(keyword) for (keyword,) in rows])

    def _select(self, table: TableSpec, condition: str, value: Any) -> Sequence[TableRow]:
        key = table, condition
        if key not in self._statements:
            self._statements[key] = self._statement(table, condition)
        sql, names = self._statements[key]
        try:
            rows = self._connection.execute(sql, (value,)).fetchall()
        except sqlite3.DataError as error:
            raise InvalidParams(f"a value is larger than {self.limits.line_max_bytes} bytes") from error
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _statement(self, table: TableSpec, condition: str) -> tuple[str, Sequence[str]]:
        """Columns that the file lacks are read as NULL."""
        names = (*table.required, *table.optional)
        present = {*table.required, *self.columns(table.name)}
        selected = ", ".join(name if name in present else f"NULL AS {name}" for name in names)
        return f"SELECT {selected} FROM {table.name} WHERE {condition}", names


class RowProgress:
    """Converts the number of rows read into bytes of their file."""

    def __init__(self, progress: ProgressCallback, size_bytes: int, rows_total: int) -> None:
        self._progress = progress
        self._size_bytes = size_bytes
        self._rows_total = rows_total
        self._rows_read = 0

    def step(self) -> None:
        self._rows_read += 1
        rows_read = min(self._rows_read, self._rows_total)
        self._progress(self._size_bytes * rows_read // max(1, self._rows_total))

    def finish(self) -> None:
        self._progress(self._size_bytes)


def url_or_empty(value: object) -> str:
    """Returns a URL unchanged, or "" if it is too long or contains characters that cannot be stored."""
    return value if isinstance(value, str) and clean_line(value) == value else ""


def compact_metadata(**values: Any) -> dict[str, Any]:
    """Drops values that are empty or too large for metadata."""
    present = {name: value for name, value in values.items() if value not in (None, "", [], {})}
    return {
        name: value for name, value in present.items() if len(msgspec.json.encode(value)) <= _METADATA_VALUE_MAX_BYTES
    }


def key_label(value: Any) -> str:
    """Returns a row's key as it appears in reports."""
    return clean_line(str(value))[:60]
