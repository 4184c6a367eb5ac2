"""Numbers the parameters of SQL. They are written as SQLite has them (`?`, `?1`, `:name`), because most statements of
the control data are the same on both engines."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

# A text, a cast, or a parameter.
_TOKEN = re.compile(r"'(?:[^']|'')*+'|::|\?(\d*)|:([A-Za-z_]\w*)")
_READING = ("SELECT", "WITH", "VALUES", "SHOW", "EXPLAIN")


class Statement(Struct, frozen=True):
    """SQL for PostgreSQL. `names` are those of its parameters, if they have names. `returns_rows` says whether to fetch
    rows or only their number. `has_tenant` says that the first parameter is the tenant."""

    text: str
    names: tuple[str, ...]
    returns_rows: bool
    has_tenant: bool = False

    def arguments(self, parameters: Sequence[Any] | Mapping[str, Any]) -> Sequence[Any]:
        if isinstance(parameters, Mapping):
            return [parameters[name] for name in self.names]
        return parameters


@lru_cache(maxsize=5_000)
def plain_statement(sql: str) -> Statement:
    text, names = number_parameters(sql)
    return Statement(text, names, returns_rows(sql))


def number_parameters(sql: str, first: int = 1, mark: str = "$") -> tuple[str, tuple[str, ...]]:
    """Returns the SQL with numbers that begin with `first`, and the names of the parameters. A name that is used twice
    is one parameter."""
    names: list[str] = []
    position = 0

    def number(token: re.Match[str]) -> str:
        nonlocal position
        if token[2] is not None:
            if token[2] not in names:
                names.append(token[2])
            return f"{mark}{names.index(token[2]) + first}"
        if token[1] is None:
            return token[0]
        position += not token[1]
        return f"{mark}{int(token[1] or position) + first - 1}"

    return _TOKEN.sub(number, sql), tuple(names)


def returns_rows(sql: str) -> bool:
    return sql.lstrip().startswith(_READING) or "RETURNING" in sql


def rows_as_json(query: str) -> str:
    """Returns an expression of the rows of a query as a JSON array, or NULL if there are none. As JSON, because
    PostgreSQL does not accept anonymous records as input: Citus could not pass them on."""
    return f"(SELECT CAST(json_agg(part) AS TEXT) FROM ({query}) AS part)"  # noqa: S608 - a constant


@lru_cache(maxsize=5_000)
def together(queries: tuple[tuple[str, int], ...]) -> str:
    """Returns one query that selects the rows of each query as JSON. A query comes with the number of its parameters,
    which follow those of the query before."""
    arrays, first = [], 1
    for sql, count in queries:
        query, _ = number_parameters(sql, first, "?")
        arrays.append(rows_as_json(query))
        first += count
    return f"SELECT {', '.join(arrays)}"
