"""The words of full-text indexes, read by their first letters.

Reading a word takes as long as reading the list of its rows. In a large index only the words that begin like the one
asked for are read, and not the stop words, which have the longest lists.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Iterator
from itertools import pairwise

from msgspec.json import Decoder

from sources.storage.sqlite.connection.connection import JobConnection
from sources.text.stopwords import STOPWORDS

# All words are read of indexes with at most this many rows, those with the same first letter up to the second number,
# and those with the same first two letters of larger indexes.
_ALL_WORDS_ROWS = 1_000
_ONE_LETTER_ROWS = 20_000
_LAST = "\U0010ffff"
_SORTED_STOPWORDS = sorted(STOPWORDS)
_decode_words = Decoder(dict[str, int]).decode


def word_beginnings(word: str, rows: int) -> tuple[str, ...]:
    """Returns the beginnings of the words to compare with a word. Its first two letters may be swapped."""
    if rows <= _ALL_WORDS_ROWS:
        return ("",)
    if rows <= _ONE_LETTER_ROWS:
        return tuple(dict.fromkeys((word[0], word[1])))
    return tuple(dict.fromkeys((word[:2], word[1] + word[0])))


def read_words(connection: JobConnection, schema: str, table: str, beginning: str, words_max: int) -> dict[str, int]:
    """Returns at most `words_max` words of an index that begin with a text, each with the number of its rows."""
    vocabulary = f"words_of_{schema}_{table}"
    _create(connection, f"temp.{vocabulary} USING fts5vocab ({schema}, {table}, row)")
    words: dict[str, int] = {}
    # As one JSON object: fetching single rows would acquire the interpreter lock for each.
    rows = f"SELECT term, doc FROM temp.{vocabulary} WHERE term > ? AND term < ? LIMIT ?"
    sql = f"SELECT json_group_object(term, doc) FROM ({rows})"
    for after, before in _gaps(beginning):
        [found] = connection.execute(sql, (after, before, words_max - len(words))).fetchone()
        words |= _decode_words(found)
    return words


def _create(connection: JobConnection, definition: str) -> None:
    """A reader must not write, not even to its own temporary tables."""
    connection.execute("PRAGMA query_only = OFF")
    try:
        connection.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS {definition}")
    finally:
        connection.execute("PRAGMA query_only = ON")


def _gaps(beginning: str) -> Iterator[tuple[str, str]]:
    """Yields the ranges between the stop words that begin with a text, or one range if all words are read: in a small
    index the lists of stop words are short."""
    if not beginning:
        yield "", _LAST
        return
    bounds = [beginning, *(word for word in _SORTED_STOPWORDS if word.startswith(beginning)), beginning + _LAST]
    yield from pairwise(bounds)
