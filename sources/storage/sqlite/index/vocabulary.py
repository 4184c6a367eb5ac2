"""The vocabularies of the full-text indexes of a library.

Reading a word takes as long as reading the list of its rows. In a large index only the words that begin like the one
asked for are read, and not the stop words, which have the longest lists.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Iterator, Sequence
from itertools import pairwise

from sources.search.near_words import NEAR_MAX_CHARS, NEAR_MIN_CHARS
from sources.storage.search.vocabulary import word_beginnings
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.index.file_counts import FileCounts
from sources.storage.sqlite.index.index_content import LibraryIndexes
from sources.storage.tables.sql import json_array
from sources.storage.tables.text_index import TextIndex
from sources.text.stopwords import STOPWORDS

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
