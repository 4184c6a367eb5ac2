"""How many entries of the index contain a term, kept until the index changes.

A term is weighted by how rare it is among the entries of its source. In a source with few entries that is unreliable,
so those of the whole library are counted instead.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from config.postgres.connection import decode_rows
from config.postgres.sql import number_parameters, rows_as_json
from sources.query import ParsedQuery
from sources.query.parser import can_have_near_terms
from sources.records import SemanticStatus
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
    TENANT_MARK,
    for_index,
    quote_lexeme,
    tsquery,
)
from sources.storage.postgres.search.tsquery_engine import TSQUERY
from sources.storage.search.engine import OWN_ROWS_MIN
from sources.storage.search.vocabulary import (
    LibraryVocabulary,
    NearWordsMemory,
    VocabularyMemory,
    compound_of,
    single_token,
    word_beginnings,
)
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
# With the first entry, as in SQLite: the spelling of a near word is that of the text. `+ 0`: not by reading all entries
# in the order of the primary key.
_COUNTS_AND_FIRST = f"""
    SELECT found.entries, found.first FROM unnest(CAST(? AS TEXT[])) WITH ORDINALITY AS wanted (match, place),
        LATERAL (SELECT count(*) AS entries, min(id + 0) AS first FROM index_entries e
            WHERE e.tsv @@ {tsquery("wanted.match")}) AS found
    ORDER BY wanted.place
"""


class EntryWords(Struct, frozen=True):
    """The words of one source, which has `rows` entries."""

    kind: EntryKind
    version: bytes
    rows: int

    @property
    def table(self) -> str:
        return self.kind.index


class EntryVocabulary(LibraryVocabulary[EntryWords]):
    """Reads and counts the words of all sources in one statement each."""

    def __init__(
        self,
        sources: Sequence[EntryWords],
        memory: NearWordsMemory,
        words_max: int,
        connection: LibraryConnection,
        vocabularies: VocabularyMemory,
    ) -> None:
        super().__init__(sources, memory, words_max)
        self._connection = connection
        self._vocabularies = vocabularies
        # The first entry of each word that was counted.
        self._first: dict[tuple[EntryWords, str], int] = {}

    def _words_like(self, word: str) -> list[str]:
        tenant, words = self._connection.tenant or "", {}
        wanted = [[(source, beginning) for beginning in word_beginnings(word, source.rows)] for source in self._indexes]
        for source, beginning in itertools.chain(*wanted):
            words[source, beginning] = self._vocabularies.get((tenant, source.table, beginning), source.version)
        if unknown := [key for key, known in words.items() if known is None]:
            first = [source.kind.prefix + beginning for source, beginning in unknown]
            last = [lexeme + _LAST for lexeme in first]
            rows = self._connection.execute(_WORDS, (self._words_max, first, last)).fetchall()
            for (source, beginning), (text,) in zip(unknown, rows, strict=True):
                # The letter of the source is removed here, because the server would take a third of the time of reading
                # the words for it.
                own = words[source, beginning] = f" {text} ".replace(f" {source.kind.prefix}", " ") if text else " "
                self._vocabularies.put((tenant, source.table, beginning), source.version, own)
        return ["".join([words[key] or "" for key in keys]) for keys in wanted]

    def _count_rows(self, words: Sequence[Sequence[str]]) -> list[dict[str, int]]:
        """Words of deleted rows have none and are left out."""
        wanted = [(source, word) for source, own in zip(self._indexes, words, strict=True) for word in own]
        counts: dict[EntryWords, dict[str, int]] = {source: {} for source in self._indexes}
        if wanted:
            matches = [quote_lexeme(TENANT_MARK + source.kind.prefix + word) for source, word in wanted]
            rows = self._connection.execute(_COUNTS_AND_FIRST, (matches,)).fetchall()
            for (source, word), (count, first) in zip(wanted, rows, strict=True):
                if count:
                    counts[source][word], self._first[source, word] = count, first
        return [counts[source] for source in self._indexes]

    def _find_texts(self, tokens: Mapping[str, str]) -> dict[str, str]:
        """If an index has no text for a stem, the next one is tried. The statement has the same text whatever is
        wanted, because planning it takes the server longer than running it."""
        untried = {near: [*self._indexes_of[near]] for near in tokens}
        texts: dict[str, str] = {}
        while wanted := {near: left.pop(0) for near, left in untried.items() if left and near not in texts}:
            rowids: dict[EntryWords, list[int]] = {source: [] for source in self._indexes}
            for near, source in wanted.items():
                rowids[source].append(self._first[source, near])
            selects = [(source, sql) for source in self._indexes for sql in source.kind.sources]
            queries = [
                (sql, (rowids[source], [-rowid for rowid in rowids[source]])[: 1 + ("?2" in sql)])
                for source, sql in selects
            ]
            forms: dict[tuple[EntryWords, int], list[str]] = {}
            for (source, _), rows in zip(selects, self._connection.fetch_together(queries), strict=True):
                for rowid, *columns in rows:
                    forms.setdefault((source, rowid), []).extend(columns)
            for near, source in wanted.items():
                if text := " ".join(forms.get((source, self._first[source, near]), ())):
                    texts[near] = text
        return texts


_COUNTS_MAX = 5_000
_TURN_MAX_S = 0.5
# The same with the state of the index, for the first statement of a search, and with the first candidates of all
# sources. What is not read is NULL: in a large library terms of other sources and candidates, because a slow source
# must not hold up the others, and the numbers of entries unless they are wanted.
_STATE_AND_COUNTS = f"""
    WITH entries AS MATERIALIZED (SELECT {IS_SMALL_SQL} AS is_small)
    SELECT value, is_small, {SEGMENT_VERSION_SQL},
        ARRAY(SELECT CASE WHEN wanted.place <= CAST(?1 AS INTEGER) OR is_small THEN (
                SELECT count(*) FROM index_entries e WHERE e.tsv @@ {tsquery("wanted.match")}) END
            FROM unnest(CAST(?2 AS TEXT[])) WITH ORDINALITY AS wanted (match, place) ORDER BY wanted.place),
        CASE WHEN CAST(?3 AS BOOLEAN) AND is_small THEN ARRAY(
            SELECT ARRAY[kind, count(*)] FROM index_entries GROUP BY kind) END
"""
# What a transaction knows its searches by.
SEARCHES = "searches"
_COUNT_ROWS = "SELECT count(*) FROM index_entries WHERE kind = ?"
_COUNT_ALL_ROWS = "SELECT kind, count(*) FROM index_entries GROUP BY kind"

Parameters = tuple[str | int | float | list[str], ...]


@lru_cache
def _state_and_pages(pages: tuple[tuple[str, int], ...]) -> str:
    columns, first = [], 4
    for sql, count in pages:
        page = number_parameters(sql, first, "?")
        columns.append(f", CASE WHEN is_small THEN {rows_as_json(page)} END")
        first += count
    return f"{_STATE_AND_COUNTS}{''.join(columns)} FROM state, entries WHERE name = 'writes'"


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

    def read_ahead(self, connection: LibraryConnection, query: ParsedQuery | None = None) -> None:
        """Reads what the searches of a call begin with, in one statement. Its text is the same for most searches, so
        that the server plans it once: one that is made of the sources with matches took it 1 to 12 ms. `query`
        replaces the query of all searches."""
        state = known_index_state(connection)
        if state is not None and not state.is_small:
            return
        matches: list[str] = []
        pages: list[Statement] = []
        queries: dict[ParsedQuery, None] = {}
        for work in connection.known.get(SEARCHES, ()):
            search = work.search if query is None else replace(work.search, query=query, corpus=None)
            target = work.collection.target
            is_fused = not isinstance(work.meaning, SemanticStatus)
            text_search = work.collection.text_search(connection, search)
            window = (0, text_search.head_rows) if is_fused else (search.offset, search.limit)
            first = text_search.first_page(*window)
            if first is None or search.ranking == "meaning":
                continue
            match_sql, page = first
            pages.append(match_sql.select_candidates(*page))
            words = [TSQUERY.match_text(term.word, target, search.fields) for term in search.query.terms]
            prefix = ENTRY_KINDS[target.index.table].prefix
            matches += [for_index(match, prefix) for match in (*words, match_sql.tier.match)]
            queries[search.query] = None
        for read in queries:
            tokens = [single_token(term.word) for term in read.terms] if can_have_near_terms(read) else []
            # What is counted if a word turns out to be unknown.
            compounds = [compound for token in tokens if token and (compound := compound_of(token)) is not None]
            for word in (*[term.word for term in read.terms], *compounds):
                matches += [for_index(TSQUERY.match_text(word), kind.prefix) for kind in self._kinds]
        if pages:
            self._read_state(connection, (), matches, pages)

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

    def count(self, connection: LibraryConnection, _index: TextIndex, sql: str, parameters: Parameters) -> int:
        return self._count(connection, sql, parameters)

    def _count(self, connection: LibraryConnection, sql: str, parameters: Parameters) -> int:
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

    def vocabulary(self, connection: LibraryConnection, own_index: TextIndex, words_max: int) -> EntryVocabulary:
        """Human-only messages are read only if their own index is searched."""
        self._require_state(connection)
        known, kinds = self._known, {kind.index: kind for kind in self._kinds}
        kinds[own_index.table] = ENTRY_KINDS[own_index.table]
        version = known.version.encode()
        sources = [EntryWords(kind, version, self._count_rows(connection, kind)) for _, kind in sorted(kinds.items())]
        return EntryVocabulary(sources, known.near_words, words_max, connection, known.vocabularies)

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

    def _read_state(
        self,
        connection: LibraryConnection,
        own: Sequence[str],
        others: Sequence[str],
        pages: Sequence[Statement] = (),
    ) -> None:
        """Reads the state of the index, counts what is not known, and reads the pages, in one statement."""
        with self._known.turn():
            known = self._known
            unknown = [match for match in dict.fromkeys(own) if match not in known.matches]
            own_count = len(unknown)
            unknown += [match for match in dict.fromkeys(others) if match not in known.matches and match not in unknown]
            # A single term is not weighted, so that the number of rows is not needed.
            needs_rows = (len(own) > 1 or bool(pages)) and not known.has_rows
            if not unknown and not needs_rows and not pages:
                return
            sql = _state_and_pages(tuple([(sql, len(parameters)) for sql, parameters in pages]))
            parameters = (own_count, unknown, needs_rows, *[value for _, own in pages for value in own])
            row = connection.execute(sql, parameters).fetchone()
            if row is None:
                return
            version, is_small, segment_version, counts, rows, *candidates = row
            save_index_state(connection, IndexState(str(version), is_small, segment_version))
            known.refresh(str(version))
            known.matches.update(
                (match, count) for match, count in zip(unknown, counts, strict=True) if count is not None
            )
            if rows is not None:
                known.save_rows(dict(rows))
            if is_small:
                connection.known.update(zip(pages, map(decode_rows, candidates), strict=True))

    def _count_rows(self, connection: LibraryConnection, kind: EntryKind) -> int:
        self._require_state(connection)
        known = self._known.statements
        if (_COUNT_ROWS, (kind.number,)) not in known and index_state(connection).is_small:
            with self._known.turn():
                if (_COUNT_ROWS, (kind.number,)) not in known:
                    self._known.save_rows(dict(connection.execute(_COUNT_ALL_ROWS).fetchall()))
        return self._count(connection, _COUNT_ROWS, (kind.number,))

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
