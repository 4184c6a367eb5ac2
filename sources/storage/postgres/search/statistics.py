"""How many entries of the index contain a term, kept until the index changes.

A term is weighted by how rare it is among the entries of its source. In a source with few entries that is unreliable,
so those of the whole library are counted instead.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from sources.query import ParsedQuery
from sources.storage.contract import Corpus
from sources.storage.postgres.connection import LibraryConnection
from sources.storage.postgres.index.entries import (
    ENTRY_KINDS,
    IS_SMALL_SQL,
    SEGMENT_VERSION_SQL,
    EntryKind,
    IndexState,
    index_state,
    known_index_state,
    save_index_state,
)
from sources.storage.postgres.search.tsquery import (
    MATCH,
    NOTHING,
    TENANT_MARK,
    for_index,
    index_tokens,
    quote_lexeme,
    tsquery,
)
from sources.storage.postgres.search.tsquery_engine import TSQUERY
from sources.storage.search.engine import OWN_ROWS_MIN
from sources.storage.search.vocabulary import LibraryVocabulary, NearWordsMemory, VocabularyMemory, word_beginnings
from sources.storage.tables.sql import Statement, TextIndex

# -- vocabulary --------------------------------------------------------------------------------------------------------
# The words of the sources of a library.

# SQL and its parameters, which may be arrays.
Query = tuple[str, Sequence[Any]]

_LAST = "\U0010ffff"
_WORDS = """
    SELECT (SELECT coalesce(string_agg(word, ' '), '')
        FROM (SELECT word FROM index_words WHERE word >= wanted.first AND word < wanted.last LIMIT ?1) AS word)
    FROM unnest(CAST(?2 AS TEXT[]), CAST(?3 AS TEXT[])) WITH ORDINALITY AS wanted (first, last, place)
    ORDER BY wanted.place
"""
_COUNTS = f"""
    SELECT (SELECT count(*) FROM index_entries e WHERE e.tsv @@ {tsquery("wanted.match")})
    FROM unnest(CAST(? AS TEXT[])) WITH ORDINALITY AS wanted (match, place) ORDER BY wanted.place
"""
# The first, as in SQLite: the spelling of a near word is that of the text. `+ 0`: not by reading all entries in the
# order of the primary key.
_ROW = f"SELECT min(id + 0) FROM index_entries WHERE tsv @@ {MATCH} HAVING count(*) > 0"


class EntryVocabulary:
    """Implements `IndexWords`. `rows` is the number of entries of the source."""

    def __init__(
        self, connection: LibraryConnection, kind: EntryKind, memory: VocabularyMemory, version: str, rows: int
    ) -> None:
        self.connection = connection
        self._kind = kind
        self._memory = memory
        self._rows = rows
        self.table = kind.index
        self.version = version.encode()

    def words_like(self, word: str, words_max: int) -> str:
        [words] = read_words((self,), word, words_max)
        return words

    def count_rows(self, words: Sequence[str]) -> dict[str, int]:
        [counts] = count_rows((self,), (words,))
        return counts

    def find_text(self, token: str) -> str | None:
        [text] = find_texts(((self, token),))
        return text

    def select_row(self, token: str) -> Statement:
        """Selects the rowid of an entry that contains a token."""
        match = " <-> ".join([quote_lexeme(TENANT_MARK + self._kind.prefix + lexeme) for lexeme in index_tokens(token)])
        return _ROW, (match or NOTHING,)

    def select_forms(self, rowid: int) -> list[Query]:
        """Selects a rowid, and after it what the entry with this rowid contains."""
        return [(sql, ([rowid], [-rowid]) if "?2" in sql else ([rowid],)) for sql in self._kind.sources]

    def beginnings(self, word: str) -> tuple[str, ...]:
        return word_beginnings(word, self._rows)

    def lexeme(self, word: str) -> str:
        return self._kind.prefix + word

    def without_prefix(self, words: str) -> str:
        """Removes the letter of the source from words with spaces before them. Here, because the server would take a
        third of the time of reading them for it."""
        return words.replace(f" {self._kind.prefix}", " ")

    def known_words(self, beginning: str) -> str | None:
        return self._memory.get((self.connection.tenant or "", self.table, beginning), self.version)

    def save_words(self, beginning: str, words: str) -> None:
        self._memory.put((self.connection.tenant or "", self.table, beginning), self.version, words)


class EntryVocabularies(LibraryVocabulary):
    """The words of several sources, which are read and counted in one statement for all of them."""

    def __init__(self, sources: Sequence[EntryVocabulary], memory: NearWordsMemory, words_max: int) -> None:
        super().__init__(sources, memory, words_max)
        self._sources = sources

    def _find_texts(self, tokens: Mapping[str, str]) -> dict[str, str]:
        """If an index has no text for a stem, the next one is tried."""
        sources = {source.table: source for source in self._sources}
        untried = {near: [sources[index.table] for index in self._indexes_of[near]] for near in tokens}
        texts: dict[str, str] = {}
        while wanted := [near for near, left in untried.items() if left and near not in texts]:
            found = find_texts([(untried[near].pop(0), tokens[near]) for near in wanted])
            texts |= {near: text for near, text in zip(wanted, found, strict=True) if text}
        return texts

    def _words_like(self, word: str) -> list[str]:
        return read_words(self._sources, word, self._words_max)

    def _count_rows(self, words: Sequence[Sequence[str]]) -> list[dict[str, int]]:
        return count_rows(self._sources, words)


def find_texts(wanted: Sequence[tuple[EntryVocabulary, str]]) -> list[str | None]:
    """Returns the indexed text of a row of each source that contains a token, with two statements for all of them."""
    connection = wanted[0][0].connection
    rows = connection.fetch_together([source.select_row(token) for source, token in wanted])
    queries = [source.select_forms(own[0][0]) if own else [] for (source, _), own in zip(wanted, rows, strict=True)]
    if not any(queries):
        return [None] * len(wanted)
    forms = iter(connection.fetch_together([query for own in queries for query in own]))
    return [
        " ".join([form for _ in own for _, *columns in next(forms) for form in columns]) if own else None
        for own in queries
    ]


def read_words(sources: Sequence[EntryVocabulary], word: str, words_max: int) -> list[str]:
    """Returns the words of each source that may be near to a word."""
    wanted = [[(source, beginning) for beginning in source.beginnings(word)] for source in sources]
    words = {key: key[0].known_words(key[1]) for keys in wanted for key in keys}
    unknown = [key for key, known in words.items() if known is None]
    if unknown:
        first = [source.lexeme(beginning) for source, beginning in unknown]
        last = [lexeme + _LAST for lexeme in first]
        rows = sources[0].connection.execute(_WORDS, (words_max, first, last)).fetchall()
        for (source, beginning), (text,) in zip(unknown, rows, strict=True):
            words[source, beginning] = source.without_prefix(f" {text} ") if text else " "
            source.save_words(beginning, words[source, beginning] or "")
    return ["".join([words[key] or "" for key in keys]) for keys in wanted]


def count_rows(sources: Sequence[EntryVocabulary], words: Sequence[Sequence[str]]) -> list[dict[str, int]]:
    """Returns the number of entries of words of each source. Words of deleted rows have none and are left out."""
    wanted = [(index, word) for index, own in enumerate(words) for word in own]
    counts: list[dict[str, int]] = [{} for _ in sources]
    if wanted:
        matches = [quote_lexeme(TENANT_MARK + sources[index].lexeme(word)) for index, word in wanted]
        rows = sources[0].connection.execute(_COUNTS, (matches,)).fetchall()
        for (index, word), (count,) in zip(wanted, rows, strict=True):
            if count:
                counts[index][word] = count
    return counts


T = TypeVar("T")

_COUNTS_MAX = 5_000
_TURN_MAX_S = 0.5
# The same with the state of the index, for the first statement of a search. What is not counted is NULL: terms of other
# sources in a large library, and rows unless they are wanted.
_READ_STATE_AND_COUNTS = f"""
    WITH entries AS MATERIALIZED (SELECT {IS_SMALL_SQL} AS is_small)
    SELECT value, is_small, {SEGMENT_VERSION_SQL},
        ARRAY(SELECT CASE WHEN wanted.place <= CAST(? AS INTEGER) OR is_small THEN (
                SELECT count(*) FROM index_entries e WHERE e.tsv @@ {tsquery("wanted.match")}) END
            FROM unnest(CAST(? AS TEXT[])) WITH ORDINALITY AS wanted (match, place) ORDER BY wanted.place),
        CASE WHEN CAST(? AS BOOLEAN) AND is_small THEN ARRAY(
            SELECT ARRAY[kind, count(*)] FROM index_entries GROUP BY kind) END
    FROM state, entries WHERE name = 'writes'
"""
_COUNT_ROWS = "SELECT count(*) FROM index_entries WHERE kind = ?"
_COUNT_ALL_ROWS = "SELECT kind, count(*) FROM index_entries GROUP BY kind"

Parameters = tuple[str | int | float | list[str], ...]


class IndexCounts:
    """What is known about one version of the index of a library. All readers in this process share it."""

    def __init__(self, vocabularies: VocabularyMemory) -> None:
        self.vocabularies = vocabularies
        self.near_words = NearWordsMemory()
        self.version = ""
        self.matches: dict[str, int] = {}
        self.statements: dict[tuple[str, Any], int] = {}
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

    @property
    def has_rows(self) -> bool:
        """Whether it is known how many entries each source has."""
        return all((_COUNT_ROWS, (kind.number,)) in self.statements for kind in ENTRY_KINDS.values())

    def save_rows(self, rows: Mapping[int, int]) -> None:
        """`rows` are the numbers of entries by the number of their kind."""
        self.statements |= {(_COUNT_ROWS, (kind.number,)): rows.get(kind.number, 0) for kind in ENTRY_KINDS.values()}


class EntryStatistics:
    """Implements `SearchStatistics` for one library. With `sources`, nothing of the other sources is counted or read: a
    credential restricted to some sources must not learn from scores or near words what the others contain."""

    engine = TSQUERY

    def __init__(self, known: IndexCounts, sources: frozenset[str] | None = None) -> None:
        self._known = known
        self._kinds = [
            kind for kind in ENTRY_KINDS.values() if kind.is_counted and (sources is None or kind.collection in sources)
        ]

    def refresh(self, connection: LibraryConnection) -> None:
        """The first count of a transaction reads the state of the index, too."""
        state = known_index_state(connection)
        if state is not None:
            self._known.refresh(state.version)

    def compute_once(self, connection: LibraryConnection, key: Hashable, compute: Callable[[], T]) -> T:
        if key not in connection.known:
            connection.known[key] = compute()
        value: T = connection.known[key]
        return value

    def count_matches(self, connection: LibraryConnection, index: TextIndex, match: str) -> int:
        [count] = self.count_each(connection, index, (match,))
        return count

    def count_each(self, connection: LibraryConnection, index: TextIndex, matches: Sequence[str]) -> list[int]:
        prefix = ENTRY_KINDS[index.table].prefix
        own = [for_index(match, prefix) for match in matches]
        others = [for_index(match, kind.prefix) for match in matches for kind in self._kinds]
        if known_index_state(connection) is None:
            self._read_state(connection, own, others)
        if not index_state(connection).is_small:
            others = []
        return self._count_all(connection, [*own, *others])[: len(own)]

    def count_rows(self, connection: LibraryConnection, index: TextIndex) -> int:
        return self._count_rows(connection, ENTRY_KINDS[index.table])

    def count(self, connection: LibraryConnection, sql: str, parameters: Parameters) -> int:
        self._require_state(connection)
        # Filters by project have arrays among their parameters.
        key = (sql, tuple(tuple(value) if isinstance(value, list) else value for value in parameters))
        known = self._known.statements
        count = known.get(key)
        if count is None:
            [count] = connection.execute(sql, parameters).fetchone() or (0,)
            known[key] = count
        return count

    def count_in_library(self, connection: LibraryConnection, match: str, enough: int | None = None) -> int:
        # One statement for all sources takes less time than one for each, even if the first has enough.
        return sum(self._count_all(connection, [for_index(match, kind.prefix) for kind in self._kinds]))

    def count_each_in_library(self, connection: LibraryConnection, matches: Sequence[str]) -> list[int]:
        self._count_all(connection, [for_index(match, kind.prefix) for match in matches for kind in self._kinds])
        return [self.count_in_library(connection, match) for match in matches]

    def vocabulary(self, connection: LibraryConnection, own_index: TextIndex, words_max: int) -> EntryVocabularies:
        """Human-only messages are read only if their own index is searched."""
        self._require_state(connection)
        kinds = {kind.index: kind for kind in self._kinds} | {own_index.table: ENTRY_KINDS[own_index.table]}
        indexes = [
            EntryVocabulary(
                connection, kind, self._known.vocabularies, self._known.version, self._count_rows(connection, kind)
            )
            for _, kind in sorted(kinds.items())
        ]
        return EntryVocabularies(indexes, self._known.near_words, words_max)

    def source_corpus(self, query: ParsedQuery, connection: LibraryConnection, index: TextIndex) -> Corpus:
        kind = ENTRY_KINDS[index.table]
        rows = self._count_rows(connection, kind)
        return self._corpus(query, connection, [kind] if rows >= OWN_ROWS_MIN else self._kinds)

    def corpus(self, query: ParsedQuery, connection: LibraryConnection) -> Corpus:
        return self._corpus(query, connection, self._kinds)

    def _corpus(self, query: ParsedQuery, connection: LibraryConnection, kinds: Sequence[EntryKind]) -> Corpus:
        matches = [TSQUERY.match_text(term.word) for term in query.terms]
        counts = self._count_all(connection, [for_index(match, kind.prefix) for match in matches for kind in kinds])
        width = len(kinds)
        frequencies = [sum(counts[start : start + width]) for start in range(0, width * len(matches), width or 1)]
        rows = sum(self._count_rows(connection, kind) for kind in kinds)
        return Corpus(rows, tuple(frequencies) or (0,) * len(matches))

    def _require_state(self, connection: LibraryConnection) -> None:
        """Must be called before anything is looked up in `_known`."""
        self._known.refresh(index_state(connection).version)

    def _read_state(self, connection: LibraryConnection, own: Sequence[str], others: Sequence[str]) -> None:
        """Reads the state of the index and counts what is not known, in one statement."""
        with self._known.turn():
            known = self._known
            unknown = [match for match in dict.fromkeys(own) if match not in known.matches]
            own_count = len(unknown)
            unknown += [match for match in dict.fromkeys(others) if match not in known.matches and match not in unknown]
            # A single term is not weighted, so that the number of rows is not needed.
            needs_rows = len(own) > 1 and not known.has_rows
            if not unknown and not needs_rows:
                return
            row = connection.execute(_READ_STATE_AND_COUNTS, (own_count, unknown, needs_rows)).fetchone()
            if row is None:
                return
            version, is_small, segment_version, counts, rows = row
            save_index_state(connection, IndexState(str(version), is_small, segment_version))
            known.refresh(str(version))
            known.matches.update(
                (match, count) for match, count in zip(unknown, counts, strict=True) if count is not None
            )
            if rows is not None:
                known.save_rows(dict(rows))

    def _count_rows(self, connection: LibraryConnection, kind: EntryKind) -> int:
        self._require_state(connection)
        known = self._known.statements
        if (_COUNT_ROWS, (kind.number,)) not in known and index_state(connection).is_small:
            with self._known.turn():
                if (_COUNT_ROWS, (kind.number,)) not in known:
                    self._known.save_rows(dict(connection.execute(_COUNT_ALL_ROWS).fetchall()))
        return self.count(connection, _COUNT_ROWS, (kind.number,))

    def _count_all(self, connection: LibraryConnection, matches: Iterable[str]) -> list[int]:
        """Counts what is not known yet, in one statement."""
        self._require_state(connection)
        matches, known = list(matches), self._known.matches
        if any(match not in known for match in matches):
            with self._known.turn():
                unknown = [match for match in dict.fromkeys(matches) if match not in known]
                rows = connection.execute(_COUNTS, (unknown,)).fetchall() if unknown else []
                known.update((match, count) for match, (count,) in zip(unknown, rows, strict=True))
        return [known[match] for match in matches]
