"""Searches messages by their exact words, with FTS5's own query language and bm25.

No input raises an error: an expression that FTS5 cannot parse is searched as words.
"""

import sqlite3
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from sources.storage.contract import ExactSearch
from sources.storage.sqlite.index.message_index import MessageIndex
from sources.storage.sqlite.search.exact_snippets import ExactPhrase, read_phrases
from sources.storage.sqlite.write.validation import clamp_count, is_storable

# How often one phrase may occur. FTS5 counts the matches of each occurrence anew, in a step that cannot be interrupted:
# sixteen times the same letter in a message of a megabyte took five seconds.
_REPEATS_MAX = 2
_NO_WORD = "searched for nothing; the expression contains no words"
# Matches from which it is estimated how common an expression is.
_SAMPLE_ROWS = 2_000
_OPERATORS = frozenset(("AND", "OR", "NOT", "NEAR"))

EXACT_INDEX = MessageIndex(
    table="exact_index",
    column="content",
    options="content='exact_index_source', content_rowid='id', tokenize='unicode61'",
    version="1",
)

_IN_ALL = "FROM exact_index WHERE exact_index MATCH :match"
# The messages of a conversation usually have neighbouring rowids, so the range excludes most others.
_IN_CONVERSATION = """
    FROM exact_index CROSS JOIN messages m ON m.id = exact_index.rowid
    WHERE exact_index MATCH :match AND exact_index.rowid BETWEEN :first AND :last AND m.conversation_id = :conversation
"""
_CONVERSATION_RANGE = """
    SELECT c.id, min(m.id), max(m.id) FROM conversations c JOIN messages m ON m.conversation_id = c.id
    WHERE c.uuid = ? AND c.deleted = 0 GROUP BY c.id
"""

_Parameters = Mapping[str, str | int]


class ExactMatch(Struct, frozen=True):
    rowid: int
    rank: float


class ExactMatches(Struct, frozen=True):
    """`read_as` is set if the expression was searched as words. `phrases` are those to highlight."""

    matches: tuple[ExactMatch, ...] = ()
    phrases: tuple[ExactPhrase, ...] = ()
    read_as: str | None = None
    is_ranked: bool = True


def find(connection: sqlite3.Connection, search: ExactSearch, ranked_rows_max: int) -> ExactMatches:
    """The index must exist. An expression with too many phrases, or one of them too often, is searched as words."""
    expression = search.expression
    # FTS5 takes a leading `*` as a command, not as an expression.
    is_expression = expression.strip() and is_storable(expression) and not expression.lstrip().startswith("*")
    if is_expression and _is_affordable(read_phrases(expression), search.phrases_max):
        try:
            return _find(connection, search, expression, ranked_rows_max)
        except sqlite3.OperationalError as error:
            # Other codes are not about the expression but about the file or the deadline.
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
    words = _quoted_words(expression, search.phrases_max)
    if not words:
        return ExactMatches(read_as=_NO_WORD)
    return replace(_find(connection, search, words, ranked_rows_max), read_as=words)


def _find(connection: sqlite3.Connection, search: ExactSearch, match: str, ranked_rows_max: int) -> ExactMatches:
    source = _IN_ALL
    parameters: dict[str, str | int] = {"match": match}
    if search.conversation_id is not None:
        conversation = _conversation_range(connection, search.conversation_id)
        if conversation is None:
            return ExactMatches()
        source, parameters = _IN_CONVERSATION, parameters | conversation
    is_common = source is _IN_ALL and _seems_common(connection, parameters, ranked_rows_max)
    is_ranked = not is_common and _rowid_of_nth_match(connection, source, parameters, ranked_rows_max) is None
    rank, order = ("exact_index.rank", "exact_index.rank") if is_ranked else ("0.0", "exact_index.rowid DESC")
    sql = f"SELECT exact_index.rowid, {rank} {source} ORDER BY {order} LIMIT :limit"
    rows = connection.execute(sql, parameters | {"limit": clamp_count(search.limit)})
    return ExactMatches(tuple(ExactMatch(*row) for row in rows), read_phrases(match), is_ranked=is_ranked)


def _seems_common(connection: sqlite3.Connection, parameters: _Parameters, ranked_rows_max: int) -> bool:
    """Whether, judging from the oldest messages, at least twice as many messages match as are ranked. Counting all
    matches would take longer than finding the newest ones."""
    if ranked_rows_max <= _SAMPLE_ROWS:
        return False
    sample_end = _rowid_of_nth_match(connection, _IN_ALL, parameters, _SAMPLE_ROWS)
    [newest] = connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()
    return sample_end is not None and bool(2 * ranked_rows_max * sample_end <= _SAMPLE_ROWS * newest)


def _rowid_of_nth_match(connection: sqlite3.Connection, source: str, parameters: _Parameters, index: int) -> int | None:
    """Counts from 0 at the oldest match."""
    # Skipping rows takes half the time of counting them.
    sql = f"SELECT exact_index.rowid {source} ORDER BY exact_index.rowid LIMIT 1 OFFSET :index"
    row = connection.execute(sql, {**parameters, "index": index}).fetchone()
    return None if row is None else int(row[0])


def _conversation_range(connection: sqlite3.Connection, conversation_id: str) -> dict[str, str | int] | None:
    if not is_storable(conversation_id):
        return None
    row = connection.execute(_CONVERSATION_RANGE, (conversation_id,)).fetchone()
    return None if row is None else dict(zip(("conversation", "first", "last"), row, strict=True))


def _is_affordable(phrases: Sequence[ExactPhrase], phrases_max: int) -> bool:
    return len(phrases) <= phrases_max and max(Counter(phrases).values(), default=0) <= _REPEATS_MAX


def _quoted_words(text: str, words_max: int) -> str:
    """Returns an expression of the first words, each quoted so that none is syntax, and each once. Words without a
    letter or digit are omitted."""
    if not is_storable(text):
        text = "".join(character if is_storable(character) else " " for character in text)
    words = [word for word in text.split() if word not in _OPERATORS and any(map(_is_token_character, word))]
    quoted = dict.fromkeys(word.replace('"', " ").strip() for word in words)
    return " AND ".join(f'"{word}"' for word in islice(quoted, words_max))


def _is_token_character(character: str) -> bool:
    """As defined by FTS5's unicode61 tokenizer."""
    category = unicodedata.category(character)
    return category[0] in "LN" or category == "Co"
