"""Translates what SQLite spells differently from PostgreSQL in the SQL of the tables.

`config.postgres.sql` then adds the schema and numbers the parameters.
"""

import re
from collections.abc import Callable
from functools import lru_cache

_TRANSLATIONS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    # SQLite keeps the order of a CROSS JOIN and lets it have a condition.
    (re.compile(r"\bCROSS JOIN\b"), "JOIN"),
    (re.compile(r"\b(?:NOT INDEXED|INDEXED BY \w+)\b"), ""),
    (
        re.compile(r"\bjson_each\((\?\d*)\)(?: (wanted)\b)?"),
        lambda match: f"json_array_elements_text({match[1]}::json) AS {match[2] or 'elements'} (value)",
    ),
    # With the collation "C", `lower` changes ASCII letters only, as NOCASE ignores the case of those only.
    (re.compile(r"\b(\w+) = (\?\d*) COLLATE NOCASE\b"), r'lower(\1) = lower(\2::text COLLATE "C")'),
)


@lru_cache(maxsize=2_000)
def to_postgres(sql: str) -> str:
    for pattern, replacement in _TRANSLATIONS:
        sql = pattern.sub(replacement, sql)
    beginning, *parts = sql.split("json_extract(")
    return beginning + "".join([_json_value(part) for part in parts])


def _json_value(part: str) -> str:
    """Translates `column, ?)` of a call. The path is that of nested objects, such as `$._bus.status`."""
    column, _, rest = part.partition(", ?")
    number, _, after = rest.partition(")")
    return f"(({column})::json #>> string_to_array(substr(?{number}, 3), '.')){after}"
