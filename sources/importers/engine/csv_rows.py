"""Rows of a table in text: values separated by commas, semicolons or tabs, with the names of the columns first."""

import csv
import re
from collections.abc import Iterable, Iterator
from io import StringIO

from config.errors import InvalidParams

_COLUMNS_MAX = 100_000

# Python's limit of a cell applies to the whole process. The size of a file is limited, so that cells need none.
csv.field_size_limit((1 << 31) - 1)


def table_rows(text: str) -> Iterator[tuple[str, dict[str, str] | str]]:
    """Yields where each row is, and its values by column, or the problem with it. Empty rows are left out."""
    first_line = text.partition("\n")[0]
    delimiter = max(",;\t", key=first_line.count)
    reader = csv.reader(table_lines(text, delimiter), delimiter=delimiter)
    try:
        columns = next(reader, [])
    except csv.Error as error:
        raise InvalidParams(f"line 1: invalid column names: {error}") from error
    while True:
        location = f"line {reader.line_num + 1}"
        try:
            values = next(reader, None)
        except csv.Error as error:
            yield location, str(error)
            continue
        if values is None:
            return
        if values and any(value.strip() for value in values):
            yield location, dict(zip(columns, values, strict=False))


def first_columns(head: bytes) -> frozenset[str]:
    """Returns the names in the first line of a table, in lower case, for recognizing it."""
    line = head.decode("utf-8-sig", "replace").partition("\n")[0]
    return frozenset(name.strip().strip('"').lower() for name in re.split("[,;\t]", line))


def table_lines(text: str, delimiter: str) -> Iterator[str]:
    """Returns the lines with their ends, and rejects lines that would become huge rows."""
    lines = StringIO(text)
    return lines if text.count(delimiter) <= _COLUMNS_MAX else _checked_lines(lines, delimiter)


def _checked_lines(lines: Iterable[str], delimiter: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if line.count(delimiter) > _COLUMNS_MAX:
            raise InvalidParams(f"line {number}: expected at most {_COLUMNS_MAX} columns")
        yield line
