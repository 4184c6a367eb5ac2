"""How many words an index has, without reading its rows."""

from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.tables.text_index import TextIndex

# Every chunk and message repeats the title of its item.
_TITLES = frozenset(("title", "name"))
# The row in which FTS5 keeps the number of rows and the number of tokens of each column (fts5_index.c, "averages").
_AVERAGES_ROW = 1


def count_words(connection: JobConnection, index: TextIndex) -> int:
    """Returns the number of words in the texts of an index, without titles."""
    sql = f"SELECT block FROM {index.table}_data WHERE id = ?"  # noqa: S608 - a constant name
    row = connection.execute(sql, (_AVERAGES_ROW,)).fetchone()
    _rows, *tokens = _read_varints(row[0]) if row else (0,)
    return sum(count for column, count in zip(index.columns, tokens, strict=False) if column not in _TITLES)


def _read_varints(block: bytes) -> list[int]:
    """Reads SQLite's varints: seven bits per byte, the most significant first; the ninth byte has eight bits."""
    values, value, length = [], 0, 0
    for byte in block:
        length += 1
        value = (value << 8 | byte) if length == 9 else (value << 7 | byte & 0x7F)
        if length == 9 or not byte & 0x80:
            values.append(value)
            value, length = 0, 0
    return values or [0]
