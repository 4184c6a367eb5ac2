"""The words of the sources of a library."""

from collections.abc import Mapping, Sequence
from typing import Any

from config.postgres.connection import PostgresConnection
from sources.storage.postgres.index.entries import EntryKind
from sources.storage.postgres.index.index_tokens import index_tokens
from sources.storage.postgres.index.tsvector import quote_lexeme
from sources.storage.postgres.search.tsquery import NOTHING
from sources.storage.search.vocabulary import LibraryVocabulary, NearWordsMemory, word_beginnings
from sources.storage.search.vocabulary_memory import VocabularyMemory
from sources.storage.tables.sql import Statement

# SQL and its parameters, which may be arrays.
Query = tuple[str, Sequence[Any]]

_LAST = "\U0010ffff"
_WORDS = """
    SELECT (SELECT coalesce(string_agg(word, ' '), '')
        FROM (SELECT word FROM index_words WHERE word >= wanted.first AND word < wanted.last LIMIT ?1) AS word)
    FROM unnest(CAST(?2 AS TEXT[]), CAST(?3 AS TEXT[])) WITH ORDINALITY AS wanted (first, last, place)
    ORDER BY wanted.place
"""
_COUNTS = """
    SELECT (SELECT count(*) FROM index_entries e WHERE e.tsv @@ CAST(wanted.match AS TSQUERY))
    FROM unnest(CAST(? AS TEXT[])) WITH ORDINALITY AS wanted (match, place) ORDER BY wanted.place
"""
_ROW = "SELECT id FROM index_entries WHERE tsv @@ CAST(? AS TSQUERY) LIMIT 1"


class EntryVocabulary:
    """Implements `IndexWords`. `rows` is the number of entries of the source."""

    def __init__(
        self, connection: PostgresConnection, kind: EntryKind, memory: VocabularyMemory, version: str, rows: int
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
        match = " <-> ".join([quote_lexeme(self._kind.prefix + lexeme) for lexeme in index_tokens(token)])
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
        return self._memory.get((self.connection.schema, self.table, beginning), self.version)

    def save_words(self, beginning: str, words: str) -> None:
        self._memory.put((self.connection.schema, self.table, beginning), self.version, words)


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
        matches = [quote_lexeme(sources[index].lexeme(word)) for index, word in wanted]
        rows = sources[0].connection.execute(_COUNTS, (matches,)).fetchall()
        for (index, word), (count,) in zip(wanted, rows, strict=True):
            if count:
                counts[index][word] = count
    return counts
