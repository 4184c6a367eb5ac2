"""Searches messages by their exact words, with FTS5's query language.

PostgreSQL finds the messages that contain the words of any phrase, and SQLite evaluates the expression in an index of
these in memory. The result is then the same as on SQLite, except that ranks are those among the candidates.
"""

import sqlite3
from contextlib import closing
from unicodedata import normalize

from msgspec.structs import replace

from config.postgres.connection import PostgresConnection
from sources.query import AllOf, AnyOf, Expression, Phrase, Word
from sources.query.words import prefix_word
from sources.storage.contract import ExactSearch
from sources.storage.postgres.index.entries import CHAT_ENTRIES, HUMAN_ONLY_ENTRIES, EntryKind
from sources.storage.postgres.search.tsquery import MATCH, compile_tsquery, for_index, with_labels
from sources.storage.search.exact_snippets import ExactPhrase, read_phrases
from sources.storage.sqlite.index.message_index import MessageIndex
from sources.storage.sqlite.search import exact
from sources.storage.sqlite.search.exact import EXACT_INDEX, HUMAN_ONLY_EXACT_INDEX, ExactMatches
from sources.storage.tables.validation import is_storable
from sources.text.segmentation import UNSPACED_RUN, segment, separate_letters

# Messages in which the expression is evaluated at once: some hundred milliseconds.
_CANDIDATES_MAX = 5_000
# Phrases and tokens of a phrase that are looked up; more would hardly narrow the result.
_PHRASES_MAX = 64
_TOKENS_MAX = 4
_LONGER_SPELLINGS = {"net": ("dotnet",)}
# The label of a message's own text.
_OWN = "B"
_CANDIDATES = f"""
    SELECT m.id, m.content FROM index_entries e JOIN messages m ON m.id = e.id
    JOIN conversations c ON c.id = m.conversation_id
    WHERE e.tsv @@ {MATCH}{{}} ORDER BY m.id DESC LIMIT ?
"""  # noqa: S608 - constants only


def find(
    connection: PostgresConnection, search: ExactSearch, ranked_rows_max: int, *, is_agent: bool
) -> tuple[ExactMatches, bool]:
    """Returns the matches, and whether all messages were searched."""
    if not is_storable(search.conversation_id or ""):
        return ExactMatches(), True
    limit = min(ranked_rows_max, _CANDIDATES_MAX)
    parts = [(CHAT_ENTRIES, EXACT_INDEX)] + ([] if is_agent else [(HUMAN_ONLY_ENTRIES, HUMAN_ONLY_EXACT_INDEX)])
    has_more = False
    indexes: list[MessageIndex] = []
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY)")
        for kind, index in parts:
            rows = _candidates(connection, search, kind, limit + 1)
            has_more = has_more or len(rows) > limit
            if rows or index is EXACT_INDEX:
                memory.execute(f"CREATE VIRTUAL TABLE {index.table} USING fts5 ({index.column}, {index.options})")
                memory.executemany("INSERT OR IGNORE INTO messages VALUES (?)", [(rowid,) for rowid, _ in rows])
                sql = f"INSERT INTO {index.table} (rowid, {index.column}) VALUES (?, ?)"  # noqa: S608 - constant names
                memory.executemany(sql, [(rowid, separate_letters(content)) for rowid, content in reversed(rows)])
                indexes.append(index)
        everywhere = replace(search, conversation_id=None)
        matches = exact.find(memory, everywhere, 0 if has_more else max(ranked_rows_max, limit), indexes)
    return matches, not has_more or len(matches.matches) >= search.limit


def _candidates(
    connection: PostgresConnection, search: ExactSearch, kind: EntryKind, limit: int
) -> list[tuple[int, str]]:
    text = separate_letters(search.expression)
    text = "".join(character if is_storable(character) else " " for character in text)
    phrases = read_phrases(text)[:_PHRASES_MAX]
    if not phrases:
        return []
    parts = [_contains(phrase) for phrase in phrases]
    match = compile_tsquery(AnyOf(tuple(parts)) if len(parts) > 1 else parts[0])
    parameters = [with_labels(for_index(match, kind.prefix), _OWN)]
    condition = ""
    if search.conversation_id is not None:
        condition = " AND c.uuid = ?"
        parameters.append(search.conversation_id)
    return connection.execute(_CANDIDATES.format(condition), (*parameters, limit)).fetchall()


def _contains(phrase: ExactPhrase) -> Expression:
    """Matches every message that contains the phrase, and others."""
    # Folding divides Korean syllables into letters.
    tokens = [normalize("NFC", token) for token in phrase.tokens[:_TOKENS_MAX]]
    words: list[Word] = []
    for number, token in enumerate(tokens, 1):
        is_prefix = phrase.is_prefix and number == len(phrase.tokens)
        if is_prefix or UNSPACED_RUN.fullmatch(token):
            # Of scripts without spaces the index has pairs of letters, each of which begins with one letter.
            word = prefix_word(token)
        else:
            # A single letter may be that of C++ or C#, and `net` that of .NET, which are indexed as words.
            spellings = [token, *_LONGER_SPELLINGS.get(token, ())]
            if len(token) == 1 and token.isascii():
                spellings += [f"{token}plusplus", f"{token}sharp"]
            word = Word(token, tuple(Phrase(one, tuple(segment(one).split())) for one in spellings))
        words += [word] if word is not None else []
    return AllOf(tuple(words)) if len(words) > 1 else words[0] if words else Word("", (Phrase("", ()),))
