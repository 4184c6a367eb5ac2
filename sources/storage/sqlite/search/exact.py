"""Searches messages by their exact words, with FTS5's own query language and bm25.

No input raises an error: an expression that FTS5 cannot parse is searched as words. Human-only messages have an index
of their own, which only people search.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import sqlite3
from collections.abc import Mapping, Sequence
from heapq import nlargest

from msgspec.structs import replace

from sources.records import MessageHits
from sources.storage.contract import ExactSearch, MessageSearch
from sources.storage.search.exact_expression import ExactMatch, ExactMatches, merge_matches, run_expression
from sources.storage.search.exact_snippets import read_phrases
from sources.storage.sqlite.index.message_index import MessageIndex
from sources.storage.sqlite.search.substring import IS_LIVE, NEWEST_FIRST, SubstringMatches
from sources.storage.tables.conversation_tables import message_filter
from sources.storage.tables.sql import SqlFilter, contains_ignoring_case, either, equals
from sources.storage.tables.validation import clamp_count, is_storable

# Matches from which it is estimated how common an expression is.
_SAMPLE_ROWS = 2_000

_OPTIONS = "content='', tokenize='unicode61'"
_TEXT_EXPRESSION = "separate_letters({})"
EXACT_INDEX = MessageIndex(
    table="exact_index",
    column="content",
    options=_OPTIONS,
    version="3",
    text_expression=_TEXT_EXPRESSION,
)
HUMAN_ONLY_EXACT_INDEX = MessageIndex(
    table="human_only_exact_index",
    column="content",
    options=_OPTIONS,
    version="2",
    text_expression=_TEXT_EXPRESSION,
    is_human_only=True,
)

_IN_ALL = "FROM {index} WHERE {index} MATCH :match"
# The messages of a conversation usually have neighbouring rowids, so the range excludes most others.
_IN_CONVERSATION = """
    FROM {index} CROSS JOIN messages m ON m.id = {index}.rowid
    WHERE {index} MATCH :match AND {index}.rowid BETWEEN :first AND :last AND m.conversation_id = :conversation
"""
_CONVERSATION_RANGE = """
    SELECT c.id, min(m.id), max(m.id) FROM conversations c JOIN messages m ON m.conversation_id = c.id
    WHERE c.uuid = ? AND c.deleted = 0 GROUP BY c.id
"""

_Parameters = Mapping[str, str | int]


def find(
    connection: sqlite3.Connection,
    search: ExactSearch,
    ranked_rows_max: int,
    indexes: Sequence[MessageIndex] = (EXACT_INDEX,),
) -> ExactMatches:
    """The indexes must exist."""
    matches, *others = [_find(connection, search, ranked_rows_max, index) for index in indexes]
    for other in others:
        matches = merge_matches(matches, other, clamp_count(search.limit))
    return matches


def _find(
    connection: sqlite3.Connection, search: ExactSearch, ranked_rows_max: int, index: MessageIndex
) -> ExactMatches:
    index_search = _IndexSearch(connection, search, ranked_rows_max, index.table)

    def run(expression: str) -> ExactMatches | None:
        try:
            return index_search.run(expression)
        except sqlite3.OperationalError as error:
            # Other codes are not about the expression but about the file or the deadline.
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
            return None

    matches, read_as = run_expression(search, run)
    return replace(matches or ExactMatches(), read_as=read_as)


class _IndexSearch:
    """One search in one index."""

    def __init__(self, connection: sqlite3.Connection, search: ExactSearch, ranked_rows_max: int, index: str) -> None:
        self._connection = connection
        self._search = search
        self._ranked_rows_max = ranked_rows_max
        self._index = index

    def run(self, match: str) -> ExactMatches:
        source = _IN_ALL
        parameters: dict[str, str | int] = {"match": match}
        if self._search.conversation_id is not None:
            conversation = _conversation_range(self._connection, self._search.conversation_id)
            if conversation is None:
                return ExactMatches()
            source, parameters = _IN_CONVERSATION, parameters | conversation
        is_common = source is _IN_ALL and self._seems_common(parameters)
        source = source.format(index=self._index)
        is_ranked = not is_common and self._rowid_of_nth_match(source, parameters, self._ranked_rows_max) is None
        rank, order = (f"{self._index}.rank",) * 2 if is_ranked else ("0.0", f"{self._index}.rowid DESC")
        sql = f"SELECT {self._index}.rowid, {rank} {source} ORDER BY {order} LIMIT :limit"
        rows = self._connection.execute(sql, parameters | {"limit": clamp_count(self._search.limit)})
        return ExactMatches(tuple(ExactMatch(*row) for row in rows), read_phrases(match), is_ranked=is_ranked)

    def _seems_common(self, parameters: _Parameters) -> bool:
        """Whether, judging from the oldest messages, at least twice as many messages match as are ranked. Counting all
        matches would take longer than finding the newest ones."""
        if self._ranked_rows_max <= _SAMPLE_ROWS:
            return False
        sample_end = self._rowid_of_nth_match(_IN_ALL.format(index=self._index), parameters, _SAMPLE_ROWS)
        [newest] = self._connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()
        return sample_end is not None and bool(2 * self._ranked_rows_max * sample_end <= _SAMPLE_ROWS * newest)

    def _rowid_of_nth_match(self, source: str, parameters: _Parameters, number: int) -> int | None:
        """Counts from 0 at the oldest match."""
        # Skipping rows takes half the time of counting them.
        sql = f"SELECT {self._index}.rowid {source} ORDER BY {self._index}.rowid LIMIT 1 OFFSET :number"
        row = self._connection.execute(sql, {**parameters, "number": number}).fetchone()
        return None if row is None else int(row[0])


def _conversation_range(connection: sqlite3.Connection, conversation_id: str) -> dict[str, str | int] | None:
    if not is_storable(conversation_id):
        return None
    row = connection.execute(_CONVERSATION_RANGE, (conversation_id,)).fetchone()
    return None if row is None else dict(zip(("conversation", "first", "last"), row, strict=True))


# -- full scan ---------------------------------------------------------------------------------------------------------
# Scans all messages for a text in the order in which the file stores them. That takes about a microsecond per message,
# a tenth of reading them in the order of their age.


class FullScan:
    """A scan in steps of `rows_per_step` rowids, from the highest one down. `newest` are matches already known. For
    an agent, human-only messages are left out."""

    def __init__(self, search: MessageSearch, rows_per_step: int, newest: MessageHits, *, is_agent: bool) -> None:
        self.is_complete = False
        self._rows_per_step = rows_per_step
        self._limit = clamp_count(search.limit)
        self._filter = message_filter(search) & equals("c.uuid", search.conversation_id) & _contains_text(search)
        if is_agent:
            self._filter &= SqlFilter(("m.human_only = 0",))
        # Time and rowid of the newest matches, newest first.
        self._matches = [(hit.message.created_at, hit.message.number) for hit in newest.hits]
        self._last: int | None = None

    def step(self, connection: sqlite3.Connection) -> None:
        last = self._last if self._last is not None else _highest_rowid(connection)
        first = last - self._rows_per_step + 1
        rows = connection.execute(
            "SELECT m.created_at, m.id FROM messages m NOT INDEXED "
            "CROSS JOIN conversations c ON c.id = m.conversation_id "
            f"WHERE m.id BETWEEN ? AND ? AND {IS_LIVE}{self._filter.sql} {NEWEST_FIRST} LIMIT ?",
            (first, last, *self._filter.parameters, self._limit),
        )
        self._matches = nlargest(self._limit, {*self._matches, *rows})
        self._last = first - 1
        self.is_complete = first <= 1

    def matches(self) -> SubstringMatches:
        """Returns what was found so far."""
        return SubstringMatches(tuple(rowid for _, rowid in self._matches), self.is_complete)


def _highest_rowid(connection: sqlite3.Connection) -> int:
    [rowid] = connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()
    return int(rowid)


def _contains_text(search: MessageSearch) -> SqlFilter:
    text = (search.text or "").casefold()
    in_content = contains_ignoring_case("m.content", text)
    return either(in_content, contains_ignoring_case("c.title", text)) if search.in_titles else in_content
