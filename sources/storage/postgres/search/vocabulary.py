"""The words of one source of a library."""

from collections.abc import Sequence

from config.postgres.connection import PostgresConnection
from sources.storage.postgres.index.entries import EntryKind
from sources.storage.postgres.index.index_tokens import index_tokens
from sources.storage.postgres.index.tsvector import quote_lexeme
from sources.storage.search.vocabulary import word_beginnings
from sources.storage.search.vocabulary_memory import VocabularyMemory

_LAST = "\U0010ffff"
_WORDS = """
    SELECT coalesce(string_agg(substr(word, 2), ' '), '')
    FROM (SELECT word FROM index_words WHERE word >= ? AND word < ? LIMIT ?) AS word
"""
_COUNTS = """
    SELECT wanted.word, (SELECT count(*) FROM index_entries e WHERE e.tsv @@ CAST(wanted.match AS TSQUERY))
    FROM unnest(CAST(? AS TEXT[]), CAST(? AS TEXT[])) AS wanted (word, match)
"""
_ROW = "SELECT id FROM index_entries WHERE tsv @@ CAST(? AS TSQUERY) LIMIT 1"


class EntryVocabulary:
    """Implements `IndexWords`. `rows` is the number of entries of the source."""

    def __init__(
        self, connection: PostgresConnection, kind: EntryKind, memory: VocabularyMemory, version: str, rows: int
    ) -> None:
        self._connection = connection
        self._kind = kind
        self._memory = memory
        self._rows = rows
        self.table = kind.index
        self.version = version.encode()

    def words_like(self, word: str, words_max: int) -> str:
        return "".join([self._words(beginning, words_max) for beginning in word_beginnings(word, self._rows)])

    def count_rows(self, words: Sequence[str]) -> dict[str, int]:
        if not words:
            return {}
        matches = [quote_lexeme(self._kind.prefix + word) for word in words]
        rows = self._connection.execute(_COUNTS, (list(words), matches)).fetchall()
        # Words of deleted rows have none.
        return {word: count for word, count in rows if count}

    def find_text(self, token: str) -> str | None:
        match = " <-> ".join([quote_lexeme(self._kind.prefix + lexeme) for lexeme in index_tokens(token)])
        row = self._connection.execute(_ROW, (match,)).fetchone() if match else None
        if row is None:
            return None
        forms = [form for sql in self._kind.sources for form in self._forms(sql, row[0])]
        return " ".join(forms)

    def _forms(self, sql: str, rowid: int) -> list[str]:
        parameters = ([rowid], [-rowid]) if "?2" in sql else ([rowid],)
        return [form for _, *forms in self._connection.execute(sql, parameters) for form in forms]

    def _words(self, beginning: str, words_max: int) -> str:
        key = (self._connection.schema, self.table, beginning)
        words = self._memory.get(key, self.version)
        if words is None:
            first = self._kind.prefix + beginning
            [text] = self._connection.execute(_WORDS, (first, first + _LAST, words_max)).fetchone() or ("",)
            words = f" {text} " if text else " "
            self._memory.put(key, self.version, words)
        return words
