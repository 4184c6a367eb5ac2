"""How many rows of a library hold a word, remembered until one of its files is written.

A reader counts, on its own thread, in its own file and in those that are attached to it, so that a word weighs the same
in every source.
"""

# ruff: noqa: S608 - SQL here is made of constants alone; values are parameters

import sqlite3
from collections.abc import Iterator

from loguru import logger

from sources.query import ParsedQuery
from sources.storage.contract import Corpus
from sources.storage.sqlite.connection import JobConnection
from sources.storage.sqlite.errors import is_damage
from sources.storage.sqlite.index import TextIndex
from sources.storage.sqlite.match import match_text

_COUNTS_MAX = 10_000
_OWN = "main"


class Statistics:
    """The counts that one reader knows. `indexes` are those of its own file."""

    def __init__(self, indexes: tuple[TextIndex, ...]) -> None:
        self._indexes = indexes
        self._versions: dict[str, int] = {}
        self._made: dict[str, tuple[TextIndex, ...]] = {}
        self._counts: dict[tuple[str, tuple[str | int, ...]], int] = {}

    def refresh(self, connection: JobConnection) -> None:
        """Forget all counts if anyone has written since; to be called once in each job that counts."""
        versions = {
            schema: connection.execute(f"PRAGMA {schema}.data_version").fetchone()[0]
            for schema in (_OWN, *connection.attached)
        }
        if versions != self._versions or len(self._counts) > _COUNTS_MAX:
            self._counts.clear()
            self._versions = versions
            self._made = {_OWN: self._indexes} | dict(_made(connection))

    def matches(self, connection: sqlite3.Connection, index: TextIndex, match: str) -> int:
        """How many rows of an index in this file match."""
        return self._matches(connection, _OWN, index, match)

    def count(self, connection: sqlite3.Connection, sql: str, parameters: tuple[str | int, ...]) -> int:
        key = (sql, parameters)
        if key not in self._counts:
            self._counts[key] = connection.execute(sql, parameters).fetchone()[0]
        return self._counts[key]

    def corpus(self, query: ParsedQuery, connection: JobConnection) -> Corpus:
        """How common the terms of a query are in this file and those attached to it."""
        self.refresh(connection)
        words = [match_text(term.word, "") for term in query.terms]
        rows, frequencies = 0, [0] * len(words)
        for schema, indexes in list(self._made.items()):
            try:
                for index in indexes:
                    rows += self._rows(connection, schema, index)
                    for at, word in enumerate(words):
                        frequencies[at] += self._matches(connection, schema, index, word)
            except sqlite3.DatabaseError as error:
                self._leave_out(schema, connection, error)
        return Corpus(rows, tuple(frequencies))

    def _rows(self, connection: sqlite3.Connection, schema: str, index: TextIndex) -> int:
        return self.count(connection, f"SELECT count(*) FROM {schema}.{index.table}_docsize", ())

    def _matches(self, connection: sqlite3.Connection, schema: str, index: TextIndex, match: str) -> int:
        sql = f"SELECT count(*) FROM {schema}.{index.table} WHERE {index.table} MATCH ?"
        return self.count(connection, sql, (match,))

    def _leave_out(self, schema: str, connection: JobConnection, error: sqlite3.DatabaseError) -> None:
        """A damaged file does not keep the others from being searched."""
        if schema == _OWN or not is_damage(error):
            raise error
        logger.warning("words are weighed without the {} of the library: {}", schema, error)
        del connection.attached[schema]


def _made(connection: JobConnection) -> Iterator[tuple[str, tuple[TextIndex, ...]]]:
    """The indexes that are there: a file that was never used has none yet."""
    for schema, indexes in connection.attached.items():
        rows = connection.execute(f"SELECT name FROM {schema}.sqlite_schema WHERE type = 'table'")
        names = {name for (name,) in rows}
        yield schema, tuple(index for index in indexes if index.table in names)
