"""What all rows of tldw have in common."""

from typing import Any

from sources.importers.engine.database_rows import Row, aside

NAME = "tldw"


def is_live(row: Row) -> bool:
    """Nothing is ever removed there, only marked."""
    return not row["deleted"]


def about(**values: Any) -> dict[str, Any]:
    """What is kept of an item beside its text."""
    return {"imported_from": NAME, **aside(**values)}
