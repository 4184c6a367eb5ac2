"""What is known about the content of a library's full-text indexes. All readers of the library share it.

It is valid for one version of an index. `PRAGMA data_version` is of no use for that: its values mean nothing to another
connection, and it changes with every write to the file. FTS5 writes the structure of an index whenever its content
changes, so the structure identifies the content.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import sqlite3

from sources.storage.search.vocabulary import NearWordsMemory
from sources.storage.search.vocabulary_memory import VocabularyMemory

# Of each index, and of other statements. A count takes about 240 bytes.
COUNTS_MAX = 1_000
# The rowids of the sizes and of the structure in the data of an FTS5 index.
_AVERAGES_ROWID = 1
_STRUCTURE_ROWID = 10


class IndexContent:
    """One version of an index: how many rows it has, and how many of them match an expression."""

    __slots__ = ("counts", "rows", "version")

    def __init__(self, version: bytes) -> None:
        self.version = version
        self.rows: int | None = None
        self.counts: dict[str, int] = {}

    @property
    def is_full(self) -> bool:
        return len(self.counts) > COUNTS_MAX


class LibraryIndexes:
    """The indexes of one library, by the names of their tables, which differ between its files."""

    def __init__(self, vocabularies: VocabularyMemory) -> None:
        self.vocabularies = vocabularies
        self.near_words = NearWordsMemory()
        self._contents: dict[str, IndexContent] = {}

    def content(self, connection: sqlite3.Connection, schema: str, table: str) -> IndexContent:
        """Returns the content of an index that a connection sees. If readers see different versions, which they do for
        moments only, the last one is kept."""
        version = _read_version(connection, schema, table)
        content = self._contents.get(table)
        if content is None or content.version != version or content.is_full:
            content = self._contents[table] = IndexContent(version)
        return content


def _read_version(connection: sqlite3.Connection, schema: str, table: str) -> bytes:
    sql = f"SELECT block FROM {schema}.{table}_data WHERE id IN ({_AVERAGES_ROWID}, {_STRUCTURE_ROWID})"
    return b"|".join([block for (block,) in connection.execute(sql)])
