"""How many rows contain a term, kept until the index that they are in changes.

A term is weighted by how rare it is among the rows of its source. In a source with few rows that is unreliable, so the
rows of all files of the library are counted instead.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import add

from loguru import logger
from msgspec import Struct

from config.errors import DATABASE_ERRORS
from sources.query import ParsedQuery, Term
from sources.storage.contract import Corpus
from sources.storage.search.engine import OWN_ROWS_MIN
from sources.storage.search.vocabulary import (
    NEAR_MAX_CHARS,
    NEAR_MIN_CHARS,
    MultiIndexVocabulary,
    NearWordsMemory,
    VocabularyMemory,
    word_beginnings,
)
from sources.storage.sqlite.connection.connection import JobConnection
from sources.storage.sqlite.connection.errors import is_damage
from sources.storage.sqlite.search.fts5_engine import FTS5, match_text
from sources.storage.tables.sql import TextIndex, json_array
from sources.text.segmentation import STOPWORDS

Parameters = tuple[str | int | float, ...]

# Stands for all rows of an index. No expression is empty: FTS5 would reject it.
_ALL_ROWS = ""


# -- index content -----------------------------------------------------------------------------------------------------
# What is known about the content of a library's full-text indexes. Those who read all of it or only some sources share
# it.
#
# It is valid for one version of an index. `PRAGMA data_version` is of no use for that: its values mean nothing to
# another connection, and it changes with every write to the file. FTS5 writes the structure of an index whenever its
# content changes, so the structure identifies the content.

# Of each index, and of other statements. A count takes about 240 bytes.
COUNTS_MAX = 1_000
# The rowids of the totals (the number of rows, and of the tokens in each column) and of the structure in the data of an
# FTS5 index (fts5_index.c).
_AVERAGES_ROWID = 1
_STRUCTURE_ROWID = 10


class IndexContent(Struct, frozen=True):
    """One version of an index, and how many of its rows match an expression. `schema` is the name of its file."""

    schema: str
    version: bytes
    counts: dict[str, int] = {}


class LibraryIndexes:
    """The indexes of one library, by the names of their tables, which differ between its files."""

    def __init__(self, vocabularies: VocabularyMemory) -> None:
        self.vocabularies = vocabularies
        self.near_words = NearWordsMemory()
        self._contents: dict[str, IndexContent] = {}

    def content(self, connection: JobConnection, schema: str, table: str) -> IndexContent:
        """Returns the content of an index that a connection sees. If readers see different versions, which they do for
        moments only, the last one is kept."""
        sql = f"SELECT id, block FROM {schema}.{table}_data WHERE id IN ({_AVERAGES_ROWID}, {_STRUCTURE_ROWID})"
        blocks: dict[int, bytes] = dict(connection.execute(sql).fetchall())
        version = b"|".join(blocks.values())
        content = self._contents.get(table)
        if content is None or content.version != version or len(content.counts) > COUNTS_MAX:
            # Counting the rows themselves would read the whole table of their sizes.
            counts = {_ALL_ROWS: _read_varints(blocks.get(_AVERAGES_ROWID, b""))[0]}
            content = self._contents[table] = IndexContent(schema, version, counts)
        return content


class LibraryFile(Struct):
    """One file of a library as its reader sees it, under the schema name by which the reader reaches it. What it holds
    is valid for one data version of one connection."""

    schema: str
    indexes: tuple[TextIndex, ...]
    data_version: tuple[str, int] = ("", 0)
    contents: dict[str, IndexContent] = {}
    # Of statements that count something else than matches.
    counts: dict[tuple[str, Parameters], int] = {}


# -- vocabulary --------------------------------------------------------------------------------------------------------
# The vocabularies of the full-text indexes of a library.
#
# Reading a word takes as long as reading the list of its rows. In a large index only the words that begin like the one
# asked for are read, and not the stop words, which have the longest lists.

_LAST = "\U0010ffff"
_SORTED_STOPWORDS = sorted(STOPWORDS)


class IndexVocabulary:
    """The words of one index, as one connection sees it."""

    def __init__(self, statistics: "CorpusStatistics", connection: JobConnection, index: TextIndex) -> None:
        self._statistics = statistics
        self._connection = connection
        self._index = index
        content = statistics.content(connection, index)
        self._schema, self.version = content.schema, content.version

    @property
    def table(self) -> str:
        return self._index.table

    def words_like(self, word: str, edits: int, words_max: int) -> list[str]:
        """Returns the vocabularies with the words that differ from a word in some letters."""
        beginnings = word_beginnings(word, self._statistics.count_rows(self._connection, self._index), edits)
        return [self._words(beginning, words_max) for beginning in beginnings]

    def count_rows(self, words: Sequence[str]) -> dict[str, int]:
        """Returns the number of rows of each of these words."""
        if not words:
            return {}
        sql = f"SELECT term, doc FROM {self._open()} WHERE term IN (SELECT value FROM json_each(?))"
        return dict(self._connection.execute(sql, (json_array(words),)).fetchall())

    def find_text(self, token: str) -> str | None:
        """Returns the indexed text of a row that contains a token."""
        table, text = self._index.table, " || ' ' || ".join(self._index.columns)
        sql = f"SELECT {text} FROM {self._schema}.{table} WHERE {table} MATCH ? LIMIT 1"
        row = self._connection.execute(sql, (f'"{token}"',)).fetchone()
        return row and str(row[0])

    def _words(self, beginning: str, words_max: int) -> str:
        """Returns at most `words_max` words. Those that are too short or too long to be near to another are left
        out."""
        library = self._statistics.library
        memory, key = library.vocabularies, (id(library), self._index.table, beginning)
        words = memory.get(key, self.version)
        if words is None:
            # As one text: fetching single rows would acquire the interpreter lock for each.
            length = f"length(term) BETWEEN {NEAR_MIN_CHARS} AND {NEAR_MAX_CHARS}"
            rows = f"SELECT term FROM {self._open()} WHERE term > ? AND term < ? AND {length} LIMIT ?"
            sql = f"SELECT group_concat(term, ' '), count(*) FROM ({rows})"
            texts = [""]
            for after, before in _gaps(beginning):
                text, count = self._connection.execute(sql, (after, before, words_max)).fetchone()
                texts += [text] if count else []
                words_max -= count
            words = " ".join([*texts, ""])
            memory.put(key, self.version, words)
        return words

    def _open(self) -> str:
        """Returns the name of the table of the words. A reader must not write, not even to its own temporary tables,
        except to create this one."""
        schema, table = self._schema, self._index.table
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


class CorpusStatistics:
    """The counts of a library.

    With `sources`, nothing of the other sources is counted or read: a credential restricted to some sources must not
    learn from scores or near words what the others contain."""

    engine = FTS5

    def __init__(self, library: LibraryIndexes, sources: frozenset[str] | None = None) -> None:
        self.library = library
        self._sources = sources
        self._files: dict[str, LibraryFile] = {}
        # The file that an index is in.
        self._kinds: dict[str, str] = {}
        # Of the current job: its connection and number, the files that it has refreshed, the content of its indexes,
        # how common terms are in the library, and corrected queries. All sources of a search need the same.
        self._job = (0, 0)
        self._refreshed: set[str] = set()
        self._contents: dict[str, IndexContent] = {}
        self._corpora: dict[tuple[str, ...], Corpus] = {}
        self._corrected: dict[str, dict[ParsedQuery, ParsedQuery | None]] = {}

    def refresh(self, connection: JobConnection) -> None:
        """Drops counts that a write made obsolete. Must be called in each job that counts."""
        job = (id(connection), connection.job_number)
        if job != self._job:
            self._refreshed.clear()
            self._contents.clear()
            self._corpora.clear()
            self._corrected.clear()
            self._job = job

    def corrected(self, connection: JobConnection, index: TextIndex) -> dict[ParsedQuery, ParsedQuery | None]:
        """Returns what queries for an index were corrected to in this job: the same for all indexes that are counted in
        the library. Words of another one, such as that of human-only messages, are near words only for itself."""
        self.refresh(connection)
        is_counted = index in self._file_of(connection, index).indexes
        return self._corrected.setdefault("" if is_counted else index.table, {})

    def count_each(self, connection: JobConnection, index: TextIndex, matches: Sequence[str]) -> list[int]:
        """Counts the rows of an index that match each of these expressions. A search asks for dozens of counts, of
        which it has to read few, in one statement."""
        content = self._contents.get(index.table) or self.content(connection, index)
        counts = content.counts
        if not counts[_ALL_ROWS]:
            return [0] * len(matches)  # most users have nothing in some of their sources
        try:
            return [*map(counts.__getitem__, matches)]
        except KeyError:
            missing = [match for match in matches if match not in counts]
        matching = f"(SELECT count(*) FROM {content.schema}.{index.table} WHERE {index.table} MATCH ?)"
        found = connection.execute(f"SELECT {', '.join([matching] * len(missing))}", missing).fetchone()
        counts.update(zip(missing, found, strict=True))
        return [*map(counts.__getitem__, matches)]

    def content(self, connection: JobConnection, index: TextIndex) -> IndexContent:
        table = index.table
        content = self._contents.get(table)
        if content is None:
            file = self._file_of(connection, index)
            content = file.contents.get(table)
            if content is None:
                content = file.contents[table] = self.library.content(connection, file.schema, table)
            self._contents[table] = content
        return content

    def count_rows(self, connection: JobConnection, index: TextIndex) -> int:
        return self.count_each(connection, index, [_ALL_ROWS])[0]

    def count(self, connection: JobConnection, index: TextIndex, sql: str, parameters: Parameters) -> int:
        """Returns the single number that a statement on the file of an index selects."""
        counts, key = self._file_of(connection, index).counts, (sql, parameters)
        count = counts.get(key)
        if count is None:
            [count] = connection.execute(sql, parameters).fetchone()
            counts[key] = count
        return count

    def count_each_in_library(
        self, connection: JobConnection, matches: Sequence[str], enough: int | None = None
    ) -> list[int]:
        """Counts the rows of all sources that match each of these expressions, or only until they are `enough`."""
        totals = dict.fromkeys(matches, 0)
        counted = [*totals]
        for file in self._readable(connection):
            for index in file.indexes:
                for match, rows in zip(counted, self.count_each(connection, index, counted), strict=True):
                    totals[match] += rows
                if enough is not None:
                    counted = [match for match in counted if totals[match] < enough]
                    if not counted:
                        return [*map(totals.__getitem__, matches)]
        return [*map(totals.__getitem__, matches)]

    def vocabulary(self, connection: JobConnection, own_index: TextIndex, words_max: int) -> MultiIndexVocabulary:
        """Returns the words of the sources, and of the searched index if it belongs to none: human-only messages are
        read only if their own index is searched. At most `words_max` words of an index are compared."""
        indexes = {index.table: index for file in self._readable(connection) for index in file.indexes}
        indexes.setdefault(own_index.table, own_index)
        # In an order that is the same whichever index is searched.
        vocabularies = [IndexVocabulary(self, connection, indexes[table]) for table in sorted(indexes)]
        return MultiIndexVocabulary(vocabularies, self.library.near_words, words_max)

    def source_corpus(self, query: ParsedQuery, connection: JobConnection, index: TextIndex) -> Corpus:
        """Returns how common the terms of a query are in an index, or, if it is small, in the library."""
        matches = _matches(query.terms)
        rows, *frequencies = self.count_each(connection, index, matches)
        if rows >= OWN_ROWS_MIN:
            return Corpus(rows, tuple(frequencies))
        if matches not in self._corpora:
            self._corpora[matches] = self._library_corpus(matches, connection)
        return self._corpora[matches]

    def corpus(self, query: ParsedQuery, connection: JobConnection) -> Corpus:
        """Returns how common the terms of a query are in the library."""
        self.refresh(connection)
        return self._library_corpus(_matches(query.terms), connection)

    def _library_corpus(self, matches: Sequence[str], connection: JobConnection) -> Corpus:
        totals = [0] * len(matches)
        for file in self._readable(connection):
            in_file = totals
            try:
                for index in file.indexes:
                    in_file = [*map(add, in_file, self.count_each(connection, index, matches))]
            except DATABASE_ERRORS as error:
                _leave_out(connection, file.schema, error)
            else:
                totals = in_file
        rows, *frequencies = totals
        return Corpus(rows, tuple(frequencies))

    def _readable(self, connection: JobConnection) -> Iterator[LibraryFile]:
        """Yields the files that are not damaged. One that no call has needed is attached when it is reached."""
        for kind in (*connection.attached, *connection.pending):
            if kind in connection.pending:
                connection.attach_pending(kind)
            attached = connection.attached.get(kind)
            if attached is not None and not attached.is_damaged:
                try:
                    file = self._file(connection, kind)
                except DATABASE_ERRORS as error:
                    _leave_out(connection, kind, error)
                else:
                    yield file

    def _file_of(self, connection: JobConnection, index: TextIndex) -> LibraryFile:
        kind = self._kinds.get(index.table)
        if kind is None:
            kind = next(kind for kind, file in connection.attached.items() if index.table in file.names)
            self._kinds[index.table] = kind
        return self._file(connection, kind)

    def _file(self, connection: JobConnection, kind: str) -> LibraryFile:
        """Returns a file, which is refreshed once per job, and only when it is needed: that starts a transaction in
        it."""
        file = self._files.get(kind)
        if file is None:
            indexes = connection.attached[kind].indexes
            permitted = [index for index in indexes if self._sources is None or index.collection in self._sources]
            file = self._files[kind] = LibraryFile(kind, tuple(permitted))
        if kind in self._refreshed:
            return file
        version = connection.id, connection.data_version(kind)
        is_valid = version == file.data_version and len(file.counts) <= COUNTS_MAX
        for content in file.contents.values():
            is_valid = is_valid and len(content.counts) <= COUNTS_MAX
        if not is_valid:
            file.counts.clear()
            file.contents.clear()
            file.data_version = version
        self._refreshed.add(kind)
        return file


# All sources of a search need the same.
@lru_cache(maxsize=64)
def _matches(terms: tuple[Term, ...]) -> tuple[str, ...]:
    """Returns the expressions that a corpus counts: all rows, then those of each term."""
    return (_ALL_ROWS, *[match_text(term.word, "") for term in terms])


def _leave_out(connection: JobConnection, kind: str, error: Exception) -> None:
    """Leaves a damaged file out for as long as the connection is open, so that the others can still be searched."""
    if not is_damage(error):
        raise error
    logger.warning("Ignoring the {} file of a library when weighting terms: {}", kind, error)
    connection.attached[kind].is_damaged = True


# -- word count --------------------------------------------------------------------------------------------------------
# How many words an index has, without reading its rows.

# Every chunk and message repeats the title of its item.
_TITLES = frozenset(("title", "name"))


def count_words(connection: JobConnection, index: TextIndex) -> int:
    """Returns the number of words in the texts of an index, without titles."""
    sql = f"SELECT block FROM {index.table}_data WHERE id = ?"
    row = connection.execute(sql, (_AVERAGES_ROWID,)).fetchone()
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
