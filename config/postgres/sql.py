"""Statements for PostgreSQL. Their parameters are written as SQLite has them (`?`, or `?1` if one is used twice),
because most statements are the same on both engines."""

from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

_READING = ("SELECT", "WITH", "VALUES", "SHOW", "EXPLAIN")
_DIGITS = "0123456789"


class Statement(Struct, frozen=True):
    """`returns_rows` says whether to fetch rows or only their number. `has_tenant` says that the first parameter is the
    tenant."""

    text: str
    returns_rows: bool
    has_tenant: bool = False


@lru_cache(maxsize=5_000)
def plain_statement(sql: str) -> Statement:
    return Statement(number_parameters(sql), sql.lstrip().startswith(_READING) or "RETURNING" in sql)


def number_parameters(sql: str, first: int = 1, mark: str = "$") -> str:
    """Returns the SQL with numbers that begin with `first`. No constant in it may contain a question mark."""
    start, *parts = sql.split("?")
    numbered = [start]
    for position, part in enumerate(parts):
        rest = part.lstrip(_DIGITS)
        number = int(part[: len(part) - len(rest)] or position + 1)
        numbered.append(f"{mark}{number + first - 1}{rest}")
    return "".join(numbered)


def rows_as_json(queries: Iterable[tuple[str, int]], first: int = 1) -> list[str]:
    """Returns an expression for each query and its number of parameters, so that one statement reads the rows of all:
    a JSON array, or NULL if there are none. As JSON, because PostgreSQL does not accept anonymous records as input:
    Citus could not pass them on."""
    expressions = []
    for sql, parameters in queries:
        query = number_parameters(sql, first, "?")
        expressions.append(f"(SELECT CAST(json_agg(part) AS TEXT) FROM ({query}) AS part)")  # noqa: S608 - a constant
        first += parameters
    return expressions
