"""How many rows hold a word, remembered until somebody writes to the file they are in.

A word weighs by how rare it is among the rows of its source. A source with few rows says little about that, so for it a
reader counts in all files of the library: its own, and those that are attached to it.
"""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

import sqlite3
from collections.abc import Sequence

from loguru import logger

from sources.query import ParsedQuery
from sources.storage.contract import Corpus
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.connection.errors import is_damage
from sources.storage.sqlite.index.text_index import TextIndex
from sources.storage.sqlite.search.match_expression import match_text

# So many rows order the hits of all sources as well by their own counts as by everybody's; twelve do not.
OWN_ROWS_MIN = 100
_COUNTS_MAX = 10_000
_OWN = "main"

Parameters = tuple[str | int, ...]


class Statistics:
    """The counts that one reader knows. `indexes` are those of its own file."""

    def __init__(self, indexes: tuple[TextIndex, ...]) -> None:
        self._own = _Counts(_OWN, indexes)
        self._others: dict[str, _Counts] = {}

    def refresh(self, connection: JobConnection) -> None:
        """Forget what was counted before somebody wrote; to be called once in each job that counts."""
        self._own.refresh(connection)

    def matches(self, connection: JobConnection, index: TextIndex, match: str) -> int:
        """How many rows of an index in this file match."""
        return self._own.matches(connection, index, match)

    def count(self, connection: JobConnection, sql: str, parameters: Parameters) -> int:
        """The one number that a statement on this file gives."""
        return self._own.count(connection, sql, parameters)

    def source_corpus(self, query: ParsedQuery, connection: JobConnection, index: TextIndex) -> Corpus:
        """How common the terms of a query are in an index of this file, or where that is small in the whole library."""
        rows = self._own.rows(connection, index)
        if rows < OWN_ROWS_MIN:
            return self._library_corpus(query, connection)
        return Corpus(rows, tuple([self._own.matches(connection, index, word) for word in _words(query)]))

    def corpus(self, query: ParsedQuery, connection: JobConnection) -> Corpus:
        """How common the terms of a query are in this file and those attached to it."""
        self.refresh(connection)
        return self._library_corpus(query, connection)

    def _library_corpus(self, query: ParsedQuery, connection: JobConnection) -> Corpus:
        words = _words(query)
        found = self._own.corpus(connection, words)
        for schema in list(connection.attached):
            found = _sum(found, self._other_corpus(connection, schema, words))
        return found

    def _other_corpus(self, connection: JobConnection, schema: str, words: Sequence[str]) -> Corpus:
        """A damaged file does not keep the others from being searched."""
        counts = self._others.setdefault(schema, _Counts(schema, connection.attached[schema]))
        try:
            counts.refresh(connection)
            return counts.corpus(connection, words)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            logger.warning("words are weighed without the {} of the library: {}", schema, error)
            del connection.attached[schema]
            return Corpus(0, (0,) * len(words))


class _Counts:
    """What is known of one file, under the schema by which a connection reaches it."""

    def __init__(self, schema: str, indexes: tuple[TextIndex, ...]) -> None:
        self._schema = schema
        self._indexes = indexes
        self._made: tuple[TextIndex, ...] = ()
        self._version = 0
        self._counts: dict[tuple[str, Parameters], int] = {}

    def refresh(self, connection: JobConnection) -> None:
        version = connection.execute(f"PRAGMA {self._schema}.data_version").fetchone()[0]
        if version != self._version or len(self._counts) > _COUNTS_MAX:
            self._counts.clear()
            self._made = self._find_made(connection)
            self._version = version

    def count(self, connection: JobConnection, sql: str, parameters: Parameters) -> int:
        key = (sql, parameters)
        found = self._counts.get(key)
        if found is None:
            found = self._counts[key] = connection.execute(sql, parameters).fetchone()[0]
        return found

    def rows(self, connection: JobConnection, index: TextIndex) -> int:
        return self.count(connection, f"SELECT count(*) FROM {self._schema}.{index.table}_docsize", ())

    def matches(self, connection: JobConnection, index: TextIndex, match: str) -> int:
        sql = f"SELECT count(*) FROM {self._schema}.{index.table} WHERE {index.table} MATCH ?"
        return self.count(connection, sql, (match,))

    def corpus(self, connection: JobConnection, words: Sequence[str]) -> Corpus:
        """In all indexes of the file together."""
        rows = sum([self.rows(connection, index) for index in self._made])
        frequencies = [sum([self.matches(connection, index, word) for index in self._made]) for word in words]
        return Corpus(rows, tuple(frequencies))

    def _find_made(self, connection: JobConnection) -> tuple[TextIndex, ...]:
        """The indexes that are there: a file that was never used has none yet."""
        rows = connection.execute(f"SELECT name FROM {self._schema}.sqlite_schema WHERE type = 'table'")
        names = {name for (name,) in rows.fetchall()}
        return tuple([index for index in self._indexes if index.table in names])


def _words(query: ParsedQuery) -> list[str]:
    return [match_text(term.word, "") for term in query.terms]


def _sum(one: Corpus, other: Corpus) -> Corpus:
    return Corpus(one.rows + other.rows, tuple(map(sum, zip(one.frequencies, other.frequencies, strict=True))))
