"""The words of the sources of a library."""

from collections.abc import Sequence

from config.postgres.connection import PostgresConnection
from sources.storage.postgres.index.entries import EntryKind
from sources.storage.postgres.index.index_tokens import index_tokens
from sources.storage.postgres.index.tsvector import quote_lexeme
from sources.storage.search.vocabulary import LibraryVocabulary, NearWordsMemory, word_beginnings
from sources.storage.search.vocabulary_memory import VocabularyMemory

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
        match = " <-> ".join([quote_lexeme(self._kind.prefix + lexeme) for lexeme in index_tokens(token)])
        row = self.connection.execute(_ROW, (match,)).fetchone() if match else None
        if row is None:
            return None
        forms = [form for sql in self._kind.sources for form in self._forms(sql, row[0])]
        return " ".join(forms)

    def _forms(self, sql: str, rowid: int) -> list[str]:
        parameters = ([rowid], [-rowid]) if "?2" in sql else ([rowid],)
        return [form for _, *forms in self.connection.execute(sql, parameters) for form in forms]

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

    def _words_like(self, word: str) -> list[str]:
        return read_words(self._sources, word, self._words_max)

    def _count_rows(self, words: Sequence[Sequence[str]]) -> list[dict[str, int]]:
        return count_rows(self._sources, words)


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
