"""Conditions on items by their tags and by other folded values."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Sequence

from sources.storage.tables.sql import SqlFilter, placeholders
from sources.storage.tables.validation import fold_tag


def has_tags(tags: Sequence[str], table: str, rowid: str) -> SqlFilter:
    """Items that have all of the tags."""
    condition = f"{rowid} IN (SELECT id FROM {table}_tags WHERE folded = ?)"
    return SqlFilter((condition,) * len(tags), tuple(fold_tag(tag) for tag in tags))


def in_values(table: str, field: str, rowid: str, folded: Sequence[str]) -> SqlFilter:
    """Items with one of the values in a table of folded values such as `observations_values`."""
    condition = f"{rowid} IN (SELECT id FROM {table} WHERE field = '{field}' AND folded IN ({placeholders(folded)}))"
    return SqlFilter((condition,), tuple(folded))
