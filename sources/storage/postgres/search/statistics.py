"""How many entries of the index contain a term, kept until the index changes.

A term is weighted by how rare it is among the entries of its source. In a source with few entries that is unreliable,
so those of the whole library are counted instead.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from config.postgres.connection import rows_as_json
from sources.query import AllOf, ParsedQuery, Word
from sources.query.parser import can_have_near_terms, terms_max
from sources.records import SemanticStatus
from sources.storage.collections.collection import SearchWork
from sources.storage.contract import Corpus, Search
from sources.storage.postgres.connection import LibraryConnection
from sources.storage.postgres.index.entries import (
    ENTRY_KINDS,
    SIZE_SQL,
    STATE_COLUMNS,
    EntryKind,
    IndexState,
    decode_counts,
    index_state,
    read_forms,
)
from sources.storage.postgres.search.tsquery import (
    TENANT_MARK,
    compile_tsquery,
    for_index,
    quote_lexeme,
    tsquery,
    words_of,
)
from sources.storage.postgres.search.tsquery_engine import TSQUERY, EntrySql
from sources.storage.search.engine import OWN_ROWS_MIN
from sources.storage.search.vocabulary import (
    LibraryVocabulary,
    NearWordsMemory,
    VocabularyMemory,
    compound_of,
    single_token,
    word_beginnings,
)
from sources.storage.tables.sql import TextIndex
from sources.text.segmentation import stem

# -- vocabulary --------------------------------------------------------------------------------------------------------
# The words of the sources of a library.

_LAST = "\U0010ffff"
_WORDS = """
    SELECT (SELECT coalesce(string_agg(word, ' '), '')
        FROM (SELECT word FROM index_words WHERE word >= wanted.first AND word < wanted.last
            ORDER BY word LIMIT ?1) AS word)
    FROM unnest(CAST(?2 AS TEXT[]), CAST(?3 AS TEXT[])) WITH ORDINALITY AS wanted (first, last, place)
    ORDER BY wanted.place
"""
# The numbers of entries that match, by kind, as JSON.
_COUNTED = f"""
    coalesce((SELECT CAST(json_object_agg(kind, entries) AS TEXT) FROM (
        SELECT kind, count(*) AS entries FROM matched_entries e WHERE e.tsv @@ {tsquery("wanted.match")} GROUP BY kind
    ) AS counted), '{{}}')
"""
_COUNTS = f"""
    SELECT {_COUNTED} FROM unnest(CAST(? AS TEXT[])) WITH ORDINALITY AS wanted (match, place) ORDER BY wanted.place
"""
# With the first entry, as in SQLite: the spelling of a near word is that of the text.
_COUNTS_AND_FIRST = f"""
    SELECT found.entries, found.first FROM unnest(CAST(? AS TEXT[])) WITH ORDINALITY AS wanted (match, place),
        LATERAL (SELECT count(*) AS entries, min(id) AS first FROM matched_entries e
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

    def _words_like(self, word: str, edits: int) -> list[list[str]]:
        tenant, words = self._connection.tenant or "", {}
        wanted = [[(one, text) for text in word_beginnings(word, one.rows, edits)] for one in self._indexes]
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
        return [[words[key] or "" for key in keys] for keys in wanted]

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
        """If an index has no text for a stem, the next one is tried. The statement reads from the tables of the wanted
        sources only: most stems are in one of them, and planning takes the server longer than reading."""
        untried = {near: [*self._indexes_of[near]] for near in tokens}
        texts: dict[str, str] = {}
        while wanted := {near: left.pop(0) for near, left in untried.items() if left and near not in texts}:
            rowids: dict[EntryKind, list[int]] = {}
            for near, source in wanted.items():
                rowids.setdefault(source.kind, []).append(self._first[source, near])
            forms = {(kind, rowid): columns for kind, rowid, *columns in read_forms(self._connection, rowids)}
            for near, source in wanted.items():
                if columns := forms.get((source.kind, self._first[source, near])):
                    texts[near] = " ".join(columns)
        return texts


_COUNTS_MAX = 1_000
# The same with the state of the index, for the first statement of a search, and with the first candidates of all
# sources. In a large library they are NULL, because a slow source must not hold up the others.
_STATE_AND_COUNTS = f"""
    WITH {SIZE_SQL}, counts AS MATERIALIZED (
        SELECT place, CASE WHEN is_small THEN {_COUNTED} END AS entries
        FROM unnest(CAST(?2 AS TEXT[])) WITH ORDINALITY AS wanted (match, place), size
    )
    SELECT {STATE_COLUMNS}, ARRAY(SELECT entries FROM counts ORDER BY place)
"""
# Its columns before those of the candidates.
_PAGES_FROM = 5
# Of so many words, all pairs are counted at once.
_PAIRED_MAX = 3
# What a transaction knows its searches by.
SEARCHES = "searches"
_COUNT_ROWS = "SELECT count(*) FROM index_entries WHERE kind = ?"

Parameters = tuple[str | int | float | list[str], ...]
# A compiled expression, and the kinds whose entries are counted. Every part of an expression requires a word, so that
# one query can count the entries of all kinds.
CountedMatch = tuple[str, Sequence[EntryKind]]
# The entries of a search, and the limit, the offset and the number of items of its first page.
FirstPage = tuple[EntrySql, tuple[int, int, int]]


@lru_cache
def _state_and_pages(pages: tuple[tuple[str, int], ...]) -> str:
    columns = "".join([f", CASE WHEN is_small THEN {rows} END" for rows in rows_as_json(pages, first=3)])
    return f"{_STATE_AND_COUNTS}{columns} FROM state, size WHERE name = 'writes'"


class VersionCounts(Struct):
    """What was counted in one version of the index of a library."""

    state: IndexState
    # By the compiled expression, and by the number of the kind.
    matches: dict[str, dict[int, int]] = {}
    statements: dict[tuple[str, Any], int] = {}


class IndexCounts:
    """What is known about the index of a library. All readers in this process share it."""

    def __init__(self, vocabularies: VocabularyMemory) -> None:
        self.vocabularies = vocabularies
        self.forget()

    def forget(self) -> None:
        """Called when the library was removed: another that is created in its place has the same versions."""
        self.near_words = NearWordsMemory()
        self.newest: VersionCounts | None = None

    def of(self, state: IndexState) -> VersionCounts:
        """Returns the counts of the version that a transaction sees."""
        counts = self.newest
        if (
            counts is None
            or counts.state.version != state.version
            or (len(counts.matches) + len(counts.statements) > _COUNTS_MAX)
        ):
            counts = self.newest = VersionCounts(state)
        return counts


@lru_cache
def _counted_kinds(sources: frozenset[str] | None) -> Sequence[EntryKind]:
    counted = [kind for kind in ENTRY_KINDS.values() if kind.is_counted]
    return [kind for kind in counted if sources is None or kind.collection in sources]


class EntryStatistics:
    """Implements `SearchStatistics` for one library. With `sources`, nothing of the other sources is counted or read: a
    credential restricted to some sources must not learn from scores or near words what the others contain."""

    engine = TSQUERY

    def __init__(self, known: IndexCounts, sources: frozenset[str] | None = None) -> None:
        self._known = known
        self._kinds = _counted_kinds(sources)

    def refresh(self, _connection: LibraryConnection) -> None:
        """Nothing to do: counts are looked up by the version that the transaction sees."""

    def read_ahead(self, connection: LibraryConnection, corrected: ParsedQuery | None = None) -> None:
        """Reads what the searches of a call begin with, in one statement. Its text is the same for most searches, so
        that the server plans it once: one that is made of the sources with matches took it 1 to 12 ms. `corrected`
        replaces the query of all searches. Candidates are not read if all words are unknown, but if some are: few such
        queries are corrected, and then need others."""
        state = connection.index_state
        if state is not None and not state.is_small:
            return
        kinds: dict[str, list[EntryKind]] = {}
        searches: list[tuple[SearchWork, Search]] = []
        queries: dict[ParsedQuery, bool] = {}
        for work in connection.known.get(SEARCHES, ()):
            search = work.search if corrected is None else replace(work.search, query=corrected, corpus=None)
            if search.query.expression is None or search.ranking == "meaning":
                continue
            searches.append((work, search))
            target = work.collection.target
            match_text = TSQUERY.compiler(target, search.fields)
            for term in search.query.terms:
                kinds.setdefault(match_text(term.word), []).append(ENTRY_KINDS[target.index.table])
            queries[search.query] = corrected is None and not search.is_partial and can_have_near_terms(search.query)
        counted, has_matches = self._words_ahead(connection, state, queries)
        pages: list[FirstPage] = []
        for work, search in searches if has_matches else ():
            if len(search.query.terms) > terms_max(search.query) and can_have_near_terms(search.query):
                continue  # only its rarest terms are searched for
            text_search = work.collection.text_search(connection, search)
            window = (search.offset, search.limit)
            if not isinstance(work.meaning, SemanticStatus):
                window = (0, text_search.head_rows)
            match_sql, page = text_search.first_page(*window)
            assert isinstance(match_sql, EntrySql)
            pages.append((match_sql, page))
            kinds.setdefault(match_sql.tier.match, []).append(ENTRY_KINDS[work.collection.target.index.table])
        groups = [
            (match, [*self._kinds, *[kind for kind in kinds.get(match, ()) if kind not in self._kinds]])
            for match in {**counted, **kinds}
        ]
        if state is not None and not pages:
            self._count_groups(connection, groups)
        elif queries:
            self._read_together(connection, groups, pages)

    def _words_ahead(
        self, connection: LibraryConnection, state: IndexState | None, queries: Mapping[ParsedQuery, bool]
    ) -> tuple[dict[str, None], bool]:
        """Returns what is counted in the library: the words, and what is needed if one of them is unknown, as far as
        that can be guessed. Also returns whether any word occurs. `queries` say whether they can be corrected."""
        counted: dict[str, None] = {}
        has_matches = False
        for query, can_correct in queries.items():
            lacks_words = False
            occurring: list[Word] = []
            for place, term in enumerate(query.terms):
                match = compile_tsquery(term.word)
                token = single_token(term.word) if can_correct and place not in query.time_terms else None
                counted[match] = None
                if token and (compound := compound_of(token)) is not None:
                    # What is counted if a word turns out to be unknown.
                    counted[compile_tsquery(compound)] = None
                if token and len(occurring) <= _PAIRED_MAX and self._is_unknown(connection, state, match, token):
                    lacks_words = True
                else:
                    occurring.append(term.word)
            if lacks_words and len(occurring) <= _PAIRED_MAX:
                # Near words have to occur with two others.
                counted |= {compile_tsquery(AllOf(pair)): None for pair in itertools.combinations(occurring, 2)}
            has_matches = has_matches or bool(occurring)
        return counted, has_matches

    def _is_unknown(self, connection: LibraryConnection, state: IndexState | None, match: str, token: str) -> bool:
        """Guesses whether no source has a word, by its counts or by the words that are in memory. Nothing depends on it
        but what is read together: all words are counted."""
        known = self._known.newest if state is None else self._known.of(state)
        counts = known.matches.get(match) if known is not None else None
        if counts is not None or state is None:
            return counts is not None and not any(counts.get(kind.number, 1) for kind in self._kinds)
        words, version, root = words_of(match), state.version.encode(), stem(token)
        for kind in self._kinds:
            for beginning in word_beginnings(root, state.rows.get(kind.number, 0), 1):
                text = self._known.vocabularies.get((connection.tenant or "", kind.index, beginning), version)
                if text is None or any(map(text.__contains__, words)):
                    return False
        return True

    def count_each(self, connection: LibraryConnection, index: TextIndex, matches: Sequence[str]) -> list[int]:
        if connection.index_state is None:
            self._read_together(connection, [(match, self._kinds) for match in matches], ())
        own, counts = ENTRY_KINDS[index.table], self._counts(connection)
        known: Mapping[str, Mapping[int, int]] = counts.matches
        if any(match not in known or own.number not in known[match] for match in matches):
            counted = self._kinds if counts.state.is_small and own in self._kinds else [own]
            known = self._count_groups(connection, [(match, counted) for match in matches])
        return [known[match][own.number] for match in matches]

    def count_rows(self, connection: LibraryConnection, index: TextIndex) -> int:
        return self._count_rows(connection, ENTRY_KINDS[index.table])

    def count(self, connection: LibraryConnection, _index: TextIndex | None, sql: str, parameters: Parameters) -> int:
        known = self._counts(connection).statements
        # Filters by project have arrays among their parameters.
        key = (sql, tuple(tuple(value) if isinstance(value, list) else value for value in parameters))
        if key not in known:
            [known[key]] = connection.execute(sql, parameters).fetchone() or (0,)
        return known[key]

    def count_each_in_library(
        self, connection: LibraryConnection, matches: Sequence[str], enough: int | None = None
    ) -> list[int]:
        # One statement for all sources takes less time than one for each, even if the first has enough.
        return self._sum_counts(connection, matches, self._kinds)

    def vocabulary(self, connection: LibraryConnection, own_index: TextIndex, words_max: int) -> EntryVocabulary:
        """Human-only messages are read only if their own index is searched."""
        version = index_state(connection).version.encode()
        known, kinds = self._known, {kind.index: kind for kind in self._kinds}
        kinds[own_index.table] = ENTRY_KINDS[own_index.table]
        sources = [EntryWords(kind, version, self._count_rows(connection, kind)) for _, kind in sorted(kinds.items())]
        return EntryVocabulary(sources, known.near_words, words_max, connection, known.vocabularies)

    def source_corpus(self, query: ParsedQuery, connection: LibraryConnection, index: TextIndex) -> Corpus:
        kind = ENTRY_KINDS[index.table]
        rows = self._count_rows(connection, kind)
        return self._corpus(query, connection, [kind] if rows >= OWN_ROWS_MIN else self._kinds)

    def corpus(self, query: ParsedQuery, connection: LibraryConnection) -> Corpus:
        return self._corpus(query, connection, self._kinds)

    def _corpus(self, query: ParsedQuery, connection: LibraryConnection, kinds: Sequence[EntryKind]) -> Corpus:
        matches = [compile_tsquery(term.word) for term in query.terms]
        frequencies = self._sum_counts(connection, matches, kinds)
        return Corpus(sum(self._count_rows(connection, kind) for kind in kinds), tuple(frequencies))

    def _counts(self, connection: LibraryConnection) -> VersionCounts:
        return self._known.of(index_state(connection))

    def _read_together(
        self, connection: LibraryConnection, groups: Sequence[CountedMatch], pages: Sequence[FirstPage]
    ) -> None:
        """Reads the state of the index, counts what is not known, and reads the pages, in one statement."""
        state = connection.index_state
        unknown = _unknown(groups, self._known.of(state).matches if state is not None else {})
        statements = [match_sql.select_candidates(*page) for match_sql, page in pages]
        sql = _state_and_pages(tuple([(sql, len(parameters)) for sql, parameters in statements]))
        values = [value for _, parameters in statements for value in parameters]
        row = connection.execute(sql, (state is not None, list(unknown), *values)).fetchone()
        if row is None:
            return
        *columns, counts = row[:_PAGES_FROM]
        if state is None:
            connection.index_state = IndexState.of(*columns)
        known = self._counts(connection)
        _save_counts(known.matches, unknown, counts)
        if known.state.is_small:
            for (match_sql, page), rows in zip(pages, row[_PAGES_FROM:], strict=True):
                connection.known[match_sql.page_key(*page)] = rows

    def _count_rows(self, connection: LibraryConnection, kind: EntryKind) -> int:
        state = index_state(connection)
        if state.is_small:
            return state.rows.get(kind.number, 0)
        return self.count(connection, None, _COUNT_ROWS, (kind.number,))

    def _count_groups(
        self, connection: LibraryConnection, groups: Sequence[CountedMatch]
    ) -> Mapping[str, Mapping[int, int]]:
        """Counts what is not known yet, in one statement. Returns what is."""
        known = self._counts(connection).matches
        if unknown := _unknown(groups, known):
            rows = connection.execute(_COUNTS, (list(unknown),))
            _save_counts(known, unknown, [counts for (counts,) in rows])
        return known

    def _sum_counts(
        self, connection: LibraryConnection, matches: Sequence[str], kinds: Sequence[EntryKind]
    ) -> list[int]:
        known = self._count_groups(connection, [(match, kinds) for match in matches])
        numbers = [kind.number for kind in kinds]
        return [sum([counts[number] for number in numbers]) for counts in [known[match] for match in matches]]


def _unknown(groups: Iterable[CountedMatch], known: Mapping[str, Mapping[int, int]]) -> dict[str, CountedMatch]:
    """Returns the groups that have to be counted, by the query for their entries."""
    return {
        " | ".join([for_index(match, kind.prefix) for kind in kinds]): (match, kinds)
        for match, kinds in groups
        if match not in known or not known[match].keys() >= {kind.number for kind in kinds}
    }


def _save_counts(
    known: dict[str, dict[int, int]], groups: Mapping[str, CountedMatch], counts: Sequence[str | None]
) -> None:
    for (match, kinds), text in zip(groups.values(), counts, strict=True):
        if text is not None:
            entries = decode_counts(text)
            known.setdefault(match, {}).update({kind.number: entries.get(kind.number, 0) for kind in kinds})
