"""Reads tables of another program's SQLite database, row by row and by column name.

Only the columns that an importer names are read. Columns that an older file lacks read as None. A row that is too large
fails on its own; the others are still read.
"""

# ruff: noqa: S608 - SQL here consists of names that importers define as constants; values are parameters

import csv
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import Struct

from config.errors import InvalidParams
from sources.importers.engine.confined_files import file_status, opening_only, real_path
from sources.importers.engine.events import Events, FailedItem
from sources.importers.engine.files import file_size, printable_name
from sources.importers.engine.limits import ImportLimits, ProgressCallback
from sources.importers.engine.values import Fields, clean_line, clean_tags

# -- databases ---------------------------------------------------------------------------------------------------------
# Opens SQLite files of other programs read-only: as immutable, checked for damage, and with a bound on the work that a
# crafted schema can cause.

# Steps of SQLite's virtual machine. Reading a byte takes less than one step, but a crafted schema can loop forever.
_STEPS_FREE = 10_000_000
_STEPS_PER_BYTE = 20
_STEPS_PER_CALL = 1_000_000
_CACHE_KIB = 8 * 1024
_PROBE_VALUE_MAX_BYTES = 1 << 20
_SAFETY_PRAGMAS = (
    # A crafted schema may not call functions, and damaged pages are found when they are loaded.
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA query_only = ON",
    # The process that reads the file may not create others.
    "PRAGMA temp_store = MEMORY",
    f"PRAGMA cache_size = -{_CACHE_KIB}",
)


@contextmanager
def open_database(path: Path, limits: ImportLimits, progress: ProgressCallback) -> Iterator["TableReader"]:
    """Opens a database after checking its integrity. Any SQLite error raises InvalidParams."""
    # Rejects a database in use: changes that are not yet in the main file would be missing without notice.
    for suffix in ("-wal", "-journal"):
        journal = path.with_name(path.name + suffix)
        if journal.is_file() and journal.stat().st_size > 0:
            raise InvalidParams(
                f"database is in use ({printable_name(journal.name)} exists); close the program that uses it first"
            )
    with _connect(path, limits.line_max_bytes) as connection:
        # Stops at the first error. Rows of a damaged table could be read twice or be missing without notice.
        if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise InvalidParams("database is damaged")
        yield TableReader(connection, limits, progress, file_size(path))


def table_columns(path: Path, *tables: str) -> dict[str, frozenset[str]]:
    """Returns the columns of each table, for recognizing a file; none for a file that cannot be read."""
    try:
        with _connect(path, _PROBE_VALUE_MAX_BYTES) as connection:
            return {table: columns_of(connection, table) for table in tables}
    except (InvalidParams, OSError):
        return dict.fromkeys(tables, frozenset())


def require_readable(path: Path) -> None:
    """Raises InvalidParams if SQLite cannot read the schema."""
    with _connect(path, _PROBE_VALUE_MAX_BYTES) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


def columns_of(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    """Returns the stored columns of a table. Views and virtual tables have none: their rows might never end."""
    stored = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name = ? COLLATE NOCASE"
    if connection.execute(stored, (table,)).fetchone() is None:
        return frozenset()
    rows = connection.execute("SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0", (table,))
    return frozenset(name.lower() for (name,) in rows)


@contextmanager
def _connect(path: Path, value_max_bytes: int) -> Iterator[sqlite3.Connection]:
    connection = None
    try:
        # The import runner reads batches on different threads, one after the other.
        with opening_only(path):
            # Immutable: SQLite neither locks the file of the other program nor creates files next to it.
            uri = f"{Path(real_path(path)).as_uri()}?mode=ro&immutable=1"
            connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
        size_bytes = file_status(path).st_size
        # A larger value is an error of its row, and is never held in memory.
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, value_max_bytes)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        for statement in _SAFETY_PRAGMAS:
            connection.execute(statement)
        calls_left = iter(range((_STEPS_FREE + _STEPS_PER_BYTE * size_bytes) // _STEPS_PER_CALL))
        connection.set_progress_handler(lambda: next(calls_left, None) is None, _STEPS_PER_CALL)
        yield connection
    except (sqlite3.Error, sqlite3.Warning, UnicodeDecodeError) as error:
        is_interrupted = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT
        too_much_work = "database takes more work to read than its size explains"
        raise InvalidParams(too_much_work if is_interrupted else "database cannot be read by SQLite") from error
    finally:
        if connection is not None:
            connection.close()


class TableSpec(Struct, frozen=True):
    """A table by which a file is recognized. Every version has the `required` columns; `optional` ones were added
    later."""

    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


class KeywordLinks(Struct, frozen=True):
    """How keywords are attached to items: a link table with the column that holds the item's id, and the table of
    keywords."""

    link_table: str
    item_column: str
    keyword_table: str = "keywords"


class TableReader:
    """Reads the tables of one database, and converts the number of rows read into bytes of its file."""

    def __init__(
        self, connection: sqlite3.Connection, limits: ImportLimits, progress: ProgressCallback, size_bytes: int
    ) -> None:
        self._connection = connection
        self._progress = progress
        self._size_bytes = size_bytes
        self._rows_total = self._rows_read = 0
        self._columns: dict[str, frozenset[str]] = {}
        # By the identity of a table, whose hash would be computed from all of its columns.
        self._statements: dict[tuple[int, str], tuple[str, Sequence[str]]] = {}
        self.limits = limits

    def has(self, table: TableSpec) -> bool:
        return self.columns(table.name) >= frozenset(table.required)

    def require(self, tables: Sequence[TableSpec], what: str) -> None:
        if not all(map(self.has, tables)):
            raise InvalidParams(f"not {what}")

    def expect_rows(self, *tables: TableSpec) -> None:
        """Says which tables are read, of those that the file has. `step` is called after each of their rows."""
        self._rows_total = sum(map(self.count, filter(self.has, tables)))

    def step(self) -> None:
        self._rows_read += 1
        rows_read = min(self._rows_read, self._rows_total)
        self._progress(self._size_bytes * rows_read // max(1, self._rows_total))

    def read_rows(self, tables: Sequence[TableSpec], read: Callable[[TableSpec, Fields], Events]) -> Events:
        """Yields what `read` makes of each row. A missing table has no rows."""
        for table in filter(self.has, tables):
            for rowid in self.rowids(table):
                try:
                    yield from read(table, self.row(table, rowid))
                except InvalidParams as error:
                    yield FailedItem(f"{table.name}, row {rowid}", error.message)
                self.step()

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
        # Sorts the keys only. The rows, with all their text, are read one by one afterwards.
        rows = self._connection.execute(f"SELECT {key}, rowid FROM {table.name} ORDER BY {key}, {order_column}, rowid")
        for value, group in groupby(rows, key=lambda row: row[0]):
            yield value, (rowid for _, rowid in group)

    def ranges(self, table: TableSpec, keys: Sequence[str], first: str, last: str) -> Sequence[Fields]:
        """Groups rows by `keys` and returns the keys, the smallest `first` and the largest `last` of each group.
        Returns nothing if a value is too large to compare; that row is reported when it is read."""
        names = ", ".join(keys)
        sql = f"SELECT {names}, min({first}), max({last}) FROM {table.name} GROUP BY {names} ORDER BY {names}"
        try:
            rows = self._connection.execute(sql).fetchall()
        except sqlite3.DataError:
            return ()
        return [Fields(zip((*keys, first, last), row, strict=True)) for row in rows]

    def orphan_count(self, table: TableSpec, column: str, owner: TableSpec) -> int:
        """Counts rows whose owner does not exist."""
        sql = f"SELECT count(*) FROM {table.name} WHERE {column} NOT IN (SELECT id FROM {owner.name})"
        return int(self._connection.execute(sql).fetchone()[0])

    def row(self, table: TableSpec, rowid: int) -> Fields:
        rows = self._select(table, "rowid = ?", rowid)
        if not rows:
            raise InvalidParams("row not found")
        return rows[0]

    def rows_where(self, table: TableSpec, column: str, value: Any) -> Sequence[Fields]:
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
            # CROSS JOIN keeps the order of the tables, so that SQLite starts with the links of the item.
            f"SELECT k.keyword FROM {links.link_table} l CROSS JOIN {links.keyword_table} k ON k.id = l.keyword_id "
            f"WHERE l.{links.item_column} = ? {is_live} ORDER BY k.keyword",
            (item_id,),
        )
        return clean_tags([clean_line(keyword) for (keyword,) in rows])

    def _select(self, table: TableSpec, condition: str, value: Any) -> Sequence[Fields]:
        key = id(table), condition
        if key not in self._statements:
            # Columns that the file lacks are read as NULL.
            statement_names = (*table.required, *table.optional)
            present = {*table.required, *self.columns(table.name)}
            selected = ", ".join(name if name in present else f"NULL AS {name}" for name in statement_names)
            self._statements[key] = f"SELECT {selected} FROM {table.name} WHERE {condition}", statement_names
        sql, names = self._statements[key]
        try:
            rows = self._connection.execute(sql, (value,)).fetchall()
        except sqlite3.DataError as error:
            raise InvalidParams(f"a value is larger than {self.limits.line_max_bytes} bytes") from error
        return [Fields(zip(names, row, strict=True)) for row in rows]


# -- csv rows ----------------------------------------------------------------------------------------------------------
# Rows of a table in text: values separated by commas, semicolons or tabs, with the names of the columns first.

_COLUMNS_MAX = 100_000

# Python's limit of a cell applies to the whole process. The size of a file is limited, so that cells need none.
csv.field_size_limit((1 << 31) - 1)


def table_rows(text: str) -> Iterator[tuple[str, Fields | str]]:
    """Yields where each row is, and its values by column, or the problem with it. Empty rows are left out."""
    first_line = text.partition("\n")[0]
    delimiter = max(",;\t", key=first_line.count)
    reader = csv.reader(table_lines(text, delimiter), delimiter=delimiter)
    try:
        columns = next(reader, [])
    except csv.Error as error:
        raise InvalidParams(f"line 1: invalid column names: {error}") from error
    while True:
        location = f"line {reader.line_num + 1}"
        try:
            values = next(reader, None)
        except csv.Error as error:
            yield location, str(error)
            continue
        if values is None:
            return
        if values and any(value.strip() for value in values):
            yield location, Fields(zip(columns, values, strict=False))


def first_columns(head: bytes) -> frozenset[str]:
    """Returns the names in the first line of a table, in lower case, for recognizing it."""
    line = head.decode("utf-8-sig", "replace").partition("\n")[0]
    return frozenset(name.strip().strip('"').lower() for name in re.split("[,;\t]", line))


def table_lines(text: str, delimiter: str) -> Iterator[str]:
    """Yields the lines with their ends, and rejects lines that would become huge rows."""
    # Counting in the whole text first is fast, and enough for nearly every table.
    may_be_wide = text.count(delimiter) > _COLUMNS_MAX
    for number, line in enumerate(StringIO(text), 1):
        if may_be_wide and line.count(delimiter) > _COLUMNS_MAX:
            raise InvalidParams(f"line {number}: expected at most {_COLUMNS_MAX} columns")
        yield line


# -- followed tables ---------------------------------------------------------------------------------------------------
# Describes the tables of a database that is read again and again, so that only what changed has to be read.
#
# Plain values: the process that copies databases gets them as JSON and loads no importer.


class LookupTable(TableSpec, frozen=True):
    """Rows that others refer to: `column` of the other table holds their `id`. If one changes, so do the items that
    refer to it."""

    column: str = ""


class FollowedTable(TableSpec, frozen=True):
    """A table whose rows are items, or parts of the items of another table. `parent_column` of a part holds the `id` of
    its item. Rows that are removed from a table are noticed by their number, unless `is_counted` is False."""

    parent_column: str = ""
    parts: tuple["FollowedTable", ...] = ()
    lookups: tuple[LookupTable, ...] = ()
    is_counted: bool = True

    def with_parts(self) -> Iterator["FollowedTable"]:
        yield self
        for part in self.parts:
            yield from part.with_parts()


class FollowedDatabase(Struct, frozen=True):
    """The tables of one kind of database. Their rows may have `last_modified`, the time of their last change, and the
    database a table `sync_log` with a row for each change."""

    tables: tuple[FollowedTable, ...]

    def all_tables(self) -> list[FollowedTable]:
        return [part for table in self.tables for part in table.with_parts()]

    def lookups(self) -> list[LookupTable]:
        return [lookup for table in self.all_tables() for lookup in table.lookups]
