"""Describes the tables of a database that is read again and again, so that only what changed has to be read.

Plain values: the process that copies databases gets them as JSON and loads no importer.
"""

from collections.abc import Iterator

from msgspec import Struct


class LookupTable(Struct, frozen=True):
    """Rows that others refer to: `column` of the other table holds their `id`. If one changes, so do the items that
    refer to it."""

    name: str
    columns: tuple[str, ...]
    column: str
    optional: tuple[str, ...] = ()


class FollowedTable(Struct, frozen=True):
    """A table whose rows are items, or parts of the items of another table. `parent_column` of a part holds the `id` of
    its item. `optional` columns are missing in older versions. Rows that are removed from a table are noticed by their
    number, unless `is_counted` is False."""

    name: str
    columns: tuple[str, ...]
    optional: tuple[str, ...] = ()
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
