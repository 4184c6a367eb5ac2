"""The words of a library: the vocabularies of its full-text indexes, and those of their words that are near to another.

Reading a word takes as long as reading the list of its rows. In a large index only the words that begin like the one
asked for are read, and not the stop words, which have the longest lists.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from sources.query.prefixes import word_with_stem
from sources.search.near_words import NEAR_MAX_CHARS, NEAR_MIN_CHARS, compounds_with, similar_words
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.index.file_counts import FileCounts
from sources.storage.sqlite.index.index_content import LibraryIndexes, NearWordsKey
from sources.storage.tables.sql import json_array
from sources.storage.tables.text_index import TextIndex
from sources.text.folding import fold
from sources.text.stemming import stem
from sources.text.stopwords import STOPWORDS

# How many near words are tried for a word that is unknown.
_NEAR_MAX = 3
# How much of a text is searched for the spelling of a stem.
_TEXT_MAX_CHARS = 100_000
# All words are read of indexes with at most this many rows, those with the same first letter up to the second number,
# and those with the same first two letters of larger indexes.
_ALL_WORDS_ROWS = 1_000
_ONE_LETTER_ROWS = 20_000
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
        beginnings = _word_beginnings(word, self._counts.count_rows(self._connection, self._index))
        return "".join([self._words(beginning, words_max) for beginning in beginnings])

    def count_rows(self, words: Sequence[str]) -> dict[str, int]:
        """Returns the number of rows of each of these words."""
        if not words:
            return {}
        sql = f"SELECT term, doc FROM {self._open()} WHERE term IN (SELECT value FROM json_each(?))"
        return dict(self._connection.execute(sql, (json_array(words),)).fetchall())

    def find_text(self, match: str) -> str | None:
        """Returns the indexed text of a row that matches."""
        table, text = self._index.table, " || ' ' || ".join(self._index.columns)
        sql = f"SELECT {text} FROM {self._counts.schema}.{table} WHERE {table} MATCH ? LIMIT 1"
        row = self._connection.execute(sql, (match,)).fetchone()
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
        self._connection.execute("PRAGMA query_only = OFF")
        try:
            self._connection.execute(
                f"CREATE VIRTUAL TABLE IF NOT EXISTS {name} USING fts5vocab ({schema}, {table}, row)"
            )
        finally:
            self._connection.execute("PRAGMA query_only = ON")
        return name


class LibraryVocabulary:
    """The words of several indexes of a library. At most `words_max` words of an index are compared."""

    def __init__(self, indexes: Sequence[IndexVocabulary], library: LibraryIndexes, words_max: int) -> None:
        self._indexes = indexes
        self._library = library
        self._words_max = words_max

    def near_words(self, root: str) -> list[str]:
        """Returns words whose stems are nearest to a stem, or else compounds that end with it, the most frequent
        first."""
        # Which indexes are read depends on the credential, and two of them may have the same version.
        key: NearWordsKey = (root, *[part for index in self._indexes for part in (index.table, index.version)])
        return self._library.near_words(key, lambda: self._find_near_words(root))

    def _find_near_words(self, root: str) -> list[str]:
        return [word for near in self._near_stems(root) if (word := self._spelling(near))]

    def _near_stems(self, root: str) -> list[str]:
        vocabularies = [index.words_like(root, self._words_max) for index in self._indexes]
        similar = [similar_words(root, vocabulary) for vocabulary in vocabularies]
        nearest = min((edits for one in similar for edits in one.values()), default=0)
        if nearest:
            near = [[other for other, edits in one.items() if edits == nearest] for one in similar]
        else:
            near = [compounds_with(root, vocabulary) for vocabulary in vocabularies]
        rows: Counter[str] = Counter()
        for index, words in zip(self._indexes, near, strict=True):
            rows.update(index.count_rows(words))
        return sorted(rows, key=lambda word: (-rows[word], word))[:_NEAR_MAX]

    def _spelling(self, near: str) -> str | None:
        """Returns a word of the library with this stem."""
        token = word_with_stem(near)
        text = token and next(filter(None, (index.find_text(f'"{token}"') for index in self._indexes)), None)
        if not text:
            return None
        return next((word for word in fold(text[:_TEXT_MAX_CHARS]).split() if stem(word) == near), token)


def _word_beginnings(word: str, rows: int) -> tuple[str, ...]:
    """Returns the beginnings of the words to compare with a word. Its first two letters may be swapped."""
    if rows <= _ALL_WORDS_ROWS:
        return ("",)
    if rows <= _ONE_LETTER_ROWS:
        return tuple(dict.fromkeys((word[0], word[1])))
    return tuple(dict.fromkeys((word[:2], word[1] + word[0])))


def _gaps(beginning: str) -> Iterator[tuple[str, str]]:
    """Yields the ranges between the stop words that begin with a text, or one range if all words are read: in a small
    index the lists of stop words are short."""
    if not beginning:
        yield "", _LAST
        return
    bounds = [beginning, *(word for word in _SORTED_STOPWORDS if word.startswith(beginning)), beginning + _LAST]
    yield from pairwise(bounds)
