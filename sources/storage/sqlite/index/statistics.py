"""How many rows contain a term, kept until the index that they are in changes.

A term is weighted by how rare it is among the rows of its source. In a source with few rows that is unreliable, so the
rows of all files of the library are counted instead: the reader's own file and those attached to it.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

from loguru import logger

from config.sqlite_errors import DATABASE_ERRORS
from sources.query import ParsedQuery
from sources.search.scoring import NEAR_MAX_CHARS, NEAR_MIN_CHARS
from sources.storage.contract import Corpus
from sources.storage.search.vocabulary import LibraryVocabulary, word_beginnings
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.connection.errors import is_damage
from sources.storage.sqlite.index.text_index import COUNTS_MAX, IndexContent, LibraryIndexes
from sources.storage.sqlite.search.fts5_engine import FTS5
from sources.storage.tables.sql import TextIndex, json_array
from sources.text.stemming import STOPWORDS

# -- file counts -------------------------------------------------------------------------------------------------------
# The counts of one file of a library, as one connection sees it.

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
            # A file that was never used has no indexes yet.
            rows = connection.execute(f"SELECT name FROM {self.schema}.sqlite_schema WHERE type = 'table'")
            names = {name for (name,) in rows.fetchall()}
            self.existing = tuple([index for index in self._indexes if index.table in names])
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


# Cached, because building a statement takes as long as looking up a count.


@lru_cache(maxsize=256)
def _rows_sql(schema: str, table: str) -> str:
    return f"SELECT count(*) FROM {schema}.{table}_docsize"


@lru_cache(maxsize=256)
def _matches_sql(schema: str, table: str) -> str:
    return f"SELECT count(*) FROM {schema}.{table} WHERE {table} MATCH ?"


# -- vocabulary --------------------------------------------------------------------------------------------------------
# The vocabularies of the full-text indexes of a library.
#
# Reading a word takes as long as reading the list of its rows. In a large index only the words that begin like the one
# asked for are read, and not the stop words, which have the longest lists.

_LAST = "\U0010ffff"
_SORTED_STOPWORDS = sorted(STOPWORDS)


class IndexVocabulary:
    """The words of one index, as one connection sees it."""

    def __init__(
        self, connection: JobConnection, counts: FileCounts, index: TextIndex, library: LibraryIndexes
    ) -> None:
        self._connection = connection
        self._counts = counts
        self._index = index
        self._library = library
        self.version = counts.content(connection, index).version

    @property
    def table(self) -> str:
        return self._index.table

    def words_like(self, word: str, words_max: int) -> str:
        """Returns the words that may be near to a word, each with a space before and after it."""
        beginnings = word_beginnings(word, self._counts.count_rows(self._connection, self._index))
        return "".join([self._words(beginning, words_max) for beginning in beginnings])

    def count_rows(self, words: Sequence[str]) -> dict[str, int]:
        """Returns the number of rows of each of these words."""
        if not words:
            return {}
        sql = f"SELECT term, doc FROM {self._open()} WHERE term IN (SELECT value FROM json_each(?))"
        return dict(self._connection.execute(sql, (json_array(words),)).fetchall())

    def find_text(self, token: str) -> str | None:
        """Returns the indexed text of a row that contains a token."""
        table, text = self._index.table, " || ' ' || ".join(self._index.columns)
        sql = f"SELECT {text} FROM {self._counts.schema}.{table} WHERE {table} MATCH ? LIMIT 1"
        row = self._connection.execute(sql, (f'"{token}"',)).fetchone()
        return row and str(row[0])

    def _words(self, beginning: str, words_max: int) -> str:
        memory, key = self._library.vocabularies, (id(self._library), self._index.table, beginning)
        words = memory.get(key, self.version)
        if words is None:
            words = self._read(beginning, words_max)
            memory.put(key, self.version, words)
        return words

    def _read(self, beginning: str, words_max: int) -> str:
        """Reads at most `words_max` words. Those that are too short or too long to be near to another are left out."""
        # As one text: fetching single rows would acquire the interpreter lock for each.
        length = f"length(term) BETWEEN {NEAR_MIN_CHARS} AND {NEAR_MAX_CHARS}"
        rows = f"SELECT term FROM {self._open()} WHERE term > ? AND term < ? AND {length} LIMIT ?"
        sql = f"SELECT group_concat(term, ' '), count(*) FROM ({rows})"
        texts = [""]
        for after, before in _gaps(beginning):
            text, count = self._connection.execute(sql, (after, before, words_max)).fetchone()
            texts += [text] if count else []
            words_max -= count
        return " ".join([*texts, ""])

    def _open(self) -> str:
        """Returns the name of the table of the words. A reader must not write, not even to its own temporary tables,
        except to create this one."""
        schema, table = self._counts.schema, self._index.table
        name = f"temp.words_of_{schema}_{table}"
        if name in self._connection.temporary_tables:
            return name
        self._connection.execute("PRAGMA query_only = OFF")
        try:
            self._connection.execute(
                f"CREATE VIRTUAL TABLE IF NOT EXISTS {name} USING fts5vocab ({schema}, {table}, row)"
            )
        finally:
            self._connection.execute("PRAGMA query_only = ON")
        self._connection.temporary_tables.add(name)
        return name


def _gaps(beginning: str) -> Iterator[tuple[str, str]]:
    """Yields the ranges between the stop words that begin with a text, or one range if all words are read: in a small
    index the lists of stop words are short."""
    if not beginning:
        yield "", _LAST
        return
    bounds = [beginning, *(word for word in _SORTED_STOPWORDS if word.startswith(beginning)), beginning + _LAST]
    yield from pairwise(bounds)


T = TypeVar("T")

# With this many rows, a source's own counts order the hits of all sources as well as the counts of the whole library
# do. With twelve rows they do not.
OWN_ROWS_MIN = 100
_OWN_SCHEMA = "main"


class CorpusStatistics:
    """The counts of one reader. `indexes` are those of its own file, `library` is shared with the other readers.

    With `sources`, nothing of the other sources is counted or read: a credential restricted to some sources must not
    learn from scores or near words what the others contain."""

    engine = FTS5

    def __init__(
        self, indexes: tuple[TextIndex, ...], library: LibraryIndexes, sources: frozenset[str] | None = None
    ) -> None:
        self._library = library
        self._sources = sources
        self._own = FileCounts(_OWN_SCHEMA, self._permitted(indexes), library)
        self._attached: dict[str, FileCounts] = {}
        # The schema names of attached files that the current job has refreshed.
        self._refreshed: set[str] = set()

    def refresh(self, connection: JobConnection) -> None:
        """Drops counts that a write made obsolete. Must be called once in each job that counts."""
        self._own.refresh(connection)
        self._refreshed.clear()

    def compute_once(self, _connection: JobConnection, _key: Hashable, compute: Callable[[], T]) -> T:
        return compute()

    def count_matches(self, connection: JobConnection, index: TextIndex, match: str) -> int:
        """Counts the rows of an index of this file that match."""
        return self._own.count_matches(connection, index, match)

    def count_each(self, connection: JobConnection, index: TextIndex, matches: Sequence[str]) -> list[int]:
        return [self._own.count_matches(connection, index, match) for match in matches]

    def count_rows(self, connection: JobConnection, index: TextIndex) -> int:
        return self._own.count_rows(connection, index)

    def count(self, connection: JobConnection, sql: str, parameters: Parameters) -> int:
        """Returns the single number that a statement on this file selects."""
        return self._own.count(connection, sql, parameters)

    def count_in_library(self, connection: JobConnection, match: str, enough: int | None = None) -> int:
        """Counts the rows of all sources that match, or only until they are `enough`."""
        rows = 0
        for counts in self._readable(connection):
            for index in counts.existing:
                rows += counts.count_matches(connection, index, match)
                if enough is not None and rows >= enough:
                    return rows
        return rows

    def count_each_in_library(self, connection: JobConnection, matches: Sequence[str]) -> list[int]:
        return [self.count_in_library(connection, match) for match in matches]

    def vocabulary(self, connection: JobConnection, own_index: TextIndex, words_max: int) -> LibraryVocabulary:
        """Returns the words of the sources, and of the searched index if it belongs to none: human-only messages are
        read only if their own index is searched. At most `words_max` words of an index are compared."""
        indexes = {index.table: (counts, index) for counts in self._readable(connection) for index in counts.existing}
        indexes.setdefault(own_index.table, (self._own, own_index))
        # In an order that is the same for every reader of the library.
        sorted_indexes = [indexes[table] for table in sorted(indexes)]
        vocabularies = [IndexVocabulary(connection, counts, index, self._library) for counts, index in sorted_indexes]
        return LibraryVocabulary(vocabularies, self._library.near_words, words_max)

    def _readable(self, connection: JobConnection) -> Iterator[FileCounts]:
        """Yields the counts of this file, then of those attached to it that are not damaged. Each of these is refreshed
        once per job, and only when it is needed: that starts a transaction in it."""
        yield self._own
        for schema in list(connection.attached):
            counts = self._attached_counts(connection, schema)
            if schema not in self._refreshed:
                try:
                    counts.refresh(connection)
                except DATABASE_ERRORS as error:
                    if not is_damage(error):
                        raise
                    del connection.attached[schema]
                    continue
                self._refreshed.add(schema)
            yield counts

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
            other = self._attached_corpus(connection, schema, matches)
            corpus = Corpus(
                corpus.rows + other.rows, tuple(map(sum, zip(corpus.frequencies, other.frequencies, strict=True)))
            )
        return corpus

    def _attached_corpus(self, connection: JobConnection, schema: str, matches: Sequence[str]) -> Corpus:
        """A damaged file is left out, so that the others can still be searched."""
        counts = self._attached_counts(connection, schema)
        try:
            counts.refresh(connection)
            return counts.corpus(connection, matches)
        except DATABASE_ERRORS as error:
            if not is_damage(error):
                raise
            logger.warning("Ignoring the {} file of a library when weighting terms: {}", schema, error)
            del connection.attached[schema]
            return Corpus(0, (0,) * len(matches))

    def _attached_counts(self, connection: JobConnection, schema: str) -> FileCounts:
        if schema not in self._attached:
            indexes = self._permitted(connection.attached[schema])
            self._attached[schema] = FileCounts(schema, indexes, self._library)
        return self._attached[schema]

    def _permitted(self, indexes: tuple[TextIndex, ...]) -> tuple[TextIndex, ...]:
        return tuple([index for index in indexes if self._sources is None or index.collection in self._sources])


def _matches(query: ParsedQuery) -> list[str]:
    return [FTS5.match_text(term.word) for term in query.terms]


# -- word count --------------------------------------------------------------------------------------------------------
# How many words an index has, without reading its rows.

# Every chunk and message repeats the title of its item.
_TITLES = frozenset(("title", "name"))
# The row in which FTS5 keeps the number of rows and the number of tokens of each column (fts5_index.c, "averages").
_AVERAGES_ROW = 1


def count_words(connection: JobConnection, index: TextIndex) -> int:
    """Returns the number of words in the texts of an index, without titles."""
    sql = f"SELECT block FROM {index.table}_data WHERE id = ?"
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
