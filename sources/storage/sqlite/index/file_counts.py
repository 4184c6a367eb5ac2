"""The counts of one file of a library, as one connection sees it."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Sequence
from functools import lru_cache

from sources.storage.contract import Corpus
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.index.index_content import COUNTS_MAX, IndexContent, LibraryIndexes
from sources.storage.tables.text_index import TextIndex

Parameters = tuple[str | int | float, ...]


class FileCounts:
    """The counts of one file, under the schema name by which a connection reaches it."""

    def __init__(self, schema: str, indexes: tuple[TextIndex, ...], library: LibraryIndexes) -> None:
        self.schema = schema
        self._indexes = indexes
        self._library = library
        # A file that was never used has no indexes yet.
        self.existing: tuple[TextIndex, ...] = ()
        self._data_version = 0
        self._contents: dict[str, IndexContent] = {}
        self._counts: dict[tuple[str, Parameters], int] = {}

    def refresh(self, connection: JobConnection) -> None:
        version = connection.data_version(self.schema)
        is_full = len(self._counts) > COUNTS_MAX or any(content.is_full for content in self._contents.values())
        if version != self._data_version or is_full:
            self._counts.clear()
            self._contents.clear()
            self.existing = self._find_existing(connection)
            self._data_version = version

    def content(self, connection: JobConnection, index: TextIndex) -> IndexContent:
        content = self._contents.get(index.table)
        if content is None:
            content = self._contents[index.table] = self._library.content(connection, self.schema, index.table)
        return content

    def count(self, connection: JobConnection, sql: str, parameters: Parameters) -> int:
        key = (sql, parameters)
        count = self._counts.get(key)
        if count is None:
            [count] = connection.execute(sql, parameters).fetchone()
            self._counts[key] = count
        return count

    def count_rows(self, connection: JobConnection, index: TextIndex) -> int:
        content = self.content(connection, index)
        rows = content.rows
        if rows is None:
            [rows] = connection.execute(_rows_sql(self.schema, index.table)).fetchone()
            content.rows = rows
        return rows

    def count_matches(self, connection: JobConnection, index: TextIndex, match: str) -> int:
        counts = self.content(connection, index).counts
        count = counts.get(match)
        if count is None:
            [count] = connection.execute(_matches_sql(self.schema, index.table), (match,)).fetchone()
            counts[match] = count
        return count

    def corpus(self, connection: JobConnection, matches: Sequence[str]) -> Corpus:
        """Counts in all indexes of the file together."""
        rows = sum([self.count_rows(connection, index) for index in self.existing])
        frequencies = [
            sum([self.count_matches(connection, index, match) for index in self.existing]) for match in matches
        ]
        return Corpus(rows, tuple(frequencies))

    def _find_existing(self, connection: JobConnection) -> tuple[TextIndex, ...]:
        """A file that was never used has no indexes yet."""
        rows = connection.execute(f"SELECT name FROM {self.schema}.sqlite_schema WHERE type = 'table'")
        names = {name for (name,) in rows.fetchall()}
        return tuple([index for index in self._indexes if index.table in names])


# Cached, because building a statement takes as long as looking up a count.


@lru_cache(maxsize=256)
def _rows_sql(schema: str, table: str) -> str:
    return f"SELECT count(*) FROM {schema}.{table}_docsize"


@lru_cache(maxsize=256)
def _matches_sql(schema: str, table: str) -> str:
    return f"SELECT count(*) FROM {schema}.{table} WHERE {table} MATCH ?"
