"""Rows of another program's database, one at a time and by column name. Of a column that an older file does not have
there is nothing, and only named columns are asked for. A row that is too large is one row that cannot be read, no more.
"""

# ruff: noqa: S608 - SQL here is made of names that importers hold as constants; values are parameters

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from config.errors import InvalidParams
from sources.importers.engine.databases import columns_of
from sources.importers.engine.files import few_tags, json_value, own_uuid
from sources.importers.engine.importer import ImportLimits, ProgressCallback
from sources.importers.engine.threads import line_of

Row = Mapping[str, Any]
# What is kept of an item beside its text has a limit of its own, and is refused beyond it together with the item.
_ASIDE_MAX_BYTES = 50_000


class Table(Struct, frozen=True):
    """`needed` are the columns that every version of the file has, `newer` those that came later."""

    name: str
    needed: tuple[str, ...]
    newer: tuple[str, ...] = ()


class Links(Struct, frozen=True):
    """Which keywords an item has: a table of pairs, and the table of the words."""

    pairs: str
    item: str
    words: str = "keywords"


class Rows:
    """One file, in which the tables were found."""

    def __init__(self, connection: sqlite3.Connection, limits: ImportLimits) -> None:
        self._connection = connection
        self._columns: dict[str, frozenset[str]] = {}
        self.limits = limits

    def has(self, table: Table) -> bool:
        return self.columns(table.name) >= frozenset(table.needed)

    def columns(self, table: str) -> frozenset[str]:
        if table not in self._columns:
            self._columns[table] = columns_of(self._connection, table)
        return self._columns[table]

    def count(self, table: Table) -> int:
        return int(self._connection.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0])

    def places(self, table: Table) -> Iterator[int]:
        for (place,) in self._connection.execute(f"SELECT rowid FROM {table.name} ORDER BY rowid"):
            yield place

    def grouped(self, table: Table, columns: Sequence[str]) -> Iterator[tuple[Any, int]]:
        """The first of some columns and the place of every row, in the order of all of them."""
        order = ", ".join((*columns, "rowid"))
        yield from self._connection.execute(f"SELECT {columns[0]}, rowid FROM {table.name} ORDER BY {order}")

    def places_of(self, table: Table, column: str, value: Any) -> Sequence[int]:
        found = self._connection.execute(f"SELECT rowid FROM {table.name} WHERE {column} = ?", (value,))
        return [place for (place,) in found]

    def extents(self, table: Table, keys: Sequence[str], first: str, last: str) -> Sequence[Sequence[Any]]:
        """Of the rows with the same keys: the keys, the least `first` and the greatest `last`. Nothing where a value is
        too large to be compared; the rows themselves are told when they are read."""
        named = ", ".join(keys)
        sql = f"SELECT {named}, min({first}), max({last}) FROM {table.name} GROUP BY {named} ORDER BY {named}"
        try:
            return self._connection.execute(sql).fetchall()
        except sqlite3.DataError:
            return ()

    def strays(self, table: Table, column: str, owner: Table) -> int:
        """How many rows belong to nothing that is there."""
        sql = f"SELECT count(*) FROM {table.name} WHERE {column} NOT IN (SELECT id FROM {owner.name})"
        return int(self._connection.execute(sql).fetchone()[0])

    def at(self, table: Table, place: int) -> Row:
        found = self._select(table, "rowid = ?", place)
        if not found:
            raise InvalidParams("got no row, expected one")
        return found[0]

    def where(self, table: Table, column: str, value: Any) -> Sequence[Row]:
        """The rows of one item; none where a file does not have the table."""
        return self._select(table, f"{column} = ? ORDER BY rowid", value) if self.has(table) else ()

    def keywords(self, links: Links, item: Any) -> tuple[str, ...]:
        """Live ones, by name."""
        if not (self.columns(links.pairs) >= {links.item, "keyword_id"} and "deleted" in self.columns(links.words)):
            return ()
        found = self._connection.execute(
            f"SELECT w.keyword FROM {links.pairs} p CROSS JOIN {links.words} w ON w.id = p.keyword_id "
            f"WHERE p.{links.item} = ? AND w.deleted = 0 ORDER BY w.keyword",
            (item,),
        )
        return few_tags([line_of(word) for (word,) in found])

    def _select(self, table: Table, condition: str, value: Any) -> Sequence[Row]:
        names = [*table.needed, *(name for name in table.newer if name in self.columns(table.name))]
        sql = f"SELECT {', '.join(names)} FROM {table.name} WHERE {condition}"
        try:
            rows = self._connection.execute(sql, (value,)).fetchall()
        except sqlite3.DataError as error:
            raise InvalidParams(
                f"got a value of more than {self.limits.line_max_bytes} bytes, expected less"
            ) from error
        missing = dict.fromkeys(table.newer)
        return [missing | dict(zip(names, row, strict=True)) for row in rows]


class Pace:
    """How far the rows have come, told in bytes of their file."""

    def __init__(self, progress: ProgressCallback, size_bytes: int, rows: int) -> None:
        self._progress = progress
        self._size_bytes = size_bytes
        self._rows = rows
        self._done = 0

    def step(self) -> None:
        self._done += 1
        self._progress(self._size_bytes * min(self._done, self._rows) // max(1, self._rows))

    def finish(self) -> None:
        self._progress(self._size_bytes)


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def address_of(value: Any) -> str:
    """Whole or not at all: a part of an address leads nowhere."""
    return value if isinstance(value, str) and line_of(value) == value else ""


def json_of(value: Any, limits: ImportLimits) -> Any:
    """A value that is kept as JSON; nothing where it is none."""
    try:
        return json_value(value.encode("utf-8", "replace"), limits.depth_max) if isinstance(value, str) else None
    except InvalidParams:
        return None


def aside(**values: Any) -> dict[str, Any]:
    """What is kept beside a text: of what there is, what is not too long for it."""
    kept = {name: value for name, value in values.items() if value not in (None, "", [], {})}
    return {name: value for name, value in kept.items() if len(msgspec.json.encode(value)) <= _ASIDE_MAX_BYTES}


def shown(value: Any) -> str:
    """How a place is named in a report."""
    return line_of(str(value))[:60]


def known_uuid(value: Any, instead: str) -> str:
    return own_uuid(value) or instead
