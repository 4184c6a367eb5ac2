"""How many rows of a file hold a word, remembered until the file is written. Used on the reader's thread alone."""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

import sqlite3
from collections.abc import Sequence

from sources.query import ParsedQuery
from sources.storage.contract import Corpus
from sources.storage.sqlite.index import TextIndex
from sources.storage.sqlite.match import match_text

_COUNTS_MAX = 10_000


class Statistics:
    """The counts of one file."""

    def __init__(self) -> None:
        self._version = -1
        self._counts: dict[tuple[str, tuple[str | int, ...]], int] = {}

    def refresh(self, connection: sqlite3.Connection) -> None:
        """Forget all counts if anyone has written since; to be called once in each job that counts."""
        version: int = connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version or len(self._counts) > _COUNTS_MAX:
            self._counts.clear()
            self._version = version

    def rows(self, connection: sqlite3.Connection, index: TextIndex) -> int:
        """How many rows the index has."""
        return self.count(connection, f"SELECT count(*) FROM {index.table}_docsize", ())

    def matches(self, connection: sqlite3.Connection, index: TextIndex, match: str) -> int:
        """How many rows of the index match."""
        sql = f"SELECT count(*) FROM {index.table} WHERE {index.table} MATCH ?"
        return self.count(connection, sql, (match,))

    def corpus(self, indexes: Sequence[TextIndex], query: ParsedQuery, connection: sqlite3.Connection) -> Corpus:
        """How common the terms are in some indexes of this file."""
        self.refresh(connection)
        words = [match_text(term.word, "") for term in query.terms]
        frequencies = [sum(self.matches(connection, index, word) for index in indexes) for word in words]
        return Corpus(sum(self.rows(connection, index) for index in indexes), tuple(frequencies))

    def count(self, connection: sqlite3.Connection, sql: str, parameters: tuple[str | int, ...]) -> int:
        key = (sql, parameters)
        if key not in self._counts:
            self._counts[key] = connection.execute(sql, parameters).fetchone()[0]
        return self._counts[key]
