"""Scans all messages for a text in the order in which the file stores them. That takes about a microsecond per message,
a tenth of reading them in the order of their age."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import sqlite3
from heapq import nlargest

from sources.records import MessageHits
from sources.storage.contract import MessageSearch
from sources.storage.sqlite.search.substring import IS_LIVE, NEWEST_FIRST, SubstringMatches, message_filter
from sources.storage.tables.sql import SqlFilter, contains_ignoring_case, either, equals
from sources.storage.tables.validation import clamp_count


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
