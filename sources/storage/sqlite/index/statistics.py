"""How many rows contain a term, kept until the index that they are in changes.

A term is weighted by how rare it is among the rows of its source. In a source with few rows that is unreliable, so the
rows of all files of the library are counted instead: the reader's own file and those attached to it.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar

from loguru import logger

from config.sqlite_errors import DATABASE_ERRORS
from sources.query import ParsedQuery
from sources.storage.contract import Corpus
from sources.storage.search.vocabulary import LibraryVocabulary
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.connection.errors import is_damage
from sources.storage.sqlite.index.file_counts import FileCounts, Parameters
from sources.storage.sqlite.index.index_content import LibraryIndexes
from sources.storage.sqlite.index.vocabulary import IndexVocabulary
from sources.storage.sqlite.search.fts5_engine import FTS5
from sources.storage.tables.text_index import TextIndex

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
            corpus = _add(corpus, self._attached_corpus(connection, schema, matches))
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


def _add(one: Corpus, other: Corpus) -> Corpus:
    return Corpus(one.rows + other.rows, tuple(map(sum, zip(one.frequencies, other.frequencies, strict=True))))
