"""What the rows of all tldw tables have in common."""

from typing import Any

from msgspec import UNSET, UnsetType

from sources.importers.engine.imported_items import stable_uuid
from sources.importers.engine.table_reader import TableRow, compact_metadata
from sources.importers.engine.values import valid_uuid

NAME = "tldw"


def is_live(row: TableRow) -> bool:
    """tldw marks rows as deleted instead of removing them."""
    return not row["deleted"]


def import_metadata(**values: Any) -> dict[str, Any]:
    return {"imported_from": NAME, **compact_metadata(**values)}


def item_uuid(value: object, kind: str, key: str) -> str:
    """Returns a row's own UUID, or one derived from `key` if it has none."""
    return valid_uuid(value) or stable_uuid(NAME, kind, key)


def item_number(row: TableRow) -> int | UnsetType:
    """Returns the id by which tldw's clients know the row."""
    number = row["id"]
    return number if isinstance(number, int) else UNSET
