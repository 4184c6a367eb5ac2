"""How many entries of the index contain a term, kept until the index changes.

A term is weighted by how rare it is among the entries of its source. In a source with few entries that is unreliable,
so those of the whole library are counted instead."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from config.postgres.connection import PostgresConnection
from sources.query import ParsedQuery
from sources.storage.contract import Corpus
from sources.storage.postgres.index.entries import ENTRY_KINDS, EntryKind, index_state
from sources.storage.postgres.search.tsquery import for_index
from sources.storage.postgres.search.tsquery_engine import TSQUERY
from sources.storage.postgres.search.vocabulary import EntryVocabulary
from sources.storage.search.vocabulary import LibraryVocabulary, NearWordsMemory
from sources.storage.search.vocabulary_memory import VocabularyMemory
from sources.storage.sqlite.index.statistics import OWN_ROWS_MIN
from sources.storage.tables.text_index import TextIndex

_COUNTS_MAX = 5_000
# In a library whose entries have at most this size, counting a term in all sources takes less time than another
# statement, and the search of another source probably asks for it, too.
_SMALL_BYTES = 32_000_000
_TURN_MAX_S = 0.5
_COUNT_EACH = """
    SELECT (SELECT count(*) FROM index_entries e WHERE e.tsv @@ CAST(wanted.match AS TSQUERY))
    FROM unnest(CAST(? AS TEXT[])) WITH ORDINALITY AS wanted (match, place) ORDER BY wanted.place
"""
_COUNT_ROWS = "SELECT count(*) FROM index_entries WHERE kind = ?"
_COUNT_ALL_ROWS = "SELECT kind, count(*) FROM index_entries GROUP BY kind"

Parameters = tuple[str | int | float, ...]


class IndexCounts:
    """What is known about one version of the index of a library. All readers in this process share it."""

    def __init__(self, vocabularies: VocabularyMemory) -> None:
        self.vocabularies = vocabularies
        self.near_words = NearWordsMemory()
        self.version = ""
        self.matches: dict[str, int] = {}
        self.statements: dict[tuple[str, Parameters], int] = {}
        self._turns = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Lets one reader count at a time: all sources of a search count the same terms at about the same time. A
        reader that is stuck does not hold up the others."""
        has_turn = self._turns.acquire(timeout=_TURN_MAX_S)
        try:
            yield
        finally:
            if has_turn:
                self._turns.release()

    def refresh(self, version: str) -> None:
        if version != self.version or len(self.matches) + len(self.statements) > _COUNTS_MAX:
            self.matches, self.statements = {}, {}
            self.version = version


class EntryStatistics:
    """Implements `SearchStatistics` for one schema. With `sources`, nothing of the other sources is counted or read: a
    credential restricted to some sources must not learn from scores or near words what the others contain."""

    engine = TSQUERY

    def __init__(self, known: IndexCounts, sources: frozenset[str] | None = None) -> None:
        self._known = known
        self._kinds = [
            kind for kind in ENTRY_KINDS.values() if kind.is_counted and (sources is None or kind.collection in sources)
        ]

    def refresh(self, connection: PostgresConnection) -> None:
        self._known.refresh(index_state(connection).version)

    def count_matches(self, connection: PostgresConnection, index: TextIndex, match: str) -> int:
        [count] = self.count_each(connection, index, (match,))
        return count

    def count_each(self, connection: PostgresConnection, index: TextIndex, matches: Sequence[str]) -> list[int]:
        prefix = ENTRY_KINDS[index.table].prefix
        own, others = [for_index(match, prefix) for match in matches], []
        if index_state(connection).size <= _SMALL_BYTES:
            others = [for_index(match, kind.prefix) for match in matches for kind in self._kinds]
        return self._count_all(connection, [*own, *others])[: len(own)]

    def count_rows(self, connection: PostgresConnection, index: TextIndex) -> int:
        return self._count_rows(connection, ENTRY_KINDS[index.table])

    def count(self, connection: PostgresConnection, sql: str, parameters: Parameters) -> int:
        key, known = (sql, parameters), self._known.statements
        count = known.get(key)
        if count is None:
            [count] = connection.execute(sql, parameters).fetchone() or (0,)
            known[key] = count
        return count

    def count_in_library(self, connection: PostgresConnection, match: str, enough: int | None = None) -> int:
        # One statement for all sources takes less time than one for each, even if the first has enough.
        return sum(self._count_all(connection, [for_index(match, kind.prefix) for kind in self._kinds]))

    def count_each_in_library(self, connection: PostgresConnection, matches: Sequence[str]) -> list[int]:
        self._count_all(connection, [for_index(match, kind.prefix) for match in matches for kind in self._kinds])
        return [self.count_in_library(connection, match) for match in matches]

    def vocabulary(self, connection: PostgresConnection, own_index: TextIndex, words_max: int) -> LibraryVocabulary:
        """Human-only messages are read only if their own index is searched."""
        kinds = {kind.index: kind for kind in self._kinds} | {own_index.table: ENTRY_KINDS[own_index.table]}
        indexes = [
            EntryVocabulary(
                connection, kind, self._known.vocabularies, self._known.version, self._count_rows(connection, kind)
            )
            for _, kind in sorted(kinds.items())
        ]
        return LibraryVocabulary(indexes, self._known.near_words, words_max)

    def source_corpus(self, query: ParsedQuery, connection: PostgresConnection, index: TextIndex) -> Corpus:
        kind = ENTRY_KINDS[index.table]
        rows = self._count_rows(connection, kind)
        return self._corpus(query, connection, [kind] if rows >= OWN_ROWS_MIN else self._kinds)

    def corpus(self, query: ParsedQuery, connection: PostgresConnection) -> Corpus:
        self.refresh(connection)
        return self._corpus(query, connection, self._kinds)

    def _corpus(self, query: ParsedQuery, connection: PostgresConnection, kinds: Sequence[EntryKind]) -> Corpus:
        matches = [TSQUERY.match_text(term.word) for term in query.terms]
        counts = self._count_all(connection, [for_index(match, kind.prefix) for match in matches for kind in kinds])
        width = len(kinds)
        frequencies = [sum(counts[start : start + width]) for start in range(0, width * len(matches), width or 1)]
        rows = sum(self._count_rows(connection, kind) for kind in kinds)
        return Corpus(rows, tuple(frequencies) or (0,) * len(matches))

    def _count_rows(self, connection: PostgresConnection, kind: EntryKind) -> int:
        known = self._known.statements
        if (_COUNT_ROWS, (kind.number,)) not in known and index_state(connection).size <= _SMALL_BYTES:
            with self._known.turn():
                if (_COUNT_ROWS, (kind.number,)) not in known:
                    rows: dict[int, int] = dict(connection.execute(_COUNT_ALL_ROWS).fetchall())
                    known |= {(_COUNT_ROWS, (one.number,)): rows.get(one.number, 0) for one in ENTRY_KINDS.values()}
        return self.count(connection, _COUNT_ROWS, (kind.number,))

    def _count_all(self, connection: PostgresConnection, matches: Iterable[str]) -> list[int]:
        """Counts what is not known yet, in one statement."""
        matches, known = list(matches), self._known.matches
        if any(match not in known for match in matches):
            with self._known.turn():
                unknown = [match for match in dict.fromkeys(matches) if match not in known]
                rows = connection.execute(_COUNT_EACH, (unknown,)).fetchall() if unknown else []
                known.update((match, count) for match, (count,) in zip(unknown, rows, strict=True))
        return [known[match] for match in matches]
