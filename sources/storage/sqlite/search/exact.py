"""Messages by the words in them as they stand: FTS5's own language, bm25 and snippets. Nothing that is typed raises:
what FTS5 cannot read is read again as words."""

import sqlite3
import unicodedata
from collections.abc import Mapping
from html import escape
from secrets import token_hex

from msgspec import Struct
from msgspec.structs import replace

from sources.storage.contract import ExactSearch
from sources.storage.sqlite.index.message_index import MessageIndex
from sources.storage.sqlite.write.validation import count, is_storable

_SNIPPET_TOKENS = 20
# Of what could not be read as an expression.
_WORDS_MAX = 64
_NO_WORD = "searched for nothing; the expression contains no words"
# Matches from which it is told how common an expression is.
_SAMPLE_ROWS = 2_000
_OPERATORS = frozenset(("AND", "OR", "NOT", "NEAR"))

EXACT_INDEX = MessageIndex(
    table="exact_index",
    column="content",
    options="content='exact_index_source', content_rowid='id', tokenize='unicode61'",
    version="1",
)

_SNIPPET = "snippet(exact_index, 0, :opening, :closing, '…', :tokens)"
_ANYWHERE = "FROM exact_index WHERE exact_index MATCH :match"
# The messages of a conversation mostly stand together, so that few others are read with them.
_WITHIN = """
    FROM exact_index CROSS JOIN messages m ON m.id = exact_index.rowid
    WHERE exact_index MATCH :match AND exact_index.rowid BETWEEN :first AND :last AND m.conversation_id = :conversation
"""
_CONVERSATION = """
    SELECT c.id, min(m.id), max(m.id) FROM conversations c JOIN messages m ON m.conversation_id = c.id
    WHERE c.uuid = ? AND c.deleted = 0 GROUP BY c.id
"""


class Match(Struct, frozen=True):
    """A message by its number."""

    number: int
    snippet: str
    rank: float


class Matches(Struct, frozen=True):
    found: tuple[Match, ...] = ()
    read_as: str | None = None
    is_ranked: bool = True


def find(connection: sqlite3.Connection, search: ExactSearch, ranked_rows_max: int) -> Matches:
    """To be called where the index is there."""
    if search.expression.strip() and is_storable(search.expression) and not search.expression.lstrip().startswith("*"):
        try:
            return _find(connection, search, search.expression, ranked_rows_max)
        except sqlite3.OperationalError as error:
            # Any other code is about the file or the time, and not about what was typed.
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
    words = _words(search.expression)
    if not words:
        return Matches(read_as=_NO_WORD)
    return replace(_find(connection, search, words, ranked_rows_max), read_as=words)


def _find(connection: sqlite3.Connection, search: ExactSearch, match: str, ranked_rows_max: int) -> Matches:
    matching = _ANYWHERE
    parameters: dict[str, str | int] = {"match": match}
    if search.conversation_id is not None:
        place = _place(connection, search.conversation_id)
        if place is None:
            return Matches()
        matching, parameters = _WITHIN, parameters | place
    is_common = matching is _ANYWHERE and _looks_common(connection, parameters, ranked_rows_max)
    is_ranked = not is_common and _nth(connection, matching, parameters, ranked_rows_max) is None
    rank, order = ("exact_index.rank", "exact_index.rank") if is_ranked else ("0.0", "exact_index.rowid DESC")
    sql = f"SELECT exact_index.rowid, {_SNIPPET}, {rank} {matching} ORDER BY {order} LIMIT :limit"
    return Matches(_marked(connection, sql, parameters | {"limit": count(search.limit)}), is_ranked=is_ranked)


def _looks_common(connection: sqlite3.Connection, parameters: Mapping[str, str | int], many: int) -> bool:
    """Whether so many of the oldest messages match that, if the others are like them, twice as many do as are ranked.
    To count them would take longer than to find the newest."""
    if many <= _SAMPLE_ROWS:
        return False
    reach = _nth(connection, _ANYWHERE, parameters, _SAMPLE_ROWS)
    newest: int = connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0]
    return reach is not None and 2 * many * reach <= _SAMPLE_ROWS * newest


def _nth(connection: sqlite3.Connection, matching: str, parameters: Mapping[str, str | int], place: int) -> int | None:
    """The number of the match at a place, counted from 0 at the oldest."""
    # To skip rows takes half the time of counting them.
    sql = f"SELECT exact_index.rowid {matching} ORDER BY exact_index.rowid LIMIT 1 OFFSET :place"
    found = connection.execute(sql, {**parameters, "place": place}).fetchone()
    return None if found is None else int(found[0])


def _marked(connection: sqlite3.Connection, sql: str, parameters: Mapping[str, str | int]) -> tuple[Match, ...]:
    """What a statement finds, with its snippets as HTML."""
    # Nobody can write a text with these marks in it.
    opening, closing = (f"\ue000{token_hex(8)}" for _ in range(2))
    marks = {"opening": opening, "closing": closing, "tokens": _SNIPPET_TOKENS}
    return tuple(
        Match(number, escape(snippet).replace(opening, "<mark>").replace(closing, "</mark>"), rank)
        for number, snippet, rank in connection.execute(sql, {**parameters, **marks})
    )


def _place(connection: sqlite3.Connection, conversation_id: str) -> dict[str, str | int] | None:
    if not is_storable(conversation_id):
        return None
    found = connection.execute(_CONVERSATION, (conversation_id,)).fetchone()
    return None if found is None else dict(zip(("conversation", "first", "last"), found, strict=True))


def _words(text: str) -> str:
    """All words of a text, each quoted, so that none is syntax; those that hold no letter and no digit are left out."""
    if not is_storable(text):
        text = "".join(character if is_storable(character) else " " for character in text)
    words = [word for word in text.split() if word not in _OPERATORS and any(map(_is_of_token, word))]
    quoted = (word.replace('"', " ").strip() for word in words[:_WORDS_MAX])
    return " AND ".join(f'"{word}"' for word in quoted)


def _is_of_token(character: str) -> bool:
    """As FTS5's unicode61 sees it."""
    category = unicodedata.category(character)
    return category[0] in "LN" or category == "Co"
