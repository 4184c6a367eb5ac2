"""Searches messages by their exact words, with FTS5's own query language, bm25 and snippets.

No input raises an error: an expression that FTS5 cannot parse is searched as words.
"""

import sqlite3
import unicodedata
from collections.abc import Mapping
from html import escape
from secrets import token_hex

from msgspec import Struct
from msgspec.structs import replace

from sources.storage.contract import ExactSearch
from sources.storage.sqlite.index.message_index import MessageIndex
from sources.storage.sqlite.write.validation import clamp_count, is_storable

_SNIPPET_TOKENS = 20
# Words taken from text that is not a valid expression.
_WORDS_MAX = 64
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

_SNIPPET = "snippet(exact_index, 0, :opening, :closing, '…', :tokens)"
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
    """A matching message; `snippet` is HTML."""

    rowid: int
    snippet: str
    rank: float


class ExactMatches(Struct, frozen=True):
    """`read_as` is set if the expression was searched as words."""

    matches: tuple[ExactMatch, ...] = ()
    read_as: str | None = None
    is_ranked: bool = True


def find(connection: sqlite3.Connection, search: ExactSearch, ranked_rows_max: int) -> ExactMatches:
    """The index must exist."""
    expression = search.expression
    # FTS5 takes a leading `*` as a command, not as an expression.
    if expression.strip() and is_storable(expression) and not expression.lstrip().startswith("*"):
        try:
            return _find(connection, search, expression, ranked_rows_max)
        except sqlite3.OperationalError as error:
            # Other codes are not about the expression but about the file or the deadline.
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
    words = _quoted_words(expression)
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
    sql = f"SELECT exact_index.rowid, {_SNIPPET}, {rank} {source} ORDER BY {order} LIMIT :limit"
    matches = _select_with_snippets(connection, sql, parameters | {"limit": clamp_count(search.limit)})
    return ExactMatches(matches, is_ranked=is_ranked)


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


def _select_with_snippets(connection: sqlite3.Connection, sql: str, parameters: _Parameters) -> tuple[ExactMatch, ...]:
    # Random markers cannot be part of a stored text.
    opening, closing = (f"\ue000{token_hex(8)}" for _ in range(2))
    markers = {"opening": opening, "closing": closing, "tokens": _SNIPPET_TOKENS}
    return tuple(
        ExactMatch(rowid, escape(snippet).replace(opening, "<mark>").replace(closing, "</mark>"), rank)
        for rowid, snippet, rank in connection.execute(sql, {**parameters, **markers})
    )


def _conversation_range(connection: sqlite3.Connection, conversation_id: str) -> dict[str, str | int] | None:
    if not is_storable(conversation_id):
        return None
    row = connection.execute(_CONVERSATION_RANGE, (conversation_id,)).fetchone()
    return None if row is None else dict(zip(("conversation", "first", "last"), row, strict=True))


def _quoted_words(text: str) -> str:
    """Returns an expression of all words, each quoted so that none is syntax. Words without a letter or digit are
    omitted."""
    if not is_storable(text):
        text = "".join(character if is_storable(character) else " " for character in text)
    words = [word for word in text.split() if word not in _OPERATORS and any(map(_is_token_character, word))]
    quoted = (word.replace('"', " ").strip() for word in words[:_WORDS_MAX])
    return " AND ".join(f'"{word}"' for word in quoted)


def _is_token_character(character: str) -> bool:
    """As defined by FTS5's unicode61 tokenizer."""
    category = unicodedata.category(character)
    return category[0] in "LN" or category == "Co"
