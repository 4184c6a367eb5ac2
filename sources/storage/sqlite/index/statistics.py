"""How many rows contain a term, cached until the file they are in is written to.

A term is weighted by how rare it is among the rows of its source. In a source with few rows that is unreliable, so the
rows of all files of the library are counted instead: the reader's own file and those attached to it.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import sqlite3
from collections.abc import Sequence
from functools import lru_cache

from loguru import logger

from sources.query import ParsedQuery
from sources.search.near_words import near_words
from sources.storage.contract import Corpus
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.connection.errors import is_damage
from sources.storage.sqlite.index.text_index import TextIndex
from sources.storage.sqlite.index.vocabulary import read_words, word_beginnings
from sources.storage.sqlite.search.match_expression import match_text

# With this many rows, a source's own counts order the hits of all sources as well as the counts of the whole library
# do. With twelve rows they do not.
OWN_ROWS_MIN = 100
# Of each file, and again wherever it is attached to another file. A count takes about 240 bytes.
_CACHED_COUNTS_MAX = 1_000
# Misspelled words whose near words are kept: other pages of a search need them again.
_NEAR_WORDS_KEPT = 50
_OWN_SCHEMA = "main"

# Words with the number of their rows, by the table of their index and their beginning.
KnownWords = dict[tuple[str, str], dict[str, int]]
Parameters = tuple[str | int | float, ...]


class CorpusStatistics:
    """The counts of one reader. `indexes` are those of its own file."""

    def __init__(self, indexes: tuple[TextIndex, ...]) -> None:
        self._own = _FileCounts(_OWN_SCHEMA, indexes)
        self._attached: dict[str, _FileCounts] = {}
        self._near_words: dict[tuple[str | int, ...], list[str]] = {}
        # This file and those attached to it that are not damaged, as far as the current job has refreshed them.
        self._files: list[_FileCounts] | None = None

    def refresh(self, connection: JobConnection) -> None:
        """Drops counts that a write made obsolete. Must be called once in each job that counts."""
        self._own.refresh(connection)
        self._files = None

    def count_matches(self, connection: JobConnection, index: TextIndex, match: str) -> int:
        """Counts the rows of an index of this file that match."""
        return self._own.count_matches(connection, index, match)

    def count(self, connection: JobConnection, sql: str, parameters: Parameters) -> int:
        """Returns the single number that a statement on this file selects."""
        return self._own.count(connection, sql, parameters)

    def count_in_library(self, connection: JobConnection, match: str, enough: int | None = None) -> int:
        """Counts the rows of all sources that match, or only until they are `enough`."""
        rows = 0
        for counts in self._readable(connection):
            for index in counts.existing:
                if enough is not None and rows >= enough:
                    return rows
                rows += counts.count_matches(connection, index, match)
        return rows

    def near_words(
        self, connection: JobConnection, word: str, own_index: TextIndex, words_max: int, known: KnownWords
    ) -> list[str]:
        """Returns the words of this library that are nearest to a word: of the sources, and of the searched index if it
        belongs to none. Human-only messages are read only if their own index is searched. `known` keeps the words that
        were read for other words of the query."""
        files = self._readable(connection)
        is_of_source = own_index in self._own.existing
        other_table = "" if is_of_source else own_index.table
        key: tuple[str | int, ...] = (word, other_table, *[counts.data_version for counts in files])
        near = self._near_words.get(key)
        if near is None:
            if len(self._near_words) >= _NEAR_WORDS_KEPT:
                self._near_words.clear()
            words: dict[str, int] = {}
            for counts in files:
                for other, rows in counts.words_like(connection, word, words_max, known).items():
                    words[other] = words.get(other, 0) + rows
            if not is_of_source:
                words = self._own.words_of(connection, own_index, word, words_max, known) | words
            near = self._near_words[key] = near_words(word, words)
        return near

    def find_text(self, connection: JobConnection, match: str, own_index: TextIndex) -> str | None:
        """Returns the indexed text of a row that matches, the same one for every reader of the library."""
        tables = {index.table: (counts, index) for counts in self._readable(connection) for index in counts.existing}
        tables.setdefault(own_index.table, (self._own, own_index))
        texts = (counts.text_of(connection, index, match) for _, (counts, index) in sorted(tables.items()))
        return next(filter(None, texts), None)

    def _readable(self, connection: JobConnection) -> "list[_FileCounts]":
        """The counts of this file and of those attached to it that are not damaged. They are refreshed once per job."""
        if self._files is not None:
            return self._files
        self._files = files = [self._own]
        for schema in list(connection.attached):
            counts = self._attached.setdefault(schema, _FileCounts(schema, connection.attached[schema]))
            try:
                counts.refresh(connection)
            except sqlite3.DatabaseError as error:
                if not is_damage(error):
                    raise
                del connection.attached[schema]
            else:
                files.append(counts)
        return files

    def source_corpus(self, query: ParsedQuery, connection: JobConnection, index: TextIndex) -> Corpus:
        """Returns how common the terms of a query are in an index of this file, or, if it is small, in the library."""
        rows = self._own.count_rows(connection, index)
        if rows < OWN_ROWS_MIN:
            return self._library_corpus(query, connection)
        return Corpus(rows, tuple([self._own.count_matches(connection, index, match) for match in _matches(query)]))

    def corpus(self, query: ParsedQuery, connection: JobConnection) -> Corpus:
        """Returns how common the terms of a query are in this file and those attached to it."""
        self.refresh(connection)
        return self._library_corpus(query, connection)

    def _library_corpus(self, query: ParsedQuery, connection: JobConnection) -> Corpus:
        matches = _matches(query)
        corpus = self._own.corpus(connection, matches)
        for schema in list(connection.attached):
            corpus = _add(corpus, self._attached_corpus(connection, schema, matches))
        return corpus

    def _attached_corpus(self, connection: JobConnection, schema: str, matches: Sequence[str]) -> Corpus:
        """A damaged file is left out, so that the others can still be searched."""
        counts = self._attached.setdefault(schema, _FileCounts(schema, connection.attached[schema]))
        try:
            counts.refresh(connection)
            return counts.corpus(connection, matches)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            logger.warning("Ignoring the {} file of a library when weighting terms: {}", schema, error)
            del connection.attached[schema]
            return Corpus(0, (0,) * len(matches))


class _FileCounts:
    """The counts of one file, under the schema name by which a connection reaches it."""

    def __init__(self, schema: str, indexes: tuple[TextIndex, ...]) -> None:
        self._schema = schema
        self._indexes = indexes
        # A file that was never used has no indexes yet.
        self.existing: tuple[TextIndex, ...] = ()
        self.data_version = 0
        self._counts: dict[tuple[str, Parameters], int] = {}

    def refresh(self, connection: JobConnection) -> None:
        [version] = connection.execute(f"PRAGMA {self._schema}.data_version").fetchone()
        if version != self.data_version or len(self._counts) > _CACHED_COUNTS_MAX:
            self._counts.clear()
            self.existing = self._find_existing(connection)
            self.data_version = version

    def count(self, connection: JobConnection, sql: str, parameters: Parameters) -> int:
        key = (sql, parameters)
        count = self._counts.get(key)
        if count is None:
            [count] = connection.execute(sql, parameters).fetchone()
            self._counts[key] = count
        return count

    def count_rows(self, connection: JobConnection, index: TextIndex) -> int:
        return self.count(connection, _rows_sql(self._schema, index.table), ())

    def count_matches(self, connection: JobConnection, index: TextIndex, match: str) -> int:
        return self.count(connection, _matches_sql(self._schema, index.table), (match,))

    def words_like(self, connection: JobConnection, word: str, words_max: int, known: KnownWords) -> dict[str, int]:
        """Returns the words of all indexes that may be near to a word, each with the number of its rows."""
        words: dict[str, int] = {}
        for index in self.existing:
            for other, rows in self.words_of(connection, index, word, words_max, known).items():
                words[other] = words.get(other, 0) + rows
        return words

    def words_of(
        self, connection: JobConnection, index: TextIndex, word: str, words_max: int, known: KnownWords
    ) -> dict[str, int]:
        words: dict[str, int] = {}
        for beginning in word_beginnings(word, self.count_rows(connection, index)):
            key = (index.table, beginning)
            if key not in known:
                known[key] = read_words(connection, self._schema, index.table, beginning, words_max)
            words |= known[key]
        return words

    def text_of(self, connection: JobConnection, index: TextIndex, match: str) -> str | None:
        text = " || ' ' || ".join(index.columns)
        sql = f"SELECT {text} FROM {self._schema}.{index.table} WHERE {index.table} MATCH ? LIMIT 1"
        row = connection.execute(sql, (match,)).fetchone()
        return row and str(row[0])

    def corpus(self, connection: JobConnection, matches: Sequence[str]) -> Corpus:
        """Counts in all indexes of the file together."""
        rows = sum([self.count_rows(connection, index) for index in self.existing])
        frequencies = [
            sum([self.count_matches(connection, index, match) for index in self.existing]) for match in matches
        ]
        return Corpus(rows, tuple(frequencies))

    def _find_existing(self, connection: JobConnection) -> tuple[TextIndex, ...]:
        """A file that was never used has no indexes yet."""
        rows = connection.execute(f"SELECT name FROM {self._schema}.sqlite_schema WHERE type = 'table'")
        names = {name for (name,) in rows.fetchall()}
        return tuple([index for index in self._indexes if index.table in names])


# Cached, because each count is kept under its statement, and copies of it would take as much memory as the rest.


@lru_cache(maxsize=256)
def _rows_sql(schema: str, table: str) -> str:
    return f"SELECT count(*) FROM {schema}.{table}_docsize"


@lru_cache(maxsize=256)
def _matches_sql(schema: str, table: str) -> str:
    return f"SELECT count(*) FROM {schema}.{table} WHERE {table} MATCH ?"


def _matches(query: ParsedQuery) -> list[str]:
    return [match_text(term.word, "") for term in query.terms]


def _add(one: Corpus, other: Corpus) -> Corpus:
    return Corpus(one.rows + other.rows, tuple(map(sum, zip(one.frequencies, other.frequencies, strict=True))))
