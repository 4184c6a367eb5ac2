"""Translates the SQL of search targets, which is written for SQLite, to that of PostgreSQL."""

from functools import lru_cache

from sources.storage.postgres.index.entries import MESSAGE_CONTEXT
from sources.storage.postgres.search.entry_sql import LISTED_ROWS
from sources.storage.sqlite.schema.messages import MESSAGE_CONTEXT as SQLITE_MESSAGE_CONTEXT

_REPLACEMENTS = (
    (SQLITE_MESSAGE_CONTEXT, MESSAGE_CONTEXT),
    ("json_each(?) wanted", LISTED_ROWS),
    # SQLite keeps the order of a CROSS JOIN and accepts a condition.
    ("CROSS JOIN", "JOIN"),
    (" INDEXED BY messages_human_only", ""),
    ("char(10)", "chr(10)"),
    ("json_array(", "json_build_array("),
)


@lru_cache(maxsize=512)
def postgres_sql(sql: str) -> str:
    for old, new in _REPLACEMENTS:
        sql = sql.replace(old, new)
    return sql
