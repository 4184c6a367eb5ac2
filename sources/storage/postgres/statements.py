"""Makes every statement name the tenant. This is the only place that does.

Statements name tables as those of SQLite do, without a schema. Tables that are read are defined in front of the
statement, with the rows of the tenant only: `WITH notes AS NOT MATERIALIZED (SELECT * FROM … WHERE tenant_id = $1)`.
PostgreSQL merges the definitions into the statement, and its plans are those of a condition in each place. The table
that a statement changes gets its schema and the condition, or the value. The search path is empty, so a table that is
not defined is an error of the server. The tenant is always the first parameter.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import re
from collections import Counter
from functools import lru_cache

from config.errors import StorageError
from config.postgres.sql import Statement, number_parameters, returns_rows
from sources.storage.postgres.tables import LIBRARY_SCHEMA, TENANT_TABLES

_TABLES = frozenset(TENANT_TABLES)
# A text, which names no table, or a word.
_WORD = re.compile(r"'(?:[^']|'')*+'|(\w+)")
_SPACE = re.compile(r"\s+")
_IS_OWN = "tenant_id = $1"


@lru_cache(maxsize=5_000)
def tenant_statement(sql: str) -> Statement:
    text = _SPACE.sub(" ", sql.strip())
    named = Counter(word for word in _WORD.findall(text) if word in _TABLES)
    if not named:
        numbered, names = number_parameters(text)
        return Statement(numbered, names, returns_rows(text))
    text, names = number_parameters(text, first=2)
    verb = text.split(" ", 1)[0]
    if verb in ("INSERT", "UPDATE", "DELETE"):
        change = {"INSERT": _insert, "UPDATE": _update, "DELETE": _delete}[verb]
        target, text = change(text)
        # What is left is read.
        named[target] -= 1
    read = ", ".join(
        f"{name} AS NOT MATERIALIZED (SELECT * FROM {LIBRARY_SCHEMA}.{name} WHERE {_IS_OWN})" for name in sorted(+named)
    )
    if read and verb == "WITH":
        text = f"WITH {read}, {text.removeprefix('WITH ')}"
    elif read:
        text = f"WITH {read} {text}"
    return Statement(text, names, returns_rows(sql), has_tenant=True)


def _insert(text: str) -> tuple[str, str]:
    """`INSERT INTO table (columns) VALUES (…)` or `… SELECT …`. Every unique key begins with the tenant."""
    head, _, rest = text.partition("(")
    columns, _, rest = rest.partition(") ")
    table = head.split()[2]
    for start, replacement in (("VALUES (", "VALUES ($1, "), ("SELECT ", "SELECT $1, ")):
        if rest.startswith(start):
            rest = replacement + rest.removeprefix(start)
            break
    else:
        raise StorageError("a statement inserts rows in a form that cannot name the tenant")
    rest = rest.replace("ON CONFLICT (", "ON CONFLICT (tenant_id, ")
    return table, f"INSERT INTO {LIBRARY_SCHEMA}.{table} (tenant_id, {columns}) {rest}"


def _update(text: str) -> tuple[str, str]:
    """`UPDATE table SET … WHERE …`."""
    _, table, rest = text.split(" ", 2)
    return table, _restricted(f"UPDATE {LIBRARY_SCHEMA}.{table} {rest}", table)


def _delete(text: str) -> tuple[str, str]:
    """`DELETE FROM table`, with an alias, USING and a condition or without them."""
    words = text.split(" ")
    table = words[2]
    alias = words[3] if len(words) > 3 and words[3] not in ("WHERE", "USING") else table
    return table, _restricted(text.replace(f"FROM {table}", f"FROM {LIBRARY_SCHEMA}.{table}", 1), alias)


def _restricted(text: str, name: str) -> str:
    """Adds the tenant to the condition of the statement, which must be its first one."""
    before, _, condition = text.partition(" WHERE ")
    if before.count("(") != before.count(")"):
        raise StorageError("a statement changes rows in a form that cannot name the tenant")
    condition, returning, columns = condition.partition(" RETURNING ")
    condition = f" AND ({condition})" if condition else ""
    return f"{before} WHERE {name}.{_IS_OWN}{condition}{returning}{columns}"
