"""Makes every statement name the tenant. This is the only place that does.

Statements name tables as those of SQLite do, without a schema. Tables that are read are defined in front of the
statement, with the rows of the tenant only: `WITH notes AS NOT MATERIALIZED (SELECT * FROM … WHERE tenant_id = $1)`.
PostgreSQL merges the definitions into the statement, and its plans are those of a condition in each place. A table that
is not defined is an error of the server, because the search path is empty; one that is defined and not read costs
nothing. A statement that changes rows is rendered from its parts, with the schema and the tenant; any other is refused.
The tenant is always the first parameter.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from functools import lru_cache
from string import punctuation

from config.errors import StorageError
from config.postgres.connection import Statement, number_parameters
from sources.storage.postgres.tables import LIBRARY_SCHEMA, TENANT_TABLES
from sources.storage.tables.sql import Delete, Insert, Update, conflict_clause

# How entries that `@@` selects are restricted to the tenant. The index of lexemes, which begin with the tenant, finds
# them. With the collation of the primary key, PostgreSQL would also read all entries of the tenant for each word.
_OWN_BY_LEXEME = 'tenant_id = $1 COLLATE "POSIX"'
_TABLES = {
    **{name: (name, "tenant_id = $1") for name in TENANT_TABLES},
    "matched_entries": ("index_entries", _OWN_BY_LEXEME),
    "matched_trigrams": ("message_trigrams", _OWN_BY_LEXEME),
}
_SIGNS = str.maketrans(dict.fromkeys(punctuation.replace("_", ""), " "))


@lru_cache(maxsize=5_000)
def tenant_statement(sql: str) -> Statement:
    match sql:
        case Insert():
            text, read = _render_insert(sql), sql.select or sql.values
        case Update():
            text = f"UPDATE {LIBRARY_SCHEMA}.{sql.table} SET {sql.assignments} WHERE {_own_rows(sql)}"
            read = f"{sql.assignments} {sql.condition}"
        case Delete():
            using = f" USING {sql.using}" if sql.using else ""
            text = f"DELETE FROM {LIBRARY_SCHEMA}.{sql.table}{using} WHERE {_own_rows(sql)}{_returning(sql.returning)}"
            read = f"{sql.using} {sql.condition}"
        case _:
            text = read = sql.strip()
            if not text.startswith(("SELECT", "WITH")):
                raise StorageError("a statement changes rows in a form that cannot name the tenant")
    # The names of all tables among the words of the statement, without those of constants.
    words = set(" ".join(read.split("'")[::2]).translate(_SIGNS).split())
    definitions = ", ".join(
        f"{name} AS NOT MATERIALIZED (SELECT * FROM {LIBRARY_SCHEMA}.{table} WHERE {is_own})"
        for name, (table, is_own) in sorted(_TABLES.items())
        if name in words
    )
    is_change = isinstance(sql, Insert | Update | Delete)
    if not definitions and not is_change:
        return Statement(number_parameters(text), returns_rows=True)
    text = number_parameters(text, first=2)
    if definitions and text.startswith("WITH "):
        text = f"WITH {definitions}, {text.removeprefix('WITH ')}"
    elif definitions:
        text = f"WITH {definitions} {text}"
    return Statement(text, returns_rows=not is_change or bool(getattr(sql, "returning", "")), has_tenant=True)


def _render_insert(insert: Insert) -> str:
    """Every unique key begins with the tenant."""
    rows = f"SELECT $1, {insert.select}" if insert.select else f"VALUES ($1, {insert.values})"
    conflict = conflict_clause(insert.columns, insert.key, f"tenant_id, {insert.key}", insert.condition)
    columns = f"tenant_id, {insert.columns}"
    return f"INSERT INTO {LIBRARY_SCHEMA}.{insert.table} ({columns}) {rows}{conflict}{_returning(insert.returning)}"


def _own_rows(change: Update | Delete) -> str:
    return f"{change.table}.tenant_id = $1 AND ({change.condition})"


def _returning(columns: str) -> str:
    return f" RETURNING {columns}" if columns else ""
