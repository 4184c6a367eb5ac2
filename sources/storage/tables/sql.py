"""Building blocks for SQL: conditions with their parameters, and lists of values as one parameter."""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from sources.text.literals import literal_form

SqlValue = str | int | float | None
Statement = tuple[str, tuple[str | int | float, ...]]

# SQLite limits the length of LIKE patterns.
_LIKE_MAX_CHARS = 10_000


class SqlFilter(Struct, frozen=True):
    """Conditions that rows must meet, and the parameters of their placeholders."""

    conditions: tuple[str, ...] = ()
    parameters: tuple[str | int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.conditions)

    def __and__(self, other: "SqlFilter") -> "SqlFilter":
        if not self.conditions or not other.conditions:
            return self if self.conditions else other
        return SqlFilter(self.conditions + other.conditions, self.parameters + other.parameters)

    @property
    def sql(self) -> str:
        """The conditions as text to append to a WHERE clause."""
        return "".join(f" AND {condition}" for condition in self.conditions)


def placeholders(values: Sequence[object]) -> str:
    """Returns what is between the parentheses of `IN (...)`. PostgreSQL does not accept an empty list."""
    return ", ".join("?" * len(values)) or "SELECT NULL WHERE FALSE"


def json_array(values: Sequence[int | str]) -> str:
    """Returns the parameter for `json_each(?)`. The SQL text is the same for any number of values, so the statement is
    prepared once."""
    return msgspec.json.encode(values).decode()


def equals(column: str, value: str | int | None) -> SqlFilter:
    return SqlFilter() if value is None else SqlFilter((f"{column} = ?",), (value,))


def metadata_in(column: str, path: str, values: Sequence[str | None]) -> SqlFilter:
    """The value at a JSON path in a metadata column is one of `values`. None means no value."""
    value = f"json_extract({column}, ?)"
    texts = tuple(text for text in values if text is not None)
    condition = SqlFilter((f"{value} IN ({placeholders(texts)})",), (path, *texts))
    return either(condition, SqlFilter((f"{value} IS NULL",), (path,))) if None in values else condition


def between(column: str, low: str | None, high: str | None) -> SqlFilter:
    """Both bounds are inclusive and optional."""
    condition = SqlFilter()
    if low:
        condition &= SqlFilter((f"{column} >= ?",), (low,))
    if high:
        condition &= SqlFilter((f"{column} <= ?",), (high,))
    return condition


def one_of_ignoring_case(column: str, values: Sequence[str]) -> SqlFilter:
    """Uses the SQL function `casefold`, which every connection registers."""
    if not values:
        return SqlFilter()
    return SqlFilter((f"casefold({column}) IN ({placeholders(values)})",), tuple(value.casefold() for value in values))


def contains(expression: str, text: str | None) -> SqlFilter:
    """Requires the text of an expression to contain another text literally."""
    if text is None:
        return SqlFilter()
    return SqlFilter((f"contains_literal({expression}, ?)",), (literal_form(text),))


def contains_ignoring_case(column: str, folded: str) -> SqlFilter:
    """Requires a column to contain a case-folded text. Folding a text costs ten times as much as searching it, so it is
    done only if one of the two is not ASCII."""
    if not folded.isascii() or len(folded) > _LIKE_MAX_CHARS:
        return SqlFilter((f"instr(casefold({column}), ?)",), (folded,))
    is_not_ascii = f"length(CAST({column} AS BLOB)) <> length({column})"
    in_ascii = contains_ascii(column, folded)
    [condition] = in_ascii.conditions
    has_other_case = f"({is_not_ascii} AND instr(casefold({column}), ?))"
    return SqlFilter((f"({condition} OR {has_other_case})",), (*in_ascii.parameters, folded))


def contains_ascii(column: str, text: str) -> SqlFilter:
    """Requires a column to contain an ASCII text, in any case."""
    pattern = re.sub(r"([\\%_])", r"\\\1", text)
    return SqlFilter((f"{column} LIKE '%' || ? || '%' ESCAPE '\\'",), (pattern,))


def either(one: SqlFilter, other: SqlFilter) -> SqlFilter:
    """Joins two filters of one condition each with OR."""
    [first], [second] = one.conditions, other.conditions
    return SqlFilter((f"({first} OR {second})",), one.parameters + other.parameters)
